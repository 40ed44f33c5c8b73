//! The CPU time of a review, relative to the echo and to controller-runtime.

use std::fs;

use super::{CONNECTIONS, ECHO, GO, answer, cost};
use crate::figures::{Limit, Row, Samples, Unit};
use crate::load::request;
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, answers, echo, resources, reviews, rounds};

/// Limit of a review that adds files, relative to the echo.
const LXCFS_LIMIT: f64 = 1.5;
/// Limit of a review that only allows.
const ALLOW_LIMIT: f64 = 1.25;
const REQUESTS: usize = 40_000;
/// controller-runtime needs longer for each.
const GO_REQUESTS: usize = 8_000;

/// The echo when it checks the JSON.
const JSON_ECHO: &str = "echo that skips the JSON";

/// A review that is allowed without a look-up.
struct Plain {
    name: &'static str,
    guards: Guards,
    path: &'static str,
    body: Vec<u8>,
    durward: Samples,
    echo: Samples,
    json_echo: Samples,
}

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    fs::write(folder.file("policies.yaml"), resources::policies(0, 20))?;
    let pod = reviews::opted_in_pod();
    let mut plain = plain();
    for review in &plain {
        let server = Server::durward(folder, review.guards)?;
        answers::expect_plain(&review.body, &answer(&server, folder, review.path, &review.body)?)?;
    }
    let [mut echo, mut json_echo, mut durward, mut go] = [const { Samples::NONE }; 4];
    let [mut echo_sleeps, mut durward_sleeps] = [const { Samples::NONE }; 2];
    for _ in 0..rounds() {
        let server = Server::echo(folder)?;
        let measured = cost(&server, folder, &server.request(&pod), CONNECTIONS, REQUESTS)?;
        echo.push_time(measured.cpu);
        echo_sleeps.push(measured.sleeps);
        let json_request = request(echo::JSON, &pod);
        json_echo.push_time(cost(&server, folder, &json_request, CONNECTIONS, REQUESTS)?.cpu);
        for review in &mut plain {
            for (request, samples) in [
                (server.request(&review.body), &mut review.echo),
                (request(echo::JSON, &review.body), &mut review.json_echo),
            ] {
                samples.push_time(cost(&server, folder, &request, CONNECTIONS, REQUESTS)?.cpu);
            }
        }
        drop(server);
        let server = Server::durward(folder, Guards::Three)?;
        let measured = cost(&server, folder, &server.request(&pod), CONNECTIONS, REQUESTS)?;
        durward.push_time(measured.cpu);
        durward_sleeps.push(measured.sleeps);
        let policies = Server::durward(folder, Guards::Policies)?;
        for review in &mut plain {
            let server = if review.guards == Guards::Policies { &policies } else { &server };
            let request = request(review.path, &review.body);
            review.durward.push_time(cost(server, folder, &request, CONNECTIONS, REQUESTS)?.cpu);
        }
        drop((server, policies));
        let server = Server::controller_runtime(folder)?;
        go.push_time(cost(&server, folder, &server.request(&pod), CONNECTIONS, GO_REQUESTS)?.cpu);
    }
    report.section(
        "CPU of a review",
        "Eight connections over TLS 1.3, the next request as soon as the answer is there. The CPU time is the kernel's count for the \
         threads of the server, user and system. The load generator polls on another core. A sleep is a thread of the server that \
         waits for a request: a server that sleeps more than another one is measured with its wake-ups. The echo receives \
         the body and does not parse it. The echo that skips the JSON also checks the grammar with `serde_json` and stores no value. A \
         server that parses reviews with `serde_json` needs at least this CPU time.",
    );
    let name = format!("pod that gets LXCFS files, {} B", pod.len());
    report.row(
        Row::seconds(&name, durward.clone()).limited_by(ECHO, echo).limit(Limit::RatioAtMost(LXCFS_LIMIT)),
    );
    report.row(Row::seconds(&name, durward.clone()).limited_by(JSON_ECHO, json_echo));
    report.row(Row::seconds(&name, durward).against(GO, go));
    report.row(
        Row::new("sleeps of the server for each of these reviews", Unit::Count, durward_sleeps)
            .limited_by(ECHO, echo_sleeps),
    );
    for Plain { name, body, durward, echo, json_echo, .. } in plain {
        let row = Row::seconds(format!("{name}, {} B", body.len()), durward);
        report.row(row.clone().limited_by(ECHO, echo).limit(Limit::RatioAtMost(ALLOW_LIMIT)));
        report.row(row.limited_by(JSON_ECHO, json_echo));
    }
    Ok(())
}

fn plain() -> [Plain; 4] {
    let of = |name, guards, path, body| Plain {
        name,
        guards,
        path,
        body,
        durward: Samples::default(),
        echo: Samples::default(),
        json_echo: Samples::default(),
    };
    [
        of("pod that did not opt in to LXCFS", Guards::Three, "/lxcfs?timeout=5s", reviews::plain_pod()),
        of(
            "deletion of an exempt namespace",
            Guards::Three,
            "/deletion?timeout=5s",
            reviews::namespace_deletion(),
        ),
        of(
            "deletion of a pod outside of the etcd cluster",
            Guards::Three,
            "/etcd?timeout=5s",
            reviews::pod_deletion(),
        ),
        of("pod that no policy can match", Guards::Policies, "/resources?timeout=5s", reviews::plain_pod()),
    ]
}
