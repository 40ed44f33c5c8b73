//! The time from the start of the process until the server is ready, and the size of the binary.

use std::fs;

use super::GO;
use crate::Result;
use crate::figures::{Limit, Row, Samples};
use crate::peers::Peer;
use crate::report::Report;
use crate::rounds;
use crate::servers::{Folder, Guards, Server, binary};

/// Limit of the time.
const READY: f64 = 0.060;
/// Limit of the binary's size: 30 MB.
const SIZE: f64 = 30e6;

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    let [mut durward, mut go] = [const { Samples::NONE }; 2];
    for _ in 0..rounds() {
        durward.push_time(Server::durward(folder, Guards::Three)?.started);
        go.push_time(Server::controller_runtime(folder)?.started);
    }
    report.section(
        "Start and size",
        "From the start of the process until `/readyz` answers 200, without a cluster: a snapshot on disk instead. The peer has no such \
         check, so it is ready when it accepts connections. The binaries are stripped.",
    );
    report.row(Row::seconds("start until ready", durward).against(GO, go).limit(Limit::AtMost(READY)));
    let size = |path| -> Result<Samples> { Ok(Samples::one(fs::metadata(path)?.len() as f64)) };
    let row = Row::bytes("size of the binary", size(binary()?)?)
        .against(GO, size(Peer::ControllerRuntime.program()?)?);
    report.row(row.limit(Limit::AtMost(SIZE)));
    Ok(())
}
