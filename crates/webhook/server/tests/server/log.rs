//! Log lines of reviews.

use std::io::Write;
use std::sync::{Arc, Mutex};

use admission::{Mode, SettlePolicy};
use rcgen::{CertificateParams, DnType};
use server::{AllowedNames, ClientAuth};
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use crate::harness::{Behavior, Ca, Client, Gate, ServerBuilder, Stub, review};

/// Captures the log of this thread until it is dropped.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn capture() -> (Self, DefaultGuard) {
        Self::capture_at(Level::INFO)
    }

    fn capture_at(level: Level) -> (Self, DefaultGuard) {
        let lines = Self::default();
        let subscriber =
            tracing_subscriber::fmt().json().with_max_level(level).with_writer(lines.clone()).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    fn of_reviews(&self) -> Vec<serde_json::Value> {
        self.of("durward::review")
    }

    fn of(&self, target: &str) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("top-secret"), "an object's contents were logged: {text}");
        text.lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .filter(|line| line["target"] == target)
            .collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn logs_unguarded_rulings_only_at_level_debug() {
    let server = ServerBuilder::new()
        .guard(Stub::new("outward", Behavior::LeaveOut).logging_every_ruling())
        .start()
        .await;
    let mut client = server.connect().await;
    for (level, logged) in [(Level::INFO, 0), (Level::DEBUG, 1)] {
        let (lines, _capturing) = Lines::capture_at(level);
        client.post("/outward", review("web", 0)).await;
        assert_eq!(lines.of_reviews().len(), logged, "{level}");
    }
}

#[tokio::test]
async fn logs_every_ruling_of_guards_that_ask_for_it_and_other_rulings_that_do_not_simply_allow() {
    let (lines, _capturing) = Lines::capture();
    let audit = SettlePolicy { mode: Mode::Audit, ..SettlePolicy::deny_unknown() };
    let server = ServerBuilder::new()
        .guard(Stub::new("quiet", Behavior::Allow))
        .guard(Stub::new("quiet-patch", Behavior::Mutate))
        .guard(Stub::new("audit", Behavior::Deny).with_policy(audit))
        .guard(Stub::new("outward", Behavior::Allow).logging_every_ruling())
        .guard(Stub::new("unread", Behavior::Skip))
        .guard(Stub::new("deny", Behavior::Deny))
        .guard(Stub::new("unknown", Behavior::Unknown))
        .start()
        .await;
    let mut client = server.connect().await;
    for path in ["/quiet", "/quiet-patch", "/outward", "/unread", "/deny", "/unknown", "/audit"] {
        client.post(path, review("web", 0)).await;
    }
    let lines = lines.of_reviews();
    let expected: Vec<_> = lines
        .iter()
        .map(|line| {
            let field = |name: &str| line["fields"][name].as_str().unwrap().to_owned();
            (field("guard"), field("verdict"), field("answer"), field("causes"))
        })
        .collect();
    let row = |a: &str, b: &str, c: &str, d: &str| (a.to_owned(), b.to_owned(), c.to_owned(), d.to_owned());
    assert_eq!(
        expected,
        [
            row("outward", "allow", "allow", ""),
            row("unread", "allow", "allow", "left-as-it-is: spec is not an object"),
            row("deny", "deny", "deny", ""),
            row("unknown", "unknown", "deny", "unreachable: m5 does not answer"),
            row("audit", "deny", "would-deny", ""),
        ]
    );
    let fields = &lines[2]["fields"];
    for (name, value) in [
        ("uid", "uid-web"),
        ("operation", "CREATE"),
        ("kind", "Pod"),
        ("resource", "pods"),
        ("namespace", "shop"),
        ("name", "web"),
        ("user", "ann"),
    ] {
        assert_eq!(fields[name], value, "{name}");
    }
    assert_eq!(fields["dry_run"], false);
    assert!(fields["duration_ms"].as_f64().unwrap() >= 0.0);
}

#[tokio::test]
async fn logs_a_panic_with_its_message_and_the_uid() {
    let (lines, _capturing) = Lines::capture();
    let server = ServerBuilder::new().guard(Stub::new("g", Behavior::PanicLater)).start().await;
    server.post("/g", review("web", 0)).await;
    let lines = lines.of_reviews();
    assert_eq!(lines[0]["level"], "ERROR");
    assert_eq!(lines[0]["fields"]["panic"], "inner words later");
    assert_eq!(lines[0]["fields"]["uid"], "uid-web");
    assert_eq!(lines[1]["fields"]["verdict"], "unknown");
}

#[tokio::test]
async fn logs_a_review_whose_caller_hangs_up() {
    let (lines, _capturing) = Lines::capture();
    let server = ServerBuilder::new().guard(Stub::new("g", Behavior::Wait(Gate::new()))).start().await;
    let mut client = server.connect().await;
    let body = review("web", 0);
    client.start("/g", body.len()).await;
    client.send(body).await;
    server.wait_for_metric("durward_reviews_in_flight", 1.0).await;
    drop(client);
    server.wait_for_metric("durward_reviews_abandoned_total{guard=\"g\"}", 1.0).await;
    let lines = lines.of_reviews();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["fields"]["uid"], "uid-web");
    assert_eq!(lines[0]["fields"]["message"], "the caller disconnected before the answer");
}

