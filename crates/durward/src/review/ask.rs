//! Asks guards about one review, as the server does: decode with the guard's fields, rule, settle, encode.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Fields, Guard, Review, Settled, WebhookEntry, decode, encode, settle};
use guards::config::Problem;
use guards::world::World;

use super::answer::Answered;
use super::rules::fits;
use super::witness::Witness;
use crate::file::File;

/// What the server leaves of the API server's ten seconds.
const PATIENCE: Duration = Duration::from_millis(8500);

/// A guard that can be asked, and what it is asked about.
pub(crate) struct Asked {
    /// The guard.
    pub(crate) guard: Arc<dyn Guard>,
    /// Its webhook entries.
    pub(crate) entries: Vec<WebhookEntry>,
}

/// The guards of a file, looking at `world`.
pub(crate) fn guards(file: &File, world: &Arc<dyn World>) -> Vec<Asked> {
    let all = file.guards.iter().map(|guard| &guard.configured);
    all.map(|configured| Asked { guard: configured.build(world), entries: configured.webhooks() }).collect()
}

/// One guard's ruling on one review.
pub(crate) async fn rule<'a>(guard: &dyn Guard, body: &'a [u8]) -> Result<(Review<'a>, Settled), String> {
    let review = decode(body, guard.fields()).map_err(|malformed| malformed.to_string())?;
    let ruling = guard.review(&review.request, Instant::now() + PATIENCE).await;
    let settled = settle(&review.request, ruling, guard.stance());
    Ok((review, settled))
}

/// What the guards say of a review: those whose rules fit, or the one that is `named`. Nobody asked is one answer too.
pub(crate) async fn ask(
    guards: &[Asked],
    named: Option<&str>,
    source: &str,
    document: &str,
    witness: &Witness,
) -> Result<Vec<Answered>, Problem> {
    let malformed = |why: String| {
        let problem =
            Problem::new(format!("{source} is not an AdmissionReview that can be answered")).why(why);
        problem.next("what kubectl applies is no review: see durward inject, or examples/reviews")
    };
    let plain = decode(document.as_bytes(), &Fields::none()).map_err(|e| malformed(e.to_string()))?;
    let mut answered = Vec::new();
    for asked in guards {
        let is_meant = match named {
            Some(name) => asked.guard.name() == name,
            None => asked.entries.iter().any(|entry| fits(entry, &plain.request)),
        };
        if !is_meant {
            continue;
        }
        witness.facts();
        let began = Instant::now();
        let (review, settled) = rule(asked.guard.as_ref(), document.as_bytes()).await.map_err(malformed)?;
        let took = began.elapsed();
        let response = encode(&review, &settled);
        let rules = asked.entries.iter().filter(|entry| fits(entry, &review.request));
        let rules = rules.map(|entry| entry.name.clone()).collect();
        let way = super::answer::Way { rules, facts: witness.facts(), took };
        let stance = asked.guard.stance();
        answered.push(Answered::new(
            source,
            asked.guard.name(),
            &review.request,
            &settled,
            stance,
            &response,
            way,
        )?);
    }
    if answered.is_empty() {
        answered.push(Answered::unasked(source, &plain.request));
    }
    Ok(answered)
}
