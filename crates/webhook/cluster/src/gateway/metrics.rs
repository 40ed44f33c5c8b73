//! Parses the series of `/metrics` that describe a member's role, and encodes them for snapshots.

use admission::Cause;

use super::garbage;
use crate::cause;
use crate::etcd::MemberMetrics;

/// The prefix of etcd's own series. Series of Go and gRPC do not prove that etcd answers.
const OWN: &str = "etcd_";

const IS_LEADER: &str = "etcd_server_is_leader";
const HAS_LEADER: &str = "etcd_server_has_leader";
const IS_LEARNER: &str = "etcd_server_is_learner";
const IS_DEFRAGMENTING: &str = "etcd_disk_defrag_inflight";
const IS_APPLYING: &str = "etcd_server_snapshot_apply_in_progress_total";
const ID: &str = "etcd_server_id";
const VERSION: &str = "etcd_server_version";
/// A series for each listed member, 1 until it is removed.
const KNOWN_PEERS: &str = "etcd_network_known_peers";

pub(super) fn read(body: &[u8]) -> Result<MemberMetrics, Cause> {
    let text = std::str::from_utf8(body).map_err(|_| garbage("its metrics are not UTF-8"))?;
    let (mut metrics, mut is_etcd) = (MemberMetrics::default(), false);
    for line in text.lines().map(str::trim).filter(|line| line.starts_with(OWN)) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        is_etcd = true;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let is_set = || match value.parse::<f64>() {
            Ok(0.0) => Ok(Some(false)),
            Ok(number) if number > 0.0 => Ok(Some(true)),
            _ => Err(garbage(&format!("its metric {name} is not a valid number"))),
        };
        match name {
            IS_LEADER => metrics.is_leader = is_set()?,
            HAS_LEADER => metrics.has_leader = is_set()?,
            IS_LEARNER => metrics.is_learner = is_set()?,
            IS_DEFRAGMENTING => metrics.is_defragmenting = is_set()?,
            IS_APPLYING => metrics.is_applying_snapshot = is_set()?,
            ID => {
                let id = label(labels, "server_id").and_then(|text| u64::from_str_radix(text, 16).ok());
                let id = id.filter(|&id| id != 0);
                metrics.member = Some(id.ok_or_else(|| garbage("its metric etcd_server_id has no ID"))?);
            }
            VERSION => {
                let version = label(labels, "server_version").map(str::to_owned);
                metrics.version = version.map(|version| super::printable("version", version)).transpose()?;
            }
            KNOWN_PEERS => {
                let is_listed = is_set()? == Some(true);
                *metrics.listed.get_or_insert(0) += usize::from(is_listed);
            }
            _ => {}
        }
    }
    if is_etcd {
        Ok(metrics)
    } else {
        Err(Cause::new(cause::NOT_ETCD, "another program answers there, not etcd: no etcd metrics"))
    }
}

/// Returns the value of a label in `server_id="7453e01f965c95d5"}`. The values that are read contain no escapes.
fn label<'t>(labels: &'t str, name: &str) -> Option<&'t str> {
    let from = labels.trim_end_matches('}').split(',');
    let mut values = from.filter_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix("=\""));
    values.next()?.strip_suffix('"')
}

/// Returns the metrics in the form that [`read`] parses.
pub(super) fn written(metrics: &MemberMetrics) -> String {
    let flags = [
        (IS_LEADER, metrics.is_leader),
        (HAS_LEADER, metrics.has_leader),
        (IS_LEARNER, metrics.is_learner),
        (IS_DEFRAGMENTING, metrics.is_defragmenting),
        (IS_APPLYING, metrics.is_applying_snapshot),
    ];
    let flags = flags.into_iter().filter_map(|(name, is_set)| Some(format!("{name} {}", u8::from(is_set?))));
    let id = metrics.member.map(|id| format!("{ID}{{server_id=\"{id:x}\"}} 1"));
    let version =
        metrics.version.as_ref().map(|version| format!("{VERSION}{{server_version=\"{version}\"}} 1"));
    let peers = (0..metrics.listed.unwrap_or(0)).map(|at| format!("{KNOWN_PEERS}{{Remote=\"{at}\"}} 1"));
    let mut lines: Vec<String> = flags.chain(id).chain(version).chain(peers).collect();
    if lines.is_empty() {
        // Any series of etcd: it is parsed as etcd's metrics without a role.
        lines.push("etcd_server_nothing 0".to_owned());
    }
    lines.join("\n")
}
