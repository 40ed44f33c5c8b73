//! Expectations of a review: reasons as data, and texts in tests about texts.

use std::ops::Deref;

use admission::{Ruling, Verdict};

use super::super::decide::{Allowed, Conclusion, Decision, DenyReason, UnknownCause, Warning};
use super::super::table::{MemberProblem, MemberState};

/// A ruling with the outcome that it renders and the states of the members.
#[derive(Debug)]
pub(super) struct Reviewed {
    pub(super) ruling: Ruling,
    /// Missing if the review is not about a pod.
    pub(super) outcome: Option<Decision>,
    pub(super) states: Vec<(String, MemberState)>,
}

impl Reviewed {
    pub(super) fn without_outcome(ruling: Ruling) -> Self {
        Self { ruling, outcome: None, states: Vec::new() }
    }
}

impl Deref for Reviewed {
    type Target = Ruling;

    fn deref(&self) -> &Ruling {
        &self.ruling
    }
}

/// A part of an outcome.
#[derive(Debug, Clone)]
pub(super) enum Expected {
    Allow,
    Deny,
    Unknown,
    /// Allowed for this reason.
    Allowed(Allowed),
    /// Allowed because of an override.
    Overridden,
    /// Allowed with this warning.
    Warning(Warning),
    /// Allowed or Unknown with the warning that the deletion is not reserved.
    Unreserved,
    Denied(DenyReason),
    /// Denied because the deletion has failed repeatedly.
    Backoff,
    /// Unknown for this cause first.
    Cause(UnknownCause),
    /// Unknown because data could not be read, with this code.
    Unread(&'static str),
    /// Unknown because this member did not answer, with this code.
    NoResponse(&'static str, &'static str),
    NotReserved,
    UnreadSize,
    UnreadOwner,
    /// Not allowed while a member has this state.
    State(MemberState),
}

impl From<Warning> for Expected {
    fn from(warning: Warning) -> Self {
        Self::Warning(warning)
    }
}

impl From<Allowed> for Expected {
    fn from(why: Allowed) -> Self {
        Self::Allowed(why)
    }
}

impl From<DenyReason> for Expected {
    fn from(reason: DenyReason) -> Self {
        Self::Denied(reason)
    }
}

impl From<UnknownCause> for Expected {
    fn from(why: UnknownCause) -> Self {
        Self::Cause(why)
    }
}

impl From<MemberState> for Expected {
    fn from(state: MemberState) -> Self {
        Self::State(state)
    }
}

impl From<MemberProblem> for Expected {
    fn from(problem: MemberProblem) -> Self {
        Self::State(MemberState::Unhealthy(problem))
    }
}

impl Expected {
    pub(super) fn is_met(&self, Reviewed { ruling, outcome, states, .. }: &Reviewed) -> bool {
        let conclusion = outcome.as_ref().map(|outcome| &outcome.conclusion);
        let warnings = outcome.as_ref().map_or(&[][..], |outcome| outcome.warnings.as_slice());
        let first = match conclusion {
            Some(Conclusion::Unknown(causes)) => causes.first(),
            _ => None,
        };
        let is_unread = |code: &str| matches!(first, Some(UnknownCause::Unread(why)) if why.code == code);
        let is_allowed = ruling.verdict == Verdict::Allow;
        match self {
            Self::Allow => is_allowed,
            Self::Deny => matches!(ruling.verdict, Verdict::Deny(_)),
            Self::Unknown => matches!(ruling.verdict, Verdict::Unknown(_)),
            Self::Allowed(why) => conclusion == Some(&Conclusion::Allow(why.clone())),
            Self::Overridden => matches!(conclusion, Some(Conclusion::Allow(Allowed::Overridden { .. }))),
            Self::Warning(warning) => is_allowed && warnings.contains(warning),
            Self::Unreserved => warnings.iter().any(|one| matches!(one, Warning::Unreserved(_))),
            Self::Denied(reason) => conclusion == Some(&Conclusion::Deny(reason.clone())),
            Self::Backoff => matches!(conclusion, Some(Conclusion::Deny(DenyReason::Backoff { .. }))),
            Self::Cause(why) => first == Some(why),
            Self::Unread(code) => is_unread(code),
            Self::NoResponse(name, code) => {
                let is_silent =
                    |state: &MemberState| matches!(state, MemberState::NoResponse(why) if why.code == *code);
                is_unread(code) && states.iter().any(|(own, state)| own == name && is_silent(state))
            }
            Self::NotReserved => matches!(first, Some(UnknownCause::NotReserved(_))),
            Self::UnreadSize => matches!(first, Some(UnknownCause::UnreadSize(_))),
            Self::UnreadOwner => matches!(first, Some(UnknownCause::UnreadOwner { .. })),
            Self::State(state) => !is_allowed && states.iter().any(|(_, own)| own == state),
        }
    }
}

/// Returns the reason that another pod has the reservation.
pub(super) fn reserved(pod: &str) -> DenyReason {
    DenyReason::Reserved { pod: pod.to_owned() }
}

/// Returns the reason that so many of so many voters would be left.
pub(super) fn quorum(left: usize, voters: usize) -> DenyReason {
    DenyReason::Quorum { left, voters, needed: voters / 2 + 1 }
}

#[track_caller]
pub(super) fn assert_outcome(reviewed: &Reviewed, expected: impl Into<Expected>) {
    let expected = expected.into();
    let Reviewed { outcome, states, .. } = reviewed;
    assert!(expected.is_met(reviewed), "expected {expected:?}, got {outcome:?}, {states:?}");
}

/// Compares a text for users.
#[track_caller]
pub(super) fn assert_text(ruling: &Reviewed, verdict: &str, text: &str) {
    assert!(
        verdict_of(ruling) == verdict && text_of(ruling).contains(text),
        "{}: {}",
        verdict_of(ruling),
        text_of(ruling)
    );
}

/// Returns the verdict as a word.
pub(super) fn verdict_of(ruling: &Reviewed) -> &'static str {
    match &ruling.verdict {
        Verdict::Allow => "allow",
        Verdict::Deny(_) => "deny",
        Verdict::Unknown(_) => "unknown",
        Verdict::Mutate(_) => "mutate",
    }
}

/// Returns all texts of a ruling for users.
pub(super) fn text_of(ruling: &Reviewed) -> String {
    let warnings = ruling.warnings.fitted().join("\n");
    match (&ruling.verdict, &ruling.refusal) {
        (Verdict::Deny(denial), _) | (Verdict::Unknown(_), Some(denial)) => {
            format!("{}\n{warnings}", denial.message)
        }
        (verdict, _) => format!("{verdict:?}\n{warnings}"),
    }
}
