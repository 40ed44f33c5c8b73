//! Certificate files that change while the server runs.

use std::path::Path;
use std::time::Duration;

use server::{CertificateFiles, CertificateSource};

use crate::harness::{House, Issued, Plans, Stub, Turn, eventually, review};

/// A server whose files are looked at a hundred times a second.
fn plans(mount: &Path, first: impl FnOnce(&Plans) -> Issued) -> Plans {
    let plans = Plans::new().guard(Stub::new("g", Turn::Allow));
    let (cert, key) = first(&plans).mount(mount, "v1");
    plans.with(|settings| {
        settings.tls.certificate = CertificateSource::Files(CertificateFiles { cert, key });
        settings.tls.poll = Duration::from_millis(10);
    })
}

async fn serial(house: &House) -> String {
    house.connect().await.serial_of_server()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_under_a_loop_of_requests_fails_none_and_shows_on_new_connections() {
    let mount = tempfile::tempdir().unwrap();
    let mut second = None;
    let plans = plans(mount.path(), |plans| {
        second = Some(plans.authority.issue(2002));
        plans.authority.issue(1001)
    });
    let house = plans.start().await;
    let mut kept = house.connect().await;
    assert_eq!(kept.serial_of_server(), "1001");
    let mut swapped = false;
    eventually("new connections see the new certificate", async || {
        assert_eq!(kept.post("/g", review("kept", 0)).await.status, 200);
        let mut fresh = house.connect().await;
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
    house.reaches("durward_certificate_loads_total{result=\"taken\"}", 1.0).await;
    house.reaches("durward_certificate_loads_total{result=\"refused\"}", 0.0).await;
    assert!(house.checks.readiness().text.contains("[+]certificate ok"));
}

#[tokio::test]
async fn files_that_do_not_fit_together_leave_the_old_certificate_in_force() {
    let mount = tempfile::tempdir().unwrap();
    let (mut second, mut third) = (None, None);
    let plans = plans(mount.path(), |plans| {
        second = Some(plans.authority.issue(2));
        third = Some(plans.authority.issue(3));
        plans.authority.issue(1)
    });
    let house = plans.start().await;
    let (second, third) = (second.unwrap(), third.unwrap());
    let mismatched = Issued { cert: second.cert.clone(), key: third.key.clone() };
    mismatched.mount(mount.path(), "v2");
    house.reaches("durward_certificate_loads_total{result=\"refused\"}", 1.0).await;
    assert_eq!(serial(&house).await, "1");
    let answer = house.admin("/readyz?verbose").await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("[!]certificate: new files cannot be served: "), "{}", answer.text());
    assert!(answer.text().contains("the private key does not belong to the first certificate"));
    // The same fault is counted once, however often it is looked at.
    third.mount(mount.path(), "v3");
    eventually("the fault is mended", async || serial(&house).await == "3").await;
    house.reaches("durward_certificate_loads_total{result=\"refused\"}", 1.0).await;
    assert!(house.admin("/readyz?verbose").await.text().contains("[+]certificate ok"));
}

#[tokio::test]
async fn files_that_vanish_leave_the_old_certificate_in_force() {
    let mount = tempfile::tempdir().unwrap();
    let house = plans(mount.path(), |plans| plans.authority.issue(1)).start().await;
    std::fs::remove_file(mount.path().join("..data")).unwrap();
    eventually("the loss is told", async || {
        house.checks.readiness().text.contains("[!]certificate: new files cannot be served: ")
    })
    .await;
    assert!(house.checks.readiness().text.contains("cannot be read: No such file"));
    assert_eq!(serial(&house).await, "1");
    assert_eq!(house.post("/g", review("web", 0)).await.status, 200);
}

#[tokio::test]
async fn an_ended_certificate_does_not_replace_one_that_is_valid() {
    let mount = tempfile::tempdir().unwrap();
    let mut ended = None;
    let plans = plans(mount.path(), |plans| {
        ended =
            Some(plans.authority.issue_with(2, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 2)));
        plans.authority.issue(1)
    });
    let house = plans.start().await;
    ended.unwrap().mount(mount.path(), "v2");
    eventually("the new one is refused", async || {
        house.checks.readiness().text.contains("ended at 2020-01-02T00:00:00Z: renew it")
    })
    .await;
    assert!(house.checks.readiness().ready);
    assert_eq!(serial(&house).await, "1");
}
