//! The values that programs in a container print.

use std::collections::BTreeMap;
use std::time::Instant;

use e2e::node;
use e2e::prelude::*;

use crate::cases::environment::{eventually_ok, with_short_grace};

/// Commands that print the view. A container can run them as its own command; [`ContainerView::of_log`] reads
/// the output.
///
/// busybox's `cat` is not used, because it can truncate.
pub(super) const VIEW_SCRIPT: &str = "\
    echo '== free'; /usr/bin/free -m; echo '== up'; /usr/bin/uptime; \
    for file in meminfo uptime cpuinfo stat swaps; do echo \"== $file\"; /usr/bin/cat /proc/$file; done; \
    echo '== nproc'; /usr/bin/nproc; \
    echo '== kernel-free'; /bin/free -m; echo '== kernel-up'; cut -d' ' -f22 /proc/1/stat";

/// Tolerance in seconds for different clocks and truncated seconds.
const ROUGHLY: f64 = 2.0;

/// The result of [`VIEW_SCRIPT`].
#[derive(Debug)]
pub(super) struct ContainerView {
    /// The output of each command by name.
    output: BTreeMap<String, String>,
    /// Start of the commands, if known: the log of a container has no start time.
    began: Option<Instant>,
    when: Instant,
}

impl ContainerView {
    /// Reads the view of a container in a running pod.
    pub(super) fn read(pod: &RunningPod<'_>, container: &str) -> Result<Self> {
        let began = Instant::now();
        let text = pod.exec(container, &["sh", "-c", VIEW_SCRIPT])?;
        Ok(Self { began: Some(began), ..Self::parse(&text)? })
    }

    /// Reads the view from the log of a container that has run the commands. The container runtime can write the end of a log
    /// after the container has ended.
    pub(super) fn of_log(pod: &RunningPod<'_>, container: &str) -> Result<Self> {
        eventually_ok("the whole log of the container", || Self::parse(&pod.logs(container)?))
    }

    /// Parses the output of [`VIEW_SCRIPT`].
    fn parse(text: &str) -> Result<Self> {
        let parts = text.split("== ").filter_map(|part| part.split_once('\n'));
        let output: BTreeMap<_, _> =
            parts.map(|(name, output)| (name.to_owned(), output.to_owned())).collect();
        ensure!(output.contains_key("kernel-up"), "a look without its end: {text}");
        Ok(Self { output, began: None, when: Instant::now() })
    }

    /// Expects this memory in MiB from `free` and in meminfo, with no swap beyond the limit.
    pub(super) fn with_memory(self, mib: u64) -> Result<Self> {
        let free = second_field(&self.line("free", "Mem:")?)?;
        ensure!(free == mib, "free counts {free} MiB of memory instead of {mib}: {}", self.output("free"));
        let total = second_field(&self.line("meminfo", "MemTotal:")?)?;
        ensure!(total == mib * 1024, "meminfo contains {total} kB instead of {mib} MiB");
        let available = second_field(&self.line("meminfo", "MemAvailable:")?)?;
        ensure!(available <= total, "of {total} kB {available} kB are available");
        Ok(self)
    }

    pub(super) fn with_cpus(self, count: usize) -> Result<Self> {
        let listed = self.output("cpuinfo").lines().filter(|line| line.starts_with("processor")).count();
        ensure!(listed == count, "cpuinfo lists {listed} processors instead of {count}");
        let stat = self.output("stat");
        let counted = stat
            .lines()
            .filter_map(|line| line.strip_prefix("cpu"))
            .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
            .count();
        ensure!(counted == count, "stat has {counted} processors instead of {count}: {stat}");
        Ok(self)
    }

    /// Expects an uptime since this time or less, from `uptime` and in the file.
    pub(super) fn with_uptime_since(self, created_at: Instant) -> Result<Self> {
        let oldest = self.when.duration_since(created_at).as_secs_f64();
        let up = self.uptime()?;
        ensure!(up >= 0.0 && up <= oldest + ROUGHLY, "it is up for {up} s and was made {oldest} s ago");
        let minutes = Duration::from_secs_f64(up).as_secs() / 60;
        let output = self.output("up");
        // The program runs before the file is read and can round up.
        let is_told =
            (minutes.saturating_sub(1)..=minutes + 1).any(|text| output.contains(&format!("up {text} min")));
        ensure!(is_told, "after {up} s uptime prints {output:?}");
        Ok(self)
    }

    pub(super) fn with_memory_of(self, node: &Node) -> Result<Self> {
        let total = node_memory(node)?;
        let seen = second_field(&self.line("meminfo", "MemTotal:")?)?;
        ensure!(seen == total, "meminfo contains {seen} kB, and the node has {total} kB");
        Ok(self)
    }

