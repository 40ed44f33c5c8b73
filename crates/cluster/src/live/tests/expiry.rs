//! Expiries of certificates and tokens in kubeconfigs, Secrets and files.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use super::transport::kubeconfig;
use super::*;
use crate::Reader as _;
use crate::etcd::Material;
use crate::fleet::{Cluster, Fleet};
use crate::live::{CredentialKind as Kind, Expiry};

const URL: &str = "https://127.0.0.1:1";

/// Returns a self-signed certificate that expires at the beginning of a year, and its key.
fn certificate(year: i32) -> (String, String) {
    let mut params = CertificateParams::new(vec!["durward".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(year, 1, 1));
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Returns a token with these claims. Its signature is not checked.
fn token(claims: &Value) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// Returns the user of a kubeconfig with an inline certificate.
fn inline(year: i32) -> String {
    let (pem, key) = certificate(year);
    format!("client-certificate-data: {}, client-key-data: {}", STANDARD.encode(pem), STANDARD.encode(key))
}

/// Returns the kinds and the years, sorted.
fn years(expiries: &[Expiry]) -> Vec<(Kind, i64)> {
    // 2030-01-01 is 21,915 days after 1970.
    let year = |expiry: &Expiry| 2030 + (expiry.not_after - 21_915 * 86_400) / (365 * 86_400);
    let mut years: Vec<_> = expiries.iter().map(|expiry| (expiry.kind, year(expiry))).collect();
    years.sort_unstable();
    years
}

async fn connected(ca: &str, user: &str) -> Vec<Expiry> {
    let config = kubeconfig(URL, ca, "", user);
    Live::connect(&config.access()).await.unwrap().expiries(&[]).await
}

#[tokio::test]
async fn a_kubeconfig_has_a_ca_and_a_client_certificate_inline_or_in_a_file() {
    let (ca, _) = certificate(2040);
    let read = connected(&ca, &inline(2031)).await;
    assert_eq!(years(&read), [(Kind::ApiServerCa, 2040), (Kind::ApiServerClient, 2031)]);
    assert!(read[0].source.starts_with("kubeconfig /"), "{}", read[0].source);
    assert_eq!(read[0].not_before, 18_262 * 86_400, "2020-01-01");

    let directory = tempfile::tempdir().unwrap();
    let (pem, key) = certificate(2033);
    let [certificate_path, key_path] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
    std::fs::write(&certificate_path, pem).unwrap();
    std::fs::write(&key_path, key).unwrap();
    let user =
        format!("client-certificate: {}, client-key: {}", certificate_path.display(), key_path.display());
    assert_eq!(years(&connected("", &user).await), [(Kind::ApiServerClient, 2033)]);
}

#[test]
fn the_ca_of_a_service_account_is_read_again_and_omitted() {
    let bundle = rustls::pki_types::pem::PemObject::from_pem_slice(certificate(2031).0.as_bytes());
    let bundle: rustls::pki_types::CertificateDer<'_> = bundle.unwrap();
    let mut config = kube::Config::new(URL.parse().unwrap());
    config.root_cert = Some(vec![bundle.to_vec()]);
    let of = |config: &kube::Config| Expiry::of_config(config, Kind::OF_API_SERVER, "a pod");
    assert_eq!(years(&of(&config)), [(Kind::ApiServerCa, 2031)]);
    config.root_cert_file = Some("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt".into());
    assert_eq!(of(&config), []);
}

#[tokio::test]
async fn the_first_certificate_of_a_bundle_that_expires_counts() {
    let bundle = format!("{}{}{}", certificate(2040).0, certificate(2032).0, certificate(2050).0);
    assert_eq!(years(&connected(&bundle, "token: x").await), [(Kind::ApiServerCa, 2032)]);
}

#[tokio::test]
async fn a_token_expires_by_its_claims() {
    let end = 21_915 * 86_400;
    let of = async |claims: Value| connected("", &format!("token: {}", token(&claims))).await;
    let read = of(json!({"exp": end, "iat": end - 3600})).await;
    assert_eq!(years(&read), [(Kind::ApiServerToken, 2030)]);
    assert_eq!(read[0].not_before, end - 3600);
    assert_eq!(of(json!({"exp": end})).await[0].not_before, end - 180 * 86_400, "an assumed half year");
    let fraction = of(json!({"exp": 1_893_456_000.5, "iat": "today"})).await;
    assert_eq!((fraction[0].not_after, fraction[0].not_before), (end, end - 180 * 86_400));
    assert_eq!(of(json!({"sub": "durward"})).await, [], "a token of a Secret does not expire");
    for other in ["token: opaque", "token: a.b.c", "tokenFile: /dev/null"] {
        let config = kubeconfig(URL, "", "", other);
        assert_eq!(crate::live::expiries(&config.access()).await, [], "{other}");
    }
    let gone = crate::live::Access { kubeconfig: Some("/nowhere".into()), context: None };
    assert_eq!(crate::live::expiries(&gone).await, [], "the client reports it");
}

#[tokio::test]
async fn member_clusters_are_known_after_their_first_request() {
    let config = kubeconfig(URL, &certificate(2040).0, "", &inline(2031));
    let live = Live::connect(&config.access()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    let members = live.members(&Fleet::Contexts(vec!["test".to_owned()]), deadline).await.unwrap();
    let of_member = async || {
        let mut read = live.expiries(&[]).await;
        read.retain(|expiry| [Kind::MemberCa, Kind::MemberClient, Kind::MemberToken].contains(&expiry.kind));
        read
    };
    assert_eq!(of_member().await, []);
    let resource = Resource::NAMESPACES;
    let query = super::member_requests::query(&resource, "");
    assert!(live.list(&members[0].cluster, query, deadline).await.is_err(), "no cluster is at {URL}");
    let read = of_member().await;
    assert_eq!(years(&read), [(Kind::MemberCa, 2040), (Kind::MemberClient, 2031)]);
    assert!(read[0].source.starts_with("context test of kubeconfig /"), "{}", read[0].source);
}

#[tokio::test]
async fn the_kubeconfig_of_a_secret_is_named_by_it() {
    let (live, mut fake) = live();
    let config = kubeconfig(URL, "", "", &inline(2031));
    let text = std::fs::read_to_string(&config.path).unwrap();
    let of = Cluster::Secret("durward".into(), "m1".into());
    let resource = Resource::NAMESPACES;
    let query = super::member_requests::query(&resource, "");
    let deadline = Instant::now() + Duration::from_secs(5);
    let (answer, ()) = tokio::join!(live.list(&of, query, deadline), async {
        let secret = json!({"kind": "Secret", "apiVersion": "v1",
            "metadata": {"name": "m1", "namespace": "durward", "resourceVersion": "1"},
            "data": {"kubeconfig": STANDARD.encode(text)}});
        fake.asked("/api/v1/namespaces/durward/secrets/m1").await.json(200, &secret);
    });
    assert!(answer.is_err(), "no cluster is at {URL}");
    let read = live.expiries(&[]).await;
    assert_eq!(years(&read), [(Kind::MemberClient, 2031)]);
    assert_eq!(read[0].source, "Secret durward/m1");
}

#[tokio::test]
async fn certificates_for_etcd_members_are_read_again_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (ca, (client, key)) = (certificate(2040).0, certificate(2031));
    for (name, text) in [("ca", &ca), ("crt", &client), ("key", &key)] {
        std::fs::write(path(name), text).unwrap();
    }
    let files = Material::Files { authority: path("ca"), identity: Some((path("crt"), path("key"))) };
    let (live, mut fake) = live();
    let read = live.expiries(std::slice::from_ref(&files)).await;
    assert_eq!(years(&read), [(Kind::EtcdCa, 2040), (Kind::EtcdClient, 2031)]);
    assert!(read.iter().all(|expiry| expiry.source.starts_with("file /")), "{read:?}");
    std::fs::write(path("crt"), certificate(2035).0).unwrap();
    let read = live.expiries(std::slice::from_ref(&files)).await;
    assert_eq!(years(&read), [(Kind::EtcdCa, 2040), (Kind::EtcdClient, 2035)]);
    assert_eq!(live.expiries(&[]).await.len(), 2, "they were used a moment ago");
    std::fs::remove_file(path("ca")).unwrap();
    assert_eq!(
        live.expiries(std::slice::from_ref(&files)).await,
        [],
        "the guard reports files that are gone"
    );

    let secret = Material::Secret { namespace: "shop".to_owned(), name: "etcd-client".to_owned() };
    let away = json!({"kind": "Status", "apiVersion": "v1", "code": 503, "reason": "ServiceUnavailable", "message": "later"});
    let data = json!({"ca.crt": STANDARD.encode(&ca)});
    let whole = json!({"kind": "Secret", "apiVersion": "v1", "data": data,
        "metadata": {"name": "etcd-client", "namespace": "shop", "uid": "s", "resourceVersion": "1"}});
    let forbidden =
        json!({"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden", "message": "no"});
    let known = vec![(Kind::EtcdCa, 2040)];
    for (code, body, expected) in
        [(200, &whole, known.clone()), (503, &away, known), (403, &forbidden, Vec::new())]
    {
        let (read, ()) = tokio::join!(live.expiries(std::slice::from_ref(&secret)), async {
            fake.asked("/api/v1/namespaces/shop/secrets/etcd-client").await.json(code, body);
        });
        assert_eq!(years(&read), expected, "{code}");
        assert!(read.iter().all(|one| one.source == "Secret shop/etcd-client's ca.crt"), "{read:?}");
    }
}
