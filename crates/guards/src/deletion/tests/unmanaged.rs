//! With `unmanagedResources: ignore`, objects that Karmada did not deploy are ignored only if they certainly stay.

use super::*;
use cluster::fleet::Owner;

const IGNORED: &str = "fleet: karmada\ncrds: {apiGroups: [example.org]}\nunmanagedResources: ignore\n";
const BINDING: &str = "widgets.example.org-customresourcedefinition";

fn managed(object: Object) -> Object {
    let labels = BTreeMap::from([("karmada.io/managed".to_owned(), "true".to_owned())]);
    Object { metadata: Metadata { labels, ..Metadata::default() }, ..object }
}

fn deleting(object: Object) -> Object {
    Object { metadata: Metadata { deleting: true, ..object.metadata }, ..object }
}

/// Changes the objects of a cluster.
fn changed(mut cluster: FakeCluster, change: impl Fn(Object) -> Object) -> FakeCluster {
    cluster.objects = cluster.objects.into_iter().map(|(name, object)| (name, change(object))).collect();
    cluster
}

fn objects(all: Vec<Object>) -> impl Fn(&ListQuery<'_>) -> PageResult + Send + Sync + 'static {
    move |_| Ok(Page { objects: all.clone(), next: None })
}

/// Deletes a namespace that is empty on the control plane.
async fn delete_namespace(yaml: &str, m1: FakeCluster) -> Ruling {
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, cluster_with(objects(vec![]))).with("m1", m1));
    ruling(yaml, &fleet, "namespaces", "shop").await
}

async fn delete_crd(yaml: &str, local: FakeCluster, m1: FakeCluster) -> Ruling {
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, local).with("m1", m1));
    ruling(yaml, &fleet, "customresourcedefinitions", WIDGETS).await
}

const V1: &[(&str, bool, bool)] = &[("v1", true, true)];

#[tokio::test(start_paused = true)]
async fn reads_further_pages_if_a_page_has_only_unmanaged_objects() {
    let last = |objects: Vec<Object>| {
        cluster_with(move |query| {
            Ok(match query.continue_token {
                None => pods(query, vec![object("foreign-0"), object("foreign-1")], Some("2")),
                Some("2") => pods(query, vec![object("foreign-2")], Some("3")),
                Some(_) => pods(query, objects.clone(), None),
            })
        })
    };
    let ruling = delete_namespace(IGNORED, last(vec![managed(object("web-0"))])).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (web-0)"), "{ruling:?}");
    let ruling = delete_namespace(IGNORED, last(vec![object("foreign-3")])).await;
    assert_eq!(ruling.verdict, Verdict::Allow, "{ruling:?}");
    let warnings: Vec<_> = ruling.warnings.iter().collect();
    assert_eq!(warnings, ["deletion: m1 would keep 4 pods (foreign-0, foreign-1, foreign-2, foreign-3)"]);
}

