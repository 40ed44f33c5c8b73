//! The policies and manifests of the comparison, from `data/rules.yaml` and `data/manifests.yaml`.

use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::Result;

const RULES: &str = include_str!("../../data/rules.yaml");
const MANIFESTS: &str = include_str!("../../data/manifests.yaml");
const METADATA: &str = "metadata:
  name: web-$N<|--copy>
  namespace: <shop|monitoring>
  labels: {app.kubernetes.io/name: web-$N, app.kubernetes.io/part-of: store, tier: backend, team: <checkout|Team A>} # usual
  annotations: {example.test/contact: oncall@example.test, example.test/owner: <owners@example.test|unknown>}
";

/// The file with rules.
#[derive(Deserialize)]
struct Rules {
    resources: Map<String, Json>,
    variables: Json,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    name: String,
    on: String,
    expression: String,
    message: Option<String>,
    message_expression: Option<String>,
}

/// Returns each policy with its binding as YAML.
///
/// Without a cluster, Kyverno ignores the match constraints of a policy that has a binding, so each binding repeats them.
pub(super) fn policies() -> Result<Vec<String>> {
    let Rules { resources, variables, rules } = serde_saphyr::from_str(RULES)?;
    let policy = |Rule { name, on, expression, message, message_expression }: Rule| {
        let matching = json!({"resourceRules": resources.get(&on).ok_or("unknown resources")?});
        let mut validation = json!({"expression": expression});
        for (key, text) in [("message", message), ("messageExpression", message_expression)] {
            if let Some(text) = text {
                validation[key] = text.into();
            }
        }
        let mut spec = json!({"matchConstraints": matching, "validations": [validation]});
        if on == "pods" {
            spec["variables"] = variables.clone();
        }
        let api = "admissionregistration.k8s.io/v1";
        let policy = json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec});
        let spec = json!({"policyName": name, "validationActions": ["Deny"], "matchResources": matching});
        let binding = json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": spec});
        Ok(format!("{policy}\n---\n{binding}\n"))
    };
    rules.into_iter().map(policy).collect()
}

/// Returns manifests as YAML.
pub(super) fn manifests(count: usize) -> Vec<String> {
    let mut templates = MANIFESTS.split("---\n");
    let pod = templates.next().unwrap_or_default().replace('\n', "\n          ");
    let templates: Vec<String> = templates
        .map(|template| {
            METADATA.to_owned() + &template.replace("$POD", &format!("\n          {}", pod.trim_end()))
        })
        .collect();
    templates
        .iter()
        .cycle()
        .take(count)
        .enumerate()
        .map(|(number, template)| fill(template, number))
        .collect()
}

/// Fills a template, as the head of the file describes. The same number makes the same manifest.
fn fill(template: &str, number: usize) -> String {
    let mut rng = Rng::with_seed(number as u64);
    let mut is_rare = || rng.u8(..50) == 0;
    let mut text = String::new();
    for line in template.lines() {
        let (line, mark) = line.split_once(" # ").unwrap_or((line, ""));
        if (mark == "usual" && is_rare()) || (mark == "rare" && !is_rare()) || line.trim().starts_with('#') {
            continue;
        }
        for part in line.split(['<', '>']) {
            text.push_str(match part.split_once('|') {
                Some((_, rare)) if is_rare() => rare,
                Some((usual, _)) => usual,
                None => part,
            });
        }
        text.push('\n');
    }
    text.replace("$N", &number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_have_the_usual_fields_and_now_and_then_a_rare_one() {
        let manifests = manifests(1_300);
        let count = |text: &str| manifests.iter().filter(|manifest| manifest.contains(text)).count();
        assert_eq!(count("kind: Deployment"), 100 + 100, "the HorizontalPodAutoscalers name one too");
        assert!(
            (400..600).contains(&count("automountServiceAccountToken: false\n          term")),
            "{}",
            manifests[0]
        );
        assert!((3..40).contains(&count("hostNetwork: true")));
        for manifest in manifests {
            let value: Json = serde_saphyr::from_str(&manifest).unwrap();
            assert!(value["kind"].is_string() && !manifest.contains(['<', '>', '$']), "{manifest}");
        }
    }
}
