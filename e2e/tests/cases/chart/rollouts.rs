//! Replicas are replaced while pods are created and namespaces are deleted. All guards fail closed.

use std::time::Instant;

use e2e::prelude::*;

use super::configurations::HOME;
use super::environment::{Environment, home_path, installed, values};
use crate::cases::pages::{Expect, Shell};

/// Pairs of a creation and a deletion between two steps.
const BETWEEN: usize = 30;

/// Concurrent callers after a kill.
const CALLERS: usize = 3;

/// The time after a kill in which calls can fail: a restart of the container, or the time until its endpoint is removed.
const FAILS_WITHIN: Duration = Duration::from_secs(10);

#[e2e::case]
fn three_rollouts_fail_no_call(context: &'static TestContext) -> Result<()> {
    installed(context)?.fails_no_call_during(3)
}

#[e2e::case(Soak)]
fn twenty_rollouts_fail_no_call(context: &'static TestContext) -> Result<()> {
    installed(context)?.fails_no_call_during(20)
}

#[e2e::case]
fn the_runbook_for_an_expired_certificate_works(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let shell = Shell::new(context, environment.node.cluster(), &context.directory("expired")?)?;
    let names = environment.replicas()?;
    shell.run_page("runbooks/certificate-expired.md", |heading, _| {
        let is_here = ["Find the source of the certificate", "From Durward"].contains(&heading);
        Ok(if is_here { Expect::Success } else { Expect::Skip })
    })?;
    environment.await_replaced(&names)
}

impl Environment {
    /// Replaces all replicas this many times, by turns with `kubectl rollout restart` and `helm upgrade`.
    fn fails_no_call_during(&self, rollouts: usize) -> Result<()> {
        let kubectl = self.node.cluster().kubectl();
        let began = Instant::now();
        let calls = self.under_load(|load| {
            for number in 0..rollouts {
                load.await_more(BETWEEN)?;
                let names = self.replicas()?;
                if number % 2 == 0 {
                    kubectl.run(&["rollout", "restart", "-n", HOME, "deployment/durward"])?.succeeded()?;
                } else {
                    let mut values = values();
                    values["podAnnotations"] = json!({"example.org/rollout": number.to_string()});
                    self.helm.install(HOME, &values)?.succeeded()?;
                }
                self.await_replaced(&names)?;
                self.await_ended()?;
            }
            load.await_more(BETWEEN)
        })?;
        print(format_args!(
            "{rollouts} rollouts in {} s: 0 of {} calls failed",
            began.elapsed().as_secs(),
            2 * calls
        ));
        self.audit.has_no_forbidden_requests().map(drop)
    }

    /// Waits until the old replicas have ended.
    fn await_ended(&self) -> Result<()> {
        until("the old replicas to have ended", || {
            let count = self.home("pods")?.len();
            Ok((count == 2, format!("{count} pods")))
        })
    }
}

#[e2e::case]
fn one_of_two_replicas_can_be_evicted_at_a_time(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let evict = |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        environment.api().create(&format!("{}/{name}/eviction", home_path("pods")), &eviction)
    };
    environment
        .under_load(|load| {
            load.await_more(BETWEEN)?;
            let names = environment.replicas()?;
            until("a replica to be evicted", || {
                let answer = evict(&names[0])?;
                Ok((answer.is_success(), answer.message().to_owned()))
            })?;
            let second = evict(&names[1])?;
            ensure!(second.status == 429, "the second eviction is not denied: {}", second.message());
            environment.await_replaced(&names[..1])?;
            environment.await_ended()?;
            load.await_more(BETWEEN)
        })
        .map(drop)
}

