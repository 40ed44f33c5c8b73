//! Tests of requests to member clusters and of the causes of their errors.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::fake::{Fake, live, status};
use crate::fleet::{Cluster, GetQuery, ListQuery, ObjectResult, PageResult, Part};
use crate::live::Live;
use crate::{Address, Reader as _, Resource, cause};

const PROXY: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy";

pub(super) fn m1() -> Cluster {
    Cluster::Member(Arc::from("m1"))
}

pub(super) fn pods() -> Resource {
    Resource { group: "".into(), version: "v1".into(), plural: "pods".into() }
}

fn soon() -> std::time::Instant {
    (Instant::now() + Duration::from_secs(5)).into_std()
}

pub(super) fn query<'q>(resource: &'q Resource, namespace: &'q str) -> ListQuery<'q> {
    ListQuery {
        resource,
        namespace,
        field_selector: "",
        label_selector: "",
        part: Part::Metadata,
        limit: 500,
        continue_token: None,
    }
}

pub(super) async fn find(live: &Live, of: &Cluster, name: &str) -> ObjectResult {
    let address = Address { resource: &Resource::NAMESPACES, namespace: "", name };
    live.get_object(of, GetQuery { address, part: Part::Metadata }, soon()).await
}

pub(super) async fn list(live: &Live, of: &Cluster) -> PageResult {
    live.list(of, query(&pods(), "shop"), soon()).await
}

/// A List of pods as metadata, with these other fields.
fn pod_list(metadata: &Value, items: &Value) -> Value {
    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
}

fn pod(name: &str, namespace: &str) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
           "metadata": {"name": name, "namespace": namespace, "uid": "1"}})
}

/// A 403 or 404 about an object.
fn about(code: u16, reason: &str, message: &str, details: Value) -> String {
    let mut body = status(code, reason, message);
    body["details"] = details;
    body.to_string()
}

/// Answers the request for a List, and any following request with a 404.
async fn listed(code: u16, body: impl Into<bytes::Bytes>) -> PageResult {
    let (live, mut fake) = live();
    let body = body.into();
    let of = m1();
    tokio::select! {
        biased;
        answer = list(&live, &of) => answer,
        () = async {
            fake.next().await.bytes(code, body);
            fake.next().await.bytes(404, "404 page not found");
            std::future::pending::<()>().await;
        } => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn requests_to_members_use_karmadas_proxy_and_ask_for_the_needed_part() {
    let (live, mut fake) = live();
    let of = m1();
    let (page, ()) = tokio::join!(list(&live, &of), async {
        let asked = fake.asked(&format!("{PROXY}/api/v1/namespaces/shop/pods?limit=500")).await;
        assert!(asked.accept.starts_with("application/json;as=PartialObjectMetadataList;"));
        asked.json(
            200,
            &pod_list(&json!({"resourceVersion": "1", "continue": "x&y"}), &json!([pod("web-0", "shop")])),
        );
    });
    let page = page.unwrap();
    assert_eq!((page.objects[0].name.as_str(), page.objects[0].uid.as_str()), ("web-0", "1"));
    assert!(page.objects[0].raw.is_none());

    let services = Resource { group: "".into(), version: "v1".into(), plural: "services".into() };
    let next = ListQuery {
        field_selector: "spec.type=LoadBalancer",
        label_selector: "",
        part: Part::Whole,
        continue_token: page.next.as_deref(),
        ..query(&services, "")
    };
    let (page, ()) = tokio::join!(live.list(&of, next, soon()), async {
        let path = format!(
            "{PROXY}/api/v1/services?limit=500&fieldSelector=spec.type%3DLoadBalancer&continue=x%26y"
        );
        let asked = fake.asked(&path).await;
        assert_eq!(asked.accept, "application/json");
        let item = json!({"metadata": {"name": "front", "namespace": "a"}, "spec": {"type": "LoadBalancer"}});
        asked.json(200, &json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [item]}));
    });
    let page = page.unwrap();
    assert!(page.objects[0].raw.as_ref().unwrap().get().contains("LoadBalancer"));
    assert_eq!(page.next, None);
}

