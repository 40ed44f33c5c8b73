//! Tests of logins: only if a member requires one, once, again when the token expires, and never over plain HTTP unless
//! configured.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::secrets::{USER, secret};
use super::*;
use crate::cause;
use crate::etcd::{EtcdResponse, Login, Read};

const EMPTY: &str = r#"{"code":3, "message":"etcdserver: user name is empty"}"#;
const STALE: &str = r#"{"code":16, "message":"etcdserver: invalid auth token"}"#;

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
    let (answers, given) = (gateway("3.6.15", "/v3"), Mutex::new(0));
    move |heard| {
        let mut given = given.lock().unwrap();
        if heard.call == "POST /v3/auth/authenticate" {
            *given += 1;
            return say(200, format!(r#"{{{HEADER},"token":"t{given}"}}"#));
        }
        match heard.token.as_str() {
            "" if heard.call.starts_with("POST") => say(400, EMPTY),
            token if heard.call.starts_with("POST") && token != format!("t{given}") => say(401, STALE),
            _ => answers(heard),
        }
    }
}

#[tokio::test]
async fn logs_in_when_required_and_again_when_the_token_expires() {
    let member = Member::plain(guarded()).await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(true));
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
    let heard = member.heard();
    let sent: Vec<_> = heard.iter().map(|heard| (heard.call.as_str(), heard.token.as_str())).collect();
    let (status, login) = ("POST /v3/maintenance/status", "POST /v3/auth/authenticate");
    assert_eq!(sent, [(status, ""), (login, ""), (status, "t1")]);
    assert_eq!(heard[1].body, r#"{"name":"root","password":"a \"b\"\\"}"#);
    for question in [EtcdRequest::Alarms, EtcdRequest::Members, EtcdRequest::Read] {
        assert!(ask(&live, &peer, question).await.is_ok());
    }
    assert!(member.heard().iter().all(|heard| heard.token == "t1"));
    // After a restart it accepts no old token.
    member.says(guarded());
    member.says({
        let again = guarded();
        move |heard| if heard.token == "t1" { say(401, STALE) } else { again(heard) }
    });
    let Err(cause) = ask(&live, &peer, EtcdRequest::Status).await else { panic!("t1 was issued twice") };
    assert_eq!(cause.code, cause::CREDENTIALS, "one login, not several: {}", cause.text);
    let calls = member.calls();
    assert_eq!(calls.iter().filter(|call| *call == login).count(), 1, "{calls:?}");
}

#[tokio::test]
async fn concurrent_calls_share_one_login() {
    let member = Member::plain(guarded()).await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(true));
    let questions =
        [EtcdRequest::Status, EtcdRequest::Members, EtcdRequest::MembersByQuorum, EtcdRequest::Alarms];
    let all = futures_util::future::join_all(questions.map(|question| ask(&live, &peer, question))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let calls = member.calls();
    assert_eq!(calls.iter().filter(|call| call.ends_with("/authenticate")).count(), 1, "{calls:?}");
}

#[tokio::test]
async fn without_authentication_there_is_no_login_and_old_tokens_are_dropped() {
    let member = Member::plain(guarded()).await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(true));
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
    // As 3.4 does: it rejects even a valid token.
    let answers = gateway("3.4.23", "/v3");
    member.says(move |heard| match (heard.call.as_str(), heard.token.as_str()) {
        ("POST /v3/auth/authenticate", _) => {
            say(412, r#"{"error":"etcdserver: authentication is not enabled","code":9}"#)
        }
        (_, "") => answers(heard),
        _ => say(401, STALE),
    });
    assert_eq!(ask(&live, &peer, EtcdRequest::Read).await, Ok(EtcdResponse::Read(Read::Served)));
    member.heard();
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
    assert_eq!(member.calls(), ["POST /v3/maintenance/status"]);
}

#[tokio::test]
async fn a_password_is_not_sent_over_plain_http_unless_configured() {
    let member = Member::plain(guarded()).await;
    let live = live_with(PASSWORD);
    let peer = peer(&member, client(false));
    let cause = why(&live, &peer, EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::CREDENTIALS);
    assert!(cause.text.contains("plain HTTP"), "{}", cause.text);
    assert_eq!(member.calls(), ["POST /v3/maintenance/status"]);
    // A read needs no user.
    let denied = ask(&live, &peer, EtcdRequest::Read).await;
    assert_eq!(denied, Ok(EtcdResponse::Read(Read::Denied)));
}

#[tokio::test]
async fn an_answer_with_the_password_is_not_repeated() {
    for (status, echo) in [(400, true), (500, true), (302, false), (403, false), (503, false)] {
        let member = Member::plain(move |heard| match heard.call.as_str() {
            "POST /v3/auth/authenticate" if echo => {
                say(status, json!({"code": 2, "message": heard.body}).to_string())
            }
            "POST /v3/auth/authenticate" => say(status, heard.body.clone()),
            _ => say(400, EMPTY),
        })
        .await;
        let cause = why(&live_with("SECRET"), &peer(&member, client(true)), EtcdRequest::Status).await;
        assert!(member.heard().iter().any(|heard| heard.body.contains("SECRET")));
        assert!(!cause.text.contains("SECRET"), "{status}: {}", cause.text);
        let expected = format!("login of user \"root\" failed ({status})");
        assert!(cause.text.contains(&expected), "{status}: {}", cause.text);
    }
}

#[tokio::test]
async fn an_answer_with_the_token_is_not_repeated() {
    for (status, is_gateway) in [(400, true), (500, true), (403, false), (503, false)] {
        let member = Member::plain(move |heard| match (heard.call.as_str(), heard.token.as_str()) {
            ("POST /v3/auth/authenticate", _) => say(200, format!(r#"{{{HEADER},"token":"SECRET.7"}}"#)),
            (_, "") => say(400, EMPTY),
            (_, token) if is_gateway => {
                say(status, json!({"code": 2, "message": format!("not {token} here")}).to_string())
            }
            (_, token) => say(status, format!("authorization: {token}")),
        })
        .await;
        let cause = why(&live_with(PASSWORD), &peer(&member, client(true)), EtcdRequest::Status).await;
        assert!(member.heard().iter().any(|heard| heard.token == "SECRET.7"));
        assert!(!cause.text.contains("SECRET"), "{status}: {}", cause.text);
        assert!(cause.text.contains("[token]"), "{status}: {}", cause.text);
    }
}

#[tokio::test]
async fn login_failures_name_the_user_and_not_the_password() {
    let failed = r#"{"code":3,"message":"etcdserver: authentication failed, invalid user ID or password"}"#;
    let member = Member::plain(move |heard| match heard.call.as_str() {
        "POST /v3/auth/authenticate" => say(400, failed),
        _ => say(400, EMPTY),
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
    assert_eq!(member.calls(), ["POST /v3/cluster/member/list"], "no second login soon after a failure");
    // Another password leads to another attempt.
    let denied = r#"{"code":7,"message":"etcdserver: permission denied"}"#;
    member.says(move |heard| match (heard.call.as_str(), heard.token.as_str()) {
        ("POST /v3/auth/authenticate", _) if heard.body.contains("right") => say(200, r#"{"token":"t"}"#),
        ("POST /v3/auth/authenticate", _) => say(400, failed),
        (_, "t") => say(403, denied),
        _ => say(400, EMPTY),
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
    let member = Member::plain(guarded()).await;
    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
        "message": "not found", "details": {"name": "etcd-user", "kind": "secrets"}, "code": 404});
    let cause = why(&answering(404, gone), &peer(&member, client(true)), EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::CREDENTIALS);
    assert!(cause.text.contains("Secret shop/etcd-user does not exist"), "{}", cause.text);
}
