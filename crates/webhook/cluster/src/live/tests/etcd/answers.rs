//! Tests of each request with each minor version of etcd: its prefix, its form, and unsupported requests.

use super::*;
use crate::cause;
use crate::etcd::{EtcdResponse, Health, Read};

/// Each minor version, and the prefix of its gateway.
const VERSIONS: [(&str, &str); 5] =
    [("3.2.24", "/v3alpha"), ("3.3.27", "/v3beta"), ("3.4.23", "/v3"), ("3.5.16", "/v3"), ("3.6.15", "/v3")];

#[tokio::test]
async fn the_gateway_is_found_once_under_the_prefix_of_each_version() {
    for (version, prefix) in VERSIONS {
        let member = Member::plain(gateway(version, prefix)).await;
        let (live, peer) = (live(), peer(&member, ClientOptions::default()));
        let Ok(EtcdResponse::Status(status)) = ask(&live, &peer, EtcdRequest::Status).await else {
            panic!("{version}")
        };
        assert_eq!((status.version.as_str(), status.cluster), (version, 14_841_639_068_965_178_418));
        assert_eq!(status.leader, Some(status.member));
        assert_eq!(member.calls().last().unwrap(), &format!("POST {prefix}/maintenance/status"));
        for question in [EtcdRequest::Members, EtcdRequest::Alarms, EtcdRequest::Read] {
            assert!(ask(&live, &peer, question).await.is_ok(), "{version} {question:?}");
        }
        let range = format!("POST {prefix}/kv/range");
        let expected =
            ["/cluster/member/list", "/maintenance/alarm"].map(|path| format!("POST {prefix}{path}"));
        assert_eq!(member.calls(), [&expected[..], &[range]].concat(), "{version}: the prefix is remembered");
    }
}

