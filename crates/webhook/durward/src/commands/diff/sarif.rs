//! `-o sarif`: changes at their places in the new CRD, and objects that break.

use config::Place;
use console::exit::Exit;
use console::output::Style;
use console::sarif::{self, Rules, locations};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::live::{LiveReport, REMOVED};
use super::report::{DiffReport, ObjectEffect, Replayed};

/// Returns the log of a comparison.
pub(super) fn of_report(report: &DiffReport) -> Log<'_> {
    let mut log = Log::new(report.exit_code, &report.kube_version);
    for crd in &report.crds {
        for change in &crd.changes {
            let rule = (change.class(), "An existing object can break, or it is not known.");
            let text = || (change.message().to_owned(), crd.name.clone());
            log.push(rule, "error", Some(change.place()), text);
        }
        let objects = crd.objects.iter().filter(|object| object.verdict != ObjectEffect::Unaffected);
        objects.for_each(|object| log.push_object(object, object.position.as_ref()));
    }
    log
}

/// Returns the log of a comparison with clusters. An object has no file, so its place is that of the CRD.
pub(super) fn of_live(report: &LiveReport) -> Log<'_> {
    let mut log = Log::new(report.exit_code, &report.kube_version);
    let unread = ("unread", "All objects of all clusters must be readable.");
    for crd in &report.crds {
        crd.objects.iter().for_each(|object| log.push_object(object, Some(&crd.place)));
        for (cluster, why) in crd.clusters.iter().filter_map(|one| Some((&one.cluster, one.unread.as_ref()?)))
        {
            log.push(unread, "error", Some(&crd.place), move || {
                (format!("{cluster}: {why}"), crd.name.clone())
            });
        }
    }
    for name in &report.removed {
        let rule = ("crdRemoved", "An existing object can break, or it is not known.");
        log.push(rule, "error", None, || (REMOVED.to_owned(), name.clone()));
    }
    if let Some(why) = &report.incomplete {
        log.push(unread, "error", None, || (why.clone(), String::new()));
    }
    log
}

/// The rules and the results.
pub(super) struct Log<'r> {
    run: Value,
    rules: Rules,
    results: Vec<Lazy<'r>>,
}

/// A result. Its JSON takes several kB, so it is made when it is written: there can be a hundred thousand.
struct Lazy<'r>(Box<dyn Fn() -> Value + 'r>);

impl Serialize for Lazy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0)().serialize(serializer)
    }
}

impl<'r> Log<'r> {
    fn new(exit_code: Exit, kube_version: &str) -> Self {
        let run = json!({
            "automationDetails": {"id": "durward-diff-crd/"},
            "invocations": [{"executionSuccessful": true, "exitCode": exit_code}],
            "properties": {"kubeVersion": kube_version},
        });
        Self { run, rules: Rules::default(), results: Vec::new() }
    }

    fn push_object(&mut self, object: &'r Replayed, place: Option<&'r Place>) {
        let (rule, level) = match object.verdict {
            ObjectEffect::Unknown => (("undecided", "The object could not be decided."), "error"),
            _ if object.is_invalid() => {
                (("invalid", "The object can't be updated any more, or loses fields."), "error")
            }
            _ => (("create", "The object can be updated, but not created again."), "warning"),
        };
        self.push(rule, level, place, || {
            let mut lines = Vec::new();
            object.lines(Style::plain(), &mut lines);
            let name = format!("{} {} {}", object.api_version, object.kind, object.full_name());
            (lines.join("\n"), name)
        });
    }

    /// Adds a result. `text` returns the message and the name of the object.
    fn push(
        &mut self,
        (rule, full): (&str, &str),
        level: &'static str,
        place: Option<&'r Place>,
        text: impl Fn() -> (String, String) + 'r,
    ) {
        let id = format!("durward/{rule}");
        let index = self.rules.index(&id, full.trim_end_matches('.'), full);
        self.results.push(Lazy(Box::new(move || {
            let (message, of) = text();
            json!({
                "ruleId": id, "ruleIndex": index, "level": level, "message": {"text": message}, "locations": locations(place, &of),
            })
        })));
    }

    /// Returns the log as SARIF.
    pub(super) fn finish(self) -> impl Serialize {
        sarif::log(self.run, self.rules, self.results)
    }
}
