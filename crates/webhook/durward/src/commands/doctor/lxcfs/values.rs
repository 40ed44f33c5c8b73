//! The values that pods read on a node.

use lxcfs::{LxcfsFile, NodeSettings};

/// Returns what a pod with the files reads. The options of LXCFS are unknown here.
pub(super) fn visible_values(on_node: &NodeSettings) -> Vec<String> {
    let names = |files: &[LxcfsFile]| {
        let named = files.iter().filter(|file| on_node.files.contains(file)).map(|file| file.name());
        named.collect::<Vec<_>>().join(", ")
    };
    let lines = [
        (&[LxcfsFile::Meminfo, LxcfsFile::Swaps][..], "the container's memory limit"),
        (
            &[LxcfsFile::Cpuinfo, LxcfsFile::Stat, LxcfsFile::Online],
            "as many CPUs as the CPU limit, rounded up, if LXCFS runs with --enable-cfs, otherwise all CPUs of the node",
        ),
        (&[LxcfsFile::Uptime], "the container's age"),
        (
            &[LxcfsFile::Loadavg],
            "the container's load if LXCFS runs with --enable-loadavg, otherwise the node's load",
        ),
    ];
    let shown = lines.into_iter().map(|(files, what)| (names(files), what));
    shown.filter(|(names, _)| !names.is_empty()).map(|(names, what)| format!("{names}: {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_only_configured_files() {
        let files = vec![LxcfsFile::Meminfo, LxcfsFile::Cpuinfo, LxcfsFile::Loadavg];
        let lines = visible_values(&NodeSettings { files, ..NodeSettings::default() });
        assert_eq!(lines[0], "meminfo: the container's memory limit");
        assert!(lines[1].starts_with("cpuinfo: ") && lines[1].contains("--enable-cfs"), "{lines:?}");
        assert!(lines[2].starts_with("loadavg: ") && lines[2].contains("--enable-loadavg"), "{lines:?}");
        assert_eq!(lines.len(), 3);
    }
}