#[tokio::test]
async fn a_users_name_cannot_forge_a_line() {
    let (lines, _capturing) = Lines::capture();
    let server = ServerBuilder::new().guard(Stub::new("g", Behavior::Deny)).start().await;
    let forged = review("web", 0).replace("\"ann\"", "\"ann\\n{\\\"uid\\\":\\\"x\\\"}\"");
    assert_eq!(server.post("/g", forged).await.status, 200);
    let lines = lines.of_reviews();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["fields"]["user"], "ann\n{\"uid\":\"x\"}");
}

#[tokio::test]
async fn a_caller_cannot_fill_the_log_with_long_values() {
    let (lines, _capturing) = Lines::capture();
    let server = ServerBuilder::new()
        .guard(Stub::new("deny", Behavior::Deny))
        .guard(Stub::new("panic", Behavior::PanicAtOnce))
        .start()
        .await;
    let long = "x".repeat(100_000);
    let mut review = review("web", 0);
    for short in ["ann", "Pod", "pods"] {
        review = review.replace(&format!("\"{short}\""), &format!("\"{short}{long}\""));
    }
    review = review.replace("\"group\":\"\"", &format!("\"group\":\"{long}\""));
    review = review.replace("\"operation\"", &format!("\"subResource\":\"{long}\",\"operation\""));
    assert!(review.len() > 4 * long.len(), "a field was not made longer");
    for path in ["/deny", "/panic"] {
        assert_eq!(server.post(path, &review).await.status, 200);
    }
    let refused = server.post("/deny", review.replace("AdmissionReview", &long)).await;
    assert_eq!(refused.status, 400);
    let all = lines.0.lock().unwrap().clone();
    let longest = all.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap();
    assert!(longest < 4_000, "a line of {longest} bytes");
    let lines = lines.of_reviews();
    assert_eq!(lines.len(), 3);
    let user = lines[0]["fields"]["user"].as_str().unwrap();
    assert!(user.starts_with("annxxx") && user.ends_with("x…"), "{user}");
    assert_eq!(user.chars().count(), 256);
}

#[tokio::test]
async fn logs_requests_that_are_not_http() {
    let (lines, _capturing) = Lines::capture();
    let server = ServerBuilder::new().start().await;
    let mut client = server.connect().await;
    client.send("POST /g HTTP/1.1\r\nContent-Length: +5\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 400);
    drop(client);
    server.wait_for_metric("durward_connections", 0.0).await;
    let lines = lines.of("durward::refused");
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["level"], &lines[0]["fields"]["reason"]), (&"INFO".into(), &"http".into()));
    assert_eq!(lines[0]["fields"]["text"], "invalid content-length parsed");
}

#[tokio::test]
async fn lines_name_the_caller_by_its_address_and_its_verified_certificate() {
    let (lines, _capturing) = Lines::capture();
    let callers = Ca::new("callers");
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("ca.crt");
    std::fs::write(&ca_file, &callers.pem).unwrap();
    let long = "k".repeat(1_000);
    let allowed_names = AllowedNames::new(vec!["kubelet\n{}".to_owned(), long.clone()]);
    let required = ClientAuth::Require { ca_file, allowed_names };
    let server = ServerBuilder::new()
        .guard(Stub::new("deny", Behavior::Deny))
        .guard(Stub::new("wait", Behavior::Wait(Gate::new())))
        .with(|options| options.tls.client_auth = required)
        .start()
        .await;
    let with = |name: &str| {
        let named = |params: &mut CertificateParams| params.distinguished_name.push(DnType::CommonName, name);
        server.trust.with_certificate(&callers.issue_with(7, named))
    };
    let (kubelet, long) = (with("kubelet\n{}"), with(&long));
    for trust in [&kubelet, &long] {
        let mut client = Client::connect(server.addresses.webhook, trust).await.unwrap();
        assert_eq!(client.post("/deny", review("web", 0)).await.status, 200);
        assert_eq!(client.post("/deny", "{}").await.status, 400);
    }
    let mut client = Client::connect(server.addresses.webhook, &kubelet).await.unwrap();
    client.send("POST /g HTTP/1.1\r\nContent-Length: +5\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 400);
    // Invalid HTTP is logged at the end of its connection.
    drop(client);
    server.wait_for_metric("durward_connections", 0.0).await;
    let mut client = Client::connect(server.addresses.webhook, &kubelet).await.unwrap();
    let body = review("web", 0);
    client.start("/wait", body.len()).await;
    client.send(body).await;
    server.wait_for_metric("durward_reviews_in_flight", 1.0).await;
    drop(client);
    server.wait_for_metric("durward_reviews_abandoned_total{guard=\"wait\"}", 1.0).await;

    let clients = |lines: &[serde_json::Value]| -> Vec<Option<String>> {
        let client = |line: &serde_json::Value| {
            let peer = line["fields"]["peer"].as_str().unwrap();
            assert!(peer.parse::<std::net::SocketAddr>().unwrap().ip().is_loopback(), "{peer}");
            line["fields"]["client"].as_str().map(str::to_owned)
        };
        lines.iter().map(client).collect()
    };
    let cut = format!("{}…", "k".repeat(255));
    let kubelet = Some("kubelet\n{}, localhost".to_owned());
    let expected = [kubelet.clone(), Some(cut), kubelet];
    assert_eq!(clients(&lines.of_reviews()), expected);
    // The last one is not HTTP.
    assert_eq!(clients(&lines.of("durward::refused")), expected);
}
