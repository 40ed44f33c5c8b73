//! The annotation of a node: `durward-node label` writes it, `durward doctor lxcfs` and users read it.
//!
//! Writer and reader can have different versions. So unknown keys are ignored, and no key is required.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use lxcfs::NodeSettings;
use serde::{Deserialize, Serialize};

use super::probe::ProbeResult;

/// The state of LXCFS on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAnnotation {
    /// The directory where LXCFS is mounted.
    pub root: String,
    /// The word of each file's [`FileState`](super::FileState).
    pub files: BTreeMap<String, String>,
    /// The time of the last update (RFC 3339). The annotation is renewed every few minutes, so an old time means that the agent
    /// does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

impl NodeAnnotation {
    /// Creates a report without a time.
    pub fn new(result: &ProbeResult, settings: &NodeSettings) -> Self {
        let files = result.files.iter();
        Self {
            root: settings.root.clone(),
            files: files.map(|(file, state)| (file.name().to_owned(), state.word().to_owned())).collect(),
            ..Self::default()
        }
    }

    /// Returns the text of the annotation, with this time.
    pub(crate) fn to_text(&self, now: SystemTime) -> String {
        let time =
            Timestamp::try_from(now).ok().and_then(|time| Timestamp::from_second(time.as_second()).ok());
        let report = Self { time: time.map(|time| time.to_string()), ..self.clone() };
        // Strings and lists of strings always serialize.
        serde_json::to_string(&report).unwrap_or_default()
    }

    /// Returns the time since the last update, or zero if the node's clock is ahead of this one; none without a valid time.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        let then = SystemTime::from(self.time.as_ref()?.parse::<Timestamp>().ok()?);
        Some(now.duration_since(then).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use lxcfs::LxcfsFile;

    use super::super::probe::FileState;
    use super::*;

    #[test]
    fn writes_and_reads_the_annotation() {
        let files = vec![(LxcfsFile::Meminfo, FileState::Served), (LxcfsFile::Loadavg, FileState::Missing)];
        let report = NodeAnnotation::new(&ProbeResult { files, mount: None }, &NodeSettings::default());
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_219_200_700);
        let text = report.to_text(now);
        assert_eq!(
            text,
            r#"{"root":"/var/lib/lxcfs","files":{"loadavg":"missing","meminfo":"served"},"time":"2026-11-21T00:00:00Z"}"#
        );
        let read: NodeAnnotation = serde_json::from_str(&text).unwrap();
        assert_eq!(read.age(now + Duration::from_secs(60)), Some(Duration::from_millis(60_700)));
        assert_eq!(read.age(now - Duration::from_secs(60)), Some(Duration::ZERO), "a clock that is ahead");
        assert_eq!(NodeAnnotation { time: None, ..read }, report);
    }

    #[test]
    fn returns_no_age_without_a_valid_time() {
        for time in [None, Some("yesterday"), Some("2026-11-21")] {
            let report = NodeAnnotation { time: time.map(str::to_owned), ..NodeAnnotation::default() };
            assert_eq!(report.age(SystemTime::UNIX_EPOCH), None, "{time:?}");
        }
    }

    #[test]
    fn reads_an_annotation_of_another_version() {
        let report: NodeAnnotation = serde_json::from_str(r#"{"root": "/l", "from": "the future"}"#).unwrap();
        assert_eq!(report, NodeAnnotation { root: "/l".to_owned(), ..NodeAnnotation::default() });
    }
}
