//! What is not Karmada's is left out of account only where it is certain that it stays.

use super::*;
use cluster::fleet::Owner;

const IGNORED: &str = "fleet: {karmada: {}}\ncrds: {groups: [example.org]}\nunmanaged: ignore\n";
const BINDING: &str = "widgets.example.org-customresourcedefinition";

fn brought(object: Object) -> Object {
    let labels = BTreeMap::from([("karmada.io/managed".to_owned(), "true".to_owned())]);
    Object { metadata: Metadata { labels, ..Metadata::default() }, ..object }
}

fn going(object: Object) -> Object {
    Object { metadata: Metadata { deleting: true, ..object.metadata }, ..object }
}

/// The same cluster, where what it finds is changed.
fn changed(mut held: Held, change: impl Fn(Object) -> Object) -> Held {
    held.found = held.found.into_iter().map(|(name, object)| (name, change(object))).collect();
    held
}

fn objects(all: Vec<Object>) -> impl Fn(&ListQuery<'_>) -> PageResult + Send + Sync + 'static {
    move |_| Ok(Page { objects: all.clone(), next: None })
}

/// The namespace is on the control plane too, and empty there.
async fn of_namespace(yaml: &str, m1: Held) -> Ruling {
    let world = Arc::new(Small::default().with("here", has(objects(vec![]))).with("m1", m1));
    ruling(yaml, &world, "namespaces", "shop").await
}

async fn of_definition(yaml: &str, here: Held, m1: Held) -> Ruling {
    let world = Arc::new(Small::default().with("here", here).with("m1", m1));
    ruling(yaml, &world, "customresourcedefinitions", WIDGETS).await
}

const V1: &[(&str, bool, bool)] = &[("v1", true, true)];

#[tokio::test(start_paused = true)]
async fn pages_are_read_on_although_they_hold_what_is_not_karmadas() {
    let last = |found: Vec<Object>| {
        has(move |query| {
            Ok(match query.continue_token {
                None => pods(query, vec![object("foreign-0"), object("foreign-1")], Some("2")),
                Some("2") => pods(query, vec![object("foreign-2")], Some("3")),
                Some(_) => pods(query, found.clone(), None),
            })
        })
    };
    let ruling = of_namespace(IGNORED, last(vec![brought(object("web-0"))])).await;
    assert!(denial(&ruling).message.contains("in 1 of 2 clusters: m1 (1 pod: web-0)"), "{ruling:?}");
    let ruling = of_namespace(IGNORED, last(vec![object("foreign-3")])).await;
    assert_eq!(ruling.verdict, Verdict::Allow, "{ruling:?}");
    let warnings: Vec<_> = ruling.warnings.iter().collect();
    assert_eq!(warnings, ["deletion: m1 would keep 4 pods: foreign-0, foreign-1, foreign-2, foreign-3"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_karmadas_is_enough_to_end_the_reading() {
    let page = |query: &ListQuery<'_>| {
        assert!(query.continue_token.is_none(), "{query:?}");
        Ok(pods(query, vec![object("foreign"), brought(object("web-0"))], Some("2")))
    };
    let ruling = of_namespace(IGNORED, has(page)).await;
    assert!(denial(&ruling).message.contains("m1 (1+ pods: web-0, …)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn on_the_control_plane_itself_everything_counts() {
    let here = || defines(V1, objects(vec![object("template")]));
    let ruling = of_definition(IGNORED, here(), Held::default()).await;
    assert!(denial(&ruling).message.contains("the control plane (1 object: template)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn a_binding_keeps_a_definition_in_a_member_only_if_it_says_so_itself() {
    let here = |raw: Option<serde_json::Value>| {
        let mut held = defines(V1, objects(vec![]));
        let raw = raw.map(|whole| to_raw_value(&whole).unwrap());
        held.found.insert(BINDING.to_owned(), Object { raw, ..object(BINDING) });
        held
    };
    let m1 = || changed(defines(V1, objects(vec![object("foreign")])), brought);
    let keeps = Some(json!({"spec": {"preserveResourcesOnDeletion": true}}));
    assert_eq!(of_definition(IGNORED, here(keeps), m1()).await.verdict, Verdict::Allow);
    for raw in [
        None,
        Some(json!({})),
        Some(json!([])),
        Some(json!({"spec": {}})),
        Some(json!({"spec": {"preserveResourcesOnDeletion": null}})),
        Some(json!({"spec": {"preserveResourcesOnDeletion": "true"}})),
        Some(json!({"spec": {"preserveResourcesOnDeletion": false}})),
    ] {
        let told = format!("{raw:?}");
        let ruling = of_definition(IGNORED, here(raw), m1()).await;
        assert!(denial(&ruling).message.contains("m1 (1 object: foreign)"), "{told}: {ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_a_namespace_that_is_being_deleted_in_a_member_still_counts() {
    let m1 = || changed(has(|query| Ok(pods(query, vec![brought(object("web-0"))], None))), going);
    for yaml in [KARMADA, IGNORED] {
        let ruling = of_namespace(yaml, m1()).await;
        assert!(denial(&ruling).message.contains("m1 (1 pod: web-0)"), "{ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_of_a_definition_that_is_being_deleted_in_a_member_still_counts() {
    let m1 = || changed(defines(V1, objects(vec![brought(object("a"))])), going);
    for yaml in [KARMADA, IGNORED] {
        let ruling = of_definition(yaml, defines(V1, objects(vec![])), m1()).await;
        assert!(denial(&ruling).message.contains("m1 (1 object: a)"), "{ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_can_be_told_apart_is_unknown_and_is_not_kept() {
    let pages = |last: usize, found: Vec<Object>| {
        has(move |query: &ListQuery<'_>| {
            let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
            if query.resource.plural != "pods" || at >= last {
                return Ok(pods(query, found.clone(), None));
            }
            let foreign = (at..at + 500).map(|n| object(&format!("foreign-{n}"))).collect();
            Ok(Page { objects: foreign, next: Some((at + 500).to_string()) })
        })
    };
    let ruling = of_namespace(IGNORED, pages(19_500, vec![object("last")])).await;
    assert_eq!(ruling.verdict, Verdict::Allow, "{ruling:?}");
    let ruling = of_namespace(IGNORED, pages(19_500, vec![brought(object("web-0"))])).await;
    assert!(denial(&ruling).message.contains("m1 (1 pod: web-0)"), "{ruling:?}");
    let ruling = of_namespace(IGNORED, pages(usize::MAX, vec![])).await;
    let told = "m1 (it has more than 20000 pods, which is more than can be told apart)";
    assert!(denial(&ruling).message.contains(told), "{ruling:?}");
    assert_eq!(code(&ruling), cause::TOO_LONG);
}

#[tokio::test(start_paused = true)]
async fn an_owner_without_a_uid_counts_as_karmadas_where_owners_matter() {
    let owned = || Object { owners: vec![Owner::default()], ..object("a") };
    let lists = move |query: &ListQuery<'_>| Ok(pods(query, vec![owned(), object("foreign")], None));
    let ruling = of_namespace(IGNORED, has(lists)).await;
    assert!(denial(&ruling).message.contains("m1 (1 pod: a)"), "{ruling:?}");
}

/// What comes after the first page, of which this is the beginning.
type Then = fn(&ListQuery<'_>, usize) -> PageResult;

#[tokio::test(start_paused = true)]
async fn what_was_seen_in_use_is_not_lost_by_what_comes_after_it() {
    // Of an operator: the owner is of a kind that is not read, and so counts as Karmada's.
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
        let ruling = ruling(IGNORED, &acknowledged(has(lists)), "namespaces", "shop").await;
        assert!(matches!(ruling.verdict, Verdict::Deny(_)), "{ruling:?}");
        assert!(denial(&ruling).message.contains("m1 (500+ pods: db-0"), "{ruling:?}");
        assert!(denial(&ruling).message.contains("; not all could be seen)"), "{ruling:?}");
    }
}

fn owned(name: &str, by: &str) -> Object {
    let owner = cluster::fleet::Owner { uid: by.to_owned(), ..Default::default() };
    Object { owners: vec![owner], ..object(name) }
}

/// What is seen of m1 where what has to be told apart has so many bytes of room.
async fn seen_with_room(bytes: usize, yaml: &str, held: Held) -> sight::Sight {
    let clients = clients(Arc::new(Small::default().with("here", has(objects(vec![]))).with("m1", held)));
    let (config, room) = (config(yaml), Room::of(bytes));
    let gathering = Gathering { clients: &clients, config: &config, progress: &|_| {}, room: &room };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let facts = gathering.about(&fixture::namespace("shop"), deadline, false).await;
    facts.seen.last().unwrap().sight.clone()
}

#[tokio::test(start_paused = true)]
async fn without_room_to_tell_apart_it_is_unknown_and_what_is_karmadas_needs_none() {
    let m1 = |found: Vec<Object>| has(move |query| Ok(pods(query, found.clone(), None)));
    let sight = seen_with_room(0, IGNORED, m1(vec![object("foreign")])).await;
    assert!(sight.is_crowded() && sight.stays.is_empty(), "{sight:?}");
    assert!(
        sight.unseen[0].text.ends_with("what Karmada brought in all clusters at once (0 MiB); try again")
    );
    // Whose owner found no room may be anybody's, and is not said to be in use.
    let sight =
        seen_with_room(300, IGNORED, m1(vec![owned("operated", "elsewhere"), object("foreign")])).await;
    assert!(sight.is_crowded() && sight.in_use.is_empty(), "{sight:?}");
    let six: Vec<Object> = (0..6).map(|at| brought(object(&format!("web-{at}")))).collect();
    let sight = seen_with_room(0, IGNORED, m1(six)).await;
    assert_eq!((sight.in_use[0].told().as_str(), sight.in_use[0].names.len()), ("6 pods", 5), "{sight:?}");
    let sight = seen_with_room(0, KARMADA, m1(vec![object("foreign")])).await;
    assert_eq!(sight.in_use[0].told(), "1 pod", "where everything counts nothing has to be told apart");
}

#[tokio::test(start_paused = true)]
async fn pages_that_do_not_end_are_told_as_that() {
    let page = |query: &ListQuery<'_>| {
        let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
        Ok(pods(query, vec![], Some(&(at + 1).to_string())))
    };
    let ruling = of_namespace(KARMADA, has(page)).await;
    assert_eq!(code(&ruling), cause::TOO_LONG);
    let message = &denial(&ruling).message;
    assert!(message.contains(" pages of pods came, and no last one in 3.0 s)"), "{message}");
}