#[tokio::test]
async fn a_list_through_a_quorum_is_used_only_from_versions_that_support_it() {
    // 3.4 ignores fields that it does not know, and returns its own list without an error.
    for (version, prefix) in VERSIONS {
        let member = Member::plain(gateway(version, prefix)).await;
        let answer =
            ask(&live(), &peer(&member, ClientOptions::default()), EtcdRequest::MembersByQuorum).await;
        let heard = member.heard();
        let list = heard.iter().find(|heard| heard.call.ends_with("/member/list")).unwrap();
        assert_eq!(list.body, r#"{"linearizable":true}"#);
        match version {
            "3.5.16" | "3.6.15" => assert!(matches!(answer, Ok(EtcdResponse::Members(_))), "{version}"),
            _ => assert_eq!(answer.unwrap_err().code, cause::UNSUPPORTED, "{version}"),
        }
    }
    let silent = gateway("3.6.15", "/v3");
    let member = Member::plain(move |heard| match heard.call.as_str() {
        "GET /version" => absent(),
        _ => silent(heard),
    })
    .await;
    let cause = why(&live(), &peer(&member, ClientOptions::default()), EtcdRequest::MembersByQuorum).await;
    assert_eq!(cause.code, cause::UNSUPPORTED);
}

#[tokio::test]
async fn a_member_without_a_leader_for_a_moment_is_not_called_overloaded() {
    for (body, expected) in [
        (r#"{"code":14,"message":"etcdserver: leader changed"}"#, "it cannot answer now"),
        (r#"{"code":14,"message":"etcdserver: too many requests"}"#, "it is overloaded"),
    ] {
        let member = Member::plain(move |_| say(503, body.to_owned())).await;
        let cause = why(&live(), &peer(&member, ClientOptions::default()), EtcdRequest::Read).await;
        assert_eq!(cause.code, cause::BUSY);
        assert!(cause.text.contains(expected), "{}", cause.text);
    }
}

#[tokio::test]
async fn a_refusal_is_recognized_by_its_text_in_each_version() {
    let served = format!("{{{HEADER}}}");
    for (status, body, question, code) in [
        (
            503,
            r#"{"error":"etcdserver: rpc not supported for learner","code":14}"#,
            EtcdRequest::Members,
            cause::UNSUPPORTED,
        ),
        (
            503,
            r#"{"code":14,"message":"etcdserver: rpc not supported for learner"}"#,
            EtcdRequest::Alarms,
            cause::UNSUPPORTED,
        ),
        (503, r#"{"error":"etcdserver: request timed out","code":14}"#, EtcdRequest::Read, cause::NO_QUORUM),
        (503, r#"{"code":14,"message":"etcdserver: no leader"}"#, EtcdRequest::Members, cause::NO_QUORUM),
        (500, r#"{"error":"context deadline exceeded","code":2}"#, EtcdRequest::Alarms, cause::NO_QUORUM),
        (504, r#"{"code":4,"message":"context deadline exceeded"}"#, EtcdRequest::Alarms, cause::NO_QUORUM),
        (429, r#"{"code":8,"message":"etcdserver: too many requests"}"#, EtcdRequest::Read, cause::BUSY),
        (503, r#"{"code":14,"message":"etcdserver: server stopped"}"#, EtcdRequest::Status, cause::BUSY),
        (501, r#"{"code":12,"message":"Method Not Allowed"}"#, EtcdRequest::Status, cause::UNSUPPORTED),
        (500, r#"{"code":15,"message":"etcdserver: corrupt cluster"}"#, EtcdRequest::Read, cause::REFUSED),
        (502, "<html>Bad Gateway</html>", EtcdRequest::Status, cause::BUSY),
        (401, r#"{"kind":"Status","status":"Failure"}"#, EtcdRequest::Status, cause::NOT_ETCD),
        (400, "Client sent an HTTP request to an HTTPS server.\n", EtcdRequest::Status, cause::TLS),
        (200, served.as_str(), EtcdRequest::Status, cause::GARBAGE),
    ] {
        let (body, shown) = (body.to_owned(), body.to_owned());
        let member = Member::plain(move |_| say(status, body.clone())).await;
        let cause = why(&live(), &peer(&member, ClientOptions::default()), question).await;
        assert_eq!(cause.code, code, "{shown}: {}", cause.text);
        let begins = format!("etcd-0 did not return {question}: ");
        assert!(cause.text.starts_with(&begins), "{}", cause.text);
    }
}

#[tokio::test]
async fn a_denied_read_had_its_quorum_and_needs_no_login() {
    for body in [
        r#"{"error":"etcdserver: user name is empty","code":3}"#,
        r#"{"code":3,"message":"etcdserver: user name is empty"}"#,
        r#"{"code":7,"message":"etcdserver: permission denied"}"#,
    ] {
        let member = Member::plain(move |_| say(400, body)).await;
        let (live, peer) = (live(), peer(&member, login::client(true)));
        assert_eq!(ask(&live, &peer, EtcdRequest::Read).await, Ok(EtcdResponse::Read(Read::Denied)));
        assert_eq!(member.calls(), ["POST /v3/kv/range"]);
    }
}

#[tokio::test]
async fn without_a_gateway_health_and_metrics_still_answer() {
    let member = Member::plain(|heard| without_gateway("3.5.16", heard)).await;
    let (live, peer) = (live(), peer(&member, ClientOptions::default()));
    let cause = why(&live, &peer, EtcdRequest::Status).await;
    assert_eq!(cause.code, cause::GATEWAY_OFF);
    assert!(cause.text.contains("--enable-grpc-gateway"), "{}", cause.text);
    assert_eq!(member.calls().len(), 4, "each prefix, and the version");
    assert_eq!(why(&live, &peer, EtcdRequest::Members).await.code, cause::GATEWAY_OFF);
    assert_eq!(member.calls(), [""; 0], "the missing gateway is remembered");
    let good = Health { is_healthy: true, reason: String::new() };
    assert_eq!(ask(&live, &peer, EtcdRequest::Health).await, Ok(EtcdResponse::Health(good)));
    let Ok(EtcdResponse::Metrics(metrics)) = ask(&live, &peer, EtcdRequest::Metrics).await else { panic!() };
    assert_eq!((metrics.is_leader, metrics.is_learner), (Some(true), None));
    let ill = r#"{"health":"false","reason":"RAFT NO LEADER"}"#;
    member.says(move |_| say(503, ill));
    let bad = Health { is_healthy: false, reason: "RAFT NO LEADER".to_owned() };
    assert_eq!(ask(&live, &peer, EtcdRequest::Health).await, Ok(EtcdResponse::Health(bad)));
}
