//! Maps etcd's messages to the types of guards.
//!
//! Zero is the value of an absent field: a member without `leader` knows no leader, and one without `isLearner` votes. From 3.5.7 on,
//! an alarm CORRUPT has the member id zero if etcd can't identify the member whose data differs (`etcdserver/corrupt.go`).

use admission::Cause;
use admission::text::excerpt;

use super::generated::{AlarmResponse, AlarmType, MemberListResponse, StatusResponse};
use crate::cause;
use crate::etcd::{Alarm, AlarmKind, EtcdResponse, Member, MemberList, Status, version};

/// Errors of a member that are kept. It has one for each raised alarm, so this is enough for two alarms of each of thirty
/// members; etcd advises at most seven members.
const MAX_ERRORS: usize = 64;

/// The first version that reports its applied index.
const APPLIED_SINCE: (u32, u32) = (3, 4);

pub(super) fn status(answer: StatusResponse) -> EtcdResponse {
    let header = answer.header.unwrap_or_default();
    let has_applied = version(&answer.version).is_some_and(|own| own >= APPLIED_SINCE);
    EtcdResponse::Status(Box::new(Status {
        cluster: header.cluster_id,
        member: header.member_id,
        leader: Some(answer.leader).filter(|&id| id != 0),
        term: answer.raft_term,
        index: answer.raft_index,
        applied: has_applied.then_some(answer.raft_applied_index),
        is_learner: answer.is_learner,
        version: answer.version,
        errors: answer.errors.iter().take(MAX_ERRORS).map(|line| excerpt(line, 160)).collect(),
        is_downgrading: answer.downgrade_info.is_some_and(|info| info.enabled),
    }))
}

pub(super) fn members(answer: MemberListResponse) -> EtcdResponse {
    let member = |member: super::generated::Member| Member {
        id: member.id,
        name: member.name,
        client_urls: member.client_ur_ls,
        is_learner: member.is_learner,
    };
    let cluster = answer.header.unwrap_or_default().cluster_id;
    EtcdResponse::Members(MemberList { cluster, members: answer.members.into_iter().map(member).collect() })
}

pub(super) fn alarms(answer: AlarmResponse) -> EtcdResponse {
    let kind = |number: i32| match AlarmType::try_from(number) {
        Ok(AlarmType::Nospace) => AlarmKind::NoSpace,
        Ok(AlarmType::Corrupt) => AlarmKind::Corrupt,
        Ok(AlarmType::None) | Err(_) => AlarmKind::Other(number.to_string()),
    };
    let alarms = answer.alarms.into_iter();
    EtcdResponse::Alarms(
        alarms.map(|raised| Alarm { member: raised.member_id, kind: kind(raised.alarm) }).collect(),
    )
}

/// Returns the response, unless it cannot be from etcd.
pub(super) fn checked(response: EtcdResponse) -> Result<EtcdResponse, Cause> {
    response.check().map_err(|why| Cause::new(cause::GARBAGE, why))
}
