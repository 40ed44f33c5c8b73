//! TLS handshakes.

use std::time::Duration;

use server::{ClientAuth, TlsVersion};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::harness::{Behavior, Ca, Client, Issued, ServerBuilder, Stub, TestServer, Trust, review};

fn builder() -> ServerBuilder {
    ServerBuilder::new().guard(Stub::new("g", Behavior::Allow))
}

/// Returns whether a review is answered. With TLS 1.3, only the first read shows a client that its certificate was refused.
async fn is_served(server: &TestServer, trust: &Trust) -> bool {
    let Ok(mut client) = Client::connect(server.addresses.webhook, trust).await else { return false };
    let body = review("web", 0);
    let head = format!(
        "POST /g HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    if client.try_send(head + &body).await.is_err() {
        return false;
    }
    client.answer().await.is_ok_and(|answer| answer.status == 200)
}

#[tokio::test]
async fn negotiates_only_http_1_1() {
    let server = builder().start().await;
    let both = Client::connect(server.addresses.webhook, &server.trust.with_alpn(&["h2", "http/1.1"])).await;
    assert_eq!(both.unwrap().protocol(), Some(b"http/1.1".as_slice()));
    assert!(is_served(&server, &server.trust.with_alpn(&[])).await);
    assert!(Client::connect(server.addresses.webhook, &server.trust.with_alpn(&["h2"])).await.is_err());
    server.wait_for_metric("durward_handshakes_failed_total{reason=\"protocol\"}", 1.0).await;
}

#[tokio::test]
async fn accepts_tls_versions_from_the_configured_minimum() {
    let server = builder().start().await;
    assert!(is_served(&server, &server.trust.with_tls_1_2_only()).await);
    let server = builder().with(|options| options.tls.min_version = TlsVersion::V1_3).start().await;
    assert!(!is_served(&server, &server.trust.with_tls_1_2_only()).await);
    assert!(is_served(&server, &server.trust).await);
}

#[tokio::test]
async fn counts_callers_that_do_not_trust_the_certificate() {
    let server = builder().start().await;
    let unknown = Trust::new(&Ca::new("another").pem);
    assert!(Client::connect(server.addresses.webhook, &unknown).await.is_err());
    server.wait_for_metric("durward_handshakes_failed_total{reason=\"our_certificate_refused\"}", 1.0).await;
}

#[tokio::test]
async fn closes_a_silent_connection_after_the_handshake_timeout() {
    let server =
        builder().with(|options| options.timeouts.handshake = Duration::from_millis(50)).start().await;
    let mut tcp = TcpStream::connect(server.addresses.webhook).await.unwrap();
    let read = tokio::time::timeout(Duration::from_secs(20), tcp.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)));
    server.wait_for_metric("durward_handshakes_failed_total{reason=\"timeout\"}", 1.0).await;
}

#[tokio::test]
async fn count_mode_counts_client_certificates_and_refuses_none() {
    let callers = Ca::new("callers");
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, &callers.pem).unwrap();
    let server =
        builder().with(|options| options.tls.client_auth = ClientAuth::Request { ca_file: ca }).start().await;
    let valid = server.trust.with_certificate(&callers.issue(7));
    let invalid = server.trust.with_certificate(&Ca::new("unknown").issue(8));
    // A certificate that rustls cannot parse, and one with another key.
    let old = server.trust.with_certificate(&Issued::version_1());
    let stolen = Issued { cert: callers.issue(9).cert, key: callers.issue(10).key };
    let stolen = server.trust.with_certificate(&stolen);
    for trust in [&server.trust, &valid] {
        assert!(is_served(&server, trust).await);
    }
    for (what, trust) in [("of another CA", &invalid), ("of version 1", &old), ("with another key", &stolen)]
    {
        assert!(is_served(&server, trust).await, "{what}");
        assert!(is_served(&server, &trust.with_tls_1_2_only()).await, "{what}");
    }
    for (presented, times) in [("absent", 1.0), ("valid", 1.0), ("invalid", 6.0)] {
        server
            .wait_for_metric(
                &format!("durward_client_certificates_total{{presented=\"{presented}\"}}"),
                times,
            )
            .await;
    }
}

#[tokio::test]
async fn require_mode_refuses_the_handshake_without_a_valid_client_certificate() {
    let callers = Ca::new("callers");
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, &callers.pem).unwrap();
    let server =
        builder().with(|options| options.tls.client_auth = ClientAuth::Require { ca_file: ca }).start().await;
    assert!(!is_served(&server, &server.trust).await);
    assert!(!is_served(&server, &server.trust.with_certificate(&Ca::new("unknown").issue(8))).await);
    server.wait_for_metric("durward_handshakes_failed_total{reason=\"client_certificate\"}", 2.0).await;
    assert!(is_served(&server, &server.trust.with_certificate(&callers.issue(7))).await);
    server.wait_for_metric("durward_client_certificates_total{presented=\"valid\"}", 1.0).await;
}

#[tokio::test]
async fn reloads_the_client_ca_with_its_file() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, &old.pem).unwrap();
    let required = ClientAuth::Require { ca_file: ca.clone() };
    let server = builder()
        .with(|options| {
            options.tls.client_auth = required;
            options.tls.poll = Duration::from_millis(10);
        })
        .start()
        .await;
    let caller = server.trust.with_certificate(&new.issue(9));
    assert!(!is_served(&server, &caller).await);
    std::fs::write(&ca, format!("{}{}", old.pem, new.pem)).unwrap();
    crate::harness::wait_until("the new CA is used", async || is_served(&server, &caller).await).await;
    assert!(is_served(&server, &server.trust.with_certificate(&old.issue(10))).await);
}
