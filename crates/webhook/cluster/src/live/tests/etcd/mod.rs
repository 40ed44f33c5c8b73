//! Tests of etcd members over real sockets and real TLS. A fake member returns the answers of etcd 3.2 to 3.7. Tests use the clock only
//! for deadlines.

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
use crate::live::etcd::generated::{
    AlarmResponse, Member, MemberListResponse, MoveLeaderResponse, RangeResponse, ResponseHeader,
    StatusResponse,
};
use server::{FakeMember, Heard, Say, refuse, say};
use tonic::Code;

const STATUS: &str = "Maintenance/Status";
const MEMBERS: &str = "Cluster/MemberList";
const ALARMS: &str = "Maintenance/Alarm";
const RANGE: &str = "KV/Range";
const TRANSFER: &str = "Maintenance/MoveLeader";
const LOGIN: &str = "Auth/Authenticate";

/// The pod of this member.
fn peer(member: &FakeMember, client: ClientOptions) -> Endpoint {
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

const ID: u64 = 10_276_657_743_932_975_437;

const HEADER: Option<ResponseHeader> =
    Some(ResponseHeader { cluster_id: 14_841_639_068_965_178_418, member_id: ID });

/// The status of a member of this version.
fn status(version: &str) -> StatusResponse {
    StatusResponse {
        header: HEADER,
        version: version.to_owned(),
        leader: ID,
        raft_index: 8,
        raft_term: 2,
        raft_applied_index: 8,
        ..StatusResponse::default()
    }
}

fn list() -> MemberListResponse {
    let client_ur_ls = vec!["http://a:2379".to_owned()];
    let member = Member { id: ID, name: "etcd-0".to_owned(), client_ur_ls, is_learner: false };
    MemberListResponse { header: HEADER, members: vec![member] }
}

/// The answers of a member. Versions before 3.3 have no leadership transfer.
fn answers(version: &'static str) -> impl Fn(&Heard) -> Say + Send + Sync + 'static {
    move |heard| match heard.call.as_str() {
        STATUS => say(&status(version)),
        MEMBERS => say(&list()),
        ALARMS => say(&AlarmResponse { header: None, alarms: vec![] }),
        RANGE => say(&RangeResponse { header: HEADER }),
        TRANSFER if version >= "3.3" => say(&MoveLeaderResponse { header: HEADER }),
        call => refuse(Code::Unimplemented, &format!("unknown method {call}")),
    }
}
