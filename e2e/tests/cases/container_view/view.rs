//! What a container sees of itself, as programs in it tell.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::namespace::Namespace;
use e2e::node::{self, Node, RunningPod};
use e2e::pods::{Admitted, Pod};
use serde_json::{Value, json};

/// What a look runs. A container may have it as its own command: what it writes is read by [`Sight::of`]. Not by
/// busybox's `cat`, which may cut what it copies.
pub(super) const LOOK: &str = "\
    echo '== free'; /usr/bin/free -m; echo '== up'; /usr/bin/uptime; \
    for file in meminfo uptime cpuinfo stat swaps; do echo \"== $file\"; /usr/bin/cat /proc/$file; done; \
    echo '== nproc'; /usr/bin/nproc; \
    echo '== kernel-free'; /bin/free -m; echo '== kernel-up'; cut -d' ' -f22 /proc/1/stat";

/// Clocks that tick differently, and seconds that are cut off.
const ROUGHLY: f64 = 2.0;

/// All that one look finds.
#[derive(Debug)]
pub(super) struct Sight {
    /// What each command said, by its name.
    said: BTreeMap<String, String>,
    /// When it began, if that is known: a container's log does not tell.
    began: Option<Instant>,
    when: Instant,
}

impl Sight {
    /// What the container of a running pod sees now.
    pub(super) fn from(pod: &RunningPod<'_>, container: &str) -> Result<Self> {
        let began = Instant::now();
        let text = pod.exec(container, &["sh", "-c", LOOK])?;
        Ok(Self { began: Some(began), ..Self::of(&text)? })
    }

    /// What was written when [`LOOK`] was run.
    pub(super) fn of(text: &str) -> Result<Self> {
        let parts = text.split("== ").filter_map(|part| part.split_once('\n'));
        let said: BTreeMap<_, _> = parts.map(|(name, said)| (name.to_owned(), said.to_owned())).collect();
        ensure!(said.contains_key("kernel-up"), "a look without its end: {text}");
        Ok(Self { said, began: None, when: Instant::now() })
    }

    /// Memory is this many MiB, for `free` and in meminfo; there is no swap that is not within the limit.
    pub(super) fn with_memory(self, mib: u64) -> Result<Self> {
        let free = second_field(&self.line("free", "Mem:")?)?;
        ensure!(free == mib, "free counts {free} MiB of memory instead of {mib}: {}", self.said("free"));
        let total = second_field(&self.line("meminfo", "MemTotal:")?)?;
        ensure!(total == mib * 1024, "meminfo says {total} kB instead of {mib} MiB");
        let available = second_field(&self.line("meminfo", "MemAvailable:")?)?;
        ensure!(available <= total, "of {total} kB {available} kB are available");
        Ok(self)
    }

    /// It counts this many processors, in cpuinfo and stat.
    pub(super) fn with_processors(self, count: usize) -> Result<Self> {
        let listed = self.said("cpuinfo").lines().filter(|line| line.starts_with("processor")).count();
        ensure!(listed == count, "cpuinfo lists {listed} processors instead of {count}");
        let stat = self.said("stat");
        let counted = stat
            .lines()
            .filter_map(|line| line.strip_prefix("cpu"))
            .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
            .count();
        ensure!(counted == count, "stat has {counted} processors instead of {count}: {stat}");
        Ok(self)
    }

    /// It is as old as what was made at this time, and not older, for `uptime` and in the file.
    pub(super) fn with_age_since(self, made: Instant) -> Result<Self> {
        let oldest = self.when.duration_since(made).as_secs_f64();
        let up = self.uptime()?;
        ensure!(up >= 0.0 && up <= oldest + ROUGHLY, "it is up for {up} s and was made {oldest} s ago");
        let minutes = Duration::from_secs_f64(up).as_secs() / 60;
        let said = self.said("up");
        // The program runs before the file is read, and may round up.
        let is_told =
            (minutes.saturating_sub(1)..=minutes + 1).any(|told| said.contains(&format!("up {told} min")));
        ensure!(is_told, "after {up} s uptime says {said:?}");
        Ok(self)
    }

    /// Memory is the node's.
    pub(super) fn with_memory_of(self, node: &Node) -> Result<Self> {
        let total = node_memory(node)?;
        let seen = second_field(&self.line("meminfo", "MemTotal:")?)?;
        ensure!(seen == total, "meminfo says {seen} kB, and the node has {total} kB");
        Ok(self)
    }

    /// Its age is that of the node's first process: the node's own, but where the node is itself a container.
    pub(super) fn with_age_of_the_first_process(self, node: &Node) -> Result<Self> {
        let (up, age) = (self.uptime()?, first_process_age(node)?);
        ensure!(self.about(up, age), "it is up for {up} s, and the node's first process for {age} s");
        Ok(self)
    }

