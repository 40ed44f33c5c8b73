//! Durward without a chart: the commands of the page [Without a chart](../docs/src/operate/binary.md), with the program as a
//! process of this host. The case takes the place of systemd and of the root of another machine.

use std::cell::RefCell;

use e2e::context::write;
use e2e::prelude::*;
use e2e::supervisor::{Process, Tool};

use super::pages::{self, Expect, Shell};

const PAGE: &str = "operate/binary.md";

/// Commands that change the host.
const FOR_ROOT: [&str; 5] = ["install -m 0755", "useradd", "userdel", "rm -r", "systemctl daemon-reload"];

/// The page's machine, in a directory of this host.
struct Machine<'a> {
    context: &'a TestContext,
    shell: Shell<'a>,
    directory: std::path::PathBuf,
    address: String,
    /// The arguments of `ExecStart`.
    arguments: Vec<String>,
    server: RefCell<Option<Process>>,
}

impl Machine<'_> {
    /// Replaces the page's paths, group and addresses by those of this machine.
    fn here(&self, text: &str) -> String {
        let metrics = format!("{}:8080", self.address);
        [
            ("127.0.0.1:8080", metrics.as_str()),
            ("192.0.2.7", &self.address),
            ("/etc/kubernetes/pki/", "pki/"),
            ("/etc/systemd/system/", "./"),
            ("/etc/durward", "."),
            (" -g durward", ""),
            ("root:durward", "root:root"),
        ]
        .iter()
        .fold(text.to_owned(), |text, (page, own)| text.replace(page, own))
    }

    fn start(&self) -> Result<()> {
        let tool = Tool::new("durward", self.context.durward_program()?)
            .arguments(self.arguments.iter().map(|argument| self.here(argument)))
            .directory(&self.directory);
        let server = self.context.supervisor()?.start_process(tool)?;
        self.server.replace(Some(server));
        Ok(())
    }

    fn stop(&self) -> Result<()> {
        let server = self.server.take().context("systemd has not started Durward")?;
        server.end().map(drop)
    }

    /// Returns the line with the expiry of the certificate in use.
    fn expiry(&self) -> Result<String> {
        let metrics = format!("curl -s http://{}:8080/metrics", self.address);
        let command = format!("{metrics} | grep ^durward_certificate_not_after_seconds");
        Ok(self.shell.run(&command)?.succeeded()?.stdout)
    }

    /// Repeats a command until it prints this text.
    fn await_text(&self, command: &str, text: &str) -> Result<()> {
        until(format_args!("{command:?} to print {text:?}"), || {
            let output = self.shell.run(command)?;
            Ok((output.stdout.contains(text) || output.stderr.contains(text), format!("{output:?}")))
        })
    }
}

#[e2e::case]
fn the_page_on_the_binary_works(context: &TestContext) -> Result<()> {
    let cluster = context.own_cluster(&Options::named("binary").with_controllers())?;
    let directory = context.directory("etc-durward")?;
    let unit = pages::block(PAGE, "ini", "5. Start it")?;
    let program = "/usr/local/bin/durward";
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")?.strip_prefix(program));
    let arguments =
        start.context("the unit has no ExecStart")?.split_whitespace().map(str::to_owned).collect();
    let machine = Machine {
        context,
        shell: Shell::new(context, &cluster, &directory)?,
        directory,
        address: context.address()?.to_string(),
        arguments,
        server: RefCell::default(),
    };
    for part in ["pki", "tls"] {
        std::fs::create_dir(machine.directory.join(part))?;
    }
    let listeners = format!("server:\n  bindAddress: {}:8443\n  debugBindAddress: none\n", machine.address);
    let configuration = machine.here(&pages::block(PAGE, "yaml", "3. Write the configuration")?);
    let own = context.durward_program()?.display().to_string();
    for (name, content) in [
        ("pki/ca.crt", cluster.ca().pem()),
        ("pki/ca.key", cluster.ca().key_pem()),
        ("durward.yaml", configuration.replace("server:\n", &listeners)),
        ("durward.service", unit.replace(program, &own)),
    ] {
        write(&machine.directory, name, &content)?;
    }
    let mut first = String::new();
    machine.shell.run_page(PAGE, |heading, command| {
        if heading == "Use a token instead" || FOR_ROOT.iter().any(|start| command.starts_with(start)) {
            return Ok(Expect::Skip);
        }
        *command = machine.here(command);
        if command.starts_with("systemctl") {
            if heading == "Renew the client certificate" {
                until("the new certificate to be in use", || {
                    let now = machine.expiry()?;
                    Ok((now != first, now))
                })?;
            }
            if !command.contains("enable") {
                machine.stop()?;
            }
            if !command.contains("disable") {
                machine.start()?;
            }
            return Ok(Expect::Skip);
        }
        if command.contains("auth can-i") {
            machine.await_text(command, "yes")?;
        } else if command.contains("--dry-run=server") {
            // The API server learns of the webhook configuration a moment later.
            machine.await_text(command, "would be denied")?;
        } else if command.starts_with("install") && heading == "Renew the serving certificate" {
            first = machine.expiry()?;
        }
        Ok(Expect::Success)
    })?;
    let role = machine.shell.run("kubectl get clusterrole durward")?;
    ensure!(!role.is_success(), "the ClusterRole is still there: {role:?}");
    Ok(())
}
