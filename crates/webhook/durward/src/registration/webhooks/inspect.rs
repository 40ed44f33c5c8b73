//! The state of a webhook configuration, and its problems with the commands that solve them.

use cluster::live::Fault;
use config::Problem;
use serde_json::Value;

use super::compare::{self, ca_bundle, name};
use super::object::{ConfigurationState, WebhookObject};
use super::trust::TrustedCa;
use crate::file::{Manage, NAME};
use crate::registration::api::Configuration;
use crate::registration::names::{LABEL, kind};

impl WebhookObject<'_> {
    /// Reads the object and returns its state, without a write.
    pub(crate) async fn inspect(&self) -> Result<ConfigurationState, Fault> {
        let Some(found) = self.target.configuration(self.client, self.webhook_type).await? else {
            return Ok(self.absent());
        };
        Ok(match self.ca.read().await {
            Ok(trusted) => self.state(&found, trusted.as_ref(), None),
            Err(problem) => self.state(&found, None, Some(("ca", problem))),
        })
    }

    /// Returns the state of an object that does not exist.
    pub(super) fn absent(&self) -> ConfigurationState {
        let is_needed = !self.entries.is_empty();
        let mut state = ConfigurationState { is_known: true, is_needed, ..ConfigurationState::default() };
        if is_needed {
            state.problems.push(("not-registered", self.missing()));
        }
        self.add_unenforced(&mut state, None);
        state
    }

    /// Returns the state of an object. `problem` is one that is known already.
    pub(super) fn state(
        &self,
        found: &Configuration,
        trusted: Option<&TrustedCa>,
        problem: Option<(&'static str, Problem)>,
    ) -> ConfigurationState {
        let ours: Vec<&Value> = found.webhooks.iter().filter(|entry| self.is_ours(entry)).collect();
        let mut problems: Vec<_> = problem.into_iter().collect();
        if !found.is_labeled && self.needs.manage != Manage::None {
            problems.push(("not-labeled", self.unlabeled()));
        }
        let has_signer = trusted.is_some_and(|trusted| !trusted.signer.is_empty());
        let untrusting = untrusting_entries(&ours, trusted);
        if !untrusting.is_empty() {
            problems.push(("ca-bundle", self.untrusting(&untrusting)));
        }
        let missing = compare::missing(&found.webhooks, self.entries);
        if !missing.is_empty() {
            problems.push(("not-registered", self.incomplete(&missing)));
        }
        problems.extend(self.narrowed_entries(found).into_iter().map(|problem| ("narrowed", problem)));
        let others = found.webhooks.iter().filter(|entry| !self.is_ours(entry));
        let foreign: Vec<&str> = others.map(name).collect();
        if !foreign.is_empty() {
            problems.push(("foreign-entry", self.foreign_entry(&foreign)));
        }
        let mut state = ConfigurationState {
            uid: Some(found.uid.clone()),
            is_known: true,
            is_needed: !self.entries.is_empty(),
            is_trusted: (has_signer && !ours.is_empty()).then_some(untrusting.is_empty()),
            foreign: foreign.len(),
            problems,
            ..ConfigurationState::default()
        };
        self.add_unenforced(&mut state, Some(found));
        state
    }

    fn add_unenforced(&self, state: &mut ConfigurationState, found: Option<&Configuration>) {
        let policies = self.unenforced(found);
        state.unenforced = policies.len();
        let problem = self.unenforced_problem(&policies, found.is_some());
        state.problems.extend(problem.map(|problem| ("not-enforced", problem)));
    }

    /// Returns the problems of needed entries whose fields differ, except rules and caBundle.
    fn narrowed_entries(&self, found: &Configuration) -> Vec<Problem> {
        let narrowed = self.entries.iter().filter_map(|needed| {
            let existing = found.webhooks.iter().find(|entry| name(entry) == name(needed))?;
            let fields = compare::differing_fields(existing, needed);
            let managers = compare::other_managers(&found.managed_fields, name(needed), &fields);
            (!fields.is_empty()).then(|| self.narrowed(name(needed), &fields, &managers))
        });
        narrowed.collect()
    }

    fn named(&self) -> String {
        let cluster = if self.target.is_karmada { " on the Karmada API server" } else { "" };
        format!("{} {NAME}{cluster}", kind(self.webhook_type))
    }

    /// Returns the beginning of a kubectl command on the object.
    fn kubectl(&self, verb: &str) -> String {
        format!("{} {verb} {} {NAME}", self.target.kubectl(), kind(self.webhook_type).to_lowercase())
    }

    fn apply_webhooks(&self) -> String {
        self.target.apply("webhooks", &self.needs.manifests)
    }

    fn missing(&self) -> Problem {
        let what = format!("{} doesn't exist", self.named());
        let why = "the API server doesn't call Durward, so its guards check no request";
        Problem::new(what).why(why).next(format!("create it: {}", self.apply_webhooks()))
    }

    fn unlabeled(&self) -> Problem {
        let (key, value) = LABEL;
        let what = format!("{} lacks the label {key}={value}", self.named());
        let next = format!("if it is Durward's: {} {key}={value}", self.kubectl("label"));
        Problem::new(what).why("Durward doesn't write it").next(next)
    }

    fn foreign_entry(&self, entries: &[&str]) -> Problem {
        let what = format!("{} has entries that Durward did not write: {}", self.named(), entries.join(", "));
        let why = "the API server sends requests to their server too";
        Problem::new(what).why(why).next(format!(
            "find out in the audit log who added them, and remove them: {}",
            self.kubectl("edit")
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

    fn narrowed(&self, entry: &str, fields: &[&str], managers: &[String]) -> Problem {
        let by = if managers.is_empty() { String::new() } else { format!(", by {}", managers.join(", ")) };
        let what = format!(
            "{} of {entry} in {} differs from the configuration{by}",
            fields.join(", "),
            self.named()
        );
        let problem = Problem::new(what)
            .why("the API server may call Durward for fewer requests, or treat failures otherwise");
        if self.needs.manage == Manage::All && fields == ["matchConditions"] {
            let edit = self.kubectl("edit");
            return problem.next(format!("Durward keeps conditions of others; remove them: {edit}"));
        }
        problem.next(self.restore(self.needs.manage == Manage::All, &self.replace()))
    }

    /// Returns the next step for an object with differences. A running Durward writes its part by itself.
    pub(super) fn restore(&self, by_durward: bool, otherwise: &str) -> String {
        if by_durward {
            let namespace = &self.needs.namespace;
            return format!(
                "Durward restores it within a minute; if not, read its log: kubectl -n {namespace} logs deploy/durward"
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
}

/// Returns the entries that do not trust the serving certificate.
fn untrusting_entries<'e>(ours: &[&'e Value], trusted: Option<&TrustedCa>) -> Vec<&'e str> {
    let Some(trusted) = trusted else { return Vec::new() };
    let trusts = |entry: &&&Value| {
        let bundle = ca_bundle(entry);
        trusted.signer.iter().all(|signer| ca::pem::contains(&bundle, signer))
    };
    ours.iter().filter(|entry| !trusts(entry)).map(|entry| name(entry)).collect()
}
