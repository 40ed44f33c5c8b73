//! The proxy between a client like Karmada and a small API server.

mod upstream;

use std::time::{Duration, Instant};

use http::{Method, Version};
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::Fault;
use upstream::{Client, Server};

const PODS: &str = "/api/v1/namespaces/shop/pods";
const VERSIONS: [Version; 2] = [Version::HTTP_2, Version::HTTP_11];

/// Waits for a condition.
async fn until(is_done: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_done() {
        assert!(started.elapsed() < Duration::from_secs(20), "the condition does not hold");
        tokio::task::yield_now().await;
    }
}

async fn json(client: &Client, path: &str) -> Value {
    serde_json::from_slice(&client.get(path).await.unwrap().2).unwrap()
}

#[tokio::test]
async fn forwards_requests_and_watches_unchanged_without_a_rule() {
    let server = Server::new().await;
    for version in VERSIONS {
        let client = server.client(version);
        let answer = client.send(Method::POST, "/api/v1/pods?dryRun=All", "a pod").await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
        let seen = server.seen.lock().unwrap().pop().unwrap();
        assert_eq!((seen.line.as_str(), &*seen.body), ("POST /api/v1/pods?dryRun=All", b"a pod".as_slice()));
        assert_eq!(seen.headers["authorization"], "Bearer impersonator");
        assert_eq!(seen.headers["impersonate-user"], "durward");
        assert_eq!(seen.headers.get_all("impersonate-group").iter().collect::<Vec<_>>(), ["one", "two"]);
        let (status, headers, _) = client.get("/api/v1/namespaces/absent").await.unwrap();
        assert_eq!((status.as_u16(), &headers["content-type"]), (404, &"application/json".parse().unwrap()));

        let watch = client.send(Method::GET, "/api/v1/pods?watch=true", "").await.unwrap();
        let first = watch.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&*first, b"{\"type\":\"ADDED\"}\n");
    }
}