#[tokio::test(start_paused = true)]
async fn stops_reading_at_a_managed_object() {
    let page = |query: &ListQuery<'_>| {
        assert!(query.continue_token.is_none(), "{query:?}");
        Ok(pods(query, vec![object("foreign"), managed(object("web-0"))], Some("2")))
    };
    let ruling = delete_namespace(IGNORED, cluster_with(page)).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1+ pods (web-0, …)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn counts_all_objects_on_the_control_plane() {
    let local = || crd_cluster(V1, objects(vec![object("template")]));
    let ruling = delete_crd(IGNORED, local(), FakeCluster::default()).await;
    assert!(denial(&ruling).message.contains("the control plane: 1 object (template)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crd_is_preserved_only_if_its_binding_says_so() {
    let local = |raw: Option<serde_json::Value>| {
        let mut cluster = crd_cluster(V1, objects(vec![]));
        let raw = raw.map(|whole| to_raw_value(&whole).unwrap());
        cluster.objects.insert(BINDING.to_owned(), Object { raw, ..object(BINDING) });
        cluster
    };
    let m1 = || changed(crd_cluster(V1, objects(vec![object("foreign")])), managed);
    let bound = |change: serde_json::Value| {
        let mut resource = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": WIDGETS});
        resource.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        Some(json!({"spec": {"preserveResourcesOnDeletion": true, "resource": resource}}))
    };
    for keeps in [bound(json!({})), bound(json!({"uid": "7"}))] {
        assert_eq!(delete_crd(IGNORED, local(keeps), m1()).await.verdict, Verdict::Allow);
    }
    for raw in [
        // The binding of another object keeps nothing.
        Some(json!({"spec": {"preserveResourcesOnDeletion": true}})),
        bound(json!({"name": "gadgets.example.org"})),
        bound(json!({"kind": "Widget"})),
        bound(json!({"apiVersion": "example.org/v1"})),
        bound(json!({"apiVersion": "v1"})),
        bound(json!({"uid": "8"})),
        None,
        Some(json!({})),
        Some(json!([])),
        Some(json!({"spec": {}})),
        Some(json!({"spec": {"preserveResourcesOnDeletion": null}})),
        Some(json!({"spec": {"preserveResourcesOnDeletion": "true"}})),
        Some(json!({"spec": {"preserveResourcesOnDeletion": false}})),
    ] {
        let text = format!("{raw:?}");
        let ruling = delete_crd(IGNORED, local(raw), m1()).await;
        assert!(
            denial(&ruling).message.contains("in member cluster m1: 1 object (foreign)"),
            "{text}: {ruling:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn counts_objects_in_a_namespace_that_a_member_is_deleting() {
    let m1 =
        || changed(cluster_with(|query| Ok(pods(query, vec![managed(object("web-0"))], None))), deleting);
    for yaml in [KARMADA, IGNORED] {
        let ruling = delete_namespace(yaml, m1()).await;
        assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (web-0)"), "{ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_objects_of_a_crd_that_a_member_is_deleting() {
    let m1 = || changed(crd_cluster(V1, objects(vec![managed(object("a"))])), deleting);
    for yaml in [KARMADA, IGNORED] {
        let ruling = delete_crd(yaml, crd_cluster(V1, objects(vec![])), m1()).await;
        assert!(denial(&ruling).message.contains("in member cluster m1: 1 object (a)"), "{ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_the_maximum_of_objects_is_unknown() {
    let pages = |last: usize, objects: Vec<Object>| {
        cluster_with(move |query: &ListQuery<'_>| {
            let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
            if query.resource.plural != "pods" || at >= last {
                return Ok(pods(query, objects.clone(), None));
            }
            let foreign = (at..at + 500).map(|n| object(&format!("foreign-{n}"))).collect();
            Ok(Page { objects: foreign, next: Some((at + 500).to_string()) })
        })
    };
    let ruling = delete_namespace(IGNORED, pages(19_500, vec![object("last")])).await;
    assert_eq!(ruling.verdict, Verdict::Allow, "{ruling:?}");
    let ruling = delete_namespace(IGNORED, pages(19_500, vec![managed(object("web-0"))])).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (web-0)"), "{ruling:?}");
    let ruling = delete_namespace(IGNORED, pages(usize::MAX, vec![])).await;
    let text = "m1: more than 20000 pods: too many to find out which of them Karmada deployed";
    assert!(denial(&ruling).message.contains(text), "{ruling:?}");
    assert_eq!(code(&ruling), cause::TOO_LONG);
}

#[tokio::test(start_paused = true)]
async fn an_owner_without_a_uid_counts_as_managed() {
    let owned = || Object { owners: vec![Owner::default()], ..object("a") };
    let lists = move |query: &ListQuery<'_>| Ok(pods(query, vec![owned(), object("foreign")], None));
    let ruling = delete_namespace(IGNORED, cluster_with(lists)).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (a)"), "{ruling:?}");
}

/// Answers the requests after the first page.
type Then = fn(&ListQuery<'_>, usize) -> PageResult;

#[tokio::test(start_paused = true)]
async fn a_failure_after_a_page_does_not_hide_objects_in_use() {
    // The owner is of a kind that is not read, so it counts as managed.
    let operated = |n: usize| Object {
        uid: format!("uid-{n}"),
        owners: vec![Owner { uid: "elsewhere".to_owned(), ..Owner::default() }],
        ..object(&format!("db-{n}"))
    };
    let thens: [Then; 3] = [
        |_, _| Err(Cause::new(cause::BUSY, "m1 has forgotten a page")),
        |_, _| Err(Cause::new(cause::TOO_LONG, "longer than 8 MiB")),
        |query, at| {
            let foreign = (at..at + 500).map(|n| object(&format!("foreign-{n}"))).collect();
            Ok(pods(query, foreign, Some(&(at + 500).to_string())))
        },
    ];
    for then in thens {
        let lists = move |query: &ListQuery<'_>| match (query.resource.plural.as_ref(), query.continue_token)
        {
            ("pods", None) => Ok(pods(query, (0..500).map(operated).collect(), Some("500"))),
            ("pods", Some(from)) => then(query, from.parse().unwrap()),
            _ => Ok(Page::default()),
        };
        let ruling = ruling(IGNORED, &acknowledged_fleet(cluster_with(lists)), "namespaces", "shop").await;
        assert!(matches!(ruling.verdict, Verdict::Deny(_)), "{ruling:?}");
        assert!(denial(&ruling).message.contains("member cluster m1: 500+ pods (db-0"), "{ruling:?}");
        assert!(denial(&ruling).message.contains("\n  not everything could be read: "), "{ruling:?}");
    }
}

fn owned(name: &str, by: &str) -> Object {
    let owner = cluster::fleet::Owner { uid: by.to_owned(), ..Default::default() };
    Object { owners: vec![owner], ..object(name) }
}

/// Returns the findings of m1 with a memory budget.
async fn findings_with_budget(bytes: usize, yaml: &str, cluster: FakeCluster) -> ClusterFindings {
    let clients = clients(Arc::new(
        FakeFleet::default().with(LOCAL, cluster_with(objects(vec![]))).with("m1", cluster),
    ));
    let (config, budget) = (config(yaml), Budget::new(bytes));
    let reader = FactsReader { clients: &clients, config: &config, progress: &|_| {}, budget: &budget };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let facts = reader.read(&fixture::namespace("shop"), deadline, false).await;
    facts.clusters.last().unwrap().findings.clone()
}

#[tokio::test(start_paused = true)]
async fn unmanaged_objects_without_memory_are_unknown_and_managed_ones_are_counted() {
    let m1 = |objects: Vec<Object>| cluster_with(move |query| Ok(pods(query, objects.clone(), None)));
    let findings = findings_with_budget(0, IGNORED, m1(vec![object("foreign")])).await;
    assert!(findings.is_overloaded() && findings.stays.is_empty(), "{findings:?}");
    assert!(findings.unknown[0].text.ends_with("what Karmada deployed in all clusters (62 MiB); retry"));
    // An owner that had no memory could be unmanaged, so its dependent is not reported as in use.
    let findings =
        findings_with_budget(200, IGNORED, m1(vec![owned("operated", "elsewhere"), object("foreign")])).await;
    assert!(findings.is_overloaded() && findings.in_use.is_empty(), "{findings:?}");
    let six: Vec<Object> = (0..6).map(|at| managed(object(&format!("web-{at}")))).collect();
    let findings = findings_with_budget(0, IGNORED, m1(six)).await;
    assert_eq!(
        (findings.in_use[0].text().as_str(), findings.in_use[0].names.len()),
        ("6 pods", 5),
        "{findings:?}"
    );
    let findings = findings_with_budget(0, KARMADA, m1(vec![object("foreign")])).await;
    assert_eq!(findings.in_use[0].text(), "1 pod", "needs no memory if all objects count");
}

#[tokio::test(start_paused = true)]
async fn objects_that_karmada_takes_over_are_counted() {
    for (value, is_denied) in [("overwrite", true), ("abort", false)] {
        let stored = local_with(object("shop"), |object| {
            object.uid = "7".to_owned();
            let annotation = ("work.karmada.io/conflict-resolution".to_owned(), value.to_owned());
            object.metadata.annotations.extend([annotation]);
        });
        let m1 = cluster_with(|query| Ok(pods(query, vec![object("web-0")], None)));
        let fleet = Arc::new(FakeFleet::default().with("m1", m1).with(LOCAL, stored));
        let ruling = ruling(IGNORED, &fleet, "namespaces", "shop").await;
        assert_eq!(matches!(ruling.verdict, Verdict::Deny(_)), is_denied, "{value}: {ruling:?}");
    }
}
