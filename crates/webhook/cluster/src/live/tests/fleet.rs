//! Tests of the list of clusters, of sharing it, and of health probes.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fake::{Fake, list, live, settled, status};
use super::transport::kubeconfig;
use crate::fleet::{Cluster, Fleet, FleetMember, MembersResult};
use crate::live::Live;
use crate::{Reader as _, Resource, cause};

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters?limit=500";

fn soon() -> std::time::Instant {
    (Instant::now() + Duration::from_secs(5)).into_std()
}

async fn members(live: &Live) -> MembersResult {
    live.members(&Fleet::Karmada, soon()).await
}

fn cluster(name: &str) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
           "metadata": {"name": name, "labels": {"zone": "a"}, "annotations": {"why": "so"},
                        "deletionTimestamp": "2026-11-21T10:00:00Z"}})
}

fn names(members: &MembersResult) -> Vec<&str> {
    members.as_ref().unwrap().iter().map(|member| member.cluster.name()).collect()
}

#[tokio::test(start_paused = true)]
async fn karmadas_clusters_are_listed_page_by_page_from_the_newest_state() {
    let (live, mut fake) = live();
    let (read, ()) = tokio::join!(members(&live), async {
        let asked = fake.asked(CLUSTERS).await;
        assert!(asked.accept.starts_with("application/json;as=PartialObjectMetadataList;"));
        asked.json(200, &list(7, "next", &[cluster("m1"), cluster("m2")]));
        fake.asked(&format!("{CLUSTERS}&continue=next")).await.json(200, &list(7, "", &[cluster("m3")]));
    });
    assert_eq!(names(&read), ["m1", "m2", "m3"]);
    let FleetMember { cluster, metadata } = &read.unwrap()[0];
    assert_eq!(*cluster, Cluster::Member(Arc::from("m1")));
    assert!(metadata.deleting && metadata.labels["zone"] == "a" && metadata.annotations["why"] == "so");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_pages_is_read_again() {
    let (live, mut fake) = live();
    let (read, ()) = tokio::join!(members(&live), async {
        fake.asked(CLUSTERS).await.json(200, &list(7, "next", &[cluster("old")]));
        fake.next().await.json(410, &status(410, "Expired", "too old"));
        fake.asked(CLUSTERS).await.json(200, &list(9, "", &[cluster("m1")]));
    });
    assert_eq!(names(&read), ["m1"]);
    // The number of attempts is limited.
    let (read, ()) = tokio::join!(members(&live), async {
        for _ in 0..4 {
            fake.asked(CLUSTERS).await.json(410, &status(410, "Expired", "too old"));
        }
        fake.was_not_asked().await;
    });
    assert_eq!(read.unwrap_err().code, cause::STALE_FLEET);
}

#[tokio::test(start_paused = true)]
async fn every_failure_makes_the_fleet_unknown_with_a_reason() {
    for (code, body, words) in [
        (
            404,
            "404 page not found".to_owned(),
            "does not serve clusters.cluster.karmada.io in cluster.karmada.io/v1alpha1",
        ),
        (
            503,
            status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
                .to_string(),
            "currently unable",
        ),
        (
            403,
            status(403, "Forbidden", "no").to_string(),
            "not permitted to list clusters.cluster.karmada.io",
        ),
        (401, status(401, "Unauthorized", "no").to_string(), "does not accept Durward's credentials"),
        (200, "<html>".to_owned(), "cannot be parsed"),
        (
            200,
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
                .to_string(),
            "not a List of clusters",
        ),
    ] {
        let (live, mut fake) = live();
        let (read, ()) = tokio::join!(members(&live), async { fake.next().await.bytes(code, body) });
        let found = read.unwrap_err();
        // Causes that waiting does not change keep their code.
        let expected = match code {
            403 => cause::FORBIDDEN,
            401 => cause::CREDENTIALS,
            _ => cause::STALE_FLEET,
        };
        assert_eq!(found.code, expected);
        assert!(
            found.text.starts_with("the list of the fleet's clusters could not be read: "),
            "{}",
            found.text
        );
        assert!(found.text.contains(words), "{}", found.text);
    }
    let (live, mut fake) = live();
    let start = Instant::now();
    let (read, _hanging) = tokio::join!(members(&live), fake.next());
    assert!(read.unwrap_err().text.ends_with("did not answer in 5.0 s"));
    assert!(start.elapsed() < Duration::from_millis(5010));
}

#[tokio::test(start_paused = true)]
async fn callers_share_the_next_list_while_one_is_in_flight() {
    let (live, mut fake) = live();
    let late = async {
        settled().await;
        // The first request was sent before these calls, so they do not share it.
        tokio::join!(members(&live), members(&live), members(&live))
    };
    let (first, (a, b, c), ()) = tokio::join!(members(&live), late, async {
        let asked = fake.asked(CLUSTERS).await;
        fake.was_not_asked().await;
        fake.was_not_asked().await;
        asked.json(200, &list(1, "", &[]));
        fake.asked(CLUSTERS).await.json(200, &list(2, "", &[cluster("new")]));
        fake.was_not_asked().await;
    });
    assert!(names(&first).is_empty());
    for read in [a, b, c] {
        assert_eq!(names(&read), ["new"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_an_earlier_request_is_never_returned() {
    let (live, mut fake) = live();
    for version in 1..4 {
        let name = format!("m{version}");
        let answering = async { fake.asked(CLUSTERS).await.json(200, &list(version, "", &[cluster(&name)])) };
        let (read, ()) = tokio::join!(members(&live), answering);
        assert_eq!(names(&read), [name]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_does_not_block_the_next_and_at_most_four_are_in_flight() {
    let (live, mut fake) = live();
    let live = Arc::new(live);
    let mut waiting = Vec::new();
    let mut hanging = Vec::new();
    let start = Instant::now();
    for _ in 0..4 {
        let live = Arc::clone(&live);
        waiting.push(tokio::spawn(async move { members(&live).await }));
        hanging.push(fake.asked(CLUSTERS).await);
    }
    // Each request except the first was sent after the delay in which callers can join it.
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(300) && waited < Duration::from_millis(400), "{waited:?}");
    let fifth = tokio::spawn({
        let live = Arc::clone(&live);
        async move { members(&live).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    fake.was_not_asked().await;
    hanging.pop().unwrap().json(200, &list(1, "", &[]));
    fake.asked(CLUSTERS).await.json(200, &list(2, "", &[cluster("m1")]));
    assert_eq!(names(&fifth.await.unwrap()), ["m1"]);
    // Requests without callers are cancelled and return their permits.
    for task in waiting {
        let _ = task.await;
    }
    settled().await;
    assert!(hanging.iter().all(super::fake::Asked::is_abandoned));
    let answering = async { fake.asked(CLUSTERS).await.json(200, &list(3, "", &[])) };
    assert!(tokio::join!(members(&live), answering).0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_empty_fleet_sends_no_request() {
    let (live, mut fake) = live();
    assert!(live.members(&Fleet::None, soon()).await.unwrap().is_empty());
    fake.was_not_asked().await;
}

#[tokio::test]
async fn contexts_come_from_the_kubeconfig_and_an_unknown_one_is_reported() {
    let config = kubeconfig("https://127.0.0.1:1", "", "", "token: x");
    let live = Live::connect(&config.access()).await.unwrap();
    let fleet = |name: &str| Fleet::Contexts(vec![name.to_owned()]);
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    let read = live.members(&fleet("test"), deadline).await.unwrap();
    assert_eq!(read[0].cluster, Cluster::Context(Arc::from("test")));
    let found = live.members(&fleet("nowhere"), deadline).await.unwrap_err();
    assert_eq!(found.code, cause::REFUSED);
    assert!(
        found.text.contains("unknown context \"nowhere\"") && found.text.ends_with("it has: test"),
        "{}",
        found.text
    );
    // The request is sent to its own address.
    let resource = Resource::NAMESPACES;
    let query = super::member_requests::query(&resource, "");
    let found = live.list(&read[0].cluster, query, deadline).await.unwrap_err();
    assert_eq!(found.code, cause::UNREACHABLE);
    assert!(found.text.starts_with("test could not be read: no connection"), "{}", found.text);
}

fn secret(name: &str, version: u64) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
           "metadata": {"name": name, "namespace": "durward", "resourceVersion": version.to_string()}})
}

fn whole_secret(version: u64, kubeconfig: &str) -> Value {
    json!({"kind": "Secret", "apiVersion": "v1",
           "metadata": {"name": "m1", "namespace": "durward", "resourceVersion": version.to_string()},
           "data": {"kubeconfig": STANDARD.encode(kubeconfig)}})
}

/// The list of the Secrets, in which m1 is at this version.
async fn secrets(live: &Live, fake: &mut Fake, version: u64) -> MembersResult {
    let fleet = Fleet::Secrets { namespace: "durward".to_owned() };
    let answering = async {
        let path = "/api/v1/namespaces/durward/secrets?limit=500&labelSelector=durward.dev%2Ffleet%3Dmember";
        fake.asked(path).await.json(200, &list(version, "", &[secret("m1", version)]));
    };
    tokio::join!(live.members(&fleet, soon()), answering).0
}

#[tokio::test]
async fn the_client_of_a_secret_is_kept_until_the_secret_changes() {
    let (live, mut fake) = live();
    let read = secrets(&live, &mut fake, 1).await.unwrap();
    let m1 = &read[0].cluster;
    assert_eq!(*m1, Cluster::Secret(Arc::from("durward"), Arc::from("m1")));
    let good = std::fs::read_to_string(kubeconfig("https://127.0.0.1:1", "", "", "token: x").path).unwrap();
    let resource = Resource::NAMESPACES;
    let query = super::member_requests::query(&resource, "");
    let path = "/api/v1/namespaces/durward/secrets/m1";
    for (version, is_read) in [(1, true), (1, false), (2, true)] {
        secrets(&live, &mut fake, version).await.unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        let (answer, ()) = tokio::join!(live.list(m1, query, deadline), async {
            if is_read {
                fake.asked(path).await.json(200, &whole_secret(version, &good));
            }
        });
        let found = answer.unwrap_err();
        assert_eq!(found.code, cause::UNREACHABLE, "{}", found.text);
        assert!(found.text.starts_with("m1 could not be read: no connection"), "{}", found.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_secrets_without_any_is_not_a_fleet_without_clusters() {
    let (live, mut fake) = live();
    let fleet = Fleet::Secrets { namespace: "durward".to_owned() };
    let answering = async { fake.next().await.json(200, &list(1, "", &[])) };
    let found = tokio::join!(live.members(&fleet, soon()), answering).0.unwrap_err();
    assert_eq!(found.code, cause::REFUSED);
    assert!(
        found.text.ends_with("no Secret in namespace \"durward\" has the label durward.dev/fleet=member"),
        "{}",
        found.text
    );
}

#[tokio::test]
async fn a_kubeconfig_in_a_secret_can_only_contain_data() {
    let url = "https://127.0.0.1:1";
    let text =
        |cluster: &str, user: &str| std::fs::read_to_string(kubeconfig(url, "", cluster, user).path).unwrap();
    for (kubeconfig, words) in [
        (
            text("", "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}"),
            "has exec, which is not accepted",
        ),
        (text("", "auth-provider: {name: gcp, config: {}}"), "has auth-provider"),
        (text("", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"), "has tokenFile"),
        (text("", "client-certificate: /etc/c"), "has client-certificate"),
        (text("", "client-key: /etc/k"), "has client-key"),
        (text(", certificate-authority: /etc/ca", "token: x"), "has certificate-authority"),
        (text(", insecure-skip-tls-verify: true", "token: x"), "has insecure-skip-tls-verify"),
        (text(", proxy-url: 'http://p'", "token: x"), "has proxy-url"),
        (text("", "token: x").replace("https://", "http://"), "has a server that is not https://"),
        ("secret: [".to_owned(), "its kubeconfig cannot be read"),
        ("apiVersion: v1\nkind: Config\n".to_owned(), "there is no current context"),
    ] {
        let (live, mut fake) = live();
        let read = secrets(&live, &mut fake, 1).await.unwrap();
        let resource = Resource::NAMESPACES;
        let query = super::member_requests::query(&resource, "");
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        let (answer, ()) = tokio::join!(live.list(&read[0].cluster, query, deadline), async {
            fake.next().await.json(200, &whole_secret(1, &kubeconfig));
        });
        let found = answer.unwrap_err();
        assert_eq!(found.code, cause::CREDENTIALS, "{}", found.text);
        assert!(
            found.text.starts_with("credentials of m1 cannot be read from Secret durward/m1: "),
            "{}",
            found.text
        );
        assert!(found.text.contains(words), "{words}: {}", found.text);
    }
}

fn namespaces() -> Value {
    json!({"kind": "NamespaceList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
}

/// Answers probes: m1 forbids the list, m2 is unreachable.
async fn answer_probes(fake: &mut Fake) {
    fake.asked(CLUSTERS).await.json(200, &list(1, "", &[cluster("m1"), cluster("m2")]));
    for _ in 0..3 {
        let asked = fake.next().await;
        let path = asked.path.clone();
        assert!(path.ends_with("/api/v1/namespaces?limit=1"), "{path}");
        if path.contains("/m2/") {
            asked.json(500, &status(500, "", "dial tcp: connect: connection refused"));
        } else if path.contains("/m1/") {
            asked.json(403, &status(403, "Forbidden", "namespaces is forbidden"));
        } else {
            asked.json(200, &namespaces());
        }
    }
}

fn results(live: &Live) -> Vec<(String, Option<&'static str>)> {
    live.health().into_iter().map(|health| (health.cluster, health.failure.map(|cause| cause.code))).collect()
}

#[tokio::test(start_paused = true)]
async fn probes_run_at_once_and_every_minute_and_report_failures() {
    let (live, mut fake) = live();
    assert!(live.health().is_empty());
    let start = Instant::now();
    live.probe(Some(Fleet::Karmada));
    answer_probes(&mut fake).await;
    settled().await;
    let expected = [
        ("(local)".to_owned(), None),
        ("m1".to_owned(), Some(cause::FORBIDDEN)),
        ("m2".to_owned(), Some(cause::UNREACHABLE)),
    ];
    assert_eq!(results(&live), expected);
    assert!(live.readiness().is_none());
    // Probes of the same fleet continue, for example after a reload of the configuration.
    live.probe(Some(Fleet::Karmada));
    fake.was_not_asked().await;
    assert_eq!(results(&live).len(), 3);
    answer_probes(&mut fake).await;
    assert!(start.elapsed() >= Duration::from_secs(60) && start.elapsed() < Duration::from_secs(61));
    // Probes of another fleet begin at once, and the old results are dropped.
    live.probe(Some(Fleet::None));
    assert!(live.health().is_empty());
    fake.next().await.json(200, &namespaces());
    settled().await;
    assert_eq!(results(&live), [("(local)".to_owned(), None)]);
    live.probe(None);
    assert!(live.health().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_fleet_list_is_a_failure_of_the_local_cluster() {
    let (live, mut fake) = live();
    live.probe(Some(Fleet::Karmada));
    fake.asked(CLUSTERS).await.json(503, &status(503, "ServiceUnavailable", "no"));
    fake.next().await.json(200, &namespaces());
    settled().await;
    assert_eq!(results(&live), [("(local)".to_owned(), Some(cause::STALE_FLEET))]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_hangs_delays_a_probe_by_five_seconds() {
    let (live, mut fake) = live();
    live.probe(Some(Fleet::None));
    let _hanging = fake.next().await;
    tokio::time::sleep(Duration::from_millis(5001)).await;
    assert_eq!(results(&live), [("(local)".to_owned(), Some(cause::TIMEOUT))]);
}

#[tokio::test(start_paused = true)]
async fn probes_stop_when_live_is_dropped() {
    let (live, mut fake) = live();
    live.probe(Some(Fleet::None));
    let hanging = fake.next().await;
    drop(live);
    settled().await;
    assert!(hanging.is_abandoned());
}

#[tokio::test]
async fn a_late_list_does_not_bring_back_the_client_of_an_older_secret() {
    let (live, mut fake) = live();
    let live = Arc::new(live);
    let old = std::fs::read_to_string(kubeconfig("https://127.0.0.1:1", "", "", "token: x").path).unwrap();
    let resource = Resource::NAMESPACES;
    let query = super::member_requests::query(&resource, "");
    let path = "/api/v1/namespaces/durward/secrets/m1";
    let lists = "/api/v1/namespaces/durward/secrets?limit=500&labelSelector=durward.dev%2Ffleet%3Dmember";
    let deadline = || std::time::Instant::now() + Duration::from_secs(5);
    // An earlier review connected to the old cluster.
    let read = secrets(&live, &mut fake, 1).await.unwrap();
    let m1 = read[0].cluster.clone();
    let (_, ()) = tokio::join!(live.list(&m1, query, deadline()), async {
        fake.asked(path).await.json(200, &whole_secret(1, &old));
    });
    // Review 1 lists the Secrets; the answer is on its way. Then the Secret is changed to another cluster.
    let ask = |live: &Arc<Live>| {
        let live = Arc::clone(live);
        tokio::spawn(async move {
            live.members(&Fleet::Secrets { namespace: "durward".to_owned() }, soon()).await
        })
    };
    let first = ask(&live);
    let slow = fake.asked(lists).await;
    // Review 2 begins after the change, and its list has the new version.
    let second = ask(&live);
    fake.asked(lists).await.json(200, &list(2, "", &[secret("m1", 2)]));
    second.await.unwrap().unwrap();
    // The older answer arrives now.
    slow.json(200, &list(1, "", &[secret("m1", 1)]));
    first.await.unwrap().unwrap();
    // Review 2 reads m1. It must read the Secret again.
    let (answer, was_asked) = tokio::join!(live.list(&m1, query, deadline()), async {
        tokio::time::timeout(Duration::from_secs(2), fake.asked(path))
            .await
            .map(|asked| asked.json(200, &whole_secret(2, &old)))
            .is_ok()
    });
    let found = answer.unwrap_err();
    assert!(was_asked, "the client of version 1 was used for review 2: {}", found.text);
}
