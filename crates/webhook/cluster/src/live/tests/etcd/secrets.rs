//! Tests of CA, certificate and password from Secrets, which are read by name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fake::{Fake, status as refusal};
use super::server::{Authority, Issued};
use super::*;
use crate::cause;
use crate::etcd::{Login, Material, Tls};
use crate::live::etcd::generated::{AuthenticateRequest, AuthenticateResponse};

const CLIENT: &str = "/api/v1/namespaces/shop/secrets/etcd-client";
pub(super) const USER: &str = "/api/v1/namespaces/shop/secrets/etcd-user";

pub(super) fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> =
        data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
        "metadata": {"name": name, "namespace": "shop", "uid": "s", "resourceVersion": "1"}})
}

fn material(authority: &Authority, identity: Option<&Issued>) -> Value {
    let mut data = vec![("ca.crt", authority.pem.as_str())];
    if let Some(identity) = identity {
        data.extend([("tls.crt", identity.cert.as_str()), ("tls.key", identity.key.as_str())]);
    }
    secret("etcd-client", &data)
}

fn client(login: bool) -> ClientOptions {
    let of = |name: &str| ("shop".to_owned(), name.to_owned());
    let ((namespace, name), user) = (of("etcd-client"), of("etcd-user"));
    let tls =
        Tls { material: Some(Material::Secret { namespace, name }), server_name: None, insecure: false };
    let login = login.then_some(Login { namespace: user.0, name: user.1 });
    ClientOptions { tls: Some(tls), login, open: false }
}

/// Sends a request while the API server answers for one Secret.
async fn ask_with(
    live: &Live,
    peer: &Endpoint,
    fake: &mut Fake,
    path: &str,
    code: u16,
    body: &Value,
) -> EtcdResult {
    let mut asking = std::pin::pin!(ask(live, peer, EtcdRequest::Status));
    tokio::select! {
        answer = &mut asking => panic!("the Secret was not read: {answer:?}"),
        asked = fake.asked(path) => asked.json(code, body),
    }
    asking.await
}

#[tokio::test]
async fn a_secret_is_read_by_name_once_for_all_members_and_requests() {
    let ours = Authority::new();
    let own = ours.issue(&["127.0.0.1"]);
    let first = FakeMember::tls(&own, Some(&ours), answers("3.5.16")).await;
    let second = FakeMember::tls(&own, Some(&ours), answers("3.5.16")).await;
    let (live, mut fake) = fake::live();
    let body = material(&ours, Some(&ours.issue(&["client"])));
    let answer = ask_with(&live, &peer(&first, client(false)), &mut fake, CLIENT, 200, &body).await;
    assert!(answer.is_ok(), "{answer:?}");
    for question in EtcdRequest::ALL {
        assert!(ask(&live, &peer(&second, client(false)), question).await.is_ok(), "{question:?}");
    }
    fake.was_not_asked().await;
}

