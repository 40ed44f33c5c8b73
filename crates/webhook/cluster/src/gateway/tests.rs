//! Tests with answers of real members and of other programs.

use super::*;

const STATUS_3_4: &str = r#"{"header":{"cluster_id":"6433936011947789809","member_id":"8382289757737883093","revision":"1","raft_term":"2"},"version":"3.4.23","dbSize":"28672","leader":"6733167686120877632","raftIndex":"8","raftTerm":"2","raftAppliedIndex":"8","dbSizeInUse":"16384"}"#;
const STATUS_3_6: &str = r#"{"header":{"cluster_id":"4243591272617494381", "member_id":"18119753876222195308", "revision":"1", "raft_term":"2"}, "version":"3.6.15", "dbSize":"36864", "leader":"18119753876222195308", "raftIndex":"8", "raftTerm":"2", "raftAppliedIndex":"8", "dbSizeInUse":"24576", "storageVersion":"3.6.0", "dbSizeQuota":"2147483648", "downgradeInfo":{}}"#;
/// The proto of 3.3 has no more than this.
const STATUS_3_3: &str = r#"{"header":{"cluster_id":"1","member_id":"2","raft_term":"2"},"version":"3.3.27","dbSize":"20480","leader":"2","raftIndex":"9","raftTerm":"2"}"#;

fn status_of(text: &str) -> Status {
    match read(EtcdRequest::Status, text.as_bytes()) {
        Ok(EtcdResponse::Status(status)) => *status,
        other => panic!("{other:?}"),
    }
}

fn why(question: EtcdRequest, text: &str) -> Cause {
    read(question, text.as_bytes()).expect_err("the answer is invalid")
}