    /// Expects the uptime of the node's first process. It is the node's uptime unless the node is a
    /// container.
    pub(super) fn with_uptime_of_first_process(self, node: &Node) -> Result<Self> {
        let (up, age) = (self.uptime()?, first_process_uptime(node)?);
        ensure!(
            self.matches_uptime(up, age),
            "it is up for {up} s, and the node's first process for {age} s"
        );
        Ok(self)
    }

    pub(super) fn with_uptime_of(self, node: &Node) -> Result<Self> {
        let (up, age) = (self.uptime()?, node_uptime(node)?);
        ensure!(self.matches_uptime(up, age), "it is up for {up} s, and the node for {age} s");
        Ok(self)
    }

    /// Returns whether an uptime matches the node's current one.
    ///
    /// The node is read after the container, which takes seconds on a loaded machine: the container's value
    /// can be that much less.
    fn matches_uptime(&self, seen: f64, now: f64) -> bool {
        let since = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        seen <= now + ROUGHLY && seen + since + ROUGHLY >= now
    }

    /// Expects memory, CPUs and uptime of the node.
    pub(super) fn of_node(self, node: &Node) -> Result<Self> {
        let cpus = cpus(node)?;
        self.with_memory_of(node)?.with_uptime_of(node)?.with_cpus(cpus)
    }

    pub(super) fn output(&self, command: &str) -> &str {
        self.output.get(command).map(String::as_str).unwrap_or_default()
    }

    /// Returns the number after the name of a line, such as `Mem:` of `free`.
    pub(super) fn number(&self, command: &str, line: &str) -> Result<u64> {
        second_field(&self.line(command, line)?)
    }

    pub(super) fn uptime(&self) -> Result<f64> {
        let output = self.output("uptime");
        output
            .split(' ')
            .next()
            .and_then(|up| up.parse().ok())
            .with_context(|| format!("uptime is {output:?}"))
    }

    fn line(&self, command: &str, begin: &str) -> Result<String> {
        let output = self.output(command);
        let line = output.lines().find(|line| line.starts_with(begin));
        line.map(ToOwned::to_owned).with_context(|| format!("no line {begin} in {command}: {output}"))
    }
}

fn second_field(line: &str) -> Result<u64> {
    let field = line.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    field.with_context(|| format!("no number in {line:?}"))
}

pub(super) fn node_memory(node: &Node) -> Result<u64> {
    let meminfo = node.run(&["cat", "/proc/meminfo"])?.succeeded()?.stdout;
    second_field(meminfo.lines().next().unwrap_or_default())
}

fn node_uptime(node: &Node) -> Result<f64> {
    let uptime = node.run(&["cat", "/proc/uptime"])?.succeeded()?.stdout;
    uptime.split(' ').next().and_then(|up| up.parse().ok()).context("no number in the node's uptime")
}

fn first_process_uptime(node: &Node) -> Result<f64> {
    let output = node.run(&["cat", "/proc/1/stat"])?.succeeded()?.stdout;
    // The name can contain anything, so fields count from its end: the start is field 22 (proc(5)), in
    // hundredths of a second.
    let fields = output.rsplit_once(')').map(|(_, fields)| fields).context("no name in /proc/1/stat")?;
    let start = fields.split_ascii_whitespace().nth(19).and_then(|start| start.parse::<f64>().ok());
    Ok(node_uptime(node)? - start.context("no start in /proc/1/stat")? / 100.0)
}

pub(super) fn cpus(node: &Node) -> Result<usize> {
    let counted = node.run(&["nproc"])?.succeeded()?.stdout;
    counted.trim().parse().with_context(|| format!("nproc prints {counted:?}"))
}

/// Returns the CPUs of a container with a limit of one. Fails on a node with one CPU, where the case would
/// prove nothing.
pub(super) fn one_cpu(node: &Node) -> Result<usize> {
    let has = cpus(node)?;
    ensure!(has > 1, "this host has one CPU, so a limit of one proves nothing");
    Ok(1)
}

/// Returns limits with very small requests, so that many containers fit on a small node.
pub(super) fn limits(limits: &Value) -> Value {
    json!({"resources": {"limits": limits, "requests": {"memory": "4Mi", "cpu": "1m"}}})
}

pub(super) fn common_limits() -> Value {
    limits(&json!({"memory": "256Mi", "cpu": "500m"}))
}

/// Returns a pod with one container `app` that idles within [`common_limits`].
pub(super) fn idle_pod<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    namespace.pod(name).container_like("app", node::idle(common_limits())).with(with_short_grace)
}

pub(super) fn ready<'a>(
    node: &Node,
    namespace: &Namespace<'a>,
    admitted: &Admitted,
) -> Result<RunningPod<'a>> {
    node.pod(namespace, admitted.name()).is_ready()
}
