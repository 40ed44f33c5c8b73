//! Tests with member clusters whose answers try to fill memory, to forge messages, or to take time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::fake::{list as list_of, live};
use crate::fleet::{Cluster, GetQuery, ListQuery, Object, ObjectResult, PageResult, Part};
use crate::live::Live;
use crate::{Address, Reader as _, Resource, cause};

const MIB: usize = 1 << 20;

fn m1() -> Cluster {
    Cluster::Member(Arc::from("m1"))
}

fn pods() -> Resource {
    Resource { group: "".into(), version: "v1".into(), plural: "pods".into() }
}

fn soon() -> std::time::Instant {
    (Instant::now() + Duration::from_secs(60)).into_std()
}

async fn list(live: &Live, limit: u32, part: Part) -> PageResult {
    let resource = pods();
    let query = ListQuery { part, limit, ..super::member_requests::query(&resource, "shop") };
    live.list(&m1(), query, soon()).await
}

/// Returns the result for one answer to a List request.
async fn listed(limit: u32, part: Part, body: impl Into<bytes::Bytes>) -> PageResult {
    let (live, mut fake) = live();
    let answering = async { fake.next().await.bytes(200, body) };
    tokio::join!(list(&live, limit, part), answering).0
}

async fn found(code: u16, body: impl Into<bytes::Bytes>) -> ObjectResult {
    let (live, mut fake) = live();
    let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" };
    let of = m1();
    let asking = live.get_object(&of, GetQuery { address, part: Part::Metadata }, soon());
    tokio::join!(asking, async { fake.next().await.bytes(code, body) }).0
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": "1"}})
}

/// A List of these pods with this length. White space has no meaning in JSON.
fn page_of(length: usize, kind: &str, version: &str, items: &[Value]) -> String {
    let list =
        json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items});
    let list = list.to_string();
    let padding = " ".repeat(length.saturating_sub(list.len()));
    list + &padding
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_an_answer_depends_on_its_request() {
    for (limit, part, most) in
        [(1, Part::Metadata, 4 * MIB), (500, Part::Metadata, 8 * MIB), (500, Part::Whole, 32 * MIB)]
    {
        let page = |length| match part {
            Part::Metadata => page_of(length, "PartialObjectMetadataList", "meta.k8s.io/v1", &[pod("a")]),
            Part::Whole => page_of(length, "PodList", "v1", &[pod("a")]),
        };
        assert_eq!(listed(limit, part, page(most)).await.unwrap().objects.len(), 1);
        let refused = listed(limit, part, page(most + 1)).await.unwrap_err();
        assert_eq!(refused.code, cause::TOO_LONG);
        assert!(
            refused.text.ends_with(&format!("the answer is longer than {} MiB", most / MIB)),
            "{}",
            refused.text
        );
    }
    let shop = super::fake::namespace("shop", 1, "a").to_string();
    let padded = |length: usize| shop.clone() + &" ".repeat(length - shop.len());
    assert!(found(200, padded(4 * MIB)).await.unwrap().is_some());
    assert_eq!(found(200, padded(4 * MIB + 1)).await.unwrap_err().code, cause::TOO_LONG);
    // Errors have a lower limit, and a login page is garbage at any length.
    assert_eq!(found(500, padded(MIB + 1)).await.unwrap_err().code, cause::GARBAGE);
    assert_eq!(found(200, " ".repeat(4 * MIB + 1)).await.unwrap_err().code, cause::GARBAGE);
    let login = format!("<html>{}</html>", " ".repeat(8 * MIB));
    assert_eq!(listed(500, Part::Metadata, login).await.unwrap_err().code, cause::GARBAGE);
}

