//! TLS handshakes.

use std::time::Duration;

use rcgen::{CertificateParams, CustomExtension, DnType, SanType};
use server::{AllowedNames, ClientAuth, TlsVersion};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::harness::{Behavior, Ca, Client, Issued, ServerBuilder, Stub, TestServer, Trust, review};

/// The common name of [`Ca::issue`].
fn allowed() -> AllowedNames {
    AllowedNames::new(vec!["durward".to_owned()])
}

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
async fn require_mode_refuses_the_handshake_without_a_valid_client_certificate() {
    let callers = Ca::new("callers");
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, &callers.pem).unwrap();
    let required = ClientAuth::Require { ca_file: ca, allowed_names: allowed() };
    let server = builder().with(|options| options.tls.client_auth = required).start().await;
    assert!(!is_served(&server, &server.trust).await);
    assert!(!is_served(&server, &server.trust.with_certificate(&Ca::new("unknown").issue(8))).await);
    server.wait_for_metric("durward_handshakes_failed_total{reason=\"client_certificate\"}", 2.0).await;
    // A certificate that rustls cannot parse, and one with another key.
    let stolen = Issued { cert: callers.issue(9).cert, key: callers.issue(10).key };
    for other in [Issued::version_1(), stolen] {
        let other = server.trust.with_certificate(&other);
        assert!(!is_served(&server, &other).await);
        assert!(!is_served(&server, &other.with_tls_1_2_only()).await);
    }
    assert!(is_served(&server, &server.trust.with_certificate(&callers.issue(7))).await);
}

/// Sets the common name and the DNS names.
fn named(params: &mut CertificateParams, common: &str, dns: &[&str]) {
    params.distinguished_name.push(DnType::CommonName, common);
    params.subject_alt_names =
        dns.iter().map(|&name| SanType::DnsName(name.to_owned().try_into().unwrap())).collect();
}

#[tokio::test]
async fn require_mode_accepts_only_allowed_names_which_can_change_while_the_server_runs() {
    let callers = Ca::new("callers");
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, &callers.pem).unwrap();
    let names = AllowedNames::new(vec!["apiserver".to_owned(), "webhooks.example.org".to_owned()]);
    let required = ClientAuth::Require { ca_file: ca, allowed_names: names.clone() };
    let server = builder().with(|options| options.tls.client_auth = required).start().await;
    let with = |common: &str, dns: &[&str]| {
        server.trust.with_certificate(&callers.issue_with(7, |params| named(params, common, dns)))
    };
    let by_common_name = with("apiserver", &[]);
    assert!(is_served(&server, &by_common_name).await);
    assert!(is_served(&server, &by_common_name.with_tls_1_2_only()).await);
    assert!(is_served(&server, &with("kubelet", &["a.example.org", "webhooks.example.org"])).await);
    let others = [
        with("kubelet", &[]),
        with("apiserver2", &["x.webhooks.example.org"]),
        with("Apiserver", &["*.example.org"]),
        with("apiserver,webhooks.example.org", &[]),
        with("apiserver\0", &[]),
    ];
    for other in &others {
        assert!(!is_served(&server, other).await);
        assert!(!is_served(&server, &other.with_tls_1_2_only()).await);
    }
    let refused = 2.0 * others.len() as f64;
    server.wait_for_metric("durward_handshakes_failed_total{reason=\"other_name\"}", refused).await;

    // A session from before the change is not resumed.
    names.replace(vec!["kubelet".to_owned()].into());
    assert!(!is_served(&server, &by_common_name).await);
    assert!(is_served(&server, &others[0]).await);
}

#[tokio::test]
async fn require_mode_refuses_an_allowed_name_beside_names_that_cannot_be_parsed() {
    let callers = Ca::new("callers");
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, &callers.pem).unwrap();
    let required = ClientAuth::Require { ca_file: ca, allowed_names: allowed() };
    let server = builder().with(|options| options.tls.client_auth = required).start().await;
    // A SEQUENCE that is cut, a DNS name that is not UTF-8, and no SEQUENCE at all.
    for content in [vec![0x30, 5, 0x82, 9, b'a'], vec![0x30, 3, 0x82, 1, 0xff], vec![0x04, 1, 0]] {
        let certificate = callers.issue_with(7, |params| {
            named(params, "durward", &[]);
            params.custom_extensions.push(CustomExtension::from_oid_content(&[2, 5, 29, 17], content));
        });
        assert!(!is_served(&server, &server.trust.with_certificate(&certificate)).await);
    }
    assert!(is_served(&server, &server.trust.with_certificate(&callers.issue(8))).await);
    server.wait_for_metric("durward_handshakes_failed_total{reason=\"client_certificate\"}", 3.0).await;
}

#[tokio::test]
async fn reloads_the_client_ca_with_its_file() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, &old.pem).unwrap();
    let required = ClientAuth::Require { ca_file: ca.clone(), allowed_names: allowed() };
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
