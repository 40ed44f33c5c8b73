//! The Go program of `crates/evaluator/policy/parity`, which answers with the API server's code.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value as Json, json};

use crate::number;
use crate::types::{Overload, overloads};

/// The program with the code of one API server.
pub(crate) struct Server {
    /// Minor of the API server.
    pub(crate) minor: u8,
    program: PathBuf,
}

/// Builds the program for the oldest and the newest API server that it supports, or for the minor in `PARITY_SERVER`.
pub(crate) fn servers() -> Vec<Server> {
    let wanted = number("PARITY_SERVER", 0);
    let programs: [(u8, &[&str]); 2] = [(35, &[]), (37, &["-modfile=1.37.mod", "-tags=k8s1.37"])];
    let programs = programs.into_iter().filter(|(minor, _)| wanted == 0 || wanted == u64::from(*minor));
    programs.map(|(minor, flags)| Server::build(minor, flags)).collect()
}

impl Server {
    fn build(minor: u8, flags: &[&str]) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("parity-1.{minor}"));
        println!("building {}", program.display());
        // The flags of the control planes in `e2e`, which have most of these packages in Go's cache.
        let go = Command::new("go")
            .env("CGO_ENABLED", "0")
            .args(["build", "-trimpath", "-buildvcs=false"])
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(".")
            .current_dir(source)
            .status();
        assert!(go.expect("Go is installed").success(), "go build failed");
        Self { minor, program }
    }

    /// Asks questions, one per line. The answers have the same order.
    pub(crate) fn ask(&self, questions: &[Json]) -> Vec<Json> {
        let program = Command::new(&self.program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut program = program.expect("the program starts");
        let mut input = program.stdin.take().expect("its input");
        let output = program.stdout.take().expect("its output");
        let answers: Vec<Json> = thread::scope(|scope| {
            scope.spawn(move || {
                for question in questions {
                    writeln!(input, "{question}").expect("the program reads a question");
                }
            });
            let lines = BufReader::new(output).lines();
            lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("an answer")).collect()
        });
        assert!(program.wait().expect("its end").success(), "1.{} failed", self.minor);
        assert_eq!(answers.len(), questions.len());
        answers
    }

    /// The functions that the environment of a minor declares.
    pub(crate) fn functions(&self, environment: u8) -> Vec<Overload> {
        overloads(&self.ask(&[json!({ "functions": format!("1.{environment}") })])[0])
    }
}
