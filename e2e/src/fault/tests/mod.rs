//! The proxy between a client like Karmada and a small API server.

mod upstream;

use std::time::{Duration, Instant};

use http::{Method, Version};
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::Fault;
use upstream::Stand;

const PODS: &str = "/api/v1/namespaces/shop/pods";
/// Far more than any test takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for a condition.
async fn until(is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "it did not come about");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn without_a_rule_everything_passes_untouched_in_both_versions() {
    let stand = Stand::new().await;
    for version in [Version::HTTP_2, Version::HTTP_11] {
        let asker = stand.asker(version);
        let answer = asker.send(Method::POST, "/api/v1/pods?dryRun=All", "a pod").await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
        let seen = stand.seen.lock().unwrap().pop().unwrap();
        assert_eq!((seen.line.as_str(), &*seen.body), ("POST /api/v1/pods?dryRun=All", b"a pod".as_slice()));
        assert_eq!(seen.headers["authorization"], "Bearer impersonator");
        assert_eq!(seen.headers["impersonate-user"], "durward");
        assert_eq!(seen.headers.get_all("impersonate-group").iter().collect::<Vec<_>>(), ["one", "two"]);
        let (status, headers, _) = asker.get("/api/v1/namespaces/absent").await.unwrap();
        assert_eq!((status.as_u16(), &headers["content-type"]), (404, &"application/json".parse().unwrap()));
    }
}

#[tokio::test]
async fn a_watch_passes_event_by_event() {
    let stand = Stand::new().await;
    for version in [Version::HTTP_2, Version::HTTP_11] {
        let answer = stand.asker(version).send(Method::GET, "/api/v1/pods?watch=true", "").await.unwrap();
        let first = answer.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&*first, b"{\"type\":\"ADDED\"}\n");
    }
}

#[tokio::test]
async fn made_up_answers_come_as_they_are_told() {
    let stand = Stand::new().await;
    let asker = stand.asker(Version::HTTP_2);
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
        let rule = stand.proxy.on("/pods").answers(fault.clone());
        let (status, headers, body) = asker.get(PODS).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(
            (status.as_u16(), headers["content-type"].to_str().unwrap()),
            (code, content_type),
            "{fault:?}"
        );
        assert!(body.contains(part), "{fault:?}: {body}");
        assert_eq!(rule.hits(), 1);
        if code == 429 {
            assert_eq!(headers["retry-after"], "7");
        }
        if fault == Fault::Garbage {
            assert!(serde_json::from_str::<Value>(&body).is_err());
        }
    }
    assert!(stand.seen.lock().unwrap().is_empty(), "the member was asked");
}

#[tokio::test]
async fn true_answers_are_changed_where_the_rule_says_so_and_refusals_are_not() {
    let stand = Stand::new().await;
    let asker = stand.asker(Version::HTTP_2);
    let truth = asker.get(PODS).await.unwrap().2;

    let cut = stand.proxy.on("/pods").answers(Fault::Cut);
    assert_eq!(asker.get(PODS).await.unwrap().2, truth.slice(..truth.len() / 2));
    drop(cut);

    let other = stand.proxy.on("/pods").answers(Fault::OtherKind);
    let changed: Value = serde_json::from_slice(&asker.get(PODS).await.unwrap().2).unwrap();
    assert_eq!(
        (changed["kind"].as_str(), changed["items"][1]["metadata"]["name"].as_str()),
        (Some("ConfigMapList"), Some("web-1"))
    );
    drop(other);

    let null = stand.proxy.on("").answers(Fault::ItemsNull);
    let changed: Value = serde_json::from_slice(&asker.get(PODS).await.unwrap().2).unwrap();
    assert_eq!((changed["kind"].as_str(), &changed["items"]), (Some("PodList"), &Value::Null));
    assert_eq!(asker.get("/api/v1/namespaces/absent").await.unwrap().0.as_u16(), 404);
    drop(null);

    assert_eq!(asker.get(PODS).await.unwrap().2, truth);
}

