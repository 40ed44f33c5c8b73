//! `-o sarif`: changes at their places in the new CRD, and objects that break.

use config::Place;
use console::exit::Exit;
use console::output::Style;
use console::sarif::{self, Rules, locations};
use serde_json::{Value, json};

use super::live::{LiveReport, REMOVED};
use super::report::{DiffReport, ObjectEffect, Replayed};

/// Returns the log of a comparison.
pub(super) fn of_report(report: &DiffReport) -> Value {
    let mut log = Log::default();
    for crd in &report.crds {
        for change in &crd.changes {
            let rule = (change.class(), "An existing object can break, or it is not known.");
            log.push(rule, "error", change.message(), Some(change.place()), &crd.name);
        }
        let objects = crd.objects.iter().filter(|object| object.verdict != ObjectEffect::Unaffected);
        objects.for_each(|object| log.push_object(object, object.position.as_ref()));
    }
    log.finish(report.exit_code, &report.kube_version)
}

/// Returns the log of a comparison with clusters. An object has no file, so its place is that of the CRD.
pub(super) fn of_live(report: &LiveReport) -> Value {
    let mut log = Log::default();
    let unread = ("unread", "All objects of all clusters must be readable.");
    for crd in &report.crds {
        crd.objects.iter().for_each(|object| log.push_object(object, Some(&crd.place)));
        for cluster in &crd.clusters {
            let why = cluster.unread.iter().map(|why| format!("{}: {why}", cluster.cluster));
            why.for_each(|why| log.push(unread, "error", &why, Some(&crd.place), &crd.name));
        }
    }
    for name in &report.removed {
        log.push(("crdRemoved", "An existing object can break."), "error", REMOVED, None, name);
    }
    report.incomplete.iter().for_each(|why| log.push(unread, "error", why, None, ""));
    log.finish(report.exit_code, &report.kube_version)
}

#[derive(Default)]
struct Log {
    rules: Rules,
    results: Vec<Value>,
}

impl Log {
    fn push_object(&mut self, object: &Replayed, place: Option<&Place>) {
        let mut lines = Vec::new();
        object.lines(Style::plain(), &mut lines);
        let (rule, level) = match object.verdict {
            ObjectEffect::Unknown => (("undecided", "The object could not be decided."), "error"),
            _ if object.is_invalid() => {
                (("invalid", "The object can't be updated any more, or loses fields."), "error")
            }
            _ => (("create", "The object can be updated, but not created again."), "warning"),
        };
        let name = format!("{} {} {}", object.api_version, object.kind, object.full_name());
        self.push(rule, level, &lines.join("\n"), place, &name);
    }

    fn push(
        &mut self,
        (id, full): (&str, &str),
        level: &str,
        message: &str,
        place: Option<&Place>,
        of: &str,
    ) {
        let id = format!("durward/{id}");
        let index = self.rules.index(&id, full.trim_end_matches('.'), full);
        self.results.push(json!({
            "ruleId": id, "ruleIndex": index, "level": level, "message": {"text": message}, "locations": locations(place, of),
        }));
    }

    fn finish(self, exit_code: Exit, kube_version: &str) -> Value {
        let run = json!({
            "automationDetails": {"id": "durward-diff-crd/"},
            "invocations": [{"executionSuccessful": true, "exitCode": exit_code}],
            "properties": {"kubeVersion": kube_version},
        });
        sarif::log(run, self.rules, self.results)
    }
}
