//! The ports without TLS.

use crate::harness::{Behavior, ServerBuilder, Stub, plain, plain_bytes};

#[tokio::test]
async fn readyz_lists_each_check() {
    let server = ServerBuilder::new().start().await;
    let cache = server.checks.add("cache");
    let answer = server.admin("/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("[-]cache failed: not checked yet\n"), "{}", answer.text());
    assert!(answer.text().ends_with("readyz check failed\n"));
    cache.pass();
    assert_eq!(server.admin("/readyz").await.text(), "ok");
    let verbose = server.admin("/readyz?verbose").await;
    assert_eq!(verbose.text(), "[+]certificate ok\n[+]shutdown ok\n[+]cache ok\nreadyz check passed\n");
    assert_eq!(verbose.header("content-type"), Some("text/plain; charset=utf-8"));
    cache.fail("members cannot be listed: forbidden");
    let one = server.admin("/readyz/cache").await;
    assert_eq!((one.status, one.text()), (503, "[-]cache failed: members cannot be listed: forbidden\n"));
    assert_eq!(server.admin("/readyz/certificate").await.status, 200);
    let none = server.admin("/readyz/other").await;
    assert_eq!(none.status, 404);
    assert!(none.text().ends_with("certificate\nshutdown\ncache\n"), "{}", none.text());
    for path in ["/livez", "/healthz"] {
        assert_eq!(server.admin(path).await.text(), "ok", "{path}");
    }
}

#[tokio::test]
async fn readyz_withholds_reasons_from_callers_outside_of_loopback() {
    let server = ServerBuilder::new().start().await;
    server.checks.add("cache").fail("Secret db/etcd-user cannot be read");
    let at = |host: &str, path: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for path in ["/readyz", "/readyz?verbose", "/readyz/cache"] {
        let local = plain_bytes(server.addresses.metrics, &at("127.0.0.1:8080", path)).await;
        assert!(local.text().contains("etcd-user"), "{path}: {}", local.text());
        let other = plain_bytes(server.addresses.metrics, &at("10.0.0.7:8080", path)).await;
        assert_eq!(other.status, 503);
        assert!(other.text().contains("[-]cache failed: reason withheld; "), "{path}: {}", other.text());
        assert!(!other.text().contains("etcd-user"), "{path}: {}", other.text());
    }
}

#[tokio::test]
async fn metrics_are_openmetrics_text_with_series_at_zero() {
    let server = ServerBuilder::new().guard(Stub::new("lxcfs", Behavior::Allow)).start().await;
    let answer = server.admin("/metrics").await;
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
    assert!(server.metric("durward_certificate_not_after_seconds") > 1e9);
    assert!(answer.text().ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_metrics_port_is_read_only_and_lists_its_paths() {
    let server = ServerBuilder::new().start().await;
    for method in ["POST", "PUT", "DELETE"] {
        let answer = plain(server.addresses.metrics, method, "/readyz", "").await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    }
    let lost = server.admin("/health").await;
    assert_eq!(lost.status, 404);
    assert!(lost.text().contains("/readyz"));
}