#[tokio::test]
async fn answers_instead_of_the_api_server() {
    let server = Server::new().await;
    let client = server.client(Version::HTTP_2);
    let status = Fault::Status { code: 403, reason: "Forbidden", message: "no" };
    let own = Fault::Answer { status: 418, content_type: "text/plain", body: "short and stout".to_owned() };
    for (fault, code, content_type, part) in [
        (Fault::Expired, 410, "application/json", r#""reason":"Expired""#),
        (Fault::TooMany { retry_after: 7 }, 429, "application/json", r#""reason":"TooManyRequests""#),
        (status, 403, "application/json", r#""message":"no""#),
        (Fault::EmptyReason, 500, "application/json", r#""reason":"""#),
        (Fault::NotFoundText, 404, "text/plain; charset=utf-8", "404 page not found\n"),
        (Fault::Text, 200, "text/plain; charset=utf-8", "maintenance"),
        (Fault::Html, 200, "text/html", "<!doctype html>"),
        (Fault::Garbage, 200, "application/json", "%%%"),
        (Fault::Empty, 200, "application/json", ""),
        (own, 418, "text/plain", "short and stout"),
    ] {
        let rule = server.proxy.on("/pods").answers(fault.clone());
        let (status, headers, body) = client.get(PODS).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        let answer = (status.as_u16(), headers["content-type"].to_str().unwrap());
        assert_eq!(answer, (code, content_type), "{fault:?}");
        assert!(body.contains(part) && rule.hits() == 1, "{fault:?}: {body}");
        assert_eq!(headers.get("retry-after").is_some(), code == 429);
        assert!(fault != Fault::Garbage || serde_json::from_str::<Value>(&body).is_err());
    }
    assert!(server.seen.lock().unwrap().is_empty(), "the API server got a request");
}

#[tokio::test]
async fn changes_true_answers_and_not_errors() {
    let server = Server::new().await;
    let client = server.client(Version::HTTP_2);
    let truth = client.get(PODS).await.unwrap().2;

    let cut = server.proxy.on("/pods").answers(Fault::Cut);
    assert_eq!(client.get(PODS).await.unwrap().2, truth.slice(..truth.len() / 2));
    drop(cut);

    let other = server.proxy.on("/pods").answers(Fault::OtherKind);
    let changed = json(&client, PODS).await;
    assert_eq!(
        (&changed["kind"], &changed["items"][1]["metadata"]["name"]),
        (&"ConfigMapList".into(), &"web-1".into())
    );
    drop(other);

    let null = server.proxy.on("").answers(Fault::ItemsNull);
    let changed = json(&client, PODS).await;
    assert_eq!((&changed["kind"], &changed["items"]), (&"PodList".into(), &Value::Null));
    assert_eq!(client.get("/api/v1/namespaces/absent").await.unwrap().0.as_u16(), 404);
    drop(null);

    let slow = server.proxy.on("/pods").answers(Fault::Slow(Duration::from_millis(60)));
    let started = Instant::now();
    assert_eq!(client.get(PODS).await.unwrap().2, truth);
    assert!(started.elapsed() >= Duration::from_millis(60) && slow.hits() == 1);
}

#[tokio::test]
async fn repeats_pages_forever_or_lets_them_expire() {
    let server = Server::new().await;
    let client = server.client(Version::HTTP_2);
    let next = |page: &Value| page["metadata"]["continue"].as_str().unwrap().to_owned();

    let endless = server.proxy.on("/pods").answers(Fault::EndlessPages);
    let token = next(&json(&client, &format!("{PODS}?limit=1")).await);
    for _ in 0..3 {
        assert_eq!(next(&json(&client, &format!("{PODS}?limit=1&continue={token}")).await), token);
    }
    assert_eq!(server.seen.lock().unwrap().last().unwrap().line, format!("GET {PODS}?limit=1"));
    drop(endless);

    let _expiring = server.proxy.on("/pods").answers(Fault::ExpiringPages);
    let token = next(&json(&client, PODS).await);
    assert_eq!(client.get(&format!("{PODS}?continue={token}")).await.unwrap().0.as_u16(), 410);
}

#[tokio::test]
async fn breaks_bodies_off_and_resets_connections() {
    let server = Server::new().await;
    for version in VERSIONS {
        let client = server.client(version);
        let broken = server.proxy.on("/pods").answers(Fault::BrokenOff);
        client.get(PODS).await.unwrap_err();
        drop(broken);
        client.get(PODS).await.unwrap();

        let reset = server.proxy.on("/pods").answers(Fault::Reset);
        let error = format!("{:#}", client.get(PODS).await.unwrap_err()).to_lowercase();
        // A client that is still writing gets a broken pipe.
        assert!(["connection reset", "broken pipe"].iter().any(|word| error.contains(word)), "{error}");
        assert!(reset.hits() > 0);
        drop(reset);
        client.get(PODS).await.unwrap();
    }
}

#[tokio::test]
async fn is_silent_as_long_as_the_rule_lasts() {
    let server = Server::new().await;
    for version in VERSIONS {
        let client = server.client(version);
        let rule = server.proxy.on(PODS).exactly().method(Method::GET).answers(Fault::Silence);
        let silent = tokio::spawn({
            let client = client.clone();
            async move { client.get(PODS).await }
        });
        until(|| rule.hits() == 1).await;
        // Other paths and methods are answered meanwhile.
        client.get("/api/v1/namespaces/shop/pods/web-0").await.unwrap();
        client.send(Method::POST, PODS, "").await.unwrap();
        assert!(!silent.is_finished());
        drop(rule);
        silent.await.unwrap().unwrap_err();
        client.get(PODS).await.unwrap();
    }
}

#[tokio::test]
async fn a_mute_proxy_answers_only_open_connections() {
    let server = Server::new().await;
    let before = server.client(Version::HTTP_2);
    before.get(PODS).await.unwrap();
    let mute = server.proxy.mute();
    let later = server.client(Version::HTTP_2);
    let later = tokio::spawn(async move { later.get(PODS).await });
    until(|| mute.hits() == 1).await;
    before.get(PODS).await.unwrap();
    assert!(!later.is_finished());
    drop(mute);
    later.await.unwrap().unwrap_err();
    server.client(Version::HTTP_11).get(PODS).await.unwrap();
    assert_eq!(server.proxy.requests(), 3);
}

#[tokio::test]
async fn the_newest_matching_rule_answers() {
    let server = Server::new().await;
    let client = server.client(Version::HTTP_2);
    let _old = server.proxy.on("/pods").answers(Fault::Expired);
    let new = server.proxy.on("limit=5").answers(Fault::NotFoundText);
    let path = format!("{PODS}?limit=5");
    assert_eq!(client.get(&path).await.unwrap().0.as_u16(), 404);
    drop(new);
    assert_eq!(client.get(&path).await.unwrap().0.as_u16(), 410);
}
