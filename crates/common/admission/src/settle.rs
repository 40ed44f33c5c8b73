//! Turns a ruling into an answer: the only place where Unknown becomes allow or deny, and where audit mode turns a denial into
//! a warning.

use crate::denial::Denial;
use crate::glob::Glob;
use crate::request::{Request, User};
use crate::verdict::{Answer, Cause, OVERRIDE, PolicyEvaluation, Ruling, SKIPPED, UNREVIEWED, Verdict};
use crate::warnings::{Audit, Warnings};

/// Whether denials are enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// A denial denies the request.
    #[default]
    Enforce,
    /// A denial allows the request with a warning, and is counted.
    Audit,
}

/// The answer to a request that could not be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnknown {
    /// Allow it with a warning.
    Allow,
    /// Deny it.
    Deny,
}

/// The settings of a guard that [`settle`] applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettlePolicy {
    /// Whether denials are enforced.
    pub mode: Mode,
    /// The answer to unchecked requests of users.
    pub users: OnUnknown,
    /// The answer to unchecked requests of controllers.
    pub controllers: OnUnknown,
    /// User names of controllers that are not part of Kubernetes.
    pub more_controllers: Vec<Glob>,
}

impl SettlePolicy {
    /// Creates a policy that enforces denials and treats users and controllers alike.
    pub fn new(on_unknown: OnUnknown) -> Self {
        Self { mode: Mode::Enforce, users: on_unknown, controllers: on_unknown, more_controllers: Vec::new() }
    }

    /// Creates a policy that enforces denials and denies unchecked requests.
    pub fn deny_unknown() -> Self {
        Self::new(OnUnknown::Deny)
    }

    /// Returns whether a user is a controller of the control plane, or one that the configuration names. Other service accounts
    /// count as users: anyone with the permission can create one, and must not get around a denial with it.
    pub fn is_controller(&self, user: &User<'_>) -> bool {
        user.name.starts_with("system:serviceaccount:kube-system:")
            || user.name == "system:kube-controller-manager"
            || user.name == "system:kube-scheduler"
            || self.more_controllers.iter().any(|glob| glob.matches(&user.name))
    }

    fn on_unknown(&self, user: &User<'_>) -> OnUnknown {
        if self.is_controller(user) { self.controllers } else { self.users }
    }
}

/// A ruling as it is answered, logged and counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The answer.
    pub answer: Answer,
    /// The verdict before the policy was applied: `allow`, `deny`, `mutate` or `unknown`. The metric's label.
    pub verdict: &'static str,
    /// Whether audit mode allowed a denial.
    pub would_deny: bool,
    /// The causes of an unknown verdict.
    pub causes: Vec<Cause>,
    /// Warnings for the user.
    pub warnings: Warnings,
    /// Annotations for the audit log.
    pub audit: Audit,
    /// The evaluation of policies.
    pub evaluation: Option<PolicyEvaluation>,
    /// Whether the configuration leaves the object out of the guard.
    pub is_unguarded: bool,
}

impl Settled {
    /// Returns the reason why the object was allowed without being parsed, if it was.
    pub fn skipped(&self) -> Option<&str> {
        self.reason(SKIPPED)
    }

    /// Returns the reason why the guard doesn't review the request, if it doesn't.
    pub fn unreviewed(&self) -> Option<&str> {
        self.reason(UNREVIEWED)
    }

    /// Returns whether the annotations of an override allowed the request.
    pub fn is_overridden(&self) -> bool {
        self.reason(OVERRIDE).is_some()
    }

    fn reason(&self, annotation: &str) -> Option<&str> {
        self.audit.iter().find(|(key, _)| *key == annotation).map(|(_, reason)| reason)
    }
}

/// Turns a ruling into an answer by the guard's policy, and cleans and bounds its texts.
pub fn settle(request: &Request<'_>, ruling: Ruling, settle_policy: &SettlePolicy) -> Settled {
    let Ruling { verdict, mut warnings, mut audit, refusal, evaluation, is_unguarded } = ruling;
    let mut causes = Vec::new();
    let (word, answer) = match verdict {
        Verdict::Allow => ("allow", Answer::Allow),
        Verdict::Mutate(patch) if patch.is_empty() => ("allow", Answer::Allow),
        Verdict::Mutate(patch) => ("mutate", Answer::Mutate(patch)),
        Verdict::Deny(denial) => ("deny", Answer::Deny(denial.cleaned())),
        Verdict::Unknown(unknown) => {
            causes = unknown.iter().map(Cause::cleaned).collect();
            let text = join(&causes);
            audit.set("unknown", &text);
            let answer = match settle_policy.on_unknown(&request.user) {
                OnUnknown::Allow => {
                    warnings.push(format!("allowed without a check: {text}"));
                    Answer::Allow
                }
                OnUnknown::Deny => {
                    Answer::Deny(refusal.unwrap_or_else(|| unknown_denial(request, &causes)).cleaned())
                }
            };
            ("unknown", answer)
        }
    };
    let (answer, would_deny) = match answer {
        Answer::Deny(denial) if settle_policy.mode == Mode::Audit => {
            // The audit annotation has the whole message; a warning is one short line.
            let first = denial.message.lines().next().unwrap_or_default();
            warnings.push(format!("audit: would be denied: {first}"));
            audit.set("would-deny", &denial.message);
            (Answer::Allow, true)
        }
        other => (other, false),
    };
    Settled { answer, verdict: word, would_deny, causes, warnings, audit, evaluation, is_unguarded }
}