    /// Its age is the node's.
    pub(super) fn with_age_of(self, node: &Node) -> Result<Self> {
        let (up, age) = (self.uptime()?, node_age(node)?);
        ensure!(self.about(up, age), "it is up for {up} s, and the node for {age} s");
        Ok(self)
    }

    /// Whether this age was seen of what is that old now. The node is looked at after the container, and on a loaded
    /// machine a look takes seconds: younger by no more than has gone by since it began.
    fn about(&self, seen: f64, now: f64) -> bool {
        let since = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        seen <= now + ROUGHLY && seen + since + ROUGHLY >= now
    }

    /// Nothing of it is its own: memory, processors and age are the node's.
    pub(super) fn of_the(self, node: &Node) -> Result<Self> {
        let processors = processors(node)?;
        self.with_memory_of(node)?.with_age_of(node)?.with_processors(processors)
    }

    /// What one of the commands said.
    pub(super) fn said(&self, command: &str) -> &str {
        self.said.get(command).map(String::as_str).unwrap_or_default()
    }

    /// The number after the name of a line, such as `Mem:` of `free`.
    pub(super) fn number(&self, command: &str, line: &str) -> Result<u64> {
        second_field(&self.line(command, line)?)
    }

    /// The seconds that `/proc/uptime` tells.
    pub(super) fn uptime(&self) -> Result<f64> {
        let said = self.said("uptime");
        said.split(' ').next().and_then(|up| up.parse().ok()).with_context(|| format!("uptime is {said:?}"))
    }

    fn line(&self, command: &str, begin: &str) -> Result<String> {
        let said = self.said(command);
        let line = said.lines().find(|line| line.starts_with(begin));
        line.map(ToOwned::to_owned).with_context(|| format!("no line {begin} in {command}: {said}"))
    }
}

fn second_field(line: &str) -> Result<u64> {
    let field = line.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    field.with_context(|| format!("no number in {line:?}"))
}

/// The node's memory in kB.
pub(super) fn node_memory(node: &Node) -> Result<u64> {
    let meminfo = node.run(&["cat", "/proc/meminfo"])?.succeeded()?.stdout;
    second_field(meminfo.lines().next().unwrap_or_default())
}

/// For how many seconds the node is up.
fn node_age(node: &Node) -> Result<f64> {
    let uptime = node.run(&["cat", "/proc/uptime"])?.succeeded()?.stdout;
    uptime.split(' ').next().and_then(|up| up.parse().ok()).context("no number in the node's uptime")
}

fn first_process_age(node: &Node) -> Result<f64> {
    let said = node.run(&["cat", "/proc/1/stat"])?.succeeded()?.stdout;
    // Behind the name, which may hold anything: the state is field 3, the start field 22 (proc(5)), in hundredths of a second.
    let fields = said.rsplit_once(')').map(|(_, fields)| fields).context("no name in /proc/1/stat")?;
    let start = fields.split_ascii_whitespace().nth(19).and_then(|start| start.parse::<f64>().ok());
    Ok(node_age(node)? - start.context("no start in /proc/1/stat")? / 100.0)
}

/// How many processors the node has.
pub(super) fn processors(node: &Node) -> Result<usize> {
    let counted = node.run(&["nproc"])?.succeeded()?.stdout;
    counted.trim().parse().with_context(|| format!("nproc says {counted:?}"))
}

/// What a container of one processor's limit counts: fewer than the node has, or a case that says so proves
/// nothing.
pub(super) fn fewer_than(node: &Node) -> Result<usize> {
    let has = processors(node)?;
    ensure!(has > 1, "this host has one processor, so nobody can see that a limit of one is kept");
    Ok(1)
}

/// Limits of a container, with requests of next to nothing, so that many find room on a small node.
pub(super) fn limits(limits: &Value) -> Value {
    json!({"resources": {"limits": limits, "requests": {"memory": "4Mi", "cpu": "1m"}}})
}

/// Half a processor and 256 MiB.
pub(super) fn common_limits() -> Value {
    limits(&json!({"memory": "256Mi", "cpu": "500m"}))
}

/// A pod of one container, `app`, that idles within [`common_limits`].
pub(super) fn idler<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    namespace.pod(name).container_like("app", node::idle(common_limits())).with(briefly)
}

/// A second is enough for the end of what does nothing.
pub(super) fn briefly(pod: &mut Value) {
    pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
}

/// The pod on the node, when it is Ready.
pub(super) fn ready<'a>(
    node: &Node,
    namespace: &Namespace<'a>,
    admitted: &Admitted,
) -> Result<RunningPod<'a>> {
    node.pod(namespace, admitted.name()).is_ready()
}
