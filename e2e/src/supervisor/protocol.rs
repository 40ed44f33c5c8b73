//! What the tests and the supervisor say to each other: one JSON document per line, answers in any order, matched
//! by number.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An order with the number under which its answer comes back.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// Unique within the run.
    pub id: u64,
    /// What is wanted.
    pub order: Order,
}

/// The answer to the [`Question`] of the same number; [`GREETING`] for the supervisor's first words.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The question's number.
    pub id: u64,
    /// What came of it; an error is a sentence for the test's report.
    pub result: Result<Reply, String>,
}

/// The number of the answer that nobody asked for: [`Reply::Ready`], once, when the supervisor may be asked.
pub const GREETING: u64 = 0;

/// What the tests may want of the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// Start a process. Answered with [`Reply::Started`] at once.
    Start(Start),
    /// Answered with [`Reply::Ended`] when the part ends, which may be long after.
    Wait(u64),
    /// Answered at once, with [`Reply::Ended`] or [`Reply::Running`].
    Look(u64),
    /// Send a signal, by its Linux number.
    Signal {
        /// The part.
        part: u64,
        /// 1 to 64.
        signal: i32,
    },
    /// SIGTERM, the part's grace, SIGKILL. Answered with [`Reply::Ended`] when it has ended.
    End(u64),
    /// Add an address to the loopback device, which webhooks behind a Service need: the API server refuses
    /// 127.0.0.0/8 there.
    Address,
    /// Lend something of this host until the run ends. Answered with [`Reply::Leased`].
    Borrow(Resource),
    /// The run went well: nobody will want its logs.
    Passed,
}

/// What a run may want of the host for as long as it lasts.
///
/// Nothing else of a node needs to be asked for: addresses, routes, bridges, mounts and the settings of a
/// network live in namespaces that end with the processes in them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resource {
    /// A cgroup of a name that no other run has, directly below the root of every hierarchy.
    Cgroup,
    /// A pair of virtual interfaces between this host and a network namespace.
    Link {
        /// A process in that namespace.
        into: i32,
    },
}

/// What was lent, as the answer and the journal name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lease {
    /// The cgroup of this name: everybody in it and below is ended when it is taken back.
    Cgroup(String),
    /// The link `durward<subnet>` to the network 10.98.`subnet`.0/30.
    Link(u8),
}

/// A process to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// For words and for the journal.
    pub name: String,
    /// Full path, or a name to look up in PATH.
    pub program: PathBuf,
    /// Without the program's own name.
    pub arguments: Vec<String>,
    /// On top of the test process's own environment.
    pub environment: Vec<(String, String)>,
    /// The working folder; the supervisor's own if none.
    pub folder: Option<PathBuf>,
    /// A file to read from; nothing if none.
    pub stdin: Option<PathBuf>,
    /// The file that receives standard output. It is emptied first.
    pub stdout: PathBuf,
    /// The file that receives standard error; the one of standard output if none.
    pub stderr: Option<PathBuf>,
    /// How long the part may take to end by itself after SIGTERM. Zero: there is nothing in it worth a
    /// goodbye.
    pub grace_millis: u64,
}

/// What the supervisor answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// The supervisor stands and has cleaned up behind dead ones.
    Ready {
        /// For everything that ends with the run.
        work: PathBuf,
        /// For logs: kept if the run did not pass.
        logs: PathBuf,
    },
    /// A part runs.
    Started {
        /// The supervisor's name for it in later orders.
        part: u64,
        /// Its process id.
        pid: i32,
    },
    /// A part has ended.
    Ended(Exit),
    /// A part has not ended.
    Running,
    /// The address that was added.
    Address(Ipv4Addr),
    /// What was lent.
    Leased(Lease),
    /// Nothing more to say.
    Done,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
        }
    }
}
