//! Tests of logins: only if a member requires one, once, again when the token expires, and never over plain HTTP unless
//! configured.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::secrets::{USER, secret};
use super::*;
use crate::cause;
use crate::etcd::{EtcdResponse, Login, Read};
use crate::live::etcd::generated::{AuthenticateRequest, AuthenticateResponse};

fn needs_user() -> Say {
    refuse(Code::InvalidArgument, "etcdserver: user name is empty")
}

fn is_stale() -> Say {
    refuse(Code::Unauthenticated, "etcdserver: invalid auth token")
}

fn token(text: &str) -> Say {
    say(&AuthenticateResponse { header: HEADER, token: text.to_owned() })
}

/// A client with a user.
pub(super) fn client(open: bool) -> ClientOptions {
    let login = Login { namespace: "shop".into(), name: "etcd-user".into() };
    ClientOptions { login: Some(login), open, ..ClientOptions::default() }
}

/// Returns a client whose API server has the Secret of the user `root`.
pub(super) fn live_with(password: &str) -> Live {
    answering(200, secret("etcd-user", &[("username", "root\n"), ("password", password)]))
}

/// Returns a client whose API server gives this answer for the Secret of the user.
fn answering(code: u16, body: Value) -> Live {
    let (live, mut fake) = super::fake::live();
    tokio::spawn(async move {
        loop {
            fake.asked(USER).await.json(code, &body);
        }
    });
    live
}

const PASSWORD: &str = "a \"b\"\\\r\n";

/// A member with authentication on, which issues tokens `t1`, `t2`, … and accepts only the last one.
fn guarded() -> impl Fn(&Heard) -> Say + Send + Sync + 'static {
    let (answers, given) = (answers("3.6.15"), Mutex::new(0));
    move |heard| {
        let mut given = given.lock().unwrap();
        match heard.token.as_str() {
            _ if heard.call == LOGIN => {
                *given += 1;
                token(&format!("t{given}"))
            }
            "" => needs_user(),
            own if own != format!("t{given}") => is_stale(),
            _ => answers(heard),
        }
    }
}

#[tokio::test]
async fn logs_in_when_required_and_again_when_the_token_expires() {
    let member = FakeMember::plain(guarded()).await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(true));
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
    let heard = member.heard();
    let sent: Vec<_> = heard.iter().map(|heard| (heard.call.as_str(), heard.token.as_str())).collect();
    assert_eq!(sent, [(STATUS, ""), (LOGIN, ""), (STATUS, "t1")]);
    let sent: AuthenticateRequest = heard[1].message();
    assert_eq!((sent.name.as_str(), sent.password.as_str()), ("root", "a \"b\"\\"));
    for question in [EtcdRequest::Alarms, EtcdRequest::Members, EtcdRequest::Read] {
        assert!(ask(&live, &peer, question).await.is_ok());
    }
    assert!(member.heard().iter().all(|heard| heard.token == "t1"));
    // After a restart it accepts no old token.
    member.says(guarded());
    member.says({
        let again = guarded();
        move |heard| if heard.token == "t1" { is_stale() } else { again(heard) }
    });
    let Err(cause) = ask(&live, &peer, EtcdRequest::Status).await else { panic!("t1 was issued twice") };
    assert_eq!(cause.code, cause::CREDENTIALS, "one login, not several: {}", cause.text);
    let calls = member.calls();
    assert_eq!(calls.iter().filter(|call| *call == LOGIN).count(), 1, "{calls:?}");
}

#[tokio::test]
async fn concurrent_calls_share_one_login() {
    let member = FakeMember::plain(guarded()).await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(true));
    let questions =
        [EtcdRequest::Status, EtcdRequest::Members, EtcdRequest::MembersByQuorum, EtcdRequest::Alarms];
    let all = futures_util::future::join_all(questions.map(|question| ask(&live, &peer, question))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let calls = member.calls();
    assert_eq!(calls.iter().filter(|call| *call == LOGIN).count(), 1, "{calls:?}");
}

