//! A directory in place of a node, and processes of `durward-node` that use it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than any step takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The files of LXCFS.
const FILES: [(&str, &str); 9] = [
    ("/proc/cpuinfo", "processor\t: 0\n"),
    ("/proc/meminfo", "MemTotal:  262144 kB\n"),
    ("/proc/diskstats", ""),
    ("/proc/stat", "cpu  1 2 3\n"),
    ("/proc/swaps", "Filename\tType\n"),
    ("/proc/uptime", "1.00 1.00\n"),
    ("/proc/loadavg", "0.00 0.00 0.00 1/1 1\n"),
    ("/proc/slabinfo", "slabinfo - version: 2.1\n"),
    ("/sys/devices/system/cpu/online", "0-1\n"),
];

/// A directory with the files of LXCFS, a table of mounts and a configuration.
pub(crate) struct Node(TempDir);

impl Node {
    /// `options` are keys of `guards.lxcfs`.
    pub(crate) fn new(options: &str) -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        for (path, text) in FILES {
            node.write_file(path, text);
        }
        node.mount("fuse.lxcfs");
        node.configure(options);
        node
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The directory where LXCFS is mounted.
    pub(crate) fn root(&self) -> PathBuf {
        self.path().join("lxcfs")
    }

    pub(crate) fn configure(&self, options: &str) {
        let root = self.root();
        self.write(
            "durward.yaml",
            &format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {{lxcfs: {{lxcfsPath: {}, {options}}}}}\n", root.display()),
        );
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        write(&self.path().join(name), text);
    }

    /// Writes a file of LXCFS.
    pub(crate) fn write_file(&self, path: &str, text: &str) {
        write(&PathBuf::from(format!("{}{path}", self.root().display())), text);
    }

    /// Removes a file of LXCFS.
    pub(crate) fn remove_file(&self, path: &str) {
        fs::remove_file(format!("{}{path}", self.root().display())).unwrap();
    }

    /// Writes a table of mounts with this file system type at the root.
    pub(crate) fn mount(&self, fs_type: &str) {
        let number = fs::metadata(self.root().join("proc/stat")).unwrap().dev();
        let (major, minor, root) = (major(number), minor(number), self.root());
        let line = format!("97 90 {major}:{minor} / {} rw - {fs_type} lxcfs rw\n", root.display());
        self.write("proc/self/mountinfo", &line);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_durward-node"));
        command.args(arguments).current_dir(self.path()).env("HOME", self.path()).stderr(Stdio::piped());
        // The tests must not reach a cluster of this machine.
        for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "NODE_NAME"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command to its end. Returns exit code and standard error.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command(arguments).output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).unwrap())
    }

    /// Starts a command.
    pub(crate) fn start(&self, arguments: &[&str]) -> Agent {
        let mut child = self.command(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (reader, sink) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&lines));
        thread::spawn(move || {
            reader.lines().map_while(Result::ok).for_each(|line| sink.lock().unwrap().push(line));
        });
        Agent { child, lines }
    }
}

/// Replaces a file, so that a reader never sees a part of it.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// A running command; killed when dropped.
pub(crate) struct Agent {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    pub(crate) fn wait_for_log(&self, matches: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        self.wait_until("a matching log line", || {
            let lines = self.lines.lock().unwrap();
            let mut values = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
            found = values.find(|line| matches(line));
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits for a log line whose message contains this text.
    pub(crate) fn wait_for_message(&self, text: &str) -> Value {
        self.wait_for_log(|line| line["message"].as_str().is_some_and(|message| message.contains(text)))
    }

    pub(crate) fn wait_until(&self, what: &str, mut is_done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_done() {
            let lines = &self.lines;
            assert!(start.elapsed() < TIMEOUT, "timeout: {what}\n{:#?}", lines.lock().unwrap());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends SIGTERM and waits.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < TIMEOUT, "it does not stop");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