#[tokio::test]
async fn pages_go_on_for_ever_or_expire() {
    let stand = Stand::new().await;
    let asker = stand.asker(Version::HTTP_2);
    let next = |body: &[u8]| {
        serde_json::from_slice::<Value>(body).unwrap()["metadata"]["continue"].as_str().map(str::to_owned)
    };

    let endless = stand.proxy.on("/pods").answers(Fault::EndlessPages);
    let token = next(&asker.get(&format!("{PODS}?limit=1")).await.unwrap().2).unwrap();
    for _ in 0..3 {
        let (status, _, body) = asker.get(&format!("{PODS}?limit=1&continue={token}")).await.unwrap();
        assert_eq!((status.as_u16(), next(&body)), (200, Some(token.clone())));
    }
    assert_eq!(stand.seen.lock().unwrap().last().unwrap().line, format!("GET {PODS}?limit=1"));
    drop(endless);

    let _expiring = stand.proxy.on("/pods").answers(Fault::ExpiringPages);
    let (status, _, body) = asker.get(PODS).await.unwrap();
    let token = next(&body).unwrap();
    assert_eq!(status.as_u16(), 200);
    assert_eq!(asker.get(&format!("{PODS}?continue={token}")).await.unwrap().0.as_u16(), 410);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_to_its_reader() {
    let stand = Stand::new().await;
    for version in [Version::HTTP_2, Version::HTTP_11] {
        let asker = stand.asker(version);
        let rule = stand.proxy.on("/pods").answers(Fault::BrokenOff);
        assert!(asker.get(PODS).await.is_err());
        drop(rule);
        assert!(asker.get(PODS).await.is_ok());
    }
}

#[tokio::test]
async fn a_reset_is_seen_as_one() {
    let stand = Stand::new().await;
    for version in [Version::HTTP_2, Version::HTTP_11] {
        let asker = stand.asker(version);
        let rule = stand.proxy.on("/pods").answers(Fault::Reset);
        let error = format!("{:#}", asker.get(PODS).await.unwrap_err()).to_lowercase();
        // A client that is still writing gets a broken pipe.
        assert!(["connection reset", "broken pipe"].iter().any(|word| error.contains(word)), "{error}");
        assert!(rule.hits() > 0);
        drop(rule);
        assert!(asker.get(PODS).await.is_ok());
    }
}

#[tokio::test]
async fn silence_lasts_as_long_as_its_rule() {
    let stand = Stand::new().await;
    for version in [Version::HTTP_2, Version::HTTP_11] {
        let asker = stand.asker(version);
        let rule = stand.proxy.on(PODS).exactly().method(Method::GET).answers(Fault::Silence);
        let silent = tokio::spawn({
            let asker = asker.clone();
            async move { asker.get(PODS).await }
        });
        until(|| rule.hits() == 1).await;
        // Other paths and methods are answered meanwhile.
        assert!(asker.get("/api/v1/namespaces/shop/pods/web-0").await.is_ok());
        assert!(asker.send(Method::POST, PODS, "").await.is_ok());
        assert!(!silent.is_finished());
        drop(rule);
        assert!(silent.await.unwrap().is_err());
        assert!(asker.get(PODS).await.is_ok());
    }
}

#[tokio::test]
async fn slow_is_late_and_true() {
    let stand = Stand::new().await;
    let _slow = stand.proxy.on("/pods").answers(Fault::Slow(Duration::from_millis(60)));
    let since = Instant::now();
    let (status, ..) = stand.asker(Version::HTTP_2).get(PODS).await.unwrap();
    assert!(status.is_success() && since.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_mute_proxy_takes_connections_and_says_nothing() {
    let stand = Stand::new().await;
    let before = stand.asker(Version::HTTP_2);
    before.get(PODS).await.unwrap();
    let mute = stand.proxy.goes_mute();
    let shut_out = tokio::spawn({
        let asker = stand.asker(Version::HTTP_2);
        async move { asker.get(PODS).await }
    });
    // The open connection continues; the new one gets no further than TCP.
    until(|| mute.hits() == 1).await;
    before.get(PODS).await.unwrap();
    assert!(!shut_out.is_finished());
    drop(mute);
    assert!(shut_out.await.unwrap().is_err());
    assert!(stand.asker(Version::HTTP_11).get(PODS).await.is_ok());
    assert_eq!(stand.proxy.asked(), 3);
}

#[tokio::test]
async fn the_newest_rule_counts_and_the_older_one_after_it() {
    let stand = Stand::new().await;
    let asker = stand.asker(Version::HTTP_2);
    let _old = stand.proxy.on("/pods").answers(Fault::Expired);
    let new = stand.proxy.on("limit=5").answers(Fault::NotFoundText);
    let path = format!("{PODS}?limit=5");
    assert_eq!(asker.get(&path).await.unwrap().0.as_u16(), 404);
    drop(new);
    assert_eq!(asker.get(&path).await.unwrap().0.as_u16(), 410);
}

#[test]
fn an_upstream_that_is_no_https_url_is_refused() {
    let ca = crate::certificates::Ca::new("member").unwrap();
    for url in ["http://127.0.0.1:1", "127.0.0.1:1", ""] {
        assert!(super::Proxy::before(url, &ca).is_err(), "{url}");
    }
}
