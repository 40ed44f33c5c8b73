//! Formats the answer to a request of the demo, as kubectl shows it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::Problem;
use console::output::{self, Style};
use serde::Deserialize;
use serde_json::Value;

use super::scenes::{SceneStep, SceneVerdict};

/// A formatted answer.
pub(super) struct StepReport {
    /// The text to print.
    pub(super) text: String,
    /// Whether the verdict is the expected one.
    pub(super) is_expected: bool,
}

#[derive(Deserialize)]
struct Envelope {
    response: ShownResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ShownResponse {
    allowed: bool,
    patch: Option<String>,
    warnings: Vec<String>,
    status: ShownStatus,
    audit_annotations: serde_json::Map<String, Value>,
}

#[derive(Deserialize, Default)]
struct ShownStatus {
    message: String,
}

impl ShownResponse {
    fn verdict(&self) -> SceneVerdict {
        match (self.allowed, &self.patch) {
            _ if self.audit_annotations.contains_key("unknown") => SceneVerdict::Unknown,
            (false, _) => SceneVerdict::Deny,
            (true, Some(_)) => SceneVerdict::Mutate,
            (true, None) => SceneVerdict::Allow,
        }
    }
}

/// Formats a request and its answer.
pub(super) fn step(
    step: &SceneStep,
    answer: &str,
    took: Duration,
    style: Style,
) -> Result<StepReport, Problem> {
    let Envelope { response } = serde_json::from_str(answer)
        .map_err(|error| Problem::new("the server's answer is not a review").why(error.to_string()))?;
    let verdict = response.verdict();
    let is_warned = match &step.warning {
        Some(part) => response.warnings.iter().any(|warning| warning.contains(part)),
        None => response.warnings.is_empty(),
    };
    let is_expected = verdict == step.verdict && is_warned;
    let word = match (verdict, response.allowed) {
        (SceneVerdict::Allow, _) => style.green("allowed"),
        (SceneVerdict::Mutate, _) => style.cyan("allowed, with changes"),
        (SceneVerdict::Deny, _) => style.red("denied"),
        (SceneVerdict::Unknown, true) => style.yellow("allowed: could not check"),
        (SceneVerdict::Unknown, false) => style.yellow("denied: could not check"),
    };
    let mut lines = vec![
        format!("  $ {}", step.request),
        format!("    {word} {}", style.dim(&format!("({})", time(took)))),
    ];
    let mut add = |text: &str| lines.extend(text.lines().map(|line| format!("    {line}")));
    // The long command that overrides a denial is the same in each message.
    guards::lines_without_override(&response.status.message).for_each(&mut add);
    for change in response.patch.as_deref().map(changes).unwrap_or_default() {
        add(&change);
    }
    for warning in &response.warnings {
        add(&format!("{} {warning}", style.yellow("Warning:")));
    }
    if !is_expected {
        add(&style.red(&format!("expected {:?}, warning {:?}", step.verdict, step.warning)));
    }
    Ok(StepReport { text: output::lines(lines), is_expected })
}

/// Returns a line for each addition of a patch.
fn changes(patch: &str) -> Vec<String> {
    let bytes = STANDARD.decode(patch).unwrap_or_default();
    let operations: Vec<Value> = serde_json::from_slice(&bytes).unwrap_or_default();
    let change = |operation: &Value| {
        let value = &operation["value"];
        let names = value.as_array().map(|items| {
            let names = items.iter().filter_map(|item| item["name"].as_str());
            names.collect::<Vec<_>>().join(", ")
        });
        let path = operation["path"].as_str().unwrap_or_default();
        format!("+ {path}: {}", names.unwrap_or_else(|| value.to_string()))
    };
    operations.iter().map(change).collect()
}

/// Formats a time to a tenth of a millisecond.
pub(super) fn time(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdict: SceneVerdict, warning: Option<&str>, response: &str) -> StepReport {
        let warning = warning.map(str::to_owned);
        let expected = SceneStep { request: "kubectl".to_owned(), review: String::new(), verdict, warning };
        let answer = format!(r#"{{"response":{{{response}}}}}"#);
        step(&expected, &answer, Duration::from_micros(1500), Style::stdout()).unwrap()
    }

    #[test]
    fn reports_an_unexpected_verdict() {
        let allow = r#""allowed":true"#;
        let deny = r#""allowed":false,"status":{"message":"in use\nNext: wait"}"#;
        assert!(report(SceneVerdict::Allow, None, allow).is_expected);
        assert!(!report(SceneVerdict::Mutate, None, allow).is_expected);
        assert!(!report(SceneVerdict::Allow, Some("careful"), allow).is_expected);
        assert!(!report(SceneVerdict::Allow, None, r#""allowed":true,"warnings":["careful"]"#).is_expected);
        let denied = report(SceneVerdict::Deny, None, deny);
        assert!(denied.is_expected && denied.text.ends_with("denied (1.5 ms)\n    in use\n    Next: wait\n"));
        let unknown = r#""allowed":false,"auditAnnotations":{"unknown":"x"},"status":{"message":"x"}"#;
        assert!(report(SceneVerdict::Unknown, None, unknown).is_expected);
    }
}
