//! Tests of etcd members over real sockets and real TLS. A fake gateway returns the answers of real members (3.4.23 and 3.6.15
//! were recorded by hand; 3.2, 3.3 and 3.5 follow their source). Tests use the clock only for deadlines.

mod answers;
mod hostile;
mod login;
mod secrets;
mod server;
mod sharing;
mod tls;
mod writes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::Cause;

use super::fake;
use crate::EtcdClient as _;
use crate::etcd::{ClientOptions, Endpoint, EtcdRequest, EtcdResult};
use crate::live::Live;
use server::{Heard, Member, Say, absent, say};

/// The pod of this member.
fn peer(member: &Member, client: ClientOptions) -> Endpoint {
    Endpoint {
        namespace: "shop".to_owned(),
        name: "etcd-0".to_owned(),
        uid: "u-0".to_owned(),
        address: member.address.ip().to_string(),
        port: member.address.port(),
        client: Arc::new(client),
    }
}

/// Sends a request with a deadline of five seconds, by tokio's clock, which some tests advance.
async fn ask(live: &Live, peer: &Endpoint, question: EtcdRequest) -> EtcdResult {
    let now = tokio::time::Instant::now().into_std();
    live.call(peer, question, now + Duration::from_secs(5)).await
}

/// Returns the cause of a request without an answer.
async fn why(live: &Live, peer: &Endpoint, question: EtcdRequest) -> Cause {
    ask(live, peer, question).await.expect_err("there is no answer")
}

/// A client whose API server gets no request.
fn live() -> Live {
    fake::live().0
}

const HEADER: &str = r#""header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":"1","raft_term":"2"}"#;

/// The status of a member of this version.
fn status(version: &str) -> String {
    format!(
        r#"{{{HEADER},"version":"{version}","dbSize":"20480","leader":"10276657743932975437","raftIndex":"8","raftTerm":"2","raftAppliedIndex":"8"}}"#
    )
}

fn list() -> String {
    format!(
        r#"{{{HEADER},"members":[{{"ID":"10276657743932975437","name":"etcd-0","peerURLs":["http://a:2380"],"clientURLs":["http://a:2379"]}}]}}"#
    )
}

/// The answers of a gateway under `prefix`, and of the paths outside it. Other paths do not exist.
fn gateway(version: &'static str, prefix: &'static str) -> impl Fn(&Heard) -> Say + Send + Sync + 'static {
    move |heard| match heard.call.strip_prefix("POST ").and_then(|path| path.strip_prefix(prefix)) {
        Some("/maintenance/status") => say(200, status(version)),
        Some("/cluster/member/list") => say(200, list()),
        Some("/maintenance/alarm") => say(200, "{}"),
        Some("/kv/range") => say(200, format!("{{{HEADER}}}")),
        Some(_) => say(404, "Not Found\n"),
        None => without_gateway(version, heard),
    }
}

fn without_gateway(version: &str, heard: &Heard) -> Say {
    match heard.call.as_str() {
        "GET /version" => say(200, format!(r#"{{"etcdserver":"{version}","etcdcluster":"{version}"}}"#)),
        "GET /health?exclude=NOSPACE" => say(200, r#"{"health":"true"}"#),
        "GET /metrics" => say(200, "etcd_server_is_leader 1\netcd_server_has_leader 1\n"),
        _ => absent(),
    }
}