#[test]
fn a_status_of_each_version_is_read_with_ids_over_2_63_and_omitted_fields() {
    let old = status_of(STATUS_3_4);
    assert_eq!((old.cluster, old.member), (6_433_936_011_947_789_809, 8_382_289_757_737_883_093));
    assert_eq!((old.leader, old.term, old.index), (Some(6_733_167_686_120_877_632), 2, 8));
    assert_eq!((old.applied, old.is_learner, old.is_downgrading), (Some(8), false, false));
    let new = status_of(STATUS_3_6);
    assert_eq!((new.member, new.leader), (18_119_753_876_222_195_308, Some(18_119_753_876_222_195_308)));
    assert_eq!(status_of(STATUS_3_3).applied, None, "3.3 does not tell");
    let absent = STATUS_3_4.replace(r#""raftAppliedIndex":"8","#, "");
    assert_eq!(status_of(&absent).applied, Some(0), "fields with the value zero are omitted");
    let zero = STATUS_3_4.replace(r#""leader":"6733167686120877632""#, r#""leader":"0""#);
    assert_eq!(status_of(&zero).leader, None);
    let lost = STATUS_3_4.replace(
        r#""leader":"6733167686120877632""#,
        r#""errors":["etcdserver: no leader","memberID:5 alarm:NOSPACE"],"isLearner":true"#,
    );
    let lost = status_of(&lost);
    assert_eq!((lost.leader, lost.is_learner), (None, true));
    assert_eq!(lost.errors, ["etcdserver: no leader", "memberID:5 alarm:NOSPACE"]);
    let down = STATUS_3_6.replace(r#""downgradeInfo":{}"#, r#""downgradeInfo":{"enabled":true}"#);
    assert!(status_of(&down).is_downgrading);
}

#[test]
fn incomplete_answers_and_answers_of_other_programs_have_their_causes() {
    let cut = &STATUS_3_4[..100];
    for (text, code, says) in [
        (cut, cause::GARBAGE, "invalid answer"),
        ("", cause::NOT_ETCD, "not etcd"),
        ("<html><body>Sign in</body></html>", cause::NOT_ETCD, "not etcd: \"<html>"),
        ("[]", cause::NOT_ETCD, "not etcd"),
        ("{}", cause::NOT_ETCD, "other JSON"),
        (r#"{"kind":"Status","status":"Failure"}"#, cause::NOT_ETCD, "other JSON"),
        (r#"{"header":{}}"#, cause::GARBAGE, "no cluster ID"),
        (r#"{"header":{"cluster_id":"0","member_id":"1"}}"#, cause::GARBAGE, "no cluster ID"),
        (r#"{"header":{"cluster_id":"1"}}"#, cause::GARBAGE, "no member ID"),
        (r#"{"header":{"cluster_id":"1","member_id":"2"}}"#, cause::GARBAGE, "no valid version"),
        (r#"{"header":{"cluster_id":"-1","member_id":"2"}}"#, cause::GARBAGE, "invalid answer"),
        (r#"{"header":{"cluster_id":"18446744073709551616"}}"#, cause::GARBAGE, "invalid answer"),
        (r#"{"header":{"cluster_id":1.5}}"#, cause::GARBAGE, "invalid answer"),
        (r#"{"header":{"cluster_id":"1"},"header":{"cluster_id":"2"}}"#, cause::GARBAGE, "invalid answer"),
        (
            "{\"header\":{\"cluster_id\":\"1\",\"member_id\":\"2\"},\"version\":\"3.5\\u001b[2J\"}",
            cause::GARBAGE,
            "not printable",
        ),
    ] {
        let found = why(EtcdRequest::Status, text);
        assert_eq!(found.code, code, "{text}: {}", found.text);
        assert!(found.text.contains(says), "{text}: {}", found.text);
    }
}

#[test]
fn a_member_list_is_complete_or_garbage() {
    let list = |members: &str| format!(r#"{{"header":{{"cluster_id":"7"}},"members":{members}}}"#);
    let good = list(
        r#"[{"ID":"18119753876222195308","name":"m2","peerURLs":["http://a:2380"],"clientURLs":["http://a:2379"]},{"ID":"5","peerURLs":["http://b:2380"],"isLearner":true}]"#,
    );
    let Ok(EtcdResponse::Members(read_list)) = read(EtcdRequest::MembersByQuorum, good.as_bytes()) else {
        panic!()
    };
    assert_eq!((read_list.cluster, read_list.members.len()), (7, 2));
    assert_eq!(read_list.members[0].id, 18_119_753_876_222_195_308);
    let added = &read_list.members[1];
    assert!(added.is_learner && added.name.is_empty() && added.client_urls.is_empty());
    for (members, says) in [
        ("[]", "is empty"),
        ("null", "is empty"),
        (r#"[{"name":"m1"}]"#, "without an ID"),
        (r#"[{"ID":"0"}]"#, "without an ID"),
        (r#"[{"ID":"5"},{"ID":"5"}]"#, "duplicate ID"),
        (r#"[{"ID":"5","name":7}]"#, "invalid answer"),
        (r#"[{"ID":"5","name":"a\u202eb"}]"#, "not printable"),
        (r#"["5"]"#, "invalid answer"),
        ("{}", "invalid answer"),
    ] {
        let found = why(EtcdRequest::Members, &list(members));
        assert_eq!(found.code, cause::GARBAGE, "{members}");
        assert!(found.text.contains(says), "{members}: {}", found.text);
    }
    assert_eq!(why(EtcdRequest::Members, r#"{"members":[{"ID":"5"}]}"#).code, cause::NOT_ETCD);
}

#[test]
fn alarms_can_lack_a_header_in_3_4_and_are_never_incomplete() {
    let of = |text: &str| read(EtcdRequest::Alarms, text.as_bytes());
    assert_eq!(of("{}"), Ok(EtcdResponse::Alarms(Vec::new())));
    assert_eq!(of(r#"{"header":{"cluster_id":"7"}}"#), Ok(EtcdResponse::Alarms(Vec::new())));
    let raised = r#"{"alarms":[{"memberID":"18119753876222195308","alarm":"NOSPACE"},{"memberID":"5","alarm":"CORRUPT"},{"memberID":"6","alarm":"WET"}]}"#;
    let Ok(EtcdResponse::Alarms(alarms)) = of(raised) else { panic!() };
    assert_eq!(alarms[0], Alarm { member: 18_119_753_876_222_195_308, kind: AlarmKind::NoSpace });
    assert_eq!(alarms[1].kind, AlarmKind::Corrupt);
    assert_eq!(alarms[2].kind, AlarmKind::Other("WET".to_owned()));
    for text in [r#"{"alarms":[{"memberID":"5"}]}"#, r#"{"alarms":[{}]}"#, r#"{"alarms":7}"#] {
        assert_eq!(why(EtcdRequest::Alarms, text).code, cause::GARBAGE, "{text}");
    }
    assert_eq!(why(EtcdRequest::Alarms, r#"{"kind":"Status"}"#).code, cause::NOT_ETCD);
}

#[test]
fn an_alarm_that_etcd_raises_without_a_member_is_read_and_recorded() {
    // 3.5.7 and later write this if hashes differ and no hash has a majority: a zero is omitted.
    let text = r#"{"header":{"cluster_id":"7","member_id":"1"},"alarms":[{"alarm":"CORRUPT"}]}"#;
    let alarms = EtcdResponse::Alarms(vec![Alarm { member: 0, kind: AlarmKind::Corrupt }]);
    assert_eq!(read(EtcdRequest::Alarms, text.as_bytes()), Ok(alarms.clone()));
    assert_eq!(recorded(EtcdRequest::Alarms, &written(&alarms)), Ok(alarms));
}

#[test]
fn a_read_needs_a_header_with_a_cluster_id() {
    let served = br#"{"header":{"cluster_id":"7","member_id":"5","revision":"1","raft_term":"2"}}"#;
    assert_eq!(read(EtcdRequest::Read, served), Ok(EtcdResponse::Read(Read::Served)));
    assert_eq!(why(EtcdRequest::Read, "{}").code, cause::NOT_ETCD);
    assert_eq!(why(EtcdRequest::Read, r#"{"header":{}}"#).code, cause::GARBAGE);
}

#[test]
fn health_is_true_or_false_as_a_word_or_as_json() {
    let of = |text: &str| read(EtcdRequest::Health, text.as_bytes());
    let good = Ok(EtcdResponse::Health(Health { is_healthy: true, reason: String::new() }));
    assert_eq!(of(r#"{"health":"true"}"#), good);
    assert_eq!(of(r#"{"health":true,"reason":""}"#), good);
    let bad = Health { is_healthy: false, reason: "RAFT NO LEADER".to_owned() };
    assert_eq!(of(r#"{"health":"false","reason":"RAFT NO LEADER"}"#), Ok(EtcdResponse::Health(bad)));
    assert_eq!(why(EtcdRequest::Health, r#"{"health":"yes"}"#).code, cause::GARBAGE);
    assert_eq!(why(EtcdRequest::Health, r#"{"status":"UP"}"#).code, cause::NOT_ETCD);
}

#[test]
fn only_metrics_of_etcd_count() {
    let text = "# HELP etcd_server_is_leader Whether or not this member is a leader.\n\
        # TYPE etcd_server_is_leader gauge\netcd_server_is_leader 1\netcd_server_has_leader 1\n\
        etcd_server_is_learner 0\netcd_disk_defrag_inflight 0\n\
        etcd_server_snapshot_apply_in_progress_total 1\n\
        etcd_server_id{server_id=\"fb75e01f965c95d5\"} 1\n\
        etcd_network_known_peers{Local=\"fb75e01f965c95d5\",Remote=\"17\"} 0\n\
        etcd_network_known_peers{Local=\"fb75e01f965c95d5\",Remote=\"18\"} 1\n\
        etcd_network_known_peers{Local=\"fb75e01f965c95d5\",Remote=\"fb75e01f965c95d5\"} 1\n\
        etcd_server_version{server_version=\"3.4.23\"} 1\nprocess_open_fds 17\n";
    let Ok(EtcdResponse::Metrics(metrics)) = read(EtcdRequest::Metrics, text.as_bytes()) else { panic!() };
    assert_eq!(
        (metrics.is_leader, metrics.has_leader, metrics.is_learner),
        (Some(true), Some(true), Some(false))
    );
    assert_eq!((metrics.member, metrics.version.as_deref()), (Some(0xfb75_e01f_965c_95d5), Some("3.4.23")));
    assert_eq!((metrics.is_defragmenting, metrics.is_applying_snapshot), (Some(false), Some(true)));
    assert_eq!(metrics.listed, Some(2));
    let old = "etcd_server_has_leader 1\n";
    let Ok(EtcdResponse::Metrics(old)) = read(EtcdRequest::Metrics, old.as_bytes()) else { panic!() };
    assert_eq!((old.is_leader, old.is_learner, old.member), (None, None, None));
    for (text, code) in [
        ("process_open_fds 17\n", cause::NOT_ETCD),
        ("<html>", cause::NOT_ETCD),
        ("etcd_server_is_leader NaN", cause::GARBAGE),
        ("etcd_server_is_leader -1", cause::GARBAGE),
        ("etcd_server_id{server_id=\"xyz\"} 1", cause::GARBAGE),
    ] {
        assert_eq!(why(EtcdRequest::Metrics, text).code, code, "{text}");
    }
}

#[test]
fn a_refusal_is_recognized_by_its_code_in_both_forms() {
    let old = GatewayError::read(
        br#"{"error":"etcdserver: not leader","message":"etcdserver: not leader","code":9}"#,
    );
    let older = GatewayError::read(br#"{"error":"etcdserver: not leader","code":9}"#);
    let new = GatewayError::read(br#"{"code":9, "message":"etcdserver: not leader"}"#);
    for refusal in [old, older, new] {
        let refusal = refusal.unwrap();
        assert_eq!((refusal.code, refusal.message.as_str()), (Some(9), "etcdserver: not leader"));
    }
    assert!(GatewayError::read(b"404 page not found").is_none());
    assert!(GatewayError::read(br#"{"message":"no"}"#).is_none());
}

mod properties {
    use proptest::prelude::*;

    use super::*;
    use crate::etcd::MemberMetrics;

    fn statuses() -> impl Strategy<Value = Status> {
        let numbers =
            (1..=u64::MAX, 1..=u64::MAX, proptest::option::of(1..=u64::MAX), any::<u64>(), any::<u64>());
        let rest = (
            any::<u64>(),
            any::<bool>(),
            any::<bool>(),
            proptest::collection::vec("[a-z]{1,9}( [a-z:]{1,9}){0,3}", 0..4),
        );
        (numbers, rest).prop_map(
            |((cluster, member, leader, term, index), (applied, learner, down, errors))| Status {
                cluster,
                member,
                leader,
                term,
                index,
                applied: Some(applied),
                is_learner: learner,
                version: "3.6.15".to_owned(),
                errors,
                is_downgrading: down,
            },
        )
    }

    fn metrics() -> impl Strategy<Value = MemberMetrics> {
        let flags = (any::<Option<bool>>(), any::<Option<bool>>(), any::<Option<bool>>());
        (flags, proptest::option::of(1..=u64::MAX)).prop_map(
            |((is_leader, has_leader, is_learner), member)| MemberMetrics {
                is_leader,
                has_leader,
                is_learner,
                member,
                ..MemberMetrics::default()
            },
        )
    }

    proptest! {
        #[test]
        fn every_body_is_a_response_or_a_cause_on_one_line(
            body in prop_oneof![any::<Vec<u8>>(), "[{}\\[\\]\":,a-z0-9\n\u{1b}]{0,80}".prop_map(String::into_bytes)]
        ) {
            for question in EtcdRequest::ALL {
                if let Err(cause) = read(question, &body) {
                    prop_assert!(cause::ALL.contains(&cause.code));
                    prop_assert!(!cause.text.chars().any(char::is_control), "{:?}", cause.text);
                }
            }
        }

        #[test]
        fn recorded_responses_are_read_back(status in statuses(), metrics in metrics()) {
            for (question, answer) in [
                (EtcdRequest::Status, EtcdResponse::Status(Box::new(status))),
                (EtcdRequest::Metrics, EtcdResponse::Metrics(metrics)),
            ] {
                prop_assert_eq!(recorded(question, &written(&answer)), Ok(answer));
            }
        }
    }
}
