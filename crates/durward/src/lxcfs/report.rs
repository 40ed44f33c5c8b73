//! What the node's annotation says. Written by `lxcfs-node`, read by `doctor` and by people; so it stays readable when versions
//! on two sides differ: keys that are unknown are passed over, and none must be there.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use guards::lxcfs::{File, OnNode};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::probe::Sight;

/// How LXCFS does on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Report {
    /// Of LXCFS; none where it could not be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Where it is mounted.
    pub(crate) root: String,
    /// Each file and a word for how it is: `served`, `missing`, `not-a-file`, `not-lxcfs`, `dead`, `silent`, `garbage`, `unreadable`.
    pub(crate) files: BTreeMap<String, String>,
    /// The switches that LXCFS was started with and on which it depends what pods see; none where its process is not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<Vec<String>>,
    /// What starts containers there; none where it could not be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runtime: Option<Runtime>,
    /// How the library on the node's disk stands to the one that is loaded: `loaded`, `loading`, or why it is not; none where there is none to be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) library: Option<String>,
    /// When it was written (RFC 3339): again every few minutes, also where nothing has changed, so that an old one tells that
    /// nobody looks any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
}

/// What starts containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Runtime {
    /// Its version.
    pub(crate) runc: String,
    /// The files that it lets nobody mount.
    pub(crate) refuses: Vec<String>,
}

impl Report {
    /// Of what was seen, and nothing yet of what else there is to tell.
    pub(crate) fn of(sight: &Sight, on_node: &OnNode) -> Self {
        let files = sight.files.iter();
        Self {
            root: on_node.root.clone(),
            files: files.map(|(file, seen)| (file.name().to_owned(), seen.word().to_owned())).collect(),
            ..Self::default()
        }
    }

    /// Those of `files` that the runtime lets nobody mount.
    pub(crate) fn refused(&self, files: &[File]) -> Vec<&'static str> {
        let refuses = self.runtime.as_ref().map(|runtime| runtime.refuses.as_slice()).unwrap_or_default();
        files.iter().map(|file| file.name()).filter(|name| refuses.iter().any(|one| one == name)).collect()
    }

    /// As it is written into the annotation at this time.
    pub(crate) fn text(&self, now: SystemTime) -> String {
        let time =
            Timestamp::try_from(now).ok().and_then(|time| Timestamp::from_second(time.as_second()).ok());
        let report = Self { time: time.map(|time| time.to_string()), ..self.clone() };
        // Texts and lists of texts: there is nothing that could fail.
        serde_json::to_string(&report).unwrap_or_default()
    }

    /// How long ago it was written; none where it does not say so. Not long at all where its clock goes before ours.
    pub(crate) fn age(&self, now: SystemTime) -> Option<Duration> {
        let then = SystemTime::from(self.time.as_ref()?.parse::<Timestamp>().ok()?);
        Some(now.duration_since(then).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::Seen;
    use super::*;

    #[test]
    fn the_annotation_says_what_was_agreed() {
        let sight =
            Sight { files: vec![(File::Meminfo, Seen::Served), (File::Loadavg, Seen::Missing)], mount: None };
        let mut report = Report::of(&sight, &OnNode::default());
        report.version = Some("5.0.3".to_owned());
        report.runtime = Some(Runtime { runc: "1.1.5".to_owned(), refuses: Vec::new() });
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_219_200_700);
        let text = report.text(now);
        assert_eq!(
            text,
            r#"{"version":"5.0.3","root":"/var/lib/lxcfs","files":{"loadavg":"missing","meminfo":"served"},"runtime":{"runc":"1.1.5","refuses":[]},"time":"2026-11-21T00:00:00Z"}"#
        );
        let read: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(read.age(now + Duration::from_secs(60)), Some(Duration::from_millis(60_700)));
        assert_eq!(
            read.age(now - Duration::from_secs(60)),
            Some(Duration::ZERO),
            "a clock that goes before ours"
        );
        assert_eq!(Report { time: None, ..read }, report);
    }

    #[test]
    fn an_age_that_is_not_told_is_none() {
        for time in [None, Some("yesterday"), Some("2026-11-21")] {
            let report = Report { time: time.map(str::to_owned), ..Report::default() };
            assert_eq!(report.age(SystemTime::UNIX_EPOCH), None, "{time:?}");
        }
    }

    #[test]
    fn what_another_version_wrote_is_read_as_far_as_it_goes() {
        let report: Report = serde_json::from_str(r#"{"root": "/l", "from": "the future"}"#).unwrap();
        assert_eq!(report, Report { root: "/l".to_owned(), ..Report::default() });
    }
}
