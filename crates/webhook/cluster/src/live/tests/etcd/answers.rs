//! Tests of each request with each minor version of etcd, and of refusals.

use super::*;
use crate::cause;
use crate::etcd::{Alarm, AlarmKind, EtcdResponse, Read};
use crate::live::etcd::generated::{AlarmMember, DowngradeInfo, MemberListRequest, RangeRequest};

const VERSIONS: [&str; 6] = ["3.2.24", "3.3.27", "3.4.23", "3.5.16", "3.6.15", "3.7.0"];

#[tokio::test]
async fn each_version_answers_each_request() {
    for version in VERSIONS {
        let member = FakeMember::plain(answers(version)).await;
        let (live, peer) = (live(), peer(&member, ClientOptions::default()));
        let Ok(EtcdResponse::Status(status)) = ask(&live, &peer, EtcdRequest::Status).await else {
            panic!("{version}")
        };
        assert_eq!((status.version.as_str(), status.cluster), (version, 14_841_639_068_965_178_418));
        assert_eq!((status.leader, status.member), (Some(ID), ID));
        assert_eq!(status.applied, (version >= "3.4").then_some(8), "{version}");
        for question in [EtcdRequest::Members, EtcdRequest::Alarms, EtcdRequest::Read] {
            assert!(ask(&live, &peer, question).await.is_ok(), "{version} {question:?}");
        }
        assert_eq!(member.calls(), [STATUS, MEMBERS, ALARMS, RANGE], "{version}");
    }
}

#[tokio::test]
async fn a_list_through_a_quorum_is_read_after_a_linearizable_read_of_the_same_member() {
    for version in VERSIONS {
        let member = FakeMember::plain(answers(version)).await;
        let (live, peer) = (live(), peer(&member, ClientOptions::default()));
        let answer = ask(&live, &peer, EtcdRequest::MembersByQuorum).await;
        assert!(matches!(answer, Ok(EtcdResponse::Members(_))), "{version}");
        let heard = member.heard();
        let [range, list] = heard.as_slice() else { panic!("{heard:?}") };
        assert_eq!((range.call.as_str(), list.call.as_str()), (RANGE, MEMBERS));
        assert_eq!(range.message::<RangeRequest>().key, b"health");
        assert!(list.message::<MemberListRequest>().linearizable);
        // Without a quorum, the member's own list may be old, and is never used instead.
        let own = answers(version);
        member.says(move |heard| match heard.call.as_str() {
            RANGE => refuse(Code::Unavailable, "etcdserver: request timed out"),
            _ => own(heard),
        });
        assert_eq!(why(&live, &peer, EtcdRequest::MembersByQuorum).await.code, cause::NO_QUORUM);
        assert_eq!(member.calls(), [RANGE]);
        assert!(ask(&live, &peer, EtcdRequest::Members).await.is_ok());
    }
}

#[tokio::test]
async fn all_fields_of_an_answer_arrive() {
    let member = FakeMember::plain(|heard| match heard.call.as_str() {
        STATUS => say(&StatusResponse {
            leader: 0,
            is_learner: true,
            errors: vec!["etcdserver: no leader\n".to_owned(); 100],
            downgrade_info: Some(DowngradeInfo { enabled: true }),
            ..status("3.6.15")
        }),
        _ => say(&AlarmResponse {
            header: HEADER,
            alarms: [(5, 1), (0, 2), (7, 9)]
                .map(|(member_id, alarm)| AlarmMember { member_id, alarm })
                .to_vec(),
        }),
    })
    .await;
    let (live, peer) = (live(), peer(&member, ClientOptions::default()));
    let Ok(EtcdResponse::Status(status)) = ask(&live, &peer, EtcdRequest::Status).await else { panic!() };
    assert!(status.leader.is_none() && status.is_learner && status.is_downgrading);
    assert_eq!((status.errors.len(), status.errors[0].as_str()), (64, "etcdserver: no leader"));
    let kinds = [(5, AlarmKind::NoSpace), (0, AlarmKind::Corrupt), (7, AlarmKind::Other("9".to_owned()))];
    let expected = kinds.map(|(member, kind)| Alarm { member, kind }).to_vec();
    assert_eq!(ask(&live, &peer, EtcdRequest::Alarms).await, Ok(EtcdResponse::Alarms(expected)));
}

#[tokio::test]
async fn a_member_without_a_leader_for_a_moment_is_not_called_overloaded() {
    for (text, expected) in [
        ("etcdserver: leader changed", "it cannot answer now"),
        ("etcdserver: too many requests", "it is overloaded"),
    ] {
        let member = FakeMember::plain(move |_| refuse(Code::Unavailable, text)).await;
        let cause = why(&live(), &peer(&member, ClientOptions::default()), EtcdRequest::Read).await;
        assert_eq!(cause.code, cause::BUSY);
        assert!(cause.text.contains(expected), "{}", cause.text);
    }
}

#[tokio::test]
async fn a_refusal_is_recognized_by_its_text_in_each_version() {
    for (code, text, question, expected) in [
        (
            Code::Unavailable,
            "etcdserver: rpc not supported for learner",
            EtcdRequest::Members,
            cause::UNSUPPORTED,
        ),
        (Code::Unavailable, "etcdserver: request timed out", EtcdRequest::Read, cause::NO_QUORUM),
        (Code::Unavailable, "etcdserver: no leader", EtcdRequest::Members, cause::NO_QUORUM),
        (Code::Unknown, "context deadline exceeded", EtcdRequest::Alarms, cause::NO_QUORUM),
        (Code::DeadlineExceeded, "context deadline exceeded", EtcdRequest::Alarms, cause::NO_QUORUM),
        (Code::ResourceExhausted, "etcdserver: too many requests", EtcdRequest::Read, cause::BUSY),
        (Code::Unavailable, "etcdserver: server stopped", EtcdRequest::Status, cause::BUSY),
        (Code::Unimplemented, "unknown method", EtcdRequest::Status, cause::UNSUPPORTED),
        (Code::DataLoss, "etcdserver: corrupt cluster", EtcdRequest::Read, cause::REFUSED),
    ] {
        let member = FakeMember::plain(move |_| refuse(code, text)).await;
        let cause = why(&live(), &peer(&member, ClientOptions::default()), question).await;
        assert_eq!(cause.code, expected, "{text}: {}", cause.text);
        let begins = format!("etcd-0 did not return {question}: ");
        assert!(cause.text.starts_with(&begins), "{}", cause.text);
    }
}

#[tokio::test]
async fn a_denied_read_had_its_quorum_and_needs_no_login() {
    for (code, text) in [
        (Code::InvalidArgument, "etcdserver: user name is empty"),
        (Code::PermissionDenied, "etcdserver: permission denied"),
    ] {
        let member = FakeMember::plain(move |_| refuse(code, text)).await;
        let (live, peer) = (live(), peer(&member, login::client(true)));
        assert_eq!(ask(&live, &peer, EtcdRequest::Read).await, Ok(EtcdResponse::Read(Read::Denied)));
        assert_eq!(member.calls(), [RANGE]);
    }
}