/// The image of an upgrade is missing: the old replicas keep serving, and a rollback removes the new one.
#[e2e::case]
fn an_image_that_cannot_be_pulled_stops_no_replica(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let names = environment.replicas()?;
    environment.under_load(|load| {
        let mut values = values();
        values["image"]["tag"] = json!("missing");
        let arguments = ["--wait", "--timeout", "10s"];
        environment.helm.with_values(&["upgrade"], HOME, &values, &arguments)?.exited_with(1)?;
        ensure!(environment.replicas()? == names, "{names:?} are replaced");
        load.await_more(BETWEEN)?;
        let rollback = ["rollback", Helm::RELEASE, "--namespace", HOME, "--wait", "--timeout", "2m"];
        environment.helm.run(&rollback)?.succeeded()?;
        load.await_more(BETWEEN)
    })?;
    ensure!(environment.replicas()? == names, "{names:?} are replaced");
    Ok(())
}

/// SIGKILL gives a replica no time to say that it leaves. Calls in progress fail, and the API server does not repeat them. New connections
/// to it are refused until its container runs again, or until its endpoint is removed. Both replicas are killed, one after the other, so
/// that one of them has the open connections.
#[e2e::case(Soak)]
fn a_killed_replica_fails_calls_for_seconds_only(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let empty = environment.empty_namespace()?;
    // Some replicas of the previous case can still be stopping.
    until("the processes of two replicas", || {
        let processes = serving_processes()?;
        Ok((processes.len() == 2, format!("the processes of Durward on the node are {processes:?}")))
    })?;
    let killed = serving_processes()?;
    ensure!(killed.len() == 2, "the processes of Durward on the node are {killed:?}");
    for pid in killed {
        environment.node.run(&["kill", "-9", &pid.to_string()])?.succeeded()?;
        let calls = environment.calls_after(&empty)?;
        print(format_args!("after SIGKILL: {calls:?}"));
        ensure!(calls.last_failure < FAILS_WITHIN, "calls fail too late: {calls:?}");
        ensure!(calls.broken <= CALLERS, "more calls broke than were in progress: {calls:?}");
        until("both replicas to be ready", || {
            let names = environment.replicas()?;
            Ok((names.len() == 2, format!("{names:?}")))
        })?;
    }
    let pods = environment.home("pods")?;
    let restarts = pods.iter().map(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64());
    ensure!(restarts.clone().all(|count| count > Some(0)), "restarts: {:?}", restarts.collect::<Vec<_>>());
    Ok(())
}

/// Calls of the API server after a kill.
#[derive(Debug, Default)]
struct Calls {
    succeeded: usize,
    /// Calls on a connection that broke.
    broken: usize,
    /// Calls that got no connection.
    refused: usize,
    last_failure: Duration,
}

impl Environment {
    /// Deletes an empty namespace as dry runs for a while.
    fn calls_after(&self, empty: &Namespace<'_>) -> Result<Calls> {
        let began = Instant::now();
        let caller = || -> Result<Calls> {
            let mut calls = Calls::default();
            while began.elapsed() < FAILS_WITHIN + Duration::from_secs(5) {
                let answer = self.delete_as_dry_run(empty)?;
                if answer.is_success() {
                    calls.succeeded += 1;
                    continue;
                }
                let message = answer.message();
                ensure!(message.contains("failed calling webhook"), "{message}");
                let is_refused = message.contains("connection refused");
                *(if is_refused { &mut calls.refused } else { &mut calls.broken }) += 1;
                calls.last_failure = began.elapsed();
            }
            Ok(calls)
        };
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
            callers.into_iter().try_fold(Calls::default(), |all, caller| {
                let own = caller.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
                Ok(Calls {
                    succeeded: all.succeeded + own.succeeded,
                    broken: all.broken + own.broken,
                    refused: all.refused + own.refused,
                    last_failure: all.last_failure.max(own.last_failure),
                })
            })
        })
    }
}

/// Returns the processes of Durward in pods. The node's processes are in the pid namespace of this run.
fn serving_processes() -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process can end meanwhile.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let arguments: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        if arguments.get(1..3) == Some(&[&b"serve"[..], b"--config=/etc/durward/durward.yaml"][..]) {
            found.push(pid);
        }
    }
    Ok(found)
}
