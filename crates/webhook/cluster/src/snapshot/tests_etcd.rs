//! Tests of recorded responses of etcd members.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use admission::Cause;

use super::tests::{directory, opened, problems};
use super::*;
use crate::EtcdClient as _;
use crate::cause;
use crate::etcd::{
    Alarm, AlarmKind, ClientOptions, Endpoint, EtcdRequest, EtcdResponse, EtcdResult, Member, MemberList,
    Read, Status,
};
use crate::fleet::Cluster;
use crate::world::EtcdAnswers;

const INDEX_TEXT: &str = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here}]\n";
const FILE: &str = "here/etcd/shop_etcd-0.json";

fn peer(uid: &str) -> Endpoint {
    Endpoint {
        namespace: "shop".to_owned(),
        name: "etcd-0".to_owned(),
        uid: uid.to_owned(),
        address: "10.0.0.1".to_owned(),
        port: 2379,
        client: Arc::new(ClientOptions::default()),
    }
}

async fn ask(snapshot: &World, uid: &str, request: EtcdRequest) -> EtcdResult {
    snapshot.call(&peer(uid), request, Instant::now()).await
}

/// One answer to each request, with ids over 2^63.
fn answers() -> BTreeMap<EtcdRequest, EtcdResult> {
    let (id, other) = (u64::MAX - 1, 1 << 63);
    let status = Status {
        cluster: id,
        member: other,
        leader: Some(other),
        term: 7,
        index: 12,
        applied: Some(0),
        is_learner: true,
        version: "3.6.15".to_owned(),
        errors: vec!["etcdserver: no leader".to_owned()],
        is_downgrading: true,
    };
    let started = Member {
        id: other,
        name: "etcd-0".to_owned(),
        client_urls: vec!["http://a:2379".to_owned()],
        is_learner: false,
    };
    let added = Member { id: 5, is_learner: true, ..Member::default() };
    let alarms = [(AlarmKind::NoSpace, 5), (AlarmKind::Corrupt, 6), (AlarmKind::Other("9".to_owned()), 7)];
    BTreeMap::from([
        (EtcdRequest::Status, Ok(EtcdResponse::Status(Box::new(status)))),
        (
            EtcdRequest::Members,
            Ok(EtcdResponse::Members(MemberList { cluster: id, members: vec![started, added] })),
        ),
        (
            EtcdRequest::MembersByQuorum,
            Err(EtcdRequest::MembersByQuorum.failed("etcd-0", &Cause::new(cause::UNSUPPORTED, "3.4 cannot"))),
        ),
        (
            EtcdRequest::Alarms,
            Ok(EtcdResponse::Alarms(alarms.map(|(kind, member)| Alarm { member, kind }).into())),
        ),
        (EtcdRequest::Read, Ok(EtcdResponse::Read(Read::Denied))),
    ])
}

fn world(pod: &str, answers: BTreeMap<EtcdRequest, EtcdResult>) -> World {
    let mut world = World { time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1)), ..World::default() };
    world.cluster(&Cluster::Local);
    world.etcd.insert(("shop".to_owned(), pod.to_owned()), EtcdAnswers { uid: "u".to_owned(), answers });
    world
}

#[tokio::test]
async fn recorded_responses_and_causes_are_returned() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("w");
    write(&path, &world("etcd-0", answers())).unwrap();
    let snapshot = open(&path).unwrap();
    for (request, expected) in answers() {
        assert_eq!(ask(&snapshot, "u", request).await, expected, "{request:?}");
    }
}

#[tokio::test]
async fn another_uid_another_request_and_a_pod_without_a_file_are_not_recorded() {
    let file = r#"{"uid": "u", "read": "served"}"#;
    let (_directory, snapshot) = opened(&[(INDEX, INDEX_TEXT), (FILE, file)]);
    assert_eq!(ask(&snapshot, "u", EtcdRequest::Read).await, Ok(EtcdResponse::Read(Read::Served)));
    for (uid, request, why) in
        [("v", EtcdRequest::Read, "is about another pod"), ("u", EtcdRequest::Status, "has no \"status\"")]
    {
        let cause = ask(&snapshot, uid, request).await.unwrap_err();
        assert_eq!(cause.code, cause::NOT_RECORDED);
        assert!(cause.text.contains(why), "{}", cause.text);
    }
    let other = Endpoint { name: "etcd-1".to_owned(), ..peer("u") };
    let cause = snapshot.call(&other, EtcdRequest::Read, Instant::now()).await.unwrap_err();
    assert!(
        cause.text.contains("there is no") && cause.text.contains("etcd/shop_etcd-1.json"),
        "{}",
        cause.text
    );
}

#[test]
fn an_invalid_file_is_rejected_with_the_reason() {
    for (text, why) in [
        ("[]", "is not a JSON object"),
        ("{}", "has no string uid"),
        (r#"{"uid": 1}"#, "has no string uid"),
        (r#"{"uid": "u", "stat": {}}"#, "unknown key \"stat\""),
        (r#"{"uid": "u", "status": {"header": {}}}"#, "status: unknown field `header`"),
        (r#"{"uid": "u", "status": {"header": {}}}"#, "take the snapshot again"),
        (
            r#"{"uid": "u", "status": {"cluster": 1, "member": 0, "term": 1, "index": 1, "version": "3.5.1"}}"#,
            "status: the answer has no cluster ID or no member ID",
        ),
        (r#"{"uid": "u", "read": true}"#, "read: "),
        (r#"{"uid": "u", "read": {"unknown": {"cause": "bad-luck", "text": ""}}}"#, "cause must be one of"),
        (r#"{"uid": "u", "read": {"unknown": {"cause": "timeout"}}}"#, "read.unknown: text is missing"),
    ] {
        let found = problems(&[(INDEX, INDEX_TEXT), (FILE, text)]);
        assert!(found.contains(why) && found.contains("shop_etcd-0.json"), "{text}: {found}");
    }
    let found = problems(&[(INDEX, INDEX_TEXT), ("here/etcd/etcd-0.json", "{}")]);
    assert!(found.contains("is not the name of a pod's file"), "{found}");
    let other = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here}, {name: m1}]\n";
    let found = problems(&[(INDEX, other), ("m1/etcd/shop_etcd-0.json", "{}")]);
    assert!(found.contains("is not the name of a List"), "only the cluster that asks: {found}");
}

#[tokio::test]
async fn a_cluster_may_be_called_etcd() {
    let index = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here}, {name: etcd}]\n";
    let list = r#"{"apiVersion":"v1","kind":"PodList","items":[]}"#;
    let directory = directory(&[(INDEX, index), ("etcd/pods.v1.json", list)]);
    let snapshot = open(directory.path()).unwrap();
    assert_eq!(snapshot.others().collect::<Vec<_>>(), ["etcd"]);
}

#[test]
fn invalid_recordings_are_not_written() {
    let place = tempfile::tempdir().unwrap();
    let wrong = BTreeMap::from([(EtcdRequest::Status, Ok(EtcdResponse::Read(Read::Served)))]);
    for world in [world("etcd-0", wrong), world("../x", answers())] {
        let found = write(&place.path().join("w"), &world).unwrap_err().to_string();
        assert!(found.contains("cannot be recorded"), "{found}");
    }
}
