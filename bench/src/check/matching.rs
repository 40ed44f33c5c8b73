//! The cost of policies that can't match, and of policies that can.

use std::time::{Duration, Instant};

use fastrand::Rng;
use policy::facts::Facts;
use policy::kinds::Kinds;
use policy::release::Release;
use policy::request::{GroupVersion, Request};
use policy::set::{Builder, PolicySet};
use policy::value::{Arena, Value, read_json};
use serde_json::Value as Json;

use super::rules::{self, Policy};
use super::{MINOR, POLICIES, TENTH};
use crate::figures::{Limit, Row, Samples};
use crate::report::Report;
use crate::{Result, rounds};

/// Policies that can't match.
const ELSEWHERE: usize = 9 * POLICIES;
/// Limit of the time with them, over the time without them.
const LIMIT: f64 = 1.1;
/// Evaluations of an object in a round, of which the shortest counts.
const EVALUATIONS: usize = 5;

/// Measures, and adds the figures to the table of Kyverno.
pub(crate) fn measure(
    rng: &mut Rng,
    policies: &[Policy],
    manifests: &[Json],
    report: &mut Report,
) -> Result<()> {
    let elsewhere = rules::elsewhere(rng, ELSEWHERE);
    let twice = rules::policies(rng, 2 * POLICIES);
    let sets = [load(policies.iter())?, load(policies.iter().chain(&elsewhere))?, load(twice.iter())?];
    let mut samples = [const { Samples::NONE }; 3];
    for _ in 0..rounds() {
        let mut sums = [Duration::ZERO; 3];
        for manifest in manifests.iter().step_by(TENTH) {
            let text = manifest.to_string();
            for (set, sum) in sets.iter().zip(&mut sums) {
                *sum += shortest(set, &text)?;
            }
        }
        for (samples, sum) in samples.iter_mut().zip(sums) {
            samples.push_time(sum);
        }
    }
    let [once, with_elsewhere, twice] = samples;
    let row =
        Row::seconds(format!("evaluation with {ELSEWHERE} more policies that can't match"), with_elsewhere);
    report.row(row.limited_by("without them", once.clone()).limit(Limit::RatioAtMost(LIMIT)));
    let row = Row::seconds(format!("evaluation with {POLICIES} more policies that can match"), twice);
    report.row(row.limited_by("without them", once));
    Ok(())
}

fn load<'p>(policies: impl Iterator<Item = &'p Policy>) -> Result<PolicySet> {
    let mut builder = Builder::new(Release::for_new(MINOR));
    let mut arena = Arena::new();
    for Policy { policy, binding } in policies {
        for document in [policy, binding] {
            builder.add("bench", read_json(arena.text(&document.to_string()), &arena)?);
        }
        arena.reset();
    }
    builder.finish().map_err(|errors| format!("the policies are refused: {errors:?}").into())
}

fn shortest(set: &PolicySet, text: &str) -> Result<Duration> {
    (0..EVALUATIONS).try_fold(Duration::MAX, |best, _| Ok(evaluate(set, text)?.min(best)))
}

/// Time of the evaluation of an object, without reading it.
fn evaluate(set: &PolicySet, text: &str) -> Result<Duration> {
    let (kinds, facts, arena) = (Kinds::new(), Facts::default(), Arena::new());
    let object = read_json(text, &arena)?;
    let metadata = object.field("metadata").unwrap_or_default();
    let field =
        |of: Value<'_>, name| of.field(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let (api_version, kind) = (field(object, "apiVersion"), field(object, "kind"));
    let (name, namespace) = (field(metadata, "name"), field(metadata, "namespace"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let kind = GroupVersion { group, version, name: &kind };
    let resource = kinds.lookup(group, version, kind.name).ok_or("an unknown kind")?;
    let request = Request {
        operation: "CREATE",
        kind,
        resource: GroupVersion { name: &resource.plural, ..kind },
        name: &name,
        namespace: &namespace,
        object,
        ..Request::default()
    };
    let start = Instant::now();
    let evaluation = set.evaluate(&request, &facts, &arena, &|| true);
    let time = start.elapsed();
    if evaluation.missing.is_empty() {
        Ok(time)
    } else {
        Err(format!("facts are missing: {:?}", evaluation.missing).into())
    }
}
