//! `doctor --namespace`: runs the command in Durward's pod with `kubectl exec`, as a user with the command line outside would.

use std::process::Command;

use clap::ValueEnum as _;
use config::Problem;
use console::exit::{Exit, Outcome, Stop};

use super::Args;

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
    let mut exec = kubectl(args, namespace);
    exec.args(["exec", deployment, "--", "durward", "doctor"]).args(args.part.map(super::Part::name));
    if let Some(format) = args.output.to_possible_value() {
        exec.args(["--output", format.get_name()]);
    }
    exec.args(args.watch.then_some("--watch"));
    let ended = exec.status().map_err(|error| missing(&error))?;
    Ok(match ended.code() {
        Some(0) => Exit::Done,
        Some(2) => Exit::Bad,
        Some(3) => Exit::Unknown,
        _ => Exit::No,
    })
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
