//! Asks guards about one review, as the server does: decode with the guard's fields, rule, settle, encode.

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

/// What the server leaves of the API server's ten seconds.
pub(crate) const PATIENCE: Duration = Duration::from_millis(8500);

/// A guard that can be asked, and what it is asked about.
pub(crate) struct Asked {
    /// The guard.
    pub(crate) guard: Arc<dyn Guard>,
    /// Its webhook entries.
    pub(crate) entries: Vec<WebhookEntry>,
}

/// The guards of a file with these clients.
pub(crate) fn guards(file: &File, clients: &Clients) -> Vec<Asked> {
    let all = file.guards.iter().map(|guard| &guard.configured);
    all.map(|configured| Asked { guard: configured.build(clients), entries: configured.webhooks() }).collect()
}

/// One guard's ruling on one review. With a `doubt` whether it is asked at all, only what is the same either way counts: that
/// the object passes as it is.
pub(crate) async fn rule<'a>(
    guard: &dyn Guard,
    body: &'a [u8],
    doubt: Option<Cause>,
) -> Result<(Review<'a>, Settled), String> {
    let review = decode(body, guard.fields()).map_err(|malformed| malformed.to_string())?;
    let ruling = guard.review(&review.request, Instant::now() + PATIENCE).await;
    let settled = settle(&review.request, ruling, guard.settle_policy());
    let settled = match (doubt, &settled.answer) {
        (None, _) | (Some(_), Answer::Allow) => settled,
        (Some(doubt), _) => settle(&review.request, Ruling::unknown(doubt), guard.settle_policy()),
    };
    Ok((review, settled))
}

/// What the guards say of a review: those that the API server asks, or the one that is `named`. Nobody asked is one answer too.
/// Guards look at the world through the witness; which of them are asked is decided by the world behind it.
pub(crate) async fn ask(
    guards: &[Asked],
    named: Option<&str>,
    source: &str,
    document: &str,
    (facts, reader): (&FactLog, &dyn Reader),
) -> Result<Vec<Answered>, Problem> {
    let malformed = |why: String| {
        let problem =
            Problem::new(format!("{source} is not an AdmissionReview that can be answered")).why(why);
        problem.next("what kubectl applies is no review: see durward inject, or examples/reviews")
    };
    let plain = decode(document.as_bytes(), &Fields::none()).map_err(|e| malformed(e.to_string()))?;
    let (mut answered, mut not_asked) = (Vec::new(), Vec::new());
    for asked in guards {
        let name = asked.guard.name();
        let deadline = Instant::now() + PATIENCE;
        let selection = match selection(&asked.entries, &plain.request, reader, deadline).await {
            _ if named.is_some_and(|named| named != name) => continue,
            Selection::NotSelected if named.is_none() => {
                let namespace = &plain.request.namespace;
                not_asked.push(format!("{name}: namespaceSelector does not select namespace {namespace:?}"));
                continue;
            }
            Selection::NoRule if named.is_none() => continue,
            selection => selection,
        };
        let (entries, doubt) = match selection {
            Selection::Asked(entries) => (entries, None),
            // By name a guard is asked in any case.
            Selection::Unknown(entries, cause) => (entries, named.is_none().then_some(cause)),
            Selection::NoRule | Selection::NotSelected => (Vec::new(), None),
        };
        facts.take();
        let began = Instant::now();
        let ruled = rule(asked.guard.as_ref(), document.as_bytes(), doubt).await;
        let (review, settled) = ruled.map_err(malformed)?;
        let took = began.elapsed();
        let response = encode(&review, &settled);
        let way = super::answer::Way::by(&entries, facts.take(), took);
        let settle_policy = asked.guard.settle_policy();
        answered.push(Answered::new(source, name, &review.request, &settled, settle_policy, &response, way)?);
    }
    if answered.is_empty() {
        answered.push(Answered::unasked(source, &plain.request));
    }
    for one in &mut answered {
        one.way.not_asked.clone_from(&not_asked);
    }
    Ok(answered)
}