#[tokio::test]
async fn without_authentication_there_is_no_login_and_old_tokens_are_dropped() {
    let member = FakeMember::plain(guarded()).await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(true));
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
    // As 3.4 does: it rejects even a valid token.
    let answers = answers("3.4.23");
    member.says(move |heard| match (heard.call.as_str(), heard.token.as_str()) {
        (LOGIN, _) => refuse(Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
        (_, "") => answers(heard),
        _ => is_stale(),
    });
    assert_eq!(ask(&live, &peer, EtcdRequest::Read).await, Ok(EtcdResponse::Read(Read::Served)));
    member.heard();
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
    assert_eq!(member.calls(), [STATUS]);
}

#[tokio::test]
async fn a_password_is_not_sent_over_plain_http_unless_configured() {
    let member = FakeMember::plain(guarded()).await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(false));
    let cause = why(&live, &peer, EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::CREDENTIALS);
    assert!(cause.text.contains("plain HTTP"), "{}", cause.text);
    assert_eq!(member.calls(), [STATUS]);
    // A read needs no user.
    let denied = ask(&live, &peer, EtcdRequest::Read).await;
    assert_eq!(denied, Ok(EtcdResponse::Read(Read::Denied)));
}

#[tokio::test]
async fn an_answer_with_the_password_or_the_token_is_not_repeated() {
    let member = FakeMember::plain(|heard| match heard.call.as_str() {
        LOGIN => refuse(Code::Unknown, &heard.message::<AuthenticateRequest>().password),
        _ => needs_user(),
    })
    .await;
    let cause = why(&live_with("SECRET"), &peer(&member, client(true)), EtcdRequest::Status).await;
    assert!(member.heard().iter().any(|heard| heard.call == LOGIN));
    assert!(cause.text.contains("login of user \"root\" failed (Unknown)"), "{}", cause.text);
    assert!(!cause.text.contains("SECRET"), "{}", cause.text);
    member.says(|heard| match (heard.call.as_str(), heard.token.as_str()) {
        (LOGIN, _) => token("SECRET.7"),
        (_, "") => needs_user(),
        (_, own) => refuse(Code::Unknown, &format!("not {own} here")),
    });
    let cause = why(&live_with(PASSWORD), &peer(&member, client(true)), EtcdRequest::Status).await;
    assert!(member.heard().iter().any(|heard| heard.token == "SECRET.7"));
    assert!(cause.text.contains("[token]") && !cause.text.contains("SECRET"), "{}", cause.text);
}

#[tokio::test]
async fn login_failures_name_the_user_and_not_the_password() {
    let failed =
        || refuse(Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password");
    let member = FakeMember::plain(move |heard| match heard.call.as_str() {
        LOGIN => failed(),
        _ => needs_user(),
    })
    .await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(true));
    let cause = why(&live, &peer, EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::CREDENTIALS);
    assert!(cause.text.contains(r#"user "root" or password"#), "{}", cause.text);
    assert!(!cause.text.contains("a \\\"b"), "{}", cause.text);
    member.heard();
    assert_eq!(why(&live, &peer, EtcdRequest::Members).await.code, cause::CREDENTIALS);
    assert_eq!(member.calls(), [MEMBERS], "no second login soon after a failure");
    // Another password leads to another attempt.
    member.says(move |heard| match (heard.call.as_str(), heard.token.as_str()) {
        (LOGIN, _) if heard.message::<AuthenticateRequest>().password == "right" => token("t"),
        (LOGIN, _) => failed(),
        (_, "t") => refuse(Code::PermissionDenied, "etcdserver: permission denied"),
        _ => needs_user(),
    });
    let again = live_with("right");
    let cause = why(&again, &peer, EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::CREDENTIALS);
    assert!(cause.text.contains(r#"user "root" has no permission"#), "{}", cause.text);
    let without_login =
        why(&again, &super::peer(&member, ClientOptions::default()), EtcdRequest::Status).await;
    assert!(without_login.text.contains("client.auth"), "{}", without_login.text);
}

#[tokio::test]
async fn a_login_without_its_secret_is_reported_by_name() {
    let member = FakeMember::plain(guarded()).await;
    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
        "message": "not found", "details": {"name": "etcd-user", "kind": "secrets"}, "code": 404});
    let cause = why(&answering(404, gone), &peer(&member, client(true)), EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::CREDENTIALS);
    assert!(cause.text.contains("Secret shop/etcd-user does not exist"), "{}", cause.text);
}
