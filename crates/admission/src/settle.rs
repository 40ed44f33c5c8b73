//! What a ruling becomes: the one place where Unknown turns into allow or deny, and where audit mode turns deny into a warning.

use crate::courtesy::{Audit, Warnings};
use crate::glob::Glob;
use crate::plain;
use crate::request::{Request, User};
use crate::verdict::{Answer, Cause, Denial, DenialCause, Ruling, SKIPPED, Verdict};

/// Whether denials bind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// A denial refuses.
    #[default]
    Enforce,
    /// A denial is let through with a warning, and counted.
    Audit,
}

/// What Unknown becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnknown {
    /// Let it pass with a warning.
    Allow,
    /// Refuse it.
    Deny,
}

/// How a guard stands when it cannot see, and towards whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettlePolicy {
    /// Whether denials bind.
    pub mode: Mode,
    /// Unknown for people.
    pub people: OnUnknown,
    /// Unknown for controllers.
    pub controllers: OnUnknown,
    /// Users who are controllers beside those that Kubernetes itself brings.
    pub more_controllers: Vec<Glob>,
}

impl SettlePolicy {
    /// Enforces, and treats people and controllers alike.
    pub fn new(when_unknown: OnUnknown) -> Self {
        Self {
            mode: Mode::Enforce,
            people: when_unknown,
            controllers: when_unknown,
            more_controllers: Vec::new(),
        }
    }

    /// Enforces, and refuses what it cannot see.
    pub fn deny_unknown() -> Self {
        Self::new(OnUnknown::Deny)
    }

    /// Whether a user is one of the control plane's own controllers, or one that the configuration names. Everyone else is
    /// people: a guard must not be talked out of a refusal by a service account that anybody may make.
    pub fn is_controller(&self, user: &User<'_>) -> bool {
        user.name.starts_with("system:serviceaccount:kube-system:")
            || user.name == "system:kube-controller-manager"
            || user.name == "system:kube-scheduler"
            || self.more_controllers.iter().any(|glob| glob.matches(&user.name))
    }

    fn when_unknown(&self, user: &User<'_>) -> OnUnknown {
        if self.is_controller(user) { self.controllers } else { self.people }
    }
}

/// A ruling that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// What is answered.
    pub answer: Answer,
    /// The verdict's word before the stance: `allow`, `deny`, `mutate` or `unknown`. The metric's label.
    pub verdict: &'static str,
    /// Whether audit mode let a denial through.
    pub would_deny: bool,
    /// Why it was unknown, if it was.
    pub causes: Vec<Cause>,
    /// For the person.
    pub warnings: Warnings,
    /// For the audit log.
    pub audit: Audit,
}

impl Settled {
    /// Why the object was let through without having been read, if it was.
    pub fn skipped(&self) -> Option<&str> {
        self.audit.iter().find(|(key, _)| *key == SKIPPED).map(|(_, why)| why)
    }
}

/// Turns a ruling into an answer by the guard's stance. Whatever it says is cleaned and bounded here, once for all guards.
pub fn settle(request: &Request<'_>, ruling: Ruling, settle_policy: &SettlePolicy) -> Settled {
    let Ruling { verdict, mut warnings, mut audit, refusal } = ruling;
    let mut causes = Vec::new();
    let (word, answer) = match verdict {
        Verdict::Allow => ("allow", Answer::Allow),
        Verdict::Mutate(patch) if patch.is_empty() => ("allow", Answer::Allow),
        Verdict::Mutate(patch) => ("mutate", Answer::Mutate(patch)),
        Verdict::Deny(denial) => ("deny", Answer::Deny(denial)),
        Verdict::Unknown(unknown) => {
            causes = unknown.iter().map(plain::cause).collect();
            audit.set("unknown", told(&causes));
            match settle_policy.when_unknown(&request.user) {
                OnUnknown::Allow => {
                    warnings.push(format!("allowed unchecked: {}", told(&causes)));
                    ("unknown", Answer::Allow)
                }
                OnUnknown::Deny => {
                    ("unknown", Answer::Deny(refusal.unwrap_or_else(|| blind(request, &causes))))
                }
            }
        }
    };
    let answer = match answer {
        Answer::Deny(denial) => Answer::Deny(plain::denial(denial)),
        other => other,
    };
    let (answer, would_deny) = match answer {
        Answer::Deny(denial) if settle_policy.mode == Mode::Audit => {
            // What follows stands in the audit annotation; a warning is one short line.
            let first = denial.message.lines().next().unwrap_or_default();
            warnings.push(format!("would be refused if this guard were enforced: {first}"));
            audit.set("would-deny", &denial.message);
            (Answer::Allow, true)
        }
        other => (other, false),
    };
    Settled { answer, verdict: word, would_deny, causes, warnings, audit }
}

fn told(causes: &[Cause]) -> String {
    if causes.is_empty() {
        return "the guard gave no cause".to_owned();
    }
    causes.iter().map(|cause| cause.text.as_str()).collect::<Vec<_>>().join("; ")
}

