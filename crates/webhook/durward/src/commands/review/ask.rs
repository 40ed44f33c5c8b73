//! Calls guards for one review, as the server does: decode with the guard's fields, review, settle, encode.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Answer, Cause, Fields, Guard, Review, Ruling, Settled, decode, encode, settle};
use cluster::{Clients, Reader};
use config::Problem;
use guards::WebhookEntry;

use super::answer::Answered;
use super::facts::FactLog;
use super::selection::{Selection, selection};
use crate::file::File;

/// The server's share of the API server's ten seconds.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(8500);

/// A built guard with its webhook entries.
pub(crate) struct AskedGuard {
    /// The name of its section.
    pub(crate) section: &'static str,
    /// The guard.
    pub(crate) guard: Arc<dyn Guard>,
    /// Its webhook entries.
    pub(crate) entries: Vec<WebhookEntry>,
}

/// Builds the guards of a file, each with the entries that call it.
pub(crate) fn guards(file: &File, clients: &Clients) -> Vec<AskedGuard> {
    let mut all = Vec::new();
    for on in &file.guards {
        let entries = on.configured.webhooks();
        for guard in on.configured.build(clients) {
            let is_called = |entry: &&WebhookEntry| entry.guard.unwrap_or(on.kind.name()) == guard.name();
            let entries = entries.iter().filter(is_called).cloned().collect();
            all.push(AskedGuard { section: on.kind.name(), guard, entries });
        }
    }
    all
}

/// Returns the ruling of one guard on one review. `doubt` is the reason why it is unknown whether the guard is called. The
/// verdict is then unknown unless the guard allows without changes.
pub(crate) async fn rule<'a>(
    guard: &dyn Guard,
    body: &'a [u8],
    doubt: Option<Cause>,
) -> Result<(Review<'a>, Settled), String> {
    let review = decode(body, guard.fields()).map_err(|malformed| malformed.to_string())?;
    let ruling = guard.review(&review.request, Instant::now() + TIMEOUT).await;
    let settled = settle(&review.request, ruling, guard.settle_policy());
    let settled = match (doubt, &settled.answer) {
        (None, _) | (Some(_), Answer::Allow) => settled,
        (Some(doubt), _) => settle(&review.request, Ruling::unknown(doubt), guard.settle_policy()),
    };
    Ok((review, settled))
}

/// Returns the answers to a review: of the guards that the API server calls, or of the `named` one. If no guard is called,
/// there is one answer that says so. Guards read through observed clients; selecting them uses the plain reader.
pub(crate) async fn ask(
    guards: &[AskedGuard],
    named: Option<&str>,
    source: &str,
    document: &str,
    (facts, reader): (&FactLog, &dyn Reader),
) -> Result<Vec<Answered>, Problem> {
    let malformed = |why: String| {
        let problem = Problem::new(format!("{source} is not a valid AdmissionReview")).why(why);
        problem.next(
            "an AdmissionReview is the request of an API server, not a manifest; see examples/lxcfs/reviews",
        )
    };
    let plain = decode(document.as_bytes(), &Fields::none()).map_err(|e| malformed(e.to_string()))?;
    let (mut answered, mut not_called) = (Vec::new(), Vec::new());
    for asked in guards {
        let name = asked.guard.name();
        let deadline = Instant::now() + TIMEOUT;
        let selection = match selection(&asked.entries, &plain.request, reader, deadline).await {
            _ if named.is_some_and(|named| named != asked.section) => continue,
            Selection::NotSelected if named.is_none() => {
                let namespace = &plain.request.namespace;
                not_called.push(format!("{name}: namespaceSelector does not select namespace {namespace:?}"));
                continue;
            }
            Selection::NoRule if named.is_none() => continue,
            selection => selection,
        };
        let (entries, doubt) = match selection {
            Selection::Asked(entries) => (entries, None),
            // A named guard is always called.
            Selection::Unknown(entries, cause) => (entries, named.is_none().then_some(cause)),
            Selection::NoRule | Selection::NotSelected => (Vec::new(), None),
        };
        facts.take();
        let began = Instant::now();
        let ruled = rule(asked.guard.as_ref(), document.as_bytes(), doubt).await;
        let (review, settled) = ruled.map_err(malformed)?;
        let took = began.elapsed();
        let response = encode(&review, &settled);
        let evaluation = super::answer::Evaluation::by(&entries, facts.take(), took);
        let settle_policy = asked.guard.settle_policy();
        answered.push(Answered::new(
            source,
            name,
            &review.request,
            &settled,
            settle_policy,
            &response,
            evaluation,
        )?);
    }
    if answered.is_empty() {
        answered.push(Answered::unasked(source, &plain.request));
    }
    for one in &mut answered {
        one.evaluation.not_called.clone_from(&not_called);
    }
    Ok(answered)
}