#[tokio::test]
async fn a_password_is_read_from_its_secret_when_it_is_needed() {
    let ours = Authority::new();
    let answers = answers("3.6.15");
    let member = FakeMember::tls(&ours.issue(&["127.0.0.1"]), None, move |heard| {
        match (heard.call.as_str(), heard.token.as_str()) {
            (LOGIN, _) => {
                let AuthenticateRequest { name, password } = heard.message();
                assert_eq!((name.as_str(), password.as_str()), ("durward", "pw"));
                say(&AuthenticateResponse { header: HEADER, token: "t".to_owned() })
            }
            (_, "t") => answers(heard),
            _ => refuse(Code::InvalidArgument, "etcdserver: user name is empty"),
        }
    })
    .await;
    let (live, mut fake) = fake::live();
    let peer = peer(&member, client(true));
    let (answer, ()) = tokio::join!(ask(&live, &peer, EtcdRequest::Status), async {
        fake.asked(CLIENT).await.json(200, &material(&ours, None));
        let user = secret("etcd-user", &[("username", "durward"), ("password", "pw\n")]);
        fake.asked(USER).await.json(200, &user);
    });
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test]
async fn a_missing_or_incomplete_secret_is_reported_by_name() {
    let ours = Authority::new();
    let member = FakeMember::tls(&ours.issue(&["127.0.0.1"]), None, answers("3.6.15")).await;
    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
        "message": "not found", "details": {"name": "etcd-client", "kind": "secrets"}, "code": 404});
    let only_key = [("ca.crt", ours.pem.as_str()), ("tls.key", "SECRET")];
    for (code, body, says) in [
        (404, gone, "Secret shop/etcd-client does not exist"),
        (403, refusal(403, "Forbidden", "no"), "not permitted to get secrets"),
        (200, secret("etcd-client", &[("ca", "x")]), "Secret shop/etcd-client's ca.crt does not exist"),
        (200, secret("etcd-client", &only_key), "tls.crt does not exist"),
        (200, secret("etcd-client", &[("ca.crt", "SECRET")]), "ca.crt contains no PEM certificate"),
        (
            200,
            json!({"kind": "Secret", "apiVersion": "v1", "data": {"ca.crt": "%SECRET"},
            "metadata": {"name": "etcd-client", "namespace": "shop", "uid": "s"}}),
            "is invalid",
        ),
    ] {
        let (live, mut fake) = fake::live();
        let peer = peer(&member, client(false));
        let cause = ask_with(&live, &peer, &mut fake, CLIENT, code, &body).await.unwrap_err();
        assert_eq!(cause.code, cause::CREDENTIALS, "{}", cause.text);
        assert!(cause.text.contains(says) && !cause.text.contains("SECRET"), "{says}: {}", cause.text);
    }
    assert_eq!(member.calls(), [""; 0]);
}

#[tokio::test]
async fn a_replaced_ca_is_read_again_if_a_member_is_not_verified_by_the_old_one() {
    let (old, new) = (Authority::new(), Authority::new());
    let member = FakeMember::tls(&old.issue(&["127.0.0.1"]), None, answers("3.6.15")).await;
    let (live, mut fake) = fake::live();
    let before = peer(&member, client(false));
    let answer = ask_with(&live, &before, &mut fake, CLIENT, 200, &material(&old, None)).await;
    assert!(answer.is_ok(), "{answer:?}");
    // The pod was replaced, and has certificates of the new CA. Recent credentials are not read again.
    member.shows(&new.issue(&["127.0.0.1"]));
    let after = Endpoint { uid: "u-1".to_owned(), ..before };
    let cause = why(&live, &after, EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::TLS);
    fake.was_not_asked().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    let answer = ask_with(&live, &after, &mut fake, CLIENT, 200, &material(&new, None)).await;
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test]
async fn cached_credentials_survive_an_outage_but_not_a_refusal() {
    let ours = Authority::new();
    let member = FakeMember::tls(&ours.issue(&["127.0.0.1"]), None, answers("3.6.15")).await;
    let (live, mut fake) = fake::live();
    let peer = peer(&member, client(false));
    assert!(ask_with(&live, &peer, &mut fake, CLIENT, 200, &material(&ours, None)).await.is_ok());
    let later = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    later(31).await;
    let away = refusal(503, "ServiceUnavailable", "later");
    assert!(ask_with(&live, &peer, &mut fake, CLIENT, 503, &away).await.is_ok());
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok(), "the Secret is not read each time");
    fake.was_not_asked().await;
    later(6).await;
    let no = refusal(403, "Forbidden", "no");
    let cause = ask_with(&live, &peer, &mut fake, CLIENT, 403, &no).await.unwrap_err();
    assert_eq!(cause.code, cause::CREDENTIALS, "{}", cause.text);
    // Unused credentials are dropped.
    assert!(ask_with(&live, &peer, &mut fake, CLIENT, 200, &material(&ours, None)).await.is_ok());
    later(301).await;
    let cause = ask_with(&live, &peer, &mut fake, CLIENT, 503, &away).await.unwrap_err();
    assert_eq!(cause.code, cause::CREDENTIALS, "{}", cause.text);
}
