//! Command `doctor`: checks a running installation and prints problems with the commands that fix them.

mod etcd;
mod finding;
mod fleet;
mod install;
mod lxcfs;
use console::exit::Outcome;

/// `doctor`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Check webhook configurations, permissions and certificates
    #[command(
        after_help = "Example:\n  kubectl -n durward-system exec deploy/durward -- durward doctor install --config /etc/durward/durward.yaml\n\nRun it with Durward's kubeconfig, or in its pod: it checks the permissions of the account that it uses. It changes nothing.\n\nExit code: 0 no problems, 1 problems found, 2 bad input."
    )]
    Install(install::Args),
    /// Check access to every member cluster
    #[command(
        after_help = "Example:\n  durward doctor fleet --config durward.yaml\n\nRun it with Durward's kubeconfig, or in its pod. Without --config, Durward detects the fleet and does not check API groups and acknowledgements of the file.\n\nExit code: 0 no problems, 1 problems found, 2 bad input."
    )]
    Fleet(fleet::Args),
    /// Check LXCFS on every node, and what pods read there
    #[command(
        after_help = "Examples:\n  durward doctor lxcfs --config durward.yaml\n  durward doctor lxcfs --local\n\nWithout --config, the defaults of the guard are expected.\n\nExit code: 0 no problems, 1 problems found, 2 bad input."
    )]
    Lxcfs(lxcfs::Args),
    /// Check etcd clusters, and whether each pod could be deleted now
    #[command(
        after_help = "Example:\n  kubectl -n durward-system exec deploy/durward -- durward doctor etcd --config /etc/durward/durward.yaml\n\nRun it in Durward's pod: the members may be unreachable from elsewhere. It checks the permissions for Leases with dryRun=All and changes nothing.\n\nExit code: 0 no findings, 1 findings, 2 bad input."
    )]
    Etcd(etcd::Args),
}

/// `doctor`
pub(crate) fn run(command: &Command) -> Outcome {
    match command {
        Command::Install(args) => install::run(args),
        Command::Fleet(args) => fleet::run(args),
        Command::Lxcfs(args) => lxcfs::run(args),
        Command::Etcd(args) => etcd::run(args),
    }
}
