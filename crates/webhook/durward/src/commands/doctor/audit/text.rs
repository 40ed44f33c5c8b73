//! The report as text: status, tables, and the decisions before a guard is enforced.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use console::output::{Style, lines};

use super::super::finding;
use super::{AuditReport, CallGroup, Groups, Seen, Source};

/// Rows below a heading. JSON has all.
const SHOWN: usize = 30;

const WAY_BACK: &str = "  The way back is mode: audit. At once, for all guards:\n  kubectl delete validatingwebhookconfiguration durward\n";

const OF_METRICS: &str = "\nMetrics count since the start of a process. Each replica of an API server counts for itself, and one of them answered.\n";

impl AuditReport {
    pub(in super::super) fn text(&self, style: Style) -> String {
        let mut out = lines(self.sources.iter().map(Source::text));
        let tables = [("would be denied", &self.would_deny), ("could not be checked", &self.unchecked)];
        out.push_str(&self.total(style));
        out.push_str(&finding::text(&self.findings, style));
        for (title, groups) in tables {
            out.push_str(&table(title, groups, style));
        }
        // A source that was not read can contain more denials.
        if !self.findings.is_empty() {
            return out;
        }
        let _ = writeln!(out, "\n{}", style.bold("Before you enforce"));
        for (at, step) in self.steps().iter().enumerate() {
            // Writing to a `String` can't fail.
            let _ = writeln!(out, "  {}. {step}", at + 1);
        }
        out.push_str(WAY_BACK);
        out.push_str(if self.is_of_metrics() { OF_METRICS } else { "" });
        out
    }

    /// Returns the line with the number of denials. Metrics count a request that could not be checked among them, once for each cause.
    fn total(&self, style: Style) -> String {
        let sum = |groups: &Groups| groups.0.values().map(|seen| seen.count).sum::<u64>();
        let (denied, unchecked) = (sum(&self.would_deny), sum(&self.unchecked));
        let (all, of_them) = match unchecked {
            0 => (denied, String::new()),
            _ if self.is_of_metrics() => {
                (denied, ", some of them because Durward could not check".to_owned())
            }
            some => (denied + some, format!(", {some} of them because Durward could not check")),
        };
        let line = format!("would be denied: {all}{of_them}\n");
        if all == 0 { style.green(&line) } else { style.red(&line) }
    }

    fn is_of_metrics(&self) -> bool {
        self.sources.iter().all(|source| source.requests.is_none())
    }

    /// Returns the steps to enforce mode.
    fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        if !self.unchecked.0.is_empty() {
            let commands: BTreeSet<_> = self.unchecked.0.keys().map(|group| doctor(group.guard)).collect();
            let commands: Vec<_> = commands.into_iter().collect();
            steps.push(format!("fix the causes of what could not be checked: {}", commands.join(", ")));
        }
        if self.is_of_metrics() {
            steps.push("find the callers: durward doctor audit --audit-log FILE".to_owned());
        } else if !self.would_deny.0.is_empty() {
            let text = "decide for each caller: the denial is right, or exempt it in durward.yaml";
            steps.push(format!("{text}{}", self.exemptions()));
        }
        steps.push("enforce one guard at a time: mode: enforce, and webhook.failurePolicy: Fail".to_owned());
        steps
    }

    /// Returns the lines that exempt all callers, by the section of their guard.
    fn exemptions(&self) -> String {
        let mut callers: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for CallGroup { guard, caller, .. } in
            self.would_deny.0.keys().filter(|group| !group.caller.is_empty())
        {
            let account = caller.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
            let (key, name) = match account {
                Some((namespace, name)) => ("serviceAccounts", format!("{namespace}/{name}")),
                None => ("users", caller.clone()),
            };
            // JSON is YAML, and a name can have characters that YAML interprets.
            callers.entry((guard, key)).or_default().insert(serde_json::Value::from(name).to_string());
        }
        let line = |((guard, key), names): ((&&str, &str), BTreeSet<String>)| {
            let names: Vec<_> = names.into_iter().collect();
            format!("\n     guards.{guard}.exempt:  {key}: [{}]", names.join(", "))
        };
        callers.into_iter().map(line).collect()
    }
}

impl Source {
    fn text(&self) -> String {
        let Self { name, requests, from, to } = self;
        match requests {
            Some(0) => format!("{name}: no requests"),
            Some(requests) => format!("{name}: {requests} requests of all kinds from {from} to {to}"),
            None => format!("{name}: since {from}"),
        }
    }
}

/// Returns the part of `doctor` that finds why a guard could not check.
fn doctor(guard: &str) -> &'static str {
    match guard {
        "deletion" => "kubectl -n durward-system exec deploy/durward -- durward doctor fleet",
        "etcd" => "kubectl -n durward-system exec deploy/durward -- durward doctor etcd",
        _ => "kubectl -n durward-system exec deploy/durward -- durward doctor install",
    }
}

fn table(title: &str, groups: &Groups, style: Style) -> String {
    let mut by_heading: BTreeMap<_, Vec<(&CallGroup, &Seen)>> = BTreeMap::new();
    for (group, seen) in &groups.0 {
        let key = (group.guard, group.policy.as_str(), group.is_controller, group.caller.is_empty());
        by_heading.entry(key).or_default().push((group, seen));
    }
    let mut out = String::new();
    for mut rows in by_heading.into_values() {
        let heading = rows.first().map(|(group, _)| group.heading()).unwrap_or_default();
        let _ = writeln!(out, "\n{}", style.bold(&format!("{heading}, {title}")));
        rows.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.count));
        out.extend(rows.iter().take(SHOWN).map(|(group, seen)| row(group, seen, style)));
        if rows.len() > SHOWN {
            let _ = writeln!(out, "{} more: -o json", rows.len() - SHOWN);
        }
    }
    out
}

impl CallGroup {
    fn heading(&self) -> String {
        let policy =
            if self.policy.is_empty() { String::new() } else { format!(", native policy {}", self.policy) };
        let callers = match (self.caller.as_str(), self.is_controller) {
            ("", _) => "",
            (_, true) => ", controllers",
            (_, false) => ", users",
        };
        format!("{} guard{policy}{callers}", self.guard)
    }
}

fn row(group: &CallGroup, seen: &Seen, style: Style) -> String {
    let Seen { count, first, last, message, .. } = seen;
    let CallGroup { cause, caller, verb, resource, namespace, .. } = group;
    if caller.is_empty() {
        let what = if cause.is_empty() { "requests" } else { cause };
        return format!("{count:>7}  {what}\n");
    }
    let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
    let to_last = if first == last { String::new() } else { format!(" to {last}") };
    let detail = style.dim(&format!("{first}{to_last}: {message}"));
    format!("{count:>7}  {caller}  {verb} {resource}{place}\n         {detail}\n")
}
