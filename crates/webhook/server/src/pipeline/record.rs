//! Metrics and the log line of a review.
//!
//! A ruling is logged if the request was not allowed, was allowed unchecked, unreviewed or unparsed, or if the evaluation of a policy failed. A
//! plain allow is logged only for guards that read clusters, because the object does not show their verdict. If the configuration
//! leaves the object out, a plain allow also needs level debug for `durward::review`. A patch counts as allow: the object shows it.
//! The log never contains the contents of an object, and values that the caller can choose are cut.

use std::time::Instant;

use admission::{Answer, PolicyOutcome, Request, SKIPPED, Settled, UNREVIEWED};
use tracing::Level;

use super::caller::Caller;
use crate::plan::Route;
use crate::text::for_log;

/// The next step if the evaluation of a policy failed. The error can have contents of the object, so the log has none.
const CORRECT_POLICY: &str = "correct the policy; durward check prints the error";

/// A review after decoding. If it is dropped without an answer, the caller has hung up, which is counted and logged too.
pub(crate) struct ReviewLog<'a> {
    route: &'a Route,
    request: &'a Request<'a>,
    caller: &'a Caller,
    began: Instant,
    bytes: usize,
    answered: bool,
}

impl<'a> ReviewLog<'a> {
    pub(crate) fn begin(
        route: &'a Route,
        request: &'a Request<'a>,
        caller: &'a Caller,
        began: Instant,
        bytes: usize,
    ) -> Self {
        Self { route, request, caller, began, bytes, answered: false }
    }

    /// Records the answer.
    pub(crate) fn answered(mut self, settled: &Settled) {
        self.answered = true;
        let duration = self.began.elapsed().as_secs_f64();
        self.route.metrics.count(self.request.operation, settled, duration, self.bytes);
        self.route.guard.answered(self.request, settled);
        let is_plain_allow = matches!(settled.verdict, "allow" | "mutate")
            && !settled.would_deny
            && settled.skipped().is_none()
            && settled.unreviewed().is_none()
            && !has_failed_policy(settled);
        if !is_plain_allow || self.logs_allow(settled) {
            self.log(settled, duration);
        }
    }

    fn logs_allow(&self, settled: &Settled) -> bool {
        self.route.guard.logs_every_ruling()
            && (!settled.is_unguarded || tracing::enabled!(target: "durward::review", Level::DEBUG))
    }

    /// Records that no memory is left for the answer. The refusal is counted and logged instead.
    pub(crate) fn shed(mut self) {
        self.answered = true;
    }

    fn log(&self, settled: &Settled, duration: f64) {
        let request = self.request;
        // Strings are values, not `%`, so that the subscriber escapes them: users choose their names.
        tracing::info!(
            target: "durward::review",
            uid = for_log(&request.uid).as_ref(),
            guard = self.route.guard.name(),
            operation = request.operation.as_str(),
            kind = for_log(&request.kind.kind).as_ref(),
            group = for_log(&request.kind.group).as_ref(),
            resource = for_log(&request.resource.resource).as_ref(),
            subresource = for_log(&request.subresource).as_ref(),
            namespace = for_log(&request.namespace).as_ref(),
            name = for_log(&request.name).as_ref(),
            user = for_log(&request.user.name).as_ref(),
            peer = %self.caller.peer,
            client = self.caller.certificate().as_deref(),
            dry_run = request.dry_run,
            verdict = settled.verdict,
            answer = answer(settled),
            causes = for_log(&causes(settled)).as_ref(),
            policies = policies(settled).as_deref(),
            next = has_failed_policy(settled).then_some(CORRECT_POLICY),
            duration_ms = duration * 1000.0,
            "reviewed"
        );
    }
}

impl Drop for ReviewLog<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.route.metrics.abandoned.inc();
        tracing::warn!(
            target: "durward::review",
            uid = for_log(&self.request.uid).as_ref(),
            guard = self.route.guard.name(),
            operation = self.request.operation.as_str(),
            kind = for_log(&self.request.kind.kind).as_ref(),
            namespace = for_log(&self.request.namespace).as_ref(),
            name = for_log(&self.request.name).as_ref(),
            user = for_log(&self.request.user.name).as_ref(),
            peer = %self.caller.peer,
            client = self.caller.certificate().as_deref(),
            duration_ms = self.began.elapsed().as_secs_f64() * 1000.0,
            "the caller disconnected before the answer"
        );
    }
}

fn answer(settled: &Settled) -> &'static str {
    match &settled.answer {
        Answer::Allow if settled.would_deny => "would-deny",
        Answer::Allow => "allow",
        Answer::Deny(_) => "deny",
        Answer::Mutate(_) => "mutate",
    }
}

/// Returns whether an expression of a policy failed, also if the policy ignores it.
fn has_failed_policy(settled: &Settled) -> bool {
    let mut outcomes = settled.evaluation.iter().flat_map(|evaluation| &evaluation.outcomes);
    outcomes.any(|outcome| outcome.outcome == "error")
}

/// Returns the names of the policies that denied the request, or could not be decided.
fn policies(settled: &Settled) -> Option<String> {
    let is_named = |outcome: &&PolicyOutcome| matches!(outcome.outcome, "deny" | "error" | "unknown");
    let outcomes = &settled.evaluation.as_ref()?.outcomes;
    let name = |PolicyOutcome { policy, outcome }: &PolicyOutcome| match *outcome {
        "deny" => policy.clone(),
        outcome => format!("{policy} ({outcome})"),
    };
    let names: Vec<String> = outcomes.iter().filter(is_named).map(name).collect();
    (!names.is_empty()).then(|| for_log(&names.join(",")).into_owned())
}

fn causes(settled: &Settled) -> String {
    let unknown = settled.causes.iter().map(|cause| format!("{}: {}", cause.code, cause.text));
    let skipped = settled.skipped().map(|reason| format!("{SKIPPED}: {reason}"));
    let unreviewed = settled.unreviewed().map(|reason| format!("{UNREVIEWED}: {reason}"));
    unknown.chain(skipped).chain(unreviewed).collect::<Vec<_>>().join("; ")
}
