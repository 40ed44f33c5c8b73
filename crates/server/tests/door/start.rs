//! Servers that do not start, and say why.

use std::time::Duration;

use server::{BindError, CertificateFiles, CertificateSource, ClientCertificates, Settings};
use tokio::net::TcpListener;

use crate::harness::Plans;

async fn error(change: impl FnOnce(&mut Settings)) -> BindError {
    match Plans::new().with(change).try_start().await {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = error(|settings| settings.admin = address).await.to_string();
    assert!(error.starts_with(&format!("cannot listen on {address} (server.admin): ")), "{error}");
    assert!(error.ends_with("set server.admin to another port"), "{error}");
}

#[tokio::test]
async fn a_local_port_that_is_not_local_is_refused() {
    let error = error(|settings| settings.local = Some("0.0.0.0:0".parse().unwrap())).await;
    assert!(matches!(error, BindError::NotLoopback { .. }));
}

#[tokio::test]
async fn a_certificate_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let said = format!("the certificate cannot be served ({}): ", cert.display());
    let files = CertificateSource::Files(CertificateFiles { cert, key });
    let error = error(|settings| settings.tls.certificate = files).await;
    assert!(error.to_string().starts_with(&said), "{error}");
    assert!(error.why().starts_with("cannot be read: No such file"), "{}", error.why());
}

#[tokio::test]
async fn authorities_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, "not pem").unwrap();
    let error = error(|settings| settings.tls.client = ClientCertificates::Require { ca: ca.clone() }).await;
    assert!(error.what().contains(&ca.display().to_string()), "{error}");
    assert_eq!(error.why(), "holds no PEM block CERTIFICATE");
}

#[tokio::test]
async fn limits_with_which_nothing_could_be_served_are_refused() {
    type Change = fn(&mut Settings);
    let cases: [(&str, Change); 5] = [
        ("server.limits.inFlight", |s| s.limits.in_flight = 0),
        ("server.limits.bodyBytes", |s| s.limits.body_bytes = 0),
        ("server.limits.bytesInFlight", |s| {
            s.limits.bytes_in_flight = s.limits.body_bytes + server::Limits::BODY_COST - 1;
        }),
        ("server.limits.deadline", |s| s.limits.deadline = Duration::ZERO),
        ("server.tls.poll", |s| s.tls.poll = Duration::ZERO),
    ];
    for (key, change) in cases {
        let error = error(change).await;
        assert!(matches!(error, BindError::Setting { key: told, .. } if told == key), "{error}");
    }
}
