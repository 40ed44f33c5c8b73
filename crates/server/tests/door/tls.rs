//! Handshakes.

use std::time::Duration;

use server::{ClientCertificates, TlsVersion};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::harness::{Authority, Client, House, Issued, Plans, Stub, Trust, Turn, review};

fn plans() -> Plans {
    Plans::new().guard(Stub::new("g", Turn::Allow))
}

/// Whether a review passes. With TLS 1.3 a client learns only from its first read that its certificate was refused.
async fn is_served(house: &House, trust: &Trust) -> bool {
    let Ok(mut client) = Client::connect(house.addresses.listen, trust).await else { return false };
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
async fn only_http_1_1_is_agreed_on() {
    let house = plans().start().await;
    let both = Client::connect(house.addresses.listen, &house.trust.speaking(&["h2", "http/1.1"])).await;
    assert_eq!(both.unwrap().protocol(), Some(b"http/1.1".as_slice()));
    assert!(is_served(&house, &house.trust.speaking(&[])).await);
    assert!(Client::connect(house.addresses.listen, &house.trust.speaking(&["h2"])).await.is_err());
    house.reaches("durward_handshakes_failed_total{reason=\"protocol\"}", 1.0).await;
}

#[tokio::test]
async fn the_oldest_version_is_as_configured() {
    let house = plans().start().await;
    assert!(is_served(&house, &house.trust.with_tls_1_2_only()).await);
    let house = plans().with(|settings| settings.tls.min_version = TlsVersion::V1_3).start().await;
    assert!(!is_served(&house, &house.trust.with_tls_1_2_only()).await);
    assert!(is_served(&house, &house.trust).await);
}

#[tokio::test]
async fn a_caller_that_does_not_trust_our_certificate_is_counted_as_such() {
    let house = plans().start().await;
    let stranger = Trust::in_authority(&Authority::new("another").pem);
    assert!(Client::connect(house.addresses.listen, &stranger).await.is_err());
    house.reaches("durward_handshakes_failed_total{reason=\"our_certificate_refused\"}", 1.0).await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_ends_at_the_handshake_limit() {
    let house =
        plans().with(|settings| settings.timeouts.handshake = Duration::from_millis(50)).start().await;
    let mut tcp = TcpStream::connect(house.addresses.listen).await.unwrap();
    let read = tokio::time::timeout(Duration::from_secs(20), tcp.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)));
    house.reaches("durward_handshakes_failed_total{reason=\"timeout\"}", 1.0).await;
}

#[tokio::test]
async fn count_mode_counts_client_certificates_and_refuses_nobody() {
    let callers = Authority::new("callers");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, &callers.pem).unwrap();
    let house = plans().with(|settings| settings.tls.client = ClientCertificates::Count { ca }).start().await;
    let valid = house.trust.showing(&callers.issue(7));
    let invalid = house.trust.showing(&Authority::new("stranger").issue(8));
    // What the library cannot even read, and a certificate of somebody else.
    let old = house.trust.showing(&Issued::of_version_1());
    let stolen = Issued { cert: callers.issue(9).cert, key: callers.issue(10).key };
    let stolen = house.trust.showing(&stolen);
    for trust in [&house.trust, &valid] {
        assert!(is_served(&house, trust).await);
    }
    for (what, trust) in [("of a stranger", &invalid), ("of version 1", &old), ("of somebody else", &stolen)]
    {
        assert!(is_served(&house, trust).await, "{what}");
        assert!(is_served(&house, &trust.with_tls_1_2_only()).await, "{what}");
    }
    for (presented, times) in [("absent", 1.0), ("valid", 1.0), ("invalid", 6.0)] {
        house
            .reaches(&format!("durward_client_certificates_total{{presented=\"{presented}\"}}"), times)
            .await;
    }
}

#[tokio::test]
async fn require_mode_refuses_the_handshake_without_a_valid_client_certificate() {
    let callers = Authority::new("callers");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, &callers.pem).unwrap();
    let house =
        plans().with(|settings| settings.tls.client = ClientCertificates::Require { ca }).start().await;
    assert!(!is_served(&house, &house.trust).await);
    assert!(!is_served(&house, &house.trust.showing(&Authority::new("stranger").issue(8))).await);
    house.reaches("durward_handshakes_failed_total{reason=\"client_certificate\"}", 2.0).await;
    assert!(is_served(&house, &house.trust.showing(&callers.issue(7))).await);
    house.reaches("durward_client_certificates_total{presented=\"valid\"}", 1.0).await;
}

#[tokio::test]
async fn authorities_of_callers_are_exchanged_with_their_file() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, &old.pem).unwrap();
    let required = ClientCertificates::Require { ca: ca.clone() };
    let house = plans()
        .with(|settings| {
            settings.tls.client = required;
            settings.tls.poll = Duration::from_millis(10);
        })
        .start()
        .await;
    let caller = house.trust.showing(&new.issue(9));
    assert!(!is_served(&house, &caller).await);
    std::fs::write(&ca, format!("{}{}", old.pem, new.pem)).unwrap();
    crate::harness::eventually("the new authority is believed", async || is_served(&house, &caller).await)
        .await;
    assert!(is_served(&house, &house.trust.showing(&old.issue(10))).await);
}
