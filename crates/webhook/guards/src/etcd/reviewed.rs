//! The result of a review: the decision, and the facts that its message shows.

use std::time::SystemTime;

use super::config::Config;
use super::decide::Decision;
use super::input::{Input, Progress, Round};
use super::member::Member;
use super::removal::Removal;
use crate::overrides::Override;

/// A decision with its facts. `messages` renders it.
pub(super) struct Reviewed<'r> {
    pub(super) config: &'r Config,
    pub(super) removal: &'r Removal,
    pub(super) now: SystemTime,
    pub(super) decision: Decision,
    /// The override annotations of the pod.
    pub(super) pod_override: Override,
    /// The pod and its etcd cluster, if they are known.
    pub(super) member: Option<Member<'r>>,
    /// The members, if they were asked.
    pub(super) members: Option<(Round, Progress)>,
}

impl Reviewed<'_> {
    /// Returns the input of the decision, if the members were asked.
    pub(super) fn input(&self) -> Option<Input<'_>> {
        let (round, progress) = self.members.as_ref()?;
        let Member { pod, entry, .. } = self.member.as_ref()?;
        Some(round.input(self.config, entry, self.removal, pod, progress))
    }
}