#[tokio::test(start_paused = true)]
async fn a_string_over_a_mebibyte_is_too_long_in_an_answer_and_garbage_elsewhere() {
    let string = "x".repeat(MIB + 1);
    for value in [string.clone(), "\"".repeat(MIB), "\\".repeat(MIB)] {
        let mut odd = pod("a");
        odd["metadata"]["annotations"] = json!({ "a": value });
        let refused = listed(500, Part::Metadata, list_of(1, "", &[odd]).to_string()).await.unwrap_err();
        assert_eq!(refused.code, cause::TOO_LONG, "{}", refused.text);
    }
    let login = format!("<script>\"{string}\"</script>");
    assert_eq!(listed(500, Part::Metadata, login).await.unwrap_err().code, cause::GARBAGE);
}

#[tokio::test(start_paused = true)]
async fn a_page_with_more_objects_than_requested_is_garbage() {
    let page = |count: usize| {
        let pods: Vec<Value> = (0..count).map(|at| pod(&format!("p{at}"))).collect();
        list_of(1, "", &pods).to_string()
    };
    for limit in [1, 500] {
        let most = usize::try_from(limit).unwrap();
        assert_eq!(listed(limit, Part::Metadata, page(most)).await.unwrap().objects.len(), most);
        let refused = listed(limit, Part::Metadata, page(most + 1)).await.unwrap_err();
        assert_eq!(refused.code, cause::GARBAGE);
        let words = format!("more than the {limit} requested objects");
        assert!(refused.text.contains(&words), "{}", refused.text);
    }
}

