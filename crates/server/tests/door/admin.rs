//! The ports without TLS.

use std::sync::{Arc, Mutex};

use server::LogControl;

use crate::harness::{Plans, Stub, Turn, plain, plain_bytes};

#[derive(Default)]
struct Filter(Mutex<String>);

impl LogControl for Filter {
    fn filter(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn set_filter(&self, filter: &str) -> Result<(), String> {
        if filter.contains("loud") {
            return Err("\"loud\" is no level".to_owned());
        }
        filter.clone_into(&mut self.0.lock().unwrap());
        Ok(())
    }
}

#[tokio::test]
async fn readiness_is_told_check_by_check() {
    let house = Plans::new().start().await;
    let world = house.checks.add("world");
    let answer = house.admin("/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("[-]world failed: not looked at yet\n"), "{}", answer.text());
    assert!(answer.text().ends_with("readyz check failed\n"));
    world.pass();
    assert_eq!(house.admin("/readyz").await.text(), "ok");
    let verbose = house.admin("/readyz?verbose").await;
    assert_eq!(verbose.text(), "[+]certificate ok\n[+]shutdown ok\n[+]world ok\nreadyz check passed\n");
    assert_eq!(verbose.header("content-type"), Some("text/plain; charset=utf-8"));
    world.fail("members cannot be listed: forbidden");
    let one = house.admin("/readyz/world").await;
    assert_eq!((one.status, one.text()), (503, "[-]world failed: members cannot be listed: forbidden\n"));
    assert_eq!(house.admin("/readyz/certificate").await.status, 200);
    let none = house.admin("/readyz/moon").await;
    assert_eq!(none.status, 404);
    assert!(none.text().ends_with("certificate\nshutdown\nworld\n"), "{}", none.text());
    assert_eq!(house.admin("/livez").await.text(), "ok");
}

#[tokio::test]
async fn metrics_are_open_metrics_text_with_series_at_zero() {
    let house = Plans::new().guard(Stub::new("lxcfs", Turn::Allow)).start().await;
    let answer = house.admin("/metrics").await;
    assert_eq!(
        answer.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    for line in [
        "durward_build_info{version=\"test\"} 1",
        "durward_config_generation 1",
        "durward_reviews_total{guard=\"lxcfs\",operation=\"CREATE\",verdict=\"mutate\"} 0",
        "durward_bytes_in_flight 0",
    ] {
        assert!(answer.text().lines().any(|l| l == line), "{line} is not in\n{}", answer.text());
    }
    assert!(house.number("durward_certificate_not_after_seconds") > 1e9);
    assert!(answer.text().ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_admin_port_is_read_only_and_tells_what_it_has() {
    let house = Plans::new().start().await;
    for method in ["POST", "PUT", "DELETE"] {
        let answer = plain(house.addresses.admin, method, "/readyz", "").await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    }
    let lost = house.admin("/healthz").await;
    assert_eq!(lost.status, 404);
    assert!(lost.text().contains("/readyz"));
    assert_eq!(house.admin("/log-level").await.status, 404);
}

#[tokio::test]
async fn the_log_level_is_read_and_set_on_the_local_port() {
    let filter = Arc::new(Filter(Mutex::new("info".to_owned())));
    let house = Plans::new().log(filter.clone()).start().await;
    let local = house.addresses.local.unwrap();
    assert_eq!(plain(local, "GET", "/log-level", "").await.text(), "info\n");
    let set = plain(local, "PUT", "/log-level", "debug\n").await;
    assert_eq!((set.status, set.text()), (200, "debug\n"));
    assert_eq!(filter.filter(), "debug");
    let bad = plain(local, "PUT", "/log-level", "loud").await;
    assert_eq!((bad.status, bad.text()), (400, "\"loud\" is no level; the filter stays \"debug\"\n"));
    assert_eq!(plain(local, "PUT", "/log-level", "").await.status, 400);
    assert_eq!(plain(local, "PUT", "/log-level", &"x".repeat(5000)).await.status, 400);
    assert_eq!(plain(local, "POST", "/log-level", "info").await.status, 405);
    assert_eq!(plain(local, "GET", "/metrics", "").await.status, 404);
    assert_eq!(filter.filter(), "debug");
}

#[tokio::test]
async fn a_web_page_under_another_name_cannot_talk_to_the_local_port() {
    let filter = Arc::new(Filter(Mutex::new("info".to_owned())));
    let house = Plans::new().log(filter.clone()).start().await;
    let request = "PUT /log-level HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5\r\n\r\ntrace";
    assert_eq!(plain_bytes(house.addresses.local.unwrap(), request).await.status, 403);
    assert_eq!(filter.filter(), "info");
}

#[tokio::test]
async fn without_a_log_control_the_local_port_says_so() {
    let house = Plans::new().start().await;
    let answer = plain(house.addresses.local.unwrap(), "GET", "/log-level", "").await;
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("cannot be changed while it runs"));
}
