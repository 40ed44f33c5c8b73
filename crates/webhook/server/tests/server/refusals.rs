//! Requests that do not reach a guard.

use crate::harness::{Behavior, ServerBuilder, Stub, TestServer, review};

async fn server() -> TestServer {
    ServerBuilder::new()
        .guard(Stub::new("lxcfs", Behavior::Allow))
        .guard(Stub::new("etcd", Behavior::Allow))
        .start()
        .await
}

async fn refused(server: &TestServer, reason: &str) {
    server.wait_for_metric(&format!("durward_requests_refused_total{{reason=\"{reason}\"}}"), 1.0).await;
}

#[tokio::test]
async fn answers_404_with_the_known_paths_to_an_unknown_path() {
    let server = server().await;
    for path in ["/", "/lxcfs/", "//lxcfs", "/LXCFS", "/x"] {
        let answer = server.post(path, review("web", 0)).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header("location"), None);
        let text = answer.text();
        assert!(text.starts_with(&format!("unknown path {path}; guards are at: /lxcfs, /etcd. ")), "{text}");
        assert!(text.contains("A path selects a guard") && text.contains("durward manifests"), "{text}");
    }
    server.wait_for_metric("durward_requests_refused_total{reason=\"unknown_path\"}", 5.0).await;
}

#[tokio::test]
async fn answers_405_to_methods_other_than_post() {
    let server = server().await;
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let mut client = server.connect().await;
        client.send(format!("{method} /lxcfs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 405);
        assert_eq!(answer.header("allow"), Some("POST"));
        assert!(answer.text().starts_with(&format!("method {method} is not allowed")), "{}", answer.text());
    }
}

#[tokio::test]
async fn answers_411_to_a_body_without_a_length() {
    let server = server().await;
    for head in ["Transfer-Encoding: chunked\r\n", ""] {
        let mut client = server.connect().await;
        client
            .send(format!("POST /lxcfs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{head}\r\n"))
            .await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 411);
        assert!(answer.text().contains("no Content-Length"), "{}", answer.text());
        assert!(answer.closes());
    }
}

#[tokio::test]
async fn answers_413_before_reading_a_body_over_the_limit() {
    let server = server().await;
    let mut client = server.connect().await;
    client.start("/lxcfs", (10 << 20) + 1).await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.status, 413);
    assert_eq!(
        answer.text(),
        "the body has 10485761 bytes, more than the limit of 10485760 (server.limits.maxRequestBytes)\n"
    );
    assert!(answer.closes());
    refused(&server, "too_large").await;
}

#[tokio::test]
async fn a_caller_that_sends_its_body_anyway_can_read_the_413() {
    let server = server().await;
    let mut client = server.connect().await;
    client.start("/lxcfs", 11 << 20).await;
    client.send(vec![b'x'; 11 << 20]).await;
    assert_eq!(client.answer().await.unwrap().status, 413);
}

#[tokio::test]
async fn reviews_a_body_of_exactly_the_limit() {
    let server = server().await;
    let small = review("web", 0);
    let large = review("web", (10 << 20) - small.len());
    assert_eq!(large.len(), 10 << 20);
    let answer = server.post("/lxcfs", large).await;
    assert_eq!(answer.json()["response"]["allowed"], true);
}

