//! `-o sarif`: changes at their places in the new CRD, and objects that break.

use config::Place;
use console::sarif::{self, Rules, locations};
use serde_json::{Value, json};

use super::live::LiveReport;
use super::report::{DiffReport, ObjectEffect, Replayed};

/// Returns the log of a comparison.
pub(super) fn of_report(report: &DiffReport) -> Value {
    let (mut rules, mut results) = (Rules::default(), Vec::new());
    for crd in &report.crds {
        for change in &crd.changes {
            let id = format!("durward/{}", change.class());
            let full = "An existing object can break, or it is not known.";
            results.push(result(
                &mut rules,
                &id,
                full,
                ("error", change.message()),
                Some(change.place()),
                &crd.name,
            ));
        }
        let objects = crd.objects.iter().filter(|object| object.verdict != ObjectEffect::Unaffected);
        results.extend(objects.map(|object| of_object(&mut rules, object, object.position.as_ref())));
    }
    sarif::log(run(report.exit_code, &report.kube_version), rules, results)
}

/// Returns the log of a comparison with clusters. An object has no file, so its place is that of the CRD.
pub(super) fn of_live(report: &LiveReport) -> Value {
    let (mut rules, mut results) = (Rules::default(), Vec::new());
    for crd in &report.crds {
        results.extend(crd.objects.iter().map(|object| of_object(&mut rules, object, Some(&crd.place))));
        for cluster in crd.clusters.iter().filter(|cluster| cluster.unread.is_some()) {
            let why = format!("{}: {}", cluster.cluster, cluster.unread.as_deref().unwrap_or_default());
            let full = "All objects of the cluster must be readable.";
            results.push(result(
                &mut rules,
                "durward/unread",
                full,
                ("error", &why),
                Some(&crd.place),
                &crd.name,
            ));
        }
    }
    sarif::log(run(report.exit_code, &report.kube_version), rules, results)
}

fn run(exit_code: console::exit::Exit, kube_version: &str) -> Value {
    json!({
        "automationDetails": {"id": "durward-diff-crd/"},
        "invocations": [{"executionSuccessful": true, "exitCode": exit_code}],
        "properties": {"kubeVersion": kube_version},
    })
}

fn of_object(rules: &mut Rules, object: &Replayed, place: Option<&Place>) -> Value {
    let mut lines = Vec::new();
    object.lines(console::output::Style::plain(), &mut lines);
    let level =
        if object.is_invalid() || object.verdict == ObjectEffect::Unknown { "error" } else { "warning" };
    let (id, full) = match object.verdict {
        ObjectEffect::Unknown => ("durward/undecided", "The object could not be decided."),
        _ if object.is_invalid() => {
            ("durward/invalid", "The object can't be updated any more, or loses fields.")
        }
        _ => ("durward/create", "The object can be updated, but not created again."),
    };
    let name = format!("{} {} {}", object.api_version, object.kind, object.full_name());
    result(rules, id, full, (level, &lines.join("\n")), place, &name)
}

fn result(
    rules: &mut Rules,
    id: &str,
    full: &str,
    (level, message): (&str, &str),
    place: Option<&Place>,
    object: &str,
) -> Value {
    let short = full.trim_end_matches('.');
    let index = rules.index(id, short, full);
    json!({
        "ruleId": id,
        "ruleIndex": index,
        "level": level,
        "message": {"text": message},
        "locations": locations(place, object),
    })
}
