//! What stays of a review: its numbers and at most one log line. Guards that look outward are logged with every ruling, since
//! their verdict cannot be read off the object; the others whenever something was not let through, or let through unseen or unread. A
//! patch is an allow here: it can be seen in the object, and a line for every pod that LXCFS serves helps nobody. The object's
//! contents are in no line, and what the caller may choose is cut to a length.

use std::time::Instant;

use admission::{Answer, Request, SKIPPED, Settled};

use crate::plan::Route;
use crate::shortened::in_line;

/// A review from the moment when it is understood. If it is dropped before it was answered, the caller has hung up, and that
/// is counted and logged as well: no review ends without a trace.
pub(crate) struct Record<'a> {
    route: &'a Route,
    request: &'a Request<'a>,
    began: Instant,
    bytes: usize,
    answered: bool,
}

impl<'a> Record<'a> {
    pub(crate) fn begin(route: &'a Route, request: &'a Request<'a>, began: Instant, bytes: usize) -> Self {
        Self { route, request, began, bytes, answered: false }
    }

    /// The review is answered with this.
    pub(crate) fn answered(mut self, settled: &Settled) {
        self.answered = true;
        let duration = self.began.elapsed().as_secs_f64();
        self.route.numbers.count(self.request.operation, settled, duration, self.bytes);
        let is_plain_allow = matches!(settled.verdict, "allow" | "mutate")
            && !settled.would_deny
            && settled.skipped().is_none();
        if !is_plain_allow || self.route.guard.logs_every_ruling() {
            self.line(settled, duration);
        }
    }

    /// There is no room for its answer: it was refused, which is counted and logged as that.
    pub(crate) fn shed(mut self) {
        self.answered = true;
    }

    fn line(&self, settled: &Settled, duration: f64) {
        let request = self.request;
        // Strings are given as values and not by `%`, so that the subscriber escapes them: a user's name is the user's choice.
        tracing::info!(
            target: "durward::review",
            uid = in_line(&request.uid).as_ref(),
            guard = self.route.guard.name(),
            operation = request.operation.as_str(),
            kind = in_line(&request.kind.kind).as_ref(),
            group = in_line(&request.kind.group).as_ref(),
            resource = in_line(&request.resource.resource).as_ref(),
            subresource = in_line(&request.subresource).as_ref(),
            namespace = in_line(&request.namespace).as_ref(),
            name = in_line(&request.name).as_ref(),
            user = in_line(&request.user.name).as_ref(),
            dry_run = request.dry_run,
            verdict = settled.verdict,
            answer = answer(settled),
            causes = in_line(&causes(settled)).as_ref(),
            duration_ms = duration * 1000.0,
            "reviewed"
        );
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.route.numbers.abandoned.inc();
        tracing::warn!(
            target: "durward::review",
            uid = in_line(&self.request.uid).as_ref(),
            guard = self.route.guard.name(),
            operation = self.request.operation.as_str(),
            kind = in_line(&self.request.kind.kind).as_ref(),
            namespace = in_line(&self.request.namespace).as_ref(),
            name = in_line(&self.request.name).as_ref(),
            user = in_line(&self.request.user.name).as_ref(),
            duration_ms = self.began.elapsed().as_secs_f64() * 1000.0,
            "the caller hung up before the review was answered"
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

fn causes(settled: &Settled) -> String {
    let unknown = settled.causes.iter().map(|cause| format!("{}: {}", cause.code, cause.text));
    let unread = settled.skipped().map(|why| format!("{SKIPPED}: {why}"));
    unknown.chain(unread).collect::<Vec<_>>().join("; ")
}