#[tokio::test]
async fn answers_415_to_another_content_type() {
    let server = server().await;
    for (header, expected) in [("Content-Type: text/yaml\r\n", "\"text/yaml\""), ("", "\"\"")] {
        let mut client = server.connect().await;
        client
            .send(format!("POST /lxcfs HTTP/1.1\r\nHost: x\r\n{header}Content-Length: 2\r\n\r\n{{}}"))
            .await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 415);
        assert_eq!(answer.text(), format!("the Content-Type is {expected}; it must be application/json\n"));
    }
    let mut client = server.connect().await;
    let body = review("web", 0);
    let length = body.len();
    client
        .send(format!(
            "POST /lxcfs HTTP/1.1\r\nHost: x\r\nContent-Type: Application/JSON; charset=utf-8\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    assert_eq!(client.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn answers_400_with_line_and_column_to_a_body_that_is_not_a_review() {
    let server = server().await;
    let mut client = server.connect().await;
    for (body, expected) in [
        ("", "an object is expected (line 1, column 1)"),
        ("{\n  \"kind\": nonsense}", "(line 2, column 11)"),
        (
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            "the body is a \"Pod\", not an AdmissionReview (line 1, column 1)",
        ),
        (r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta"}"#, "v1beta\" is not supported"),
        (r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#, "has no request"),
        (r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{}}"#, "no uid"),
    ] {
        let answer = client.post("/lxcfs", body).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(answer.text().contains(expected), "{}", answer.text());
        assert!(!answer.closes(), "the connection can be used again");
    }
    let answer = client.post("/lxcfs", b"\xff\xfe").await;
    assert!(answer.text().contains("not UTF-8 (line 1, column 1)"), "{}", answer.text());
    assert_eq!(client.post("/lxcfs", review("web", 0)).await.status, 200);
}

#[tokio::test]
async fn answers_400_to_a_timeout_that_is_not_a_duration() {
    let server = server().await;
    for value in ["10", "ten", "-1s", "1d", "%00"] {
        let answer = server.post(&format!("/lxcfs?timeout={value}"), review("web", 0)).await;
        assert_eq!(answer.status, 400, "{value}");
        assert!(answer.text().contains("use the format of Go"), "{}", answer.text());
    }
    for value in ["10s", "1m30s", "1.5s", "300ms", "1h", "250%C2%B5s", "0s"] {
        assert_eq!(
            server.post(&format!("/lxcfs?timeout={value}"), review("web", 0)).await.status,
            200,
            "{value}"
        );
    }
}

#[tokio::test]
async fn closes_connections_that_do_not_send_http() {
    let server = server().await;
    let mut client = server.connect().await;
    client.send("\x16\x03\x01 hello?\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 400);
    assert!(client.is_closed().await);
    let mut client = server.connect().await;
    client.send(format!("POST /lxcfs HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(64 << 10))).await;
    assert_eq!(client.answer().await.unwrap().status, 431);
    assert_eq!(server.post("/lxcfs", review("web", 0)).await.status, 200);
}

#[tokio::test]
async fn counts_requests_that_are_not_http() {
    let server = server().await;
    let mut sent = 0.0;
    for (head, status) in [
        ("POST /lxcfs HTTP/1.1\r\nContent-Length: +5", 400),
        ("POST /lxcfs HTTP/1.1\r\nContent-Length: -1", 400),
        ("POST /lxcfs HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400),
        ("POST /lxcfs HTTP/1.1\r\nContent-Length: 99999999999999999999999", 400),
        ("POST /lxcfs HTTP/1.1\r\nContent-Length: 18446744073709551615", 431),
        ("PRI * HTTP/2.0", 400),
    ] {
        let mut client = server.connect().await;
        client.send(format!("{head}\r\n\r\n")).await;
        if let Ok(answer) = client.answer().await {
            assert_eq!(answer.status, status, "{head}");
        }
        assert!(client.is_closed().await);
        // The server lingers until the client closes its side too.
        drop(client);
        sent += 1.0;
        server.wait_for_metric("durward_requests_refused_total{reason=\"http\"}", sent).await;
    }
    // The pipeline answers a length that is only too large.
    let mut client = server.connect().await;
    client.send("POST /lxcfs HTTP/1.1\r\nContent-Length: 18446744073709551613\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 413);
    drop(client);
    // A connection without a request is not an error.
    drop(server.connect().await);
    server.wait_for_metric("durward_connections", 0.0).await;
    server.wait_for_metric("durward_requests_refused_total{reason=\"http\"}", sent).await;
}
