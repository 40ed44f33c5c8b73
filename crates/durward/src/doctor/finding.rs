//! One thing to mend, and how it is told.

use serde::Serialize;

use crate::output::Style;

/// Something that a person should do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// The cluster that it is about; none where it is about all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<String>,
    /// A closed set: the world's causes; of fleets `groups`, `break-glass`, `acknowledgement`, `no-clusters`; of LXCFS and of
    /// etcd those that `doctor/lxcfs` and `doctor/etcd` list.
    pub(super) code: &'static str,
    /// What is found.
    pub(super) what: String,
    /// What happens if it stays so.
    pub(super) why: String,
    /// The command, or the lines, that mend it.
    pub(super) mend: String,
}

impl Finding {
    /// For people.
    pub(super) fn text(&self, style: Style) -> String {
        let whom =
            self.cluster.as_deref().map(|cluster| format!("{}: ", style.bold(cluster))).unwrap_or_default();
        let mend = self.mend.replace('\n', "\n      ");
        format!("{} {whom}{} ({})\n  why {}\n  do  {mend}\n", style.red("-"), self.what, self.code, self.why)
    }
}
