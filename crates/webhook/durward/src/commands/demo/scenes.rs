//! The scenes of the demo, read from the embedded `examples/`.

use config::Problem;
use serde::Deserialize;

/// Path and text of each example.
pub(super) static EXAMPLES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/examples.rs"));

/// Requests to one guard in one state of the clusters.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scene {
    /// The name of the guard.
    pub(super) guard: String,
    /// The state of the clusters, as a heading.
    pub(super) title: String,
    /// The directory of the snapshot.
    pub(super) snapshot: String,
    /// Requests in order.
    pub(super) steps: Vec<SceneStep>,
}

/// One request and its expected verdict.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SceneStep {
    /// The command that causes the request.
    pub(super) request: String,
    /// The file with the `AdmissionReview`.
    pub(super) review: String,
    /// The expected verdict.
    pub(super) verdict: SceneVerdict,
    /// A part of the expected warning; `None` if no warning is expected.
    pub(super) warning: Option<String>,
}

/// The verdict of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SceneVerdict {
    /// Allowed without changes.
    Allow,
    /// Allowed with changes.
    Mutate,
    /// Denied.
    Deny,
    /// Not decidable; `onUnknown` of the guard applies.
    Unknown,
}

/// Returns the text of an example.
pub(super) fn example(path: &str) -> Result<&'static str, Problem> {
    let found = EXAMPLES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text);
    found.ok_or_else(|| Problem::new(format!("the demo has no file {path}")))
}

/// Reads the scenes of one guard, or of all.
pub(super) fn scenes(guard: Option<&str>) -> Result<Vec<Scene>, Problem> {
    let mut scenes: Vec<Scene> = serde_saphyr::from_str(example("demo/scenes.yaml")?)
        .map_err(|error| Problem::new("the scenes of the demo are invalid").why(error.to_string()))?;
    scenes.retain(|scene| guard.is_none_or(|guard| scene.guard == guard));
    Ok(scenes)
}

#[cfg(test)]
mod tests {
    use guards::GUARD_KINDS;

    use super::*;

    #[test]
    fn every_guard_has_an_allowed_and_an_unknown_request() {
        for kind in GUARD_KINDS {
            let scenes = scenes(Some(kind.name())).unwrap();
            let expected: Vec<_> =
                scenes.iter().flat_map(|scene| &scene.steps).map(|step| step.verdict).collect();
            assert!(
                expected.contains(&SceneVerdict::Allow) && expected.contains(&SceneVerdict::Unknown),
                "{}",
                kind.name()
            );
        }
    }

    #[test]
    fn every_file_of_a_scene_exists() {
        for scene in scenes(None).unwrap() {
            assert!(GUARD_KINDS.iter().any(|kind| kind.name() == scene.guard), "{}", scene.guard);
            assert!(EXAMPLES.iter().any(|(name, _)| name.starts_with(&format!("{}/", scene.snapshot))));
            for step in &scene.steps {
                example(&step.review).unwrap();
            }
        }
    }
}
