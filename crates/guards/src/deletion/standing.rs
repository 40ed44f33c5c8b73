//! What an operator should know before somebody deletes something: acknowledgements that end, glass that was left broken,
//! definitions whose objects may not be read. Told by the same rules by which reviews are judged.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::acknowledge::{self, Judged};
use super::impact::Survey;
use crate::overrides::{self, DELETE_ANYWAY};
use ::config::time;
use cluster::Metadata;
use cluster::fleet::{Fleet, FleetMember};

/// Long enough before the end that somebody at work sees it.
const SOON: Duration = Duration::from_secs(3 * 24 * 3600);

/// An acknowledgement that is meant for a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledgement {
    /// The cluster.
    pub cluster: String,
    /// `in the configuration`, or `on its Cluster`.
    pub by: &'static str,
    /// Whether it holds.
    pub holds: Holds,
    /// The same for people: until when and why, or what is wrong with it.
    pub text: String,
}

/// Whether an acknowledgement holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Holds {
    /// For more than three days.
    Yes,
    /// It ends within three days.
    Soon,
    /// It is over, too far ahead, or says too little.
    No,
}

/// An object on which the way through in spite of all was left open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deed {
    /// What the annotation says: the object's own name, if it is to open anything.
    pub value: String,
    /// The annotations that go with it and are there, for whoever takes them off.
    pub annotations: Vec<&'static str>,
}

// === impl Survey ===

impl Survey {
    /// Where the other clusters are.
    pub fn fleet(&self) -> &Fleet {
        &self.config().fleet
    }

    /// Whether objects of definitions of this group may be read.
    pub fn reads_group(&self, group: &str) -> bool {
        self.config().groups.cover(group)
    }

    /// Every acknowledgement that is meant for this cluster.
    pub fn acknowledgements(&self, member: &FleetMember, now: SystemTime) -> Vec<Acknowledgement> {
        let told = |Judged { by, judged }: Judged| {
            let (holds, text) = match judged {
                Err(why) => (Holds::No, why),
                Ok(ours) => {
                    let ends = time::read(&ours.until).map(SystemTime::from);
                    let is_soon = ends.is_none_or(|ends| ends <= now + SOON);
                    let holds = if is_soon { Holds::Soon } else { Holds::Yes };
                    (holds, format!("until {}: {}", ours.until, ours.reason))
                }
            };
            Acknowledgement { cluster: member.cluster.name().to_owned(), by, holds, text }
        };
        acknowledge::all(self.config(), member, now).map(told).collect()
    }

    /// Names of the configuration's acknowledgements that are about none of these clusters.
    pub fn acknowledged_strangers(&self, members: &[FleetMember]) -> Vec<String> {
        let known = |name: &str| members.iter().any(|member| member.cluster.name() == name);
        acknowledge::named(self.config()).filter(|name| !known(name)).map(str::to_owned).collect()
    }

    /// Whether the way through in spite of all was left open on an object.
    pub fn deed(metadata: &Metadata) -> Option<Deed> {
        let value = metadata.annotations.get(DELETE_ANYWAY)?.clone();
        let annotations = overrides::ALL.into_iter().filter(|key| metadata.annotations.contains_key(*key));
        Some(Deed { value, annotations: annotations.collect() })
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
    fn every_acknowledgement_of_a_cluster_is_told_with_how_it_stands() {
        let entry = |until: &str| format!("{{cluster: m5, until: {until}, reason: cut}}");
        let survey = survey(&format!(
            "fleet: {{karmada: {{}}}}\nacknowledge: [{}, {}, {}, {{cluster: m9, until: 2026-12-01T00:00:00Z, reason: x}}]",
            entry("2026-11-20T00:00:00Z"),
            entry("2026-11-24T10:00:00Z"),
            entry("2026-11-24T10:00:01Z"),
        ));
        let m5 = member("m5", &[("durward.dev/acknowledge-unreachable", "cut")], &[]);
        let told = survey.acknowledgements(&m5, now());
        let holds: Vec<_> = told.iter().map(|one| one.holds).collect();
        assert_eq!(holds, [Holds::No, Holds::Soon, Holds::Yes, Holds::No]);
        assert!(told[0].text.contains("ended at 2026-11-20T00:00:00Z"), "{}", told[0].text);
        assert_eq!(told[2].text, "until 2026-11-24T10:00:01Z: cut");
        assert_eq!((told[2].by, told[3].by), ("in the configuration", "on its Cluster"));
        assert!(survey.acknowledgements(&member("m6", &[], &[]), now()).is_empty());
        assert_eq!(survey.acknowledged_strangers(&[m5]), ["m9"]);
    }

    #[test]
    fn glass_that_was_left_broken_is_found_with_all_that_belongs_to_it() {
        let of = |keys: &[&str]| Metadata {
            annotations: keys.iter().map(|key| ((*key).to_owned(), "shop".to_owned())).collect(),
            ..Metadata::default()
        };
        let deed =
            Survey::deed(&of(&["durward.dev/delete-anyway", "durward.dev/delete-until", "a"])).unwrap();
        assert_eq!(deed.value, "shop");
        assert_eq!(deed.annotations, ["durward.dev/delete-anyway", "durward.dev/delete-until"]);
        assert_eq!(Survey::deed(&of(&["durward.dev/delete-until"])), None);
    }

    #[test]
    fn groups_are_those_of_the_configuration() {
        let some = survey("crds: {groups: [example.org]}");
        assert!(some.reads_group("example.org") && !some.reads_group("apps.example.org"));
        assert!(survey("crds: {groups: ['*']}").reads_group("anything.org"));
        assert_eq!(survey("{}").fleet(), &Fleet::None);
    }
}
