//! Servers that cannot start, and their errors.

use std::time::Duration;

use server::{BindError, CertificateFiles, CertificateSource, ClientAuth, ServerOptions};
use tokio::net::TcpListener;

use crate::harness::ServerBuilder;

async fn error(change: impl FnOnce(&mut ServerOptions)) -> BindError {
    match ServerBuilder::new().with(change).try_start().await {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn names_a_port_that_is_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = error(|options| options.metrics_bind_address = address).await.to_string();
    assert!(
        error.starts_with(&format!("cannot listen on {address} (server.metricsBindAddress): ")),
        "{error}"
    );
    assert!(error.ends_with("set server.metricsBindAddress to another port"), "{error}");
}

#[tokio::test]
async fn names_a_missing_certificate_file() {
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    let expected = format!("the serving certificate cannot be used ({}): ", cert.display());
    let files = CertificateSource::Files(CertificateFiles { cert, key });
    let error = error(|options| options.tls.certificate = files).await;
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(error.why().starts_with("cannot be read: No such file"), "{}", error.why());
}

#[tokio::test]
async fn names_an_invalid_client_ca_file() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, "not pem").unwrap();
    let error = error(|options| {
        options.tls.client_auth =
            ClientAuth::Require { ca_file: ca.clone(), allowed_names: server::AllowedNames::default() }
    })
    .await;
    assert!(error.what().contains(&ca.display().to_string()), "{error}");
    assert_eq!(error.why(), "contains no PEM block CERTIFICATE");
}

#[tokio::test]
async fn rejects_limits_with_which_nothing_can_be_served() {
    type Change = fn(&mut ServerOptions);
    let cases: [(&str, Change); 5] = [
        ("server.limits.maxConcurrentRequests", |s| s.limits.max_concurrent_requests = 0),
        ("server.limits.maxRequestBytes", |s| s.limits.max_request_bytes = 0),
        ("server.limits.maxTotalBytes", |s| {
            s.limits.max_total_bytes = s.limits.max_request_bytes + server::Limits::BODY_COST - 1;
        }),
        ("the longest timeout of a request", |s| s.limits.request_timeout = Duration::ZERO),
        ("server.tls.poll", |s| s.tls.poll = Duration::ZERO),
    ];
    for (key, change) in cases {
        let error = error(change).await;
        assert!(matches!(error, BindError::Setting { key: reported, .. } if reported == key), "{error}");
    }
}
