//! The guard's configuration for commands: `impact`, `snapshot` and `doctor fleet`.
//!
//! `doctor fleet` reports acknowledgements that expire, and groups that Durward can't read, by the same rules as reviews.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::acknowledge;
use super::config::Config;
use super::in_use::Rule;
use super::target::DeletionKind;
use ::config::time;
use cluster::Resource;
use cluster::fleet::{Fleet, FleetMember};
use policy::schema::Schema;

/// The time before the end at which an acknowledgement is reported: long enough for an operator to notice it.
const SOON: Duration = Duration::from_secs(3 * 24 * 3600);

/// The configured guard, for commands that deny nothing. See [`survey`](super::survey()).
#[derive(Debug, Clone)]
pub struct Survey {
    pub(super) config: Config,
}

/// An acknowledgement of a member cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgementReport {
    /// The cluster.
    pub cluster: String,
    /// Whether it is valid.
    pub validity: Validity,
    /// The end and the reason, or why it is not valid.
    pub text: String,
}

/// Whether an acknowledgement is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// For more than three days.
    Valid,
    /// It expires within three days.
    ExpiresSoon,
    /// It has expired, ends too far ahead, or lacks a part.
    Invalid,
}

impl Survey {
    pub(super) fn new(config: Config) -> Self {
        Self { config }
    }

    /// Returns the fleet.
    pub fn fleet(&self) -> &Fleet {
        &self.config.fleet
    }

    /// Returns the kinds whose deletion the guard reviews: namespaces, CRDs, and those of in-use rules.
    pub fn kinds(&self) -> Vec<DeletionKind> {
        self.config.kinds().collect()
    }

    /// Returns the kind of a manifest, if the guard reviews its deletion.
    pub fn kind_of(&self, group: &str, kind: &str) -> Option<DeletionKind> {
        let word = kind.to_lowercase();
        let is_it = |known: &DeletionKind| {
            let resource = known.resource();
            resource.group == group && resource.singular() == word
        };
        self.config.kinds().find(is_it)
    }

    /// Returns the custom resources that in-use rules read.
    pub fn custom_resources(&self) -> BTreeSet<Resource> {
        let rules = self.config.in_use.each();
        let read = rules.flat_map(|(of, rule)| rule.used_by.iter().map(|by| &by.resource).chain([of]));
        read.filter(|resource| !policy::kinds::is_of_kubernetes(&resource.group)).cloned().collect()
    }

    /// Returns the fields that in-use rules read and that a custom resource does not have by its schema, by rule.
    pub fn unknown_fields(&self, of: &Resource, schema: &Schema) -> Vec<(String, String)> {
        let named = |(protected, rule): (&Resource, &Rule)| {
            let fields = rule.unknown_fields(protected, of, schema);
            fields.into_iter().map(|field| (rule.name.to_string(), field)).collect::<Vec<_>>()
        };
        self.config.in_use.each().flat_map(named).collect()
    }

    /// Whether Durward can read the custom objects of this group.
    pub fn reads_group(&self, group: &str) -> bool {
        self.config.api_groups.cover(group)
    }

    /// Returns all acknowledgements of a cluster.
    pub fn acknowledgements(&self, member: &FleetMember, now: SystemTime) -> Vec<AcknowledgementReport> {
        let report = |judged| {
            let (validity, text) = match judged {
                Err(why) => (Validity::Invalid, why),
                Ok(acknowledge::Acknowledgement { until, reason }) => {
                    let end = time::read(&until).map(SystemTime::from);
                    let is_soon = end.is_none_or(|end| end <= now + SOON);
                    let validity = if is_soon { Validity::ExpiresSoon } else { Validity::Valid };
                    (validity, format!("until {until}: {reason}"))
                }
            };
            AcknowledgementReport { cluster: member.cluster.name().to_owned(), validity, text }
        };
        acknowledge::all(&self.config, member, now).into_iter().map(report).collect()
    }

    /// Returns the clusters that the configuration acknowledges by name and that the fleet lacks.
    pub fn unknown_acknowledged(&self, members: &[FleetMember]) -> Vec<String> {
        let exists = |name: &str| members.iter().any(|member| member.cluster.name() == name);
        let named = self.config.acknowledged.iter().map(|entry| &entry.cluster);
        named.filter(|name| !exists(name)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{config, member, now};
    use super::*;

    fn survey(yaml: &str) -> Survey {
        Survey::new(config(yaml))
    }

    #[test]
    fn reports_every_acknowledgement_of_a_cluster_with_its_validity() {
        let entry = |until: &str| format!("{{cluster: m5, until: {until}, reason: cut}}");
        let survey = survey(&format!(
            "fleet: {{contexts: [m5]}}\nunreachableClusters: [{}, {}, {}, {{cluster: m9, until: 2026-12-01T00:00:00Z, reason: x}}]",
            entry("2026-11-20T00:00:00Z"),
            entry("2026-11-24T10:00:00Z"),
            entry("2026-11-24T10:00:01Z"),
        ));
        let m5 = member("m5", &[]);
        let reports = survey.acknowledgements(&m5, now());
        let validities: Vec<_> = reports.iter().map(|one| one.validity).collect();
        assert_eq!(validities, [Validity::Invalid, Validity::ExpiresSoon, Validity::Valid]);
        assert!(reports[0].text.contains("2026-11-20T00:00:00Z is in the past"), "{}", reports[0].text);
        assert_eq!(reports[2].text, "until 2026-11-24T10:00:01Z: cut");
        assert!(survey.acknowledgements(&member("m6", &[]), now()).is_empty());
        assert_eq!(survey.unknown_acknowledged(&[m5]), ["m9"]);
    }

    #[test]
    fn reads_groups_and_fleet_from_the_configuration() {
        let some = survey("crds: {apiGroups: [example.org]}");
        assert!(some.reads_group("example.org") && !some.reads_group("apps.example.org"));
        assert!(survey("crds: {apiGroups: ['*']}").reads_group("anything.org"));
        assert_eq!(survey("{}").fleet(), &Fleet::None);
    }
}
