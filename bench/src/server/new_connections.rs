//! New connections with one review each: with a resumed session, as Go's client resumes, and with a full handshake.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::client::Resumption;

use super::{ECHO, GO, Start};
use crate::figures::{Limit, Row, Samples};
use crate::load::Connection;
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, reviews, rounds, scaled};

/// Limit of a resumed connection, relative to the echo.
const LIMIT: f64 = 1.1;
const COUNT: usize = 1_000;

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    let servers: [Start; 3] =
        [Server::echo, |folder| Server::durward(folder, Guards::Lxcfs), Server::controller_runtime];
    let mut resumed = [const { Samples::NONE }; 3];
    let mut full = [const { Samples::NONE }; 3];
    for _ in 0..rounds() {
        for (start, (resumed, full)) in servers.iter().zip(resumed.iter_mut().zip(&mut full)) {
            let server = start(folder)?;
            resumed.push_time(connect(&server, &folder.client()?, true)?);
            let mut config = (*folder.client()?).clone();
            config.resumption = Resumption::disabled();
            full.push_time(connect(&server, &Arc::new(config), false)?);
        }
    }
    report.section(
        "New connections",
        "A TLS 1.3 connection with the review of a pod that did not opt in, one after another. A resumed session uses the ticket of an earlier \
         connection and a new key exchange (X25519 with ML-KEM-768), as Go's client does. The certificate has a key of P-256.",
    );
    let [echo, durward, go] = resumed;
    let name = "new connection with a resumed session: CPU";
    report.row(Row::seconds(name, durward.clone()).limited_by(ECHO, echo).limit(Limit::RatioAtMost(LIMIT)));
    report.row(Row::seconds(name, durward).against(GO, go));
    let [echo, durward, go] = full;
    let name = "new connection with a full handshake: CPU";
    report.row(Row::seconds(name, durward.clone()).limited_by(ECHO, echo));
    report.row(Row::seconds(name, durward).against(GO, go));
    Ok(())
}

/// Returns the CPU time of the server for one connection.
fn connect(server: &Server, config: &Arc<ClientConfig>, resumes: bool) -> Result<Duration> {
    let request = server.request(&reviews::plain_pod());
    let count = scaled(COUNT);
    let mut cpu = Duration::ZERO;
    for number in 0..=count {
        let mut connection = Connection::open(server.address, config)?;
        connection.ask(&request)?;
        if number == 0 {
            // It brings the first ticket.
            cpu = server.cpu()?;
        } else if connection.is_resumed() != resumes {
            return Err("a handshake was not of the kind that is measured".into());
        }
    }
    Ok(server.cpu()?.saturating_sub(cpu) / u32::try_from(count)?)
}