fn blind(request: &Request<'_>, causes: &[Cause]) -> Denial {
    let kind = request.kind.kind.to_lowercase();
    let mut denial =
        Denial::forbidden(format!("{kind} {:?} could not be checked: {}", request.name, told(causes)));
    denial.causes = causes
        .iter()
        .map(|cause| DenialCause {
            reason: "Unknown".to_owned(),
            message: cause.text.clone(),
            field: cause.code.to_owned(),
        })
        .collect();
    denial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fields, Patch, Pointer, decode};

    fn settled(user: &str, ruling: Ruling, settle_policy: &SettlePolicy) -> Settled {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"DELETE","name":"shop","kind":{{"group":"","version":"v1","kind":"Namespace"}},"userInfo":{{"username":{user:?}}}}}}}"#
        );
        let review = decode(body.as_bytes(), &Fields::none()).unwrap();
        settle(&review.request, ruling, settle_policy)
    }

    fn blind_ruling() -> Ruling {
        Ruling::unknown(Cause::new("timeout", "no answer from m5 in 1.5 s"))
    }

    #[test]
    fn unknown_becomes_what_the_stance_says_for_whom_it_says() {
        let settle_policy = SettlePolicy { controllers: OnUnknown::Allow, ..SettlePolicy::deny_unknown() };
        let person = settled("ann", blind_ruling(), &settle_policy);
        let Answer::Deny(denial) = &person.answer else { panic!("{person:?}") };
        assert_eq!(denial.message, "namespace \"shop\" could not be checked: no answer from m5 in 1.5 s");
        assert_eq!(denial.causes[0].field, "timeout");
        let controller =
            settled("system:serviceaccount:kube-system:namespace-controller", blind_ruling(), &settle_policy);
        assert_eq!(controller.answer, Answer::Allow);
        assert_eq!(controller.verdict, "unknown");
        assert_eq!(controller.warnings.fitted(), ["allowed unchecked: no answer from m5 in 1.5 s"]);
    }

    #[test]
    fn a_guard_that_can_tell_more_words_the_refusal_of_its_unknown_and_nothing_else() {
        let worded = || blind_ruling().refuse_with(Denial::forbidden("in m5 nobody answers, m1 is empty"));
        let refused = settled("ann", worded(), &SettlePolicy::deny_unknown());
        let Answer::Deny(denial) = &refused.answer else { panic!("{refused:?}") };
        assert_eq!(denial.message, "in m5 nobody answers, m1 is empty");
        assert_eq!((refused.verdict, refused.causes.len()), ("unknown", 1));
        let allowed = settled("ann", worded(), &SettlePolicy::new(OnUnknown::Allow));
        assert_eq!(allowed.answer, Answer::Allow);
        let ruling = Ruling::allow().refuse_with(Denial::forbidden("never said"));
        assert_eq!(settled("ann", ruling, &SettlePolicy::deny_unknown()).answer, Answer::Allow);
    }

    #[test]
    fn nothing_that_is_said_forges_a_line_or_outgrows_the_answer() {
        let forged = format!("web\u{1b}[31m\u{202e}{}", "x".repeat(1 << 20));
        for settle_policy in [SettlePolicy::deny_unknown(), SettlePolicy::new(OnUnknown::Allow)] {
            for verdict in [
                Verdict::Deny(Denial::forbidden(&forged)),
                Verdict::Unknown(vec![Cause::new("garbage", &forged)]),
            ] {
                let settled = settled("ann", Ruling::new(verdict).audit("in-use", &forged), &settle_policy);
                let told = format!("{settled:?}");
                assert!(!told.contains("\\u{1b}") && !told.contains("\\u{202e}"));
                assert!(told.len() < 128 * 1024, "{}", told.len());
            }
        }
    }

    #[test]
    fn an_unknown_without_a_cause_is_still_refused() {
        let settled = settled("ann", Ruling::new(Verdict::Unknown(vec![])), &SettlePolicy::deny_unknown());
        assert!(matches!(settled.answer, Answer::Deny(_)));
    }

    #[test]
    fn audit_mode_lets_denials_and_blindness_through_and_says_so() {
        let settle_policy = SettlePolicy { mode: Mode::Audit, ..SettlePolicy::deny_unknown() };
        for ruling in [Ruling::deny(Denial::forbidden("in use")), blind_ruling()] {
            let settled = settled("ann", ruling, &settle_policy);
            assert_eq!(settled.answer, Answer::Allow);
            assert!(settled.would_deny);
            assert!(settled.warnings.fitted()[0].starts_with("would be refused"));
        }
    }

    #[test]
    fn audit_mode_still_mutates_and_an_empty_patch_is_an_allow() {
        let settle_policy = SettlePolicy { mode: Mode::Audit, ..SettlePolicy::deny_unknown() };
        let mut patch = Patch::new();
        assert_eq!(
            settled("ann", Ruling::new(Verdict::Mutate(patch.clone())), &settle_policy).answer,
            Answer::Allow
        );
        patch.add(&Pointer::root().key("x"), &1).unwrap();
        assert_eq!(
            settled("ann", Ruling::new(Verdict::Mutate(patch.clone())), &settle_policy).answer,
            Answer::Mutate(patch)
        );
    }

    #[test]
    fn controllers_are_the_control_planes_own_and_those_that_are_named() {
        let settle_policy = SettlePolicy {
            more_controllers: vec![Glob::new("system:serviceaccount:argocd:*")],
            ..SettlePolicy::deny_unknown()
        };
        for (name, expected) in [
            ("system:serviceaccount:kube-system:generic-garbage-collector", true),
            ("system:kube-controller-manager", true),
            ("system:kube-scheduler", true),
            ("system:serviceaccount:argocd:application-controller", true),
            ("system:serviceaccount:kube-systems:x", false),
            ("system:admin", false),
            ("system:node:n1", false),
            ("", false),
        ] {
            let user = User { name: name.into(), ..User::default() };
            assert_eq!(settle_policy.is_controller(&user), expected, "{name}");
        }
    }
}
