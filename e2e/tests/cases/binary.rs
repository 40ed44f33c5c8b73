//! Runs the commands of the page [Without a chart](../../../docs/src/operate/binary.md) unchanged, on a machine next to a cluster.
//!
//! The machine has the network of a node with the page's address, and its own files over those of this host. A script starts and stops
//! the page's unit as systemd does, but without the hardening. `systemd-analyze verify` checks the unit.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use e2e::context;
use e2e::prelude::*;
use e2e::supervisor::{Process, Tool};

use super::chart::environment::node_without_release;
use super::pages::{Expect, Shell, block};

const PAGE: &str = "operate/binary.md";

/// The address of the machine on the page.
const ADDRESS: &str = "192.0.2.7/32";

/// Gives the machine directories that the page writes to.
const FILES: &str = "mount -t tmpfs tmpfs /mnt
for directory in /etc /usr/local/bin; do
  mkdir -p /mnt/$directory/new /mnt/$directory/work
  mount -t overlay overlay -o lowerdir=$directory,upperdir=/mnt/$directory/new,workdir=/mnt/$directory/work $directory
done
mkdir -p /etc/kubernetes/pki
cp \"$1\" /etc/kubernetes/pki/ca.crt
cp \"$2\" /etc/kubernetes/pki/ca.key
exec sleep infinity";

/// Starts and stops the command of the unit as its user.
const SYSTEMCTL: &str = r#"#!/bin/bash
set -eu
unit=/etc/systemd/system/durward.service
state=$(dirname "$(readlink -f "$0")")
stop() {
  [ -f "$state/pid" ] || return 0
  kill "$(cat "$state/pid")"
  while kill -0 "$(cat "$state/pid")" 2>/dev/null; do sleep 0.1; done
  rm "$state/pid"
}
start() {
  user=$(sed -n 's/^User=//p' "$unit") group=$(sed -n 's/^Group=//p' "$unit")
  setsid setpriv --reuid="$user" --regid="$group" --clear-groups $(sed -n 's/^ExecStart=//p' "$unit") >>"$state/journal" 2>&1 &
  echo $! >"$state/pid"
  sleep 0.5
  kill -0 "$(cat "$state/pid")" || { tail -5 "$state/journal" >&2; exit 1; }
}
case $1 in
  daemon-reload) ;;
  enable) start ;;
  restart) stop; start ;;
  disable) stop ;;
  *) echo "systemctl $*: not known here" >&2; exit 1 ;;
esac
"#;

#[e2e::case]
fn the_page_without_a_chart_works(context: &'static TestContext) -> Result<()> {
    let node = node_without_release(context)?;
    node.run(&["ip", "address", "add", ADDRESS, "dev", "lo"])?.succeeded()?;
    let directory = context.directory("binary")?;
    let systemctl = context::write(&directory, "systemctl", SYSTEMCTL)?;
    std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755))?;
    let machine = machine(context, node, &directory)?;
    let shell = Shell::new(context, node.cluster(), &directory)?.on(machine.pid(), &systemctl)?;
    let _removed = Undo::new("the installation of the page is not removed", || {
        let kubectl = node.cluster().kubectl();
        let kinds =
            "validatingwebhookconfiguration,mutatingwebhookconfiguration,clusterrole,clusterrolebinding";
        kubectl.run(&["delete", "--ignore-not-found", kinds, "durward"])?.succeeded()?;
        let home = ["delete", "--ignore-not-found", "namespace", "durward-system"];
        kubectl.run(&home)?.succeeded().map(drop)
    });
    let result = follow(context, &shell, node);
    result.with_context(|| {
        let journal = std::fs::read_to_string(systemctl.with_file_name("journal")).unwrap_or_default();
        format!("the end of Durward's log: {}", journal.lines().rev().take(5).collect::<Vec<_>>().join(" | "))
    })
}

/// Starts a process that keeps the machine's files.
fn machine(context: &TestContext, node: &Node, directory: &std::path::Path) -> Result<Process> {
    let ca = node.cluster().ca();
    let certificate = context::write(directory, "ca.crt", &ca.pem())?;
    let key = context::write(directory, "ca.key", &ca.key_pem())?;
    let tool = Tool::new("machine", "nsenter")
        .argument(format!("--net={}", node.network().display()))
        .arguments(["unshare", "--mount", "--propagation=private", "bash", "-euc", FILES, "machine"])
        .arguments([certificate, key].map(|path: PathBuf| path.display().to_string()));
    let machine = context.supervisor()?.start_process(tool)?;
    let ready = format!("/proc/{}/root/etc/kubernetes/pki/ca.key", machine.pid());
    until("the machine's files", || Ok((std::path::Path::new(&ready).exists(), machine.log_tail(5))))?;
    Ok(machine)
}

fn follow(context: &TestContext, shell: &Shell<'_>, node: &Node) -> Result<()> {
    let program = context.durward_program()?.display().to_string();
    let write = |path: &str, text: &str| {
        shell.run(&format!("cat > {path} <<'END'\n{text}END"))?.succeeded().map(drop)
    };
    let expiry = || -> Result<String> {
        let command = "curl -s http://127.0.0.1:8080/metrics | grep ^durward_certificate_not_after_seconds";
        Ok(shell.run(command)?.succeeded()?.stdout)
    };
    let mut first = String::new();
    shell.run_page(PAGE, |heading, command| {
        if command.contains("/dist/durward ") {
            *command = command.replace("target/x86_64-unknown-linux-gnu/dist/durward", &program);
        } else if heading.starts_with("4.") && command.contains("genrsa") {
            write("/etc/durward/durward.yaml", &block(PAGE, "yaml", "3. Write the configuration")?)?;
        } else if command.contains("systemd-analyze") {
            write("/etc/systemd/system/durward.service", &block(PAGE, "ini", "5. Start it")?)?;
        } else if command.contains("auth can-i") {
            until("the permissions to be in use", || {
                let output = shell.run(command)?;
                Ok((output.is_success(), format!("{output:?}")))
            })?;
        } else if command.contains("--dry-run=server") {
            until("the API server to call Durward", || {
                let output = shell.run(command)?;
                Ok((output.stderr.contains("audit:"), format!("{output:?}")))
            })?;
        } else if heading == "Renew the serving certificate" && command.starts_with("install") {
            first = expiry()?;
        } else if heading == "Use a token instead" && command.contains("create namespace") {
            until("the new serving certificate to be in use", || {
                let now = expiry()?;
                Ok((now != first, now))
            })?;
            write("/etc/durward/token.yaml", &block(PAGE, "yaml", "Use a token instead")?)?;
            shell.run("sed -i 's/^namespace: .*/namespace: durward-system/' durward.yaml")?.succeeded()?;
        } else if command.contains("set-credentials durward --token") {
            until("the token of the Secret", || {
                let path = "/api/v1/namespaces/durward-system/secrets/durward-token";
                let secret = node.cluster().api().get(path)?.body;
                Ok((secret["data"]["token"].is_string(), secret.to_string()))
            })?;
        } else if heading == "Uninstall" && command.contains("validatingwebhookconfiguration") {
            // The service works with the token as well.
            shell.run("systemctl restart durward")?.succeeded()?;
            shell.run("curl -s --retry 60 --retry-delay 2 --retry-connrefused --fail http://127.0.0.1:8080/readyz")?.succeeded()?;
        }
        Ok(Expect::Success)
    })
}