#[tokio::test(start_paused = true)]
async fn the_local_cluster_is_read_without_a_proxy() {
    let (live, mut fake) = live();
    let (found, ()) = tokio::join!(find(&live, &Cluster::Local, "shop"), async {
        fake.asked("/api/v1/namespaces/shop").await.json(404, &super::fake::not_found("shop"));
    });
    assert!(found.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn names_of_clusters_are_escaped_and_invalid_names_are_not_requested() {
    let (live, mut fake) = live();
    let odd = Cluster::Member(Arc::from("a b?c#d"));
    let (found, ()) = tokio::join!(find(&live, &odd, "shop"), async {
        let path = "/apis/cluster.karmada.io/v1alpha1/clusters/a%20b%3Fc%23d/proxy/api/v1/namespaces/shop";
        fake.asked(path).await.json(404, &super::fake::not_found("shop"));
    });
    assert!(found.unwrap().is_none());
    for name in ["", ".", "..", "a/b", "a%2Fb", "../../../api"] {
        let found = find(&live, &Cluster::Member(Arc::from(name)), "shop").await.unwrap_err();
        assert_eq!(found.code, cause::REFUSED, "{name:?}: {}", found.text);
    }
    let resource = pods();
    let found = live.list(&m1(), query(&resource, ".."), soon()).await.unwrap_err();
    assert_eq!(found.code, cause::REFUSED);
    fake.was_not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_named_like_the_control_plane_is_still_a_member() {
    let (live, mut fake) = live();
    let of = Cluster::Member(Arc::from("here"));
    let (found, ()) = tokio::join!(find(&live, &of, "shop"), async {
        let asked = fake.next().await;
        assert!(asked.path.contains("/clusters/here/proxy/"), "{}", asked.path);
        asked.json(404, &super::fake::not_found("shop"));
    });
    assert!(found.unwrap().is_none());
}

/// Each answer, its cause and parts of its text.
type Cases = Vec<(u16, String, &'static str, &'static str)>;

async fn assert_refusals(cases: Cases) {
    for (code, body, expected, words) in cases {
        let found = listed(code, body.clone()).await.unwrap_err();
        assert_eq!(found.code, expected, "{code} {body}: {}", found.text);
        assert!(found.text.contains(words), "{code} {body}: {}", found.text);
        assert!(cause::ALL.contains(&found.code));
    }
}

const KARMADA: &str = "cluster.karmada.io";

fn text(code: u16, message: &str) -> String {
    status(code, "", message).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_member_that_karmada_cannot_reach_is_reported_with_its_proxys_text() {
    assert_refusals(vec![
        (
            500,
            text(500, "dial tcp 127.0.0.1:26443: connect: connection refused"),
            cause::UNREACHABLE,
            "no connection from Karmada to m1: dial tcp 127.0.0.1:26443: connect: connection refused",
        ),
        (
            500,
            text(500, "dial tcp 10.0.0.9:6443: connect: no route to host"),
            cause::UNREACHABLE,
            "no route to host",
        ),
        (
            500,
            text(500, "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
            cause::UNREACHABLE,
            "x509",
        ),
        (500, text(500, "http2: server sent GOAWAY; unexpected EOF"), cause::UNREACHABLE, "EOF"),
        (
            500,
            text(500, "dial tcp 10.0.0.9:6443: i/o timeout"),
            cause::TIMEOUT,
            "no answer in time from Karmada to m1",
        ),
        (500, text(500, "context deadline exceeded"), cause::TIMEOUT, "m1"),
        (500, text(500, "net/http: TLS handshake timeout"), cause::TIMEOUT, "m1"),
        (
            503,
            "error trying to reach service: dial tcp 127.0.0.1:17443: connect: connection refused".to_owned(),
            cause::UNREACHABLE,
            "no connection on the way to m1: error trying",
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_member_is_busy_and_one_without_an_address_is_no_endpoint() {
    assert_refusals(vec![
        (
            500,
            text(500, "API endpoint of cluster m1 should not be empty"),
            cause::NO_ENDPOINT,
            "m1 has no address or no credentials in Karmada: API endpoint",
        ),
        (
            500,
            text(500, "the impersonatorSecretRef of cluster m1 is nil"),
            cause::NO_ENDPOINT,
            "impersonatorSecretRef",
        ),
        (
            503,
            status(503, "ServiceUnavailable", "cluster not ready").to_string(),
            cause::BUSY,
            "m1 cannot answer now (503: cluster not ready)",
        ),
        (
            500,
            text(500, "something else broke"),
            cause::BUSY,
            "m1 cannot answer now (500: something else broke)",
        ),
        (
            500,
            status(500, "InternalError", "Internal error: dial tcp: no").to_string(),
            cause::BUSY,
            "m1 cannot answer now",
        ),
        (
            500,
            text(
                500,
                "conversion webhook for example.org/v1, Kind=Foo failed: Post \"https://x\": dial tcp 1.2.3.4:443: connect: connection refused",
            ),
            cause::BUSY,
            "conversion webhook",
        ),
        (502, "Bad Gateway".to_owned(), cause::BUSY, "m1 cannot answer now (502: Bad Gateway)"),
        (504, String::new(), cause::BUSY, "m1 cannot answer now (504)"),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn refusals_of_karmada_and_of_members_are_distinguished() {
    let secret = json!({"name": "m1-impersonator", "kind": "secrets"});
    assert_refusals(vec![
        (404, about(404, "NotFound", "secrets \"m1-impersonator\" not found", secret.clone()), cause::NO_ENDPOINT, "no credentials in Karmada: secrets \"m1-impersonator\" not found"),
        (403, about(403, "Forbidden", "secrets \"m1-impersonator\" is forbidden", secret), cause::NO_ENDPOINT, "no credentials in Karmada"),
        (500, text(500, "failed to get impresonateToken for cluster m1: no token"), cause::NO_ENDPOINT, "no token"),
        (503, status(503, "ServiceUnavailable", "error trying to reach service: dial tcp 10.0.0.9:443: connect: connection refused").to_string(), cause::UNREACHABLE, "no connection from Karmada to m1"),
        (500, text(500, "http2: client connection lost"), cause::UNREACHABLE, "connection lost"),
        (
            404,
            about(
                404,
                "NotFound",
                "clusters.cluster.karmada.io \"m1\" not found",
                json!({"name": "m1", "group": KARMADA, "kind": "clusters"}),
            ),
            cause::VANISHED,
            "m1 is not a cluster of the fleet any more",
        ),
        (
            403,
            about(
                403,
                "Forbidden",
                "users \"durward\" is forbidden: User \"system:serviceaccount:karmada-cluster:karmada-impersonator\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
                json!({"name": "durward", "kind": "users"}),
            ),
            cause::FORBIDDEN,
            "Karmada isn't allowed to impersonate user \"durward\" in m1",
        ),
        (
            403,
            about(
                403,
                "Forbidden",
                "clusters.cluster.karmada.io \"m1\" is forbidden: User \"durward\" cannot get resource \"clusters/proxy\" in API group \"cluster.karmada.io\" at the cluster scope",
                json!({"name": "m1", "group": KARMADA, "kind": "clusters"}),
            ),
            cause::FORBIDDEN,
            "not permitted to reach m1 (RBAC on the control plane: verb get on clusters/proxy in cluster.karmada.io)",
        ),
        (
            403,
            about(
                403,
                "Forbidden",
                "pods is forbidden: User \"durward\" cannot list resource \"pods\" in API group \"\" in the namespace \"shop\"",
                json!({"kind": "pods"}),
            ),
            cause::FORBIDDEN,
            "not permitted to list pods in m1 (RBAC in m1: verb list)",
        ),
        (404, "404 page not found\n".to_owned(), cause::NOT_SERVED, "m1 does not serve pods in v1"),
        (
            404,
            about(404, "NotFound", "the server could not find the requested resource", json!({})),
            cause::NOT_SERVED,
            "m1 does not serve pods in v1",
        ),
        (
            404,
            "<html>nothing here</html>".to_owned(),
            cause::GARBAGE,
            "m1 answered 404 for another object: <html>",
        ),
        (
            404,
            about(404, "NotFound", "pods \"x\" not found", json!({"name": "x", "kind": "pods"})),
            cause::GARBAGE,
            "m1 answered 404",
        ),
        (
            404,
            about(404, "NotFound", "no", json!({"name": "m2", "group": KARMADA, "kind": "clusters"})),
            cause::GARBAGE,
            "m1 answered 404",
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_other_refusal_has_its_cause_and_text() {
    assert_refusals(vec![
        (
            401,
            status(401, "Unauthorized", "Unauthorized").to_string(),
            cause::CREDENTIALS,
            "credentials of m1 are refused",
        ),
        (401, String::new(), cause::CREDENTIALS, "credentials of m1 are refused"),
        (500, "Unauthorized\n".to_owned(), cause::CREDENTIALS, "credentials of m1 are refused"),
        (500, text(500, "Unauthorized"), cause::CREDENTIALS, "credentials of m1 are refused"),
        (410, status(410, "Expired", "too old").to_string(), cause::BUSY, "has expired in m1"),
        (
            429,
            status(429, "TooManyRequests", "slow down").to_string(),
            cause::BUSY,
            "m1 cannot answer now (429: slow down)",
        ),
        (302, String::new(), cause::REFUSED, "m1 answers 302"),
        (400, status(400, "BadRequest", "bad").to_string(), cause::REFUSED, "m1 answers 400: bad"),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_another_request_is_garbage_and_never_an_empty_list() {
    let version = json!({"resourceVersion": "1"});
    let whole = |kind: &str, items: Value| {
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
            .to_string()
    };
    let half = pod_list(&version, &json!([pod("a", "shop")])).to_string();
    for (body, words) in [
        (String::new(), "m1's answer cannot be used: the answer is empty"),
        (" \n".to_owned(), "empty"),
        ("<html>Log in</html>".to_owned(), "it starts with \"<html>Log in</html>\""),
        ("ok".to_owned(), "cannot be parsed"),
        ("[]".to_owned(), "cannot be parsed"),
        ("{}".to_owned(), "cannot be parsed"),
        (half[..half.len() / 2].to_owned(), "cannot be parsed"),
        (status(404, "NotFound", "no").to_string(), "cannot be parsed"),
        (whole("ServiceList", json!(null)), "not a List of pods (v1 ServiceList)"),
        (whole("ServiceList", json!([])), "not a List of pods"),
        (whole("List", json!([])), "not a List of pods"),
        (whole("Pod", json!([])), "not a List of pods"),
        (
            json!({"kind": "PodList", "apiVersion": "v2", "metadata": {"resourceVersion": "1"}, "items": []})
                .to_string(),
            "not a List of pods",
        ),
        (
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}).to_string(),
            "not a List of pods",
        ),
        (
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}).to_string(),
            "missing field `items`",
        ),
        (json!({"kind": "PodList", "apiVersion": "v1", "items": []}).to_string(), "missing field `metadata`"),
        (pod_list(&version, &json!([pod("", "shop")])).to_string(), "objects without names"),
        (pod_list(&version, &json!([{"metadata": {}}])).to_string(), "objects without names"),
        (pod_list(&version, &json!([1])).to_string(), "cannot be parsed"),
        (pod_list(&version, &json!([pod("a", "")])).to_string(), "objects of another namespace (\"\")"),
        (
            pod_list(&version, &json!([pod("a", "shop"), {"metadata": {"name": "b"}}])).to_string(),
            "objects of another namespace (\"\")",
        ),
        (
            pod_list(&version, &json!([pod("a", "other")])).to_string(),
            "objects of another namespace (\"other\")",
        ),
        (
            whole(
                "PodList",
                json!([{"kind": "Service", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "shop"}}]),
            ),
            "contains something else (v1 Service)",
        ),
        (
            pod_list(&json!({"resourceVersion": "1", "remainingItemCount": 4}), &json!([])).to_string(),
            "is incomplete and has no continue token",
        ),
    ] {
        let found = listed(200, body.clone()).await.unwrap_err();
        assert_eq!(found.code, cause::GARBAGE, "{body}: {}", found.text);
        assert!(found.text.contains(words), "{body}: {}", found.text);
    }
    for body in [whole("PodList", json!(null)), pod_list(&version, &json!(null)).to_string()] {
        assert!(listed(200, body).await.unwrap().objects.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_does_not_answer_a_request_for_whole_objects() {
    let (live, mut fake) = live();
    let resource = pods();
    let whole = ListQuery { part: Part::Whole, ..query(&resource, "shop") };
    let of = m1();
    let (found, ()) = tokio::join!(live.list(&of, whole, soon()), async {
        fake.next().await.json(200, &pod_list(&json!({"resourceVersion": "1"}), &json!([])));
    });
    assert_eq!(found.unwrap_err().code, cause::GARBAGE);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_page_names_itself_as_the_next_one_fails() {
    let (live, mut fake) = live();
    let resource = pods();
    let again = ListQuery { continue_token: Some("t"), ..query(&resource, "shop") };
    let of = m1();
    let (found, ()) = tokio::join!(live.list(&of, again, soon()), async {
        fake.next().await.json(200, &pod_list(&json!({"resourceVersion": "1", "continue": "t"}), &json!([])));
    });
    assert!(found.unwrap_err().text.contains("does not end"));
}

#[tokio::test(start_paused = true)]
async fn a_truncated_answer_is_unreachable() {
    let (live, mut fake) = live();
    let of = m1();
    let (found, ()) = tokio::join!(list(&live, &of), async {
        let stream = fake.next().await.stream();
        stream.bytes("{\"kind\":\"PodList\",");
        stream.breaks();
    });
    let found = found.unwrap_err();
    assert_eq!(found.code, cause::UNREACHABLE);
    assert!(found.text.starts_with("m1 could not be read"), "{}", found.text);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_freezes_during_its_answer_is_a_timeout() {
    let (live, mut fake) = live();
    let of = m1();
    let start = Instant::now();
    let (found, stream) = tokio::join!(list(&live, &of), async {
        let stream = fake.next().await.stream();
        stream.bytes("{\"kind\":\"PodList\",");
        stream
    });
    assert_eq!(found.unwrap_err().code, cause::TIMEOUT);
    assert!(start.elapsed() < Duration::from_millis(5002));
    super::fake::settled().await;
    assert!(stream.is_closed());
}

async fn found(name: &str, code: u16, body: &Value) -> ObjectResult {
    let (live, mut fake) = live();
    let of = m1();
    let answering = async { fake.next().await.json(code, body) };
    tokio::join!(find(&live, &of, name), answering).0
}

#[tokio::test(start_paused = true)]
async fn absence_in_a_member_is_believed_only_from_a_status_about_the_very_object() {
    assert!(found("shop", 404, &super::fake::not_found("shop")).await.unwrap().is_none());
    let other = found("shop", 404, &super::fake::not_found("shopping")).await.unwrap_err();
    assert_eq!(other.code, cause::GARBAGE);
    let something_else = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "shop"}});
    assert_eq!(found("shop", 200, &something_else).await.unwrap_err().code, cause::GARBAGE);
    let wrong_name = super::fake::namespace("shopping", 1, "a");
    assert_eq!(found("shop", 200, &wrong_name).await.unwrap_err().code, cause::GARBAGE);
}

#[tokio::test(start_paused = true)]
async fn a_404_about_the_member_is_never_the_absence_of_an_object_of_its_name() {
    let (live, mut fake) = live();
    let resource = Resource::CLUSTERS;
    let address = Address { resource: &resource, namespace: "", name: "m1" };
    let of = m1();
    let (found, ()) =
        tokio::join!(live.get_object(&of, GetQuery { address, part: Part::Metadata }, soon()), async {
            let details = json!({"name": "m1", "group": "cluster.karmada.io", "kind": "clusters"});
            fake.next().await.bytes(404, about(404, "NotFound", "no", details));
        });
    assert_eq!(found.unwrap_err().code, cause::VANISHED);
}

async fn unauthorized(answer: impl AsyncFnOnce(&mut Fake)) -> String {
    let (live, mut fake) = live();
    let of = m1();
    let (found, ()) = tokio::join!(find(&live, &of, "shop"), async {
        fake.next().await.json(401, &status(401, "Unauthorized", "Unauthorized"));
        answer(&mut fake).await;
    });
    let found = found.unwrap_err();
    assert_eq!(found.code, cause::CREDENTIALS);
    found.text
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_reported_with_their_secret_if_it_is_readable() {
    let path = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
    let cluster = json!({"spec": {"secretRef": {"namespace": "karmada-cluster", "name": "m1"},
                                  "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m1-impersonator"}}});
    let text = unauthorized(async |fake| fake.asked(path).await.json(200, &cluster)).await;
    assert_eq!(
        text,
        "credentials of m1 are refused (401): Karmada has them from Secret karmada-cluster/m1-impersonator"
    );
    let own = status(401, "Unauthorized", "Unauthorized");
    let text = unauthorized(async |fake| fake.asked(path).await.json(401, &own)).await;
    assert_eq!(text, "the control plane does not accept Durward's credentials (401)");
    // The name is omitted if it takes more than a second.
    let start = Instant::now();
    let text = unauthorized(async |fake| {
        let hanging = fake.asked(path).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(hanging);
    })
    .await;
    assert_eq!(text, "credentials of m1 are refused (401)");
    assert!(start.elapsed() < Duration::from_secs(3));
}