fn join(causes: &[Cause]) -> String {
    if causes.is_empty() {
        return "the guard gave no reason".to_owned();
    }
    causes.iter().map(|cause| cause.text.as_str()).collect::<Vec<_>>().join("; ")
}

fn unknown_denial(request: &Request<'_>, causes: &[Cause]) -> Denial {
    let kind = request.kind.kind.to_lowercase();
    let message = format!("{kind} {:?} could not be checked: {}", request.name, join(causes));
    Denial { causes: causes.iter().map(Cause::to_denial_cause).collect(), ..Denial::forbidden(message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fields, Patch, Pointer, decode};

    fn settled(user: &str, ruling: Ruling, settle_policy: &SettlePolicy) -> Settled {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"DELETE","name":"shop","kind":{{"group":"","version":"v1","kind":"Namespace"}},"resource":{{"resource":"namespaces"}},"userInfo":{{"username":{user:?}}}}}}}"#
        );
        let review = decode(body.as_bytes(), &Fields::none()).unwrap();
        settle(&review.request, ruling, settle_policy)
    }

    fn unknown_ruling() -> Ruling {
        Ruling::unknown(Cause::new("timeout", "no answer from m5 in 1.5 s"))
    }

    #[test]
    fn settles_unknown_by_the_policy_for_users_and_controllers() {
        let settle_policy = SettlePolicy { controllers: OnUnknown::Allow, ..SettlePolicy::deny_unknown() };
        let user = settled("ann", unknown_ruling(), &settle_policy);
        let Answer::Deny(denial) = &user.answer else { panic!("{user:?}") };
        assert_eq!(denial.message, "namespace \"shop\" could not be checked: no answer from m5 in 1.5 s");
        assert_eq!(denial.causes[0].field, "timeout");
        let controller = settled(
            "system:serviceaccount:kube-system:namespace-controller",
            unknown_ruling(),
            &settle_policy,
        );
        assert_eq!(controller.answer, Answer::Allow);
        assert_eq!(controller.verdict, "unknown");
        assert_eq!(controller.warnings.fitted(), ["allowed without a check: no answer from m5 in 1.5 s"]);
    }

    #[test]
    fn uses_the_refusal_of_the_guard_only_for_a_denied_unknown() {
        let with_refusal =
            || unknown_ruling().refuse_with(Denial::forbidden("m5 does not answer, m1 is empty"));
        let refused = settled("ann", with_refusal(), &SettlePolicy::deny_unknown());
        let Answer::Deny(denial) = &refused.answer else { panic!("{refused:?}") };
        assert_eq!(denial.message, "m5 does not answer, m1 is empty");
        assert_eq!((refused.verdict, refused.causes.len()), ("unknown", 1));
        let allowed = settled("ann", with_refusal(), &SettlePolicy::new(OnUnknown::Allow));
        assert_eq!(allowed.answer, Answer::Allow);
        let ruling = Ruling::allow().refuse_with(Denial::forbidden("never shown"));
        assert_eq!(settled("ann", ruling, &SettlePolicy::deny_unknown()).answer, Answer::Allow);
    }

    #[test]
    fn cleans_and_bounds_every_text() {
        let forged = format!("web\u{1b}[31m\u{202e}{}", "x".repeat(1 << 20));
        for settle_policy in [SettlePolicy::deny_unknown(), SettlePolicy::new(OnUnknown::Allow)] {
            for verdict in [
                Verdict::Deny(Denial::forbidden(&forged)),
                Verdict::Unknown(vec![Cause::new("garbage", &forged)]),
            ] {
                let settled = settled("ann", Ruling::new(verdict).audit("in-use", &forged), &settle_policy);
                let text = format!("{settled:?}");
                assert!(!text.contains("\\u{1b}") && !text.contains("\\u{202e}"));
                assert!(text.len() < 128 * 1024, "{}", text.len());
            }
        }
    }

    #[test]
    fn denies_unknown_without_a_cause() {
        let settled = settled("ann", Ruling::new(Verdict::Unknown(vec![])), &SettlePolicy::deny_unknown());
        assert!(matches!(settled.answer, Answer::Deny(_)));
    }

    #[test]
    fn audit_mode_allows_denials_and_unknown_with_a_warning() {
        let settle_policy = SettlePolicy { mode: Mode::Audit, ..SettlePolicy::deny_unknown() };
        for ruling in [Ruling::deny(Denial::forbidden("in use")), unknown_ruling()] {
            let settled = settled("ann", ruling, &settle_policy);
            assert_eq!(settled.answer, Answer::Allow);
            assert!(settled.would_deny);
            assert!(settled.warnings.fitted()[0].starts_with("audit: would be denied: "));
        }
    }

    #[test]
    fn audit_mode_mutates_and_an_empty_patch_is_an_allow() {
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
    fn reads_the_reasons_from_the_annotations() {
        for key in [SKIPPED, UNREVIEWED, OVERRIDE] {
            let settled =
                settled("ann", Ruling::allow().audit(key, "a reason"), &SettlePolicy::deny_unknown());
            let of = |wanted| (wanted == key).then_some("a reason");
            assert_eq!((settled.skipped(), settled.unreviewed()), (of(SKIPPED), of(UNREVIEWED)));
            assert_eq!(settled.is_overridden(), key == OVERRIDE);
        }
    }

    #[test]
    fn recognizes_controllers_of_the_control_plane_and_configured_ones() {
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
