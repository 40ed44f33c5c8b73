//! Certificate files that change while the server runs.

use std::path::Path;
use std::time::Duration;

use server::{CertificateFiles, CertificateSource};

use crate::harness::{Behavior, Issued, ServerBuilder, Stub, TestServer, review, wait_until};

/// Builds a server that reads its files a hundred times a second.
fn builder(mount: &Path, first: impl FnOnce(&ServerBuilder) -> Issued) -> ServerBuilder {
    let builder = ServerBuilder::new().guard(Stub::new("g", Behavior::Allow));
    let (cert, key) = first(&builder).mount(mount, "v1");
    builder.with(|options| {
        options.tls.certificate = CertificateSource::Files(CertificateFiles { cert, key });
        options.tls.poll = Duration::from_millis(10);
    })
}

async fn serial(server: &TestServer) -> String {
    server.connect().await.serial_of_server()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaces_the_certificate_under_load_without_a_failed_request() {
    let mount = tempfile::tempdir().unwrap();
    let mut second = None;
    let builder = builder(mount.path(), |builder| {
        second = Some(builder.ca.issue(2002));
        builder.ca.issue(1001)
    });
    let server = builder.start().await;
    let mut kept = server.connect().await;
    assert_eq!(kept.serial_of_server(), "1001");
    let mut swapped = false;
    wait_until("new connections get the new certificate", async || {
        assert_eq!(kept.post("/g", review("kept", 0)).await.status, 200);
        let mut fresh = server.connect().await;
        assert_eq!(fresh.post("/g", review("fresh", 0)).await.status, 200);
        if !swapped {
            second.as_ref().unwrap().mount(mount.path(), "v2");
            swapped = true;
        }
        fresh.serial_of_server() == "2002"
    })
    .await;
    assert_eq!(kept.post("/g", review("kept", 0)).await.status, 200);
    assert_eq!(kept.serial_of_server(), "1001");
    server.wait_for_metric("durward_certificate_loads_total{result=\"loaded\"}", 1.0).await;
    server.wait_for_metric("durward_certificate_loads_total{result=\"rejected\"}", 0.0).await;
    assert!(server.checks.readiness().text.contains("[+]certificate ok"));
}

#[tokio::test]
async fn keeps_the_old_certificate_if_the_new_key_does_not_belong_to_it() {
    let mount = tempfile::tempdir().unwrap();
    let (mut second, mut third) = (None, None);
    let builder = builder(mount.path(), |builder| {
        second = Some(builder.ca.issue(2));
        third = Some(builder.ca.issue(3));
        builder.ca.issue(1)
    });
    let server = builder.start().await;
    let (second, third) = (second.unwrap(), third.unwrap());
    let mismatched = Issued { cert: second.cert.clone(), key: third.key.clone() };
    mismatched.mount(mount.path(), "v2");
    server.wait_for_metric("durward_certificate_loads_total{result=\"rejected\"}", 1.0).await;
    assert_eq!(serial(&server).await, "1");
    let answer = server.admin("/readyz?verbose").await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("[!]certificate: new files are invalid: "), "{}", answer.text());
    assert!(answer.text().contains("the private key does not belong to the first certificate"));
    // The same fault is counted once, although the files are read often.
    third.mount(mount.path(), "v3");
    wait_until("the new certificate is used", async || serial(&server).await == "3").await;
    server.wait_for_metric("durward_certificate_loads_total{result=\"rejected\"}", 1.0).await;
    wait_until("the check passes", async || {
        server.admin("/readyz?verbose").await.text().contains("[+]certificate ok")
    })
    .await;
}

#[tokio::test]
async fn keeps_the_old_certificate_if_the_files_disappear() {
    let mount = tempfile::tempdir().unwrap();
    let server = builder(mount.path(), |builder| builder.ca.issue(1)).start().await;
    std::fs::remove_file(mount.path().join("..data")).unwrap();
    wait_until("the missing files are reported", async || {
        server.checks.readiness().text.contains("[!]certificate: new files are invalid: ")
    })
    .await;
    assert!(server.checks.readiness().text.contains("cannot be read: No such file"));
    assert_eq!(serial(&server).await, "1");
    assert_eq!(server.post("/g", review("web", 0)).await.status, 200);
}

#[tokio::test]
async fn does_not_replace_a_valid_certificate_by_an_expired_one() {
    let mount = tempfile::tempdir().unwrap();
    let mut ended = None;
    let builder = builder(mount.path(), |builder| {
        ended = Some(builder.ca.issue_with(2, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 2)));
        builder.ca.issue(1)
    });
    let server = builder.start().await;
    ended.unwrap().mount(mount.path(), "v2");
    wait_until("the new one is refused", async || {
        server.checks.readiness().text.contains("expired at 2020-01-02T00:00:00Z; renew it")
    })
    .await;
    assert!(server.checks.readiness().ready);
    assert_eq!(serial(&server).await, "1");
}