/// After this error, the pager requests smaller pages. A page without the objects above the limit would be a wrong allow.
#[tokio::test(start_paused = true)]
async fn a_page_with_too_many_labels_is_too_long() {
    let labels: serde_json::Map<_, _> = (0..10_000).map(|at| (at.to_string(), json!(""))).collect();
    let page = |kind: &str, version: &str, labeled: usize| {
        let mut pods = vec![pod("a"); labeled + 1];
        for pod in pods.iter_mut().take(labeled) {
            pod["metadata"]["labels"] = labels.clone().into();
        }
        page_of(0, kind, version, &pods)
    };
    for (part, kind, version) in
        [(Part::Metadata, "PartialObjectMetadataList", "meta.k8s.io/v1"), (Part::Whole, "PodList", "v1")]
    {
        assert_eq!(listed(500, part, page(kind, version, 10)).await.unwrap().objects.len(), 11);
        let refused = listed(500, part, page(kind, version, 11)).await.unwrap_err();
        assert_eq!(refused.code, cause::TOO_LONG);
        assert!(refused.text.contains("more than 100000 labels"), "{}", refused.text);
    }
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_delays_long_answers_and_no_short_ones() {
    let (live, mut fake) = live();
    let asking = || list(&live, 500, Part::Whole);
    let page = |length| page_of(length, "PodList", "v1", &[pod("a")]);
    let hold = async {
        // Two answers that nearly reach their limit and do not end.
        let mut hanging = Vec::new();
        for _ in 0..2 {
            let stream = fake.next().await.stream();
            stream.bytes(vec![b' '; 31 * MIB]);
            hanging.push(stream);
        }
        super::fake::settled().await;
        let (long, ()) = tokio::join!(asking(), async {
            fake.next().await.bytes(200, page(MIB));
            super::fake::settled().await;
            let (short, ()) = tokio::join!(asking(), async { fake.next().await.bytes(200, page(10_000)) });
            assert_eq!(short.unwrap().objects.len(), 1);
            drop(hanging);
            // There is memory for it now, so it is requested again.
            fake.next().await.bytes(200, page(MIB));
        });
        assert_eq!(long.unwrap().objects.len(), 1);
    };
    let (a, b, ()) = tokio::join!(asking(), asking(), hold);
    assert!([a, b].iter().all(Result::is_err));
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_without_memory_is_unknown_at_the_deadline() {
    let (live, mut fake) = live();
    let asking = || list(&live, 500, Part::Whole);
    let hold = async {
        let hanging = [fake.next().await.stream(), fake.next().await.stream()];
        for stream in &hanging {
            stream.bytes(vec![b' '; 31 * MIB]);
        }
        super::fake::settled().await;
        let page = page_of(MIB, "PodList", "v1", &[pod("a")]);
        let (of, resource) = (m1(), pods());
        let query = super::member_requests::query(&resource, "shop");
        let deadline = (Instant::now() + Duration::from_secs(1)).into_std();
        let listing = live.list(&of, query, deadline);
        let (long, ()) = tokio::join!(listing, async { fake.next().await.bytes(200, page) });
        let long = long.unwrap_err();
        assert_eq!(long.code, cause::OVERLOADED);
        assert!(long.text.contains("no memory left"), "{}", long.text);
    };
    let (a, b, ()) = tokio::join!(asking(), asking(), hold);
    assert!([a, b].iter().all(Result::is_err));
}

#[tokio::test(start_paused = true)]
async fn names_that_no_object_can_have_are_not_repeated() {
    for name in [
        "web\nError from server (Forbidden): all is fine",
        "\u{1b}[31mweb",
        "web\u{202e}gnp",
        "\u{2066}web",
        "a/b",
        &"x".repeat(254),
    ] {
        let refused =
            listed(500, Part::Metadata, list_of(1, "", &[pod(name)]).to_string()).await.unwrap_err();
        assert_eq!(refused.code, cause::GARBAGE, "{}", refused.text);
        assert!(refused.text.chars().count() <= 400, "{}", refused.text.len());
        assert!(!refused.text.contains(['\n', '\u{1b}', '\u{202e}', '\u{2066}']), "{:?}", refused.text);
    }
    let longest = "x".repeat(253);
    let page = listed(500, Part::Metadata, list_of(1, "", &[pod(&longest)]).to_string()).await.unwrap();
    let [Object { name, .. }] = &page.objects[..] else { panic!("{page:?}") };
    assert_eq!(*name, longest);
}

#[tokio::test(start_paused = true)]
async fn texts_of_members_are_cut() {
    let long = "y\u{1b}".repeat(300_000);
    let list = |items: Value| {
        let (kind, version) = ("PartialObjectMetadataList", "meta.k8s.io/v1");
        json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items})
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "reason": long, "message": long, "code": 500});
    let odd = json!({"kind": long, "apiVersion": long, "metadata": {"name": long}});
    for (code, body) in [
        (200, list(json!(long)).to_string()),
        (200, list(json!([{"metadata": long}])).to_string()),
        (200, list(json!("y".repeat(5 * MIB))).to_string()),
        (200, odd.to_string()),
        (200, long.clone()),
        (500, status.to_string()),
        (404, status.to_string()),
        (403, format!("cannot impersonate {long}")),
        (502, format!("dial tcp {long}")),
    ] {
        let (live, mut fake) = live();
        let answering = async { fake.next().await.bytes(code, body) };
        let error = tokio::join!(self::list(&live, 500, Part::Metadata), answering).0.unwrap_err();
        assert!(error.text.chars().count() <= 401, "{code}: {} bytes", error.text.len());
        assert!(!error.text.contains(char::is_control), "{code}: {:?}", error.text);
    }
}

/// Each body has the same fields as an empty List.
#[tokio::test(start_paused = true)]
async fn an_array_instead_of_a_list_or_its_metadata_is_garbage() {
    for body in [
        r#"["v1", "PodList", {"resourceVersion": "1"}, []]"#,
        r#"{"apiVersion": "v1", "kind": "PodList", "metadata": ["1"], "items": []}"#,
    ] {
        assert_eq!(listed(500, Part::Whole, body).await.unwrap_err().code, cause::GARBAGE, "{body}");
    }
    let empty =
        r#"{"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}"#;
    assert!(listed(500, Part::Whole, empty).await.unwrap().objects.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_with_duplicate_keys_is_garbage() {
    let pod = pod("a");
    let body = format!(
        r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"1"}},"items":[{pod}],"items":[]}}"#
    );
    assert_eq!(listed(500, Part::Metadata, body).await.unwrap_err().code, cause::GARBAGE);
}
