//! The audit log of an API server, with the requests of Durward's service account and of users.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::certificates;
use crate::context::TestContext;
use crate::controlplane::Options;

/// The audit policy: all requests of service accounts in the namespace of the documentation, and those that a guard can deny.
const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
  {"level": "Metadata", "userGroups": ["system:serviceaccounts:durward-system"]},
  {"level": "Metadata", "verbs": ["delete", "patch"], "resources": [{"group": "", "resources": ["namespaces", "pods"]}]},
  {"level": "None"}
]}"#;

/// The user of Durward's pods, and of a Durward that an [`crate::installation::Installation`] starts.
const ACCOUNT: &str = "system:serviceaccount:durward-system:durward";

/// An audit log. Create it before its API server.
#[derive(Debug)]
pub struct AuditLog {
    directory: PathBuf,
}

impl AuditLog {
    /// Writes the audit policy. The log is empty until an API server with its [`options`](Self::options) writes it.
    pub fn new(context: &TestContext) -> Result<Self> {
        let directory = context.directory("audit")?;
        certificates::write(&directory, "policy.json", POLICY)?;
        Ok(Self { directory })
    }

    /// Adds the flags of the API server that writes this log.
    pub fn options(&self, options: Options) -> Options {
        options
            .flag(format!("--audit-policy-file={}", self.directory.join("policy.json").display()))
            .flag(format!("--audit-log-path={}", self.log().display()))
            .flag("--audit-log-mode=blocking")
    }

    /// Expects that the API server has refused none of Durward's requests with 403, and that it has seen some. Returns their number.
    pub fn has_no_forbidden_requests(&self) -> Result<usize> {
        let log = std::fs::read_to_string(self.log()).context("cannot read the audit log")?;
        // The last line can be incomplete.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let events = lines.map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        let ours: Vec<_> = events.iter().filter(|event| event["user"]["username"] == ACCOUNT).collect();
        ensure!(!ours.is_empty(), "the audit log has no request of {ACCOUNT}");
        let forbidden: Vec<_> = ours
            .iter()
            .filter(|event| event["responseStatus"]["code"] == 403)
            .map(|event| format!("{} {}", event["verb"], event["requestURI"]))
            .collect();
        ensure!(forbidden.is_empty(), "of {} requests these are forbidden: {forbidden:?}", ours.len());
        Ok(ours.len())
    }

    /// Empties the log, for example because a removal takes Durward's permissions away before its pods have ended.
    pub fn clear(&self) -> Result<()> {
        let log = std::fs::OpenOptions::new().write(true).open(self.log())?;
        log.set_len(0).context("cannot empty the audit log")
    }

    /// Returns the path of the log.
    pub fn log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }
}
