//! The values that pods read on a node.

use lxcfs::{LxcfsFile, NodeSettings};
use node::NodeAnnotation;

/// Returns what a pod with the files reads, as far as it depends on the options of LXCFS.
pub(super) fn visible_values(report: Option<&NodeAnnotation>, on_node: &NodeSettings) -> Vec<String> {
    let has = |files: &[LxcfsFile]| files.iter().any(|file| on_node.files.contains(file));
    let names = |files: &[LxcfsFile]| {
        let named = files.iter().filter(|file| on_node.files.contains(file)).map(|file| file.name());
        named.collect::<Vec<_>>().join(", ")
    };
    let options = report.and_then(|report| report.options.as_ref());
    let started_with = |option: &str| options.map(|options| options.iter().any(|one| one == option));
    let mut lines = Vec::new();
    let memory = [LxcfsFile::Meminfo, LxcfsFile::Swaps];
    if has(&memory) {
        lines.push(format!("{}: the container's memory limit", names(&memory)));
    }
    let processors = [LxcfsFile::Cpuinfo, LxcfsFile::Stat, LxcfsFile::Online];
    if has(&processors) {
        let what = match started_with("cfs") {
            Some(true) => "as many CPUs as the CPU limit, rounded up",
            Some(false) => "all CPUs of the node, because LXCFS runs without --enable-cfs",
            None => {
                "as many CPUs as the CPU limit if LXCFS runs with --enable-cfs, otherwise all (the options of LXCFS are unknown)"
            }
        };
        lines.push(format!("{}: {what}", names(&processors)));
    }
    if has(&[LxcfsFile::Uptime]) {
        lines.push("uptime: the container's age".to_owned());
    }
    if has(&[LxcfsFile::Loadavg]) {
        lines.push(format!(
            "loadavg: {}",
            match started_with("loadavg") {
                Some(true) => "the container's load",
                Some(false) => "the node's load, because LXCFS runs without --enable-loadavg",
                None => "the container's load if LXCFS runs with --enable-loadavg (the options of LXCFS are unknown)",
            }
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: Option<&[&str]>) -> NodeAnnotation {
        let options = options.map(|options| options.iter().map(|&option| option.to_owned()).collect());
        NodeAnnotation { options, ..NodeAnnotation::default() }
    }

    #[test]
    fn pod_values_depend_on_the_options_of_lxcfs() {
        let on_node = NodeSettings {
            files: vec![LxcfsFile::Meminfo, LxcfsFile::Cpuinfo, LxcfsFile::Loadavg],
            ..NodeSettings::default()
        };
        let lines = |options| visible_values(Some(&with(options)), &on_node);
        assert_eq!(lines(Some(&["cfs"]))[1], "cpuinfo: as many CPUs as the CPU limit, rounded up");
        assert!(lines(Some(&[]))[1].contains("without --enable-cfs"));
        assert!(lines(None)[1].contains("options of LXCFS are unknown"));
        assert!(lines(Some(&["loadavg"]))[2].contains("the container's load"));
        assert_eq!(lines(None)[0], "meminfo: the container's memory limit");
        assert_eq!(lines(None).len(), 3);
    }
}
