//! `durward-node`: the agents of Durward on LXCFS nodes.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use node::{device_plugin, label};

/// Agents of Durward for nodes with LXCFS
#[derive(Debug, Parser)]
#[command(name = "durward-node", version)]
struct NodeCli {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Node agent: label nodes where LXCFS works
    #[command(
        after_help = "Example:\n  durward-node label --config durward.yaml --node $NODE_NAME\n\nReads guards.lxcfs: lxcfsPath, files and nodeAffinity. On SIGTERM, label and annotation stay on the Node, because LXCFS keeps running. The annotation contains the time of its last update."
    )]
    Label(label::Args),
    /// Node agent: kubelet device plugin for LXCFS files
    #[command(
        after_help = "Example:\n  durward-node device-plugin --config durward.yaml\n\nReads guards.lxcfs: lxcfsPath and files. On SIGTERM, the node offers no devices; running pods keep their files."
    )]
    DevicePlugin(device_plugin::Args),
}

fn main() -> ExitCode {
    let result = match &NodeCli::parse().command {
        NodeCommand::Label(args) => label::run(args),
        NodeCommand::DevicePlugin(args) => device_plugin::run(args),
    };
    result.unwrap_or_else(|problems| {
        let mut stderr = io::stderr().lock();
        for problem in problems {
            // Standard error can be closed; the exit code is still right.
            let _ = writeln!(stderr, "error: {problem}");
        }
        ExitCode::from(2)
    })
}
