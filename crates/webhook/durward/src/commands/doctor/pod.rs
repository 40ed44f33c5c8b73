//! `doctor --namespace`: runs the command in Durward's pod with `kubectl exec`, as a user with the command line outside would.

use std::process::Command;
use std::time::{Instant, SystemTime};

use clap::ValueEnum as _;
use config::{Problem, time};
use console::exit::{Exit, Outcome, Stop};
use console::output;

use super::{Args, WATCH_FOR, WATCH_INTERVAL};

/// The label that the chart sets on Durward's Deployment.
const SELECTOR: &str = "app.kubernetes.io/name=durward";

/// Finds the Deployment, and runs `durward doctor` in its pod. The exit code is that of the command there.
pub(super) fn run(args: &Args, namespace: &str) -> Outcome {
    let mut find = kubectl(args, namespace);
    let found = find.args(["get", "deployments", "--selector", SELECTOR, "--output", "name"]).output();
    let found = found.map_err(|error| missing(&error))?;
    if !found.status.success() {
        let why = String::from_utf8_lossy(&found.stderr).trim().to_owned();
        return Err(Stop::fault(
            Problem::new("kubectl can't list Deployments").why(why).next("check --kubeconfig and --context"),
        ));
    }
    let names = String::from_utf8_lossy(&found.stdout).into_owned();
    let [deployment] = names.lines().collect::<Vec<_>>()[..] else {
        let what = format!("{namespace} has {} Deployments with the label {SELECTOR}", names.lines().count());
        let next = format!("kubectl -n {namespace} exec deploy/NAME -- durward doctor");
        return Err(Stop::fault(Problem::new(what).next(next)));
    };
    if args.watch {
        return watch(args, namespace, deployment);
    }
    let ended = exec(args, namespace, deployment).status().map_err(|error| missing(&error))?;
    // kubectl has exit code 1 too if it can't reach the pod, and says so.
    Ok(match ended.code() {
        Some(0) => Exit::Done,
        Some(2) => Exit::Bad,
        Some(3) => Exit::Unknown,
        _ => Exit::No,
    })
}

/// Runs the command again and again from here: an interrupted `kubectl exec` would leave a loop behind in the pod.
fn watch(args: &Args, namespace: &str, deployment: &str) -> Outcome {
    let (began, mut before) = (Instant::now(), Vec::new());
    while began.elapsed() < WATCH_FOR {
        let ended = exec(args, namespace, deployment).output().map_err(|error| missing(&error))?;
        let text = if ended.stdout.is_empty() { ended.stderr } else { ended.stdout };
        if text != before {
            output::note(format!("--- {}", time::format(SystemTime::now())));
            output::print(&String::from_utf8_lossy(&text))?;
            before = text;
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
    Ok(Exit::Done)
}

/// Returns the command that runs `durward doctor` in the pod.
fn exec(args: &Args, namespace: &str, deployment: &str) -> Command {
    let mut exec = kubectl(args, namespace);
    exec.args(["exec", deployment, "--", "durward", "doctor"]).args(args.part.map(super::DoctorPart::name));
    if let Some(format) = args.output.to_possible_value() {
        exec.args(["--output", format.get_name()]);
    }
    exec
}

fn kubectl(args: &Args, namespace: &str) -> Command {
    let mut command = Command::new("kubectl");
    command.args(["--namespace", namespace]);
    if let Some(path) = &args.cluster.kubeconfig {
        command.arg("--kubeconfig").arg(path);
    }
    if let Some(context) = &args.cluster.context {
        command.args(["--context", context]);
    }
    command
}

fn missing(error: &std::io::Error) -> Stop {
    Stop::fault(Problem::new("kubectl can't be started").why(error.to_string()).next("install kubectl"))
}
