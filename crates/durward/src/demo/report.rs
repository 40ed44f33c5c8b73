//! Prints request, verdict, reason and time of each review.

use std::time::Duration;

use admission::{Fields, decode};
use config::Problem;
use serde::Deserialize;

use super::client::Answer;
use super::scenario::{Step, Verdict};
use crate::output::Style;

/// A printed answer.
pub(super) struct StepReport {
    /// The text to print.
    pub(super) text: String,
    /// Whether the verdict is the expected one.
    pub(super) is_expected: bool,
}

#[derive(Deserialize)]
struct Envelope {
    response: Response,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    patch: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
    status: Option<Status>,
    #[serde(default)]
    audit_annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Status {
    message: String,
}

impl Response {
    fn verdict(&self) -> Verdict {
        if self.audit_annotations.contains_key("unknown") {
            Verdict::Unknown
        } else if !self.allowed {
            Verdict::Deny
        } else if self.patch.is_some() {
            Verdict::Mutate
        } else {
            Verdict::Allow
        }
    }
}

/// Formats one step.
pub(super) fn step(number: usize, step: &Step, answer: &Answer, style: Style) -> Result<StepReport, Problem> {
    let unreadable =
        |why: String| Problem::new(format!("the answer to review {number} cannot be read")).why(why);
    if !answer.status.is_success() {
        let text = String::from_utf8_lossy(&answer.body);
        return Err(unreadable(format!("{}: {}", answer.status, text.trim())));
    }
    let Envelope { response } =
        serde_json::from_slice(&answer.body).map_err(|error| unreadable(error.to_string()))?;
    let review =
        decode(step.review.as_bytes(), &Fields::none()).map_err(|error| unreadable(error.to_string()))?;
    let request = &review.request;

    let verdict = response.verdict();
    let warned = match step.warning {
        Some(part) => response.warnings.iter().any(|warning| warning.contains(part)),
        None => response.warnings.is_empty(),
    };
    let is_expected = verdict == step.expected && warned && response.uid == request.uid;

    // In a review of a Namespace, the API server sets the namespace to the object itself.
    let within = match request.namespace.as_ref() {
        "" => String::new(),
        _ if request.kind.kind == "Namespace" => String::new(),
        namespace => format!("{namespace}/"),
    };
    let asked = format!("{} {} {within}{}", request.operation.as_str(), request.kind.kind, request.name);
    let mut lines = vec![
        format!("  {number}. {}", style.bold(step.title)),
        format!("     {} {asked} by {}", style.dim("asked  "), request.user.name),
        format!(
            "     {} {}  {}",
            style.dim("verdict"),
            painted(verdict, response.allowed, style),
            style.dim(&time(answer.took))
        ),
    ];
    let mut report = |what: &str, text: &str| {
        let text = text.replace('\n', "\n             ");
        lines.push(format!("     {} {text}", style.dim(&format!("{what:<7}"))));
    };
    if let Some(status) = &response.status {
        report("reason", &status.message);
    }
    for change in response.patch.as_deref().map(changes).unwrap_or_default() {
        report("change", &change);
    }
    response
        .warnings
        .iter()
        .for_each(|warning| report("kubectl", &format!("{} {warning}", style.yellow("Warning:"))));
    if verdict == Verdict::Allow && response.warnings.is_empty() {
        report("reason", "nothing to object to, nothing to add");
    }
    if !is_expected {
        let expected = format!("expected {:?}, warning {:?}", step.expected, step.warning);
        lines.push(format!("     {}", style.red(&expected)));
    }
    Ok(StepReport { text: format!("{}\n\n", lines.join("\n")), is_expected })
}

fn painted(verdict: Verdict, allowed: bool, style: Style) -> String {
    match verdict {
        Verdict::Allow => style.green("allow"),
        Verdict::Mutate => style.cyan("mutate"),
        Verdict::Deny => style.red("deny"),
        Verdict::Unknown if allowed => style.yellow("unknown, so allow (this guard's stance)"),
        Verdict::Unknown => style.yellow("unknown, so deny (this guard's stance)"),
    }
}

/// Returns a line for each addition of a patch.
fn changes(patch: &str) -> Vec<String> {
    use base64::Engine as _;
    #[derive(Deserialize)]
    struct Operation {
        op: String,
        path: String,
        value: serde_json::Value,
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(patch).unwrap_or_default();
    let operations: Vec<Operation> = serde_json::from_slice(&bytes).unwrap_or_default();
    let told = operations.iter().map(|Operation { op, path, value }| match value {
        serde_json::Value::Array(items) => {
            let names: Vec<_> = items.iter().filter_map(|item| item.get("name")?.as_str()).collect();
            format!("{op} {path}: {}", names.join(", "))
        }
        other => format!("{op} {path}: {other}"),
    });
    told.collect()
}

/// Formats a time to a tenth of a millisecond.
pub(super) fn time(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;
    use crate::demo::scenario::SCENARIOS;

    fn told(expected: Verdict, warning: Option<&'static str>, response: &str) -> Result<StepReport, Problem> {
        let review = SCENARIOS[0].scenes[0].steps[0].review;
        let uid = "5b1d3c1e-0002-4000-8000-000000000001";
        let body = format!(r#"{{"response":{{"uid":"{uid}",{response}}}}}"#);
        let answer = Answer { status: StatusCode::OK, body: body.into(), took: Duration::from_micros(1500) };
        step(1, &Step { title: "t", review, expected, warning }, &answer, Style::stdout())
    }

    #[test]
    fn reports_an_unexpected_verdict() {
        let allow = r#""allowed":true"#;
        let deny = r#""allowed":false,"status":{"message":"in use"}"#;
        assert!(told(Verdict::Allow, None, allow).unwrap().is_expected);
        assert!(!told(Verdict::Mutate, None, allow).unwrap().is_expected);
        assert!(!told(Verdict::Allow, Some("careful"), allow).unwrap().is_expected);
        assert!(!told(Verdict::Allow, None, r#""allowed":true,"warnings":["careful"]"#).unwrap().is_expected);
        let refused = told(Verdict::Deny, None, deny).unwrap();
        assert!(refused.is_expected && refused.text.contains("1.5 ms") && refused.text.contains("in use"));
        let blind = r#""allowed":false,"auditAnnotations":{"unknown":"x"},"status":{"message":"x"}"#;
        assert!(told(Verdict::Unknown, None, blind).unwrap().is_expected);
    }

    #[test]
    fn stops_at_an_answer_that_is_not_a_review() {
        let answer =
            Answer { status: StatusCode::NOT_FOUND, body: "nothing here\n".into(), took: Duration::ZERO };
        let first = &SCENARIOS[0].scenes[0].steps[0];
        let problem = step(1, first, &answer, Style::stdout()).err().unwrap();
        assert!(problem.to_string().contains("404 Not Found: nothing here"));
    }
}
