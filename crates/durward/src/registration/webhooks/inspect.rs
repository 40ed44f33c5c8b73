//! The state of a webhook configuration, and its problems with the commands that solve them.

use config::Problem;
use serde_json::Value;

use super::merge::{self, ca_bundle, is_ours};
use super::pass::{Object, Owner, State};
use super::trust::TrustedCa;
use crate::file::{Manage, NAME};
use crate::registration::api::{Configuration, Fault};
use crate::registration::names::{LABEL, kind};

/// The differences between a webhook configuration and the one that this replica needs.
struct Differences<'d> {
    is_unlabeled: bool,
    /// Entries that do not trust the serving certificate.
    untrusting: Vec<&'d str>,
    /// Entries that are absent or lack a rule.
    missing: Vec<&'d str>,
    /// Entries and their fields that differ.
    narrowed: Vec<(&'d str, Vec<&'d str>)>,
    /// Entries that Durward did not write.
    foreign: Vec<&'d str>,
}

impl Object<'_> {
    /// Returns the state of an object. `problem` is one that is known already.
    pub(super) fn state(
        &self,
        found: &Configuration,
        trusted: Option<&TrustedCa>,
        problem: Option<Problem>,
    ) -> State {
        let differences = self.differences(found, trusted);
        let has_entries = found.webhooks.iter().any(is_ours);
        let has_signer = trusted.is_some_and(|trusted| !trusted.signer.is_empty());
        let first = || self.problems(&differences).into_iter().map(|(_, problem)| problem).next();
        State::Present {
            is_registered: differences.missing.is_empty(),
            is_trusted: (has_signer && has_entries).then_some(differences.untrusting.is_empty()),
            is_narrowed: !differences.narrowed.is_empty(),
            problem: problem.or_else(first),
            foreign: differences.foreign.len(),
            foreign_problem: (!differences.foreign.is_empty())
                .then(|| self.foreign_entry(&differences.foreign)),
        }
    }

    fn differences<'d>(&'d self, found: &'d Configuration, trusted: Option<&TrustedCa>) -> Differences<'d> {
        Differences {
            is_unlabeled: !found.is_labeled && self.needs.manage != Manage::None,
            untrusting: untrusting_entries(found, trusted),
            missing: merge::missing(&found.webhooks, self.entries),
            narrowed: self.narrowed_entries(found),
            foreign: self.foreign_entries(found),
        }
    }

    /// Returns the problems of an object with their codes, the most important first, without those of foreign entries.
    fn problems(&self, differences: &Differences<'_>) -> Vec<(&'static str, Problem)> {
        let Differences { is_unlabeled, untrusting, missing, narrowed, .. } = differences;
        let mut problems = Vec::new();
        if *is_unlabeled {
            problems.push(("not-labeled", self.unlabeled()));
        }
        if !untrusting.is_empty() {
            problems.push(("ca-bundle", self.untrusting(untrusting)));
        }
        if !missing.is_empty() {
            problems.push(("not-registered", self.incomplete(missing)));
        }
        problems.extend(narrowed.iter().map(|(entry, fields)| ("narrowed", self.narrowed(entry, fields))));
        problems
    }

    /// Returns the needed entries whose fields differ, except rules and caBundle, with these fields.
    fn narrowed_entries(&self, found: &Configuration) -> Vec<(&str, Vec<&str>)> {
        let narrowed = self.entries.iter().filter_map(|needed| {
            let name = merge::name(needed);
            let existing = found.webhooks.iter().find(|entry| merge::name(entry) == name)?;
            let fields = merge::differing_fields(existing, needed);
            (!fields.is_empty()).then_some((name, fields))
        });
        narrowed.collect()
    }

    fn named(&self) -> String {
        let cluster = if self.target.is_karmada { " on the Karmada API server" } else { "" };
        format!("{} {NAME}{cluster}", kind(self.webhook_type))
    }

    fn apply_webhooks(&self) -> String {
        self.target.apply("webhooks", &self.needs.manifests)
    }

    pub(super) fn missing(&self) -> Problem {
        let what = format!("{} doesn't exist", self.named());
        let why = "the API server doesn't call Durward, so its guards check no request";
        Problem::new(what).why(why).next(format!("create it: {}", self.apply_webhooks()))
    }

    fn unlabeled(&self) -> Problem {
        let (key, value) = LABEL;
        let what = format!("{} lacks the label {key}={value}", self.named());
        Problem::new(what).why("Durward doesn't write it").next(format!(
            "if it is Durward's: {} label {} {NAME} {key}={value}",
            self.target.kubectl(),
            kind(self.webhook_type).to_lowercase()
        ))
    }

    /// Returns the entries that Durward did not write. An unneeded entry can belong to the other kind's guard, so all entries of the API
    /// server show Durward's address.
    fn foreign_entries<'f>(&self, found: &'f Configuration) -> Vec<&'f str> {
        merge::foreign(&found.webhooks, &self.target.entries.concat())
    }

    fn foreign_entry(&self, entries: &[&str]) -> Problem {
        let what = format!("{} has entries that Durward did not write: {}", self.named(), entries.join(", "));
        let why = "the API server sends requests to their server too";
        Problem::new(what).why(why).next(format!(
            "find out in the audit log who added them, and remove them: {} edit {} {NAME}",
            self.target.kubectl(),
            kind(self.webhook_type).to_lowercase()
        ))
    }

    fn untrusting(&self, entries: &[&str]) -> Problem {
        let what = format!(
            "the caBundle of {} in {} lacks the CA of Durward's certificate",
            entries.join(", "),
            self.named()
        );
        let problem = Problem::new(what).why("the API server rejects the certificate, so its calls fail");
        problem.next(self.restore(self.needs.manage != Manage::None, &self.reapply()))
    }

    fn incomplete(&self, entries: &[&str]) -> Problem {
        let what = format!("{} lacks entries or rules of {}", self.named(), entries.join(", "));
        let problem = Problem::new(what).why("the API server doesn't call Durward for these requests");
        problem.next(self.restore(self.needs.manage == Manage::All, &self.reapply()))
    }

    fn narrowed(&self, entry: &str, fields: &[&str]) -> Problem {
        let what =
            format!("{} of {entry} in {} differs from the configuration", fields.join(", "), self.named());
        let problem = Problem::new(what)
            .why("the API server may call Durward for fewer requests, or treat failures otherwise");
        problem.next(self.restore(self.needs.manage == Manage::All, &self.replace()))
    }

    /// Returns the next step for an object with differences. A running Durward writes its part by itself.
    pub(super) fn restore(&self, by_durward: bool, otherwise: &str) -> String {
        if by_durward {
            let namespace = &self.needs.namespace;
            return format!(
                "Durward restores it within seconds, or after newGuardDelay if a guard was turned on; if not, read its log: kubectl -n {namespace} logs deploy/durward"
            );
        }
        otherwise.to_owned()
    }

    pub(super) fn reapply(&self) -> String {
        format!("apply it again: {}", self.apply_webhooks())
    }

    /// Returns the step for fields that another client may have added.
    pub(super) fn replace(&self) -> String {
        format!("replace it: {}", self.target.replace("webhooks", &self.needs.manifests))
    }

    /// Reads the object and returns all its problems, without a write.
    pub(crate) async fn inspect(&self) -> Result<Vec<(&'static str, Problem)>, Fault> {
        let Some(found) = self.target.configuration(self.client, self.webhook_type).await? else {
            let is_needed = !self.entries.is_empty();
            let mut problems: Vec<_> =
                is_needed.then(|| ("not-registered", self.missing())).into_iter().collect();
            problems.extend(
                self.unenforced_problem(&self.unenforced(None), false).map(|one| ("not-enforced", one)),
            );
            return Ok(problems);
        };
        let mut problems = Vec::new();
        let trusted = match self.ca.read().await {
            Ok(trusted) => trusted,
            Err(problem) => {
                problems.push(("ca", problem));
                None
            }
        };
        let differences = self.differences(&found, trusted.as_ref());
        problems.extend(self.problems(&differences));
        let unenforced = self.unenforced_problem(&self.unenforced(Some(&found)), true);
        problems.extend(unenforced.map(|problem| ("not-enforced", problem)));
        if !differences.foreign.is_empty() {
            problems.push(("foreign-entry", self.foreign_entry(&differences.foreign)));
        }
        if *self.owner == Owner::Elsewhere && found.owners.iter().any(|owner| self.is_own_namespace(owner)) {
            problems.push(("owner", self.foreign_owner()));
        }
        Ok(problems)
    }

    fn foreign_owner(&self) -> Problem {
        let what = format!("{} is owned by a Namespace of another cluster", self.named());
        Problem::new(what).why("the garbage collector deletes it").next(format!(
            "remove the owner: {} patch {} {NAME} --type=merge -p '{{\"metadata\":{{\"ownerReferences\":null}}}}'",
            self.target.kubectl(),
            kind(self.webhook_type).to_lowercase()
        ))
    }
}

/// Returns the entries that do not trust the serving certificate.
fn untrusting_entries<'e>(found: &'e Configuration, trusted: Option<&TrustedCa>) -> Vec<&'e str> {
    let Some(trusted) = trusted else { return Vec::new() };
    let trusts = |entry: &&Value| {
        let bundle = ca_bundle(entry);
        trusted.signer.iter().all(|signer| ca::pem::contains(&bundle, signer))
    };
    let ours = found.webhooks.iter().filter(|entry| is_ours(entry));
    ours.filter(|entry| !trusts(entry)).map(merge::name).collect()
}
