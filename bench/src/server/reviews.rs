//! The CPU time of a review, relative to the echo and to controller-runtime.

use std::fs;

use super::{CONNECTIONS, ECHO, GO, answer, cpu};
use crate::figures::{Limit, Row, Samples};
use crate::load::request;
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, answers, resources, reviews, rounds};

/// Limit of a review relative to the echo. On two machines the ratios are 1.4 to 2.9.
const LIMIT: f64 = 3.0;
const REQUESTS: usize = 40_000;
/// controller-runtime needs longer for each.
const GO_REQUESTS: usize = 8_000;

/// A review, and the guard that gets it.
struct Review {
    name: &'static str,
    guards: Guards,
    path: &'static str,
    body: Vec<u8>,
    adds_files: bool,
}

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    fs::write(folder.file("policies.yaml"), resources::policies(0, 20))?;
    let reviews = reviews();
    for review in reviews.iter().filter(|review| !review.adds_files) {
        let server = Server::durward(folder, review.guards)?;
        answers::expect_plain(&review.body, &answer(&server, folder, review.path, &review.body)?)?;
    }
    let mut samples = [const { [Samples::NONE; 2] }; 5];
    let mut go = Samples::NONE;
    for _ in 0..rounds() {
        let server = Server::echo(folder)?;
        for (review, [echo, _]) in reviews.iter().zip(&mut samples) {
            let request = request(review.path, &review.body);
            echo.push_time(cpu(&server, folder, &request, CONNECTIONS, REQUESTS)?);
        }
        drop(server);
        let [three, policies] =
            [Guards::Three, Guards::Policies].map(|guards| Server::durward(folder, guards));
        let (three, policies) = (three?, policies?);
        for (review, [_, durward]) in reviews.iter().zip(&mut samples) {
            let server = if review.guards == Guards::Policies { &policies } else { &three };
            let request = request(review.path, &review.body);
            durward.push_time(cpu(server, folder, &request, CONNECTIONS, REQUESTS)?);
        }
        drop((three, policies));
        let server = Server::controller_runtime(folder)?;
        let request = server.request(&reviews::opted_in_pod());
        go.push_time(cpu(&server, folder, &request, CONNECTIONS, GO_REQUESTS)?);
    }
    report.section(
        "CPU of a review",
        "Eight connections over TLS 1.3, the next request as soon as the answer is there. The CPU time is the kernel's count for the \
         threads of the server, user and system. The load generator polls on another core. The echo receives the body and does not \
         parse it.",
    );
    for (Review { name, body, adds_files, .. }, [echo, durward]) in reviews.iter().zip(samples) {
        let row = Row::seconds(format!("{name}, {} B", body.len()), durward);
        report.row(row.clone().against(ECHO, echo).limit(Limit::RatioAtMost(LIMIT)));
        if *adds_files {
            report.row(row.against(GO, go.clone()));
        }
    }
    Ok(())
}

/// The first one adds files. The others are allowed without a look-up.
fn reviews() -> [Review; 5] {
    let of = |name, guards, path, body, adds_files| Review { name, guards, path, body, adds_files };
    let three = |name, path, body, adds_files| of(name, Guards::Three, path, body, adds_files);
    let [lxcfs, deletion, etcd] = ["/lxcfs?timeout=5s", "/deletion?timeout=5s", "/etcd?timeout=5s"];
    let resources = "/resources?timeout=5s";
    [
        three("pod that gets LXCFS files", lxcfs, reviews::opted_in_pod(), true),
        three("pod that did not opt in to LXCFS", lxcfs, reviews::plain_pod(), false),
        three("deletion of an exempt namespace", deletion, reviews::namespace_deletion(), false),
        three("deletion of a pod outside of the etcd cluster", etcd, reviews::pod_deletion(), false),
        of("pod that no policy can match", Guards::Policies, resources, reviews::plain_pod(), false),
    ]
}
