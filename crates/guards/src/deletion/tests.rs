//! The guard as a whole on a small world of its own: what is asked, in which order, and what becomes of odd answers.

use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{Cause, Denial, Verdict, decode};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::fixture::{config, member, now, review};
use super::*;
use cluster::fleet::{
    Cluster, Fleet, FleetMember, GetQuery, ListQuery, MembersResult, Object, ObjectResult, Page, PageResult,
    Part,
};
use cluster::{self, Address, Clients, Context, Metadata, Reader, cause};

const KARMADA: &str = "fleet: {karmada: {}}\ncrds: {groups: [example.org]}\n";
const WIDGETS: &str = "widgets.example.org";

/// How one cluster answers a List.
type Answers = Box<dyn Fn(&ListQuery<'_>) -> PageResult + Send + Sync>;

/// One cluster: what it finds, and how it answers Lists. One that hangs answers nothing.
#[derive(Default)]
struct Held {
    found: BTreeMap<String, Object>,
    lists: Option<Answers>,
    hangs: bool,
    refuses: Option<Cause>,
}

/// A world of a few clusters, which remembers what it was asked.
#[derive(Default)]
struct Small {
    members: Option<MembersResult>,
    /// Whether what is looked at as the one that asks is another one.
    is_elsewhere: bool,
    clusters: BTreeMap<String, Held>,
    asked: Mutex<Vec<String>>,
    /// How long the list of the fleet takes.
    list_takes: Duration,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Small {
    fn with(mut self, name: &str, held: Held) -> Self {
        self.clusters.insert(name.to_owned(), held);
        self
    }

    fn asked(&self, of: &Cluster, what: &str) {
        self.asked.lock().unwrap().push(format!("{of}: {what}"));
    }

    fn members(&self) -> Arc<[FleetMember]> {
        self.clusters.keys().filter(|name| *name != "here").map(|name| member(name, &[], &[])).collect()
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        of: &Cluster,
        answer: impl FnOnce(&'a Held) -> Result<T, Cause> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Cause>> {
        static NOTHING: Held = Held { found: BTreeMap::new(), lists: None, hangs: false, refuses: None };
        let held = self.clusters.get(of.name()).unwrap_or(&NOTHING);
        Box::pin(async move {
            if held.hangs {
                return pending().await;
            }
            let now = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_at_once.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.at_once.fetch_sub(1, Ordering::Relaxed);
            held.refuses.clone().map_or_else(|| answer(held), Err)
        })
    }
}

impl Reader for Small {
    fn get<'a>(
        &'a self,
        _address: Address<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, cluster::MetadataResult> {
        Box::pin(ready(Err(Cause::new(cause::REFUSED, "nothing that was read earlier may decide"))))
    }

    fn members<'a>(&'a self, _fleet: &'a Fleet, _deadline: Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(async move {
            if !self.list_takes.is_zero() {
                tokio::time::sleep(self.list_takes).await;
            }
            self.members.clone().unwrap_or_else(|| Ok(self.members()))
        })
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        look: GetQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        self.asked(of, &format!("{} {}", look.address.resource, look.address.name));
        let name = look.address.name.to_owned();
        // Where the review comes from, there stands what it is about.
        let stands = (*of == Cluster::Local && !self.is_elsewhere).then(|| match name.as_str() {
            WIDGETS => definition(&[("v1", true, true)]),
            name => Object { uid: "7".to_owned(), ..object(name) },
        });
        self.answer(of, move |held| Ok(held.found.get(&name).cloned().or(stands)))
    }

    fn list<'a>(
        &'a self,
        of: &'a Cluster,
        query: ListQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, PageResult> {
        let from = query.continue_token.map_or_else(String::new, |from| format!(" from {from}"));
        self.asked(
            of,
            &format!("{}/{} in {:?}{from}", query.resource, query.resource.version, query.namespace),
        );
        self.answer(of, move |held| {
            held.lists.as_ref().map_or_else(|| Ok(Page::default()), |lists| lists(&query))
        })
    }
}

/// The clients of a fake at the time of the fixtures.
fn clients(reader: Arc<dyn Reader>) -> Clients {
    let context = Context {
        server: Some("https://10.0.0.1:6443/".into()),
        fixed_time: Some(now()),
        is_snapshot: false,
    };
    Clients { context, ..Clients::reader_only(reader) }
}

fn object(name: &str) -> Object {
    Object { name: name.to_owned(), ..Object::default() }
}

/// A cluster with the namespace, and these Lists.
fn has(lists: impl Fn(&ListQuery<'_>) -> PageResult + Send + Sync + 'static) -> Held {
    Held {
        found: BTreeMap::from([("shop".to_owned(), object("shop"))]),
        lists: Some(Box::new(lists)),
        ..Held::default()
    }
}

/// These pods, and nothing else.
fn pods(query: &ListQuery<'_>, objects: Vec<Object>, next: Option<&str>) -> Page {
    let is_pods = query.resource.plural == "pods";
    if is_pods { Page { objects, next: next.map(str::to_owned) } } else { Page::default() }
}

/// The definition, which serves these versions: name, served, storage.
fn definition(versions: &[(&str, bool, bool)]) -> Object {
    let version = |(name, served, storage): &(&str, bool, bool)| json!({"name": name, "served": served, "storage": storage});
    let versions: Vec<_> = versions.iter().map(version).collect();
    let whole =
        json!({"spec": {"group": "example.org", "names": {"plural": "widgets"}, "versions": versions}});
    Object { raw: Some(to_raw_value(&whole).unwrap()), uid: "7".to_owned(), ..object(WIDGETS) }
}

/// A cluster with the definition.
fn defines(
    versions: &[(&str, bool, bool)],
    lists: impl Fn(&ListQuery<'_>) -> PageResult + Send + Sync + 'static,
) -> Held {
    Held {
        found: BTreeMap::from([(WIDGETS.to_owned(), definition(versions))]),
        lists: Some(Box::new(lists)),
        ..Held::default()
    }
}

async fn ruling(yaml: &str, world: &Arc<Small>, resource: &str, name: &str) -> Ruling {
    let guard = config(yaml).build(&clients(Arc::<Small>::clone(world)));
    let body = review(resource, name, |_| {});
    let review = decode(&body, guard.fields()).unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_millis(8500);
    guard.review(&review.request, deadline.into_std()).await
}

async fn shop(world: &Arc<Small>) -> Ruling {
    ruling(KARMADA, world, "namespaces", "shop").await
}

async fn widgets(world: &Arc<Small>) -> Ruling {
    ruling(KARMADA, world, "customresourcedefinitions", WIDGETS).await
}

fn denial(ruling: &Ruling) -> &Denial {
    match (&ruling.verdict, &ruling.refusal) {
        (Verdict::Deny(denial), _) | (Verdict::Unknown(_), Some(denial)) => denial,
        _ => panic!("{ruling:?}"),
    }
}

fn code(ruling: &Ruling) -> &'static str {
    match &ruling.verdict {
        Verdict::Unknown(causes) => causes[0].code,
        _ => panic!("{ruling:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_forges_no_line_of_a_denial() {
    const FORGED: &str = "web\nError from server (Forbidden): \u{1b}[31mall is fine\u{202e}";
    let member = has(|query| Ok(pods(query, vec![object(FORGED)], None)));
    let refuses = Held { refuses: Some(Cause::new(cause::REFUSED, FORGED)), ..Held::default() };
    let world = Small::default().with("m1", member).with("m2", refuses);
    let fleet: Vec<_> =
        ["m1", "m2", FORGED].iter().map(|name| super::fixture::member(name, &[], &[])).collect();
    let ruling = shop(&Arc::new(Small { members: Some(Ok(fleet.into())), ..world })).await;
    let denial = denial(&ruling);
    let mut texts = vec![denial.message.as_str()];
    texts.extend(denial.causes.iter().map(|cause| cause.message.as_str()));
    texts.extend(ruling.audit.iter().map(|(_, value)| value));
    texts.extend(ruling.warnings.iter());
    for text in texts {
        assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
    }
    assert!(
        denial.message.contains("m1 (1 pod: web Error from server (Forbidden): [31mall is fine)"),
        "{denial:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_member_without_the_namespace_costs_one_question() {
    let world = Arc::new(Small::default().with("m1", Held::default()));
    assert_eq!(shop(&world).await.verdict, Verdict::Allow);
    let asked = world.asked.lock().unwrap();
    let of_m1: Vec<_> = asked.iter().filter(|asked| asked.starts_with("m1")).collect();
    assert_eq!(of_m1, ["m1: namespaces shop"]);
    assert_eq!(
        asked.iter().filter(|asked| asked.starts_with("here")).count(),
        9,
        "here the namespace and all that is in it are asked for at once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_member_costs_its_own_time_and_is_named() {
    let hanging = Held { hangs: true, ..Held::default() };
    let world = Small::default()
        .with("m1", has(|query| Ok(pods(query, vec![object("a")], None))))
        .with("m5", hanging);
    let begun = tokio::time::Instant::now();
    let ruling = shop(&Arc::new(world)).await;
    let message = &denial(&ruling).message;
    assert!(message.contains("m1 (1 pod: a); m5 could not be asked (no answer in 3.0 s)"), "{message}");
    assert!(begun.elapsed() < Duration::from_millis(3200), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn everything_ends_before_the_review_does_even_if_nobody_answers() {
    let hanging = || Held { hangs: true, ..Held::default() };
    let world = Arc::new(Small::default().with("here", hanging()).with("m1", hanging()));
    let yaml = "fleet: {karmada: {}}\nmemberDeadline: 30s";
    let begun = tokio::time::Instant::now();
    let ruling = ruling(yaml, &world, "namespaces", "shop").await;
    assert!(begun.elapsed() < Duration::from_millis(8450), "{:?}", begun.elapsed());
    let message = &denial(&ruling).message;
    assert!(message.contains("in 2 of 2 clusters: the control plane (no answer in 8.3 s"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn what_the_review_is_about_has_to_stand_where_durward_looks() {
    let another = |mut object: Object| {
        object.uid = "8".to_owned();
        Held { found: BTreeMap::from([(object.name.clone(), object)]), ..Held::default() }
    };
    for (world, what) in
        [(Small::default(), "no"), (Small::default().with("here", another(object("shop"))), "another")]
    {
        let ruling = shop(&Arc::new(Small { is_elsewhere: true, ..world })).await;
        assert_eq!(code(&ruling), cause::GARBAGE);
        let told = format!(
            "(the cluster that Durward looks at (https://10.0.0.1:6443/) has {what} namespace \"shop\", so it is not the one that asks"
        );
        assert!(denial(&ruling).message.contains(&told), "{ruling:?}");
    }
    for world in [Small::default(), Small::default().with("here", another(definition(&[("v1", true, true)])))]
    {
        let ruling = widgets(&Arc::new(Small { is_elsewhere: true, ..world })).await;
        assert_eq!(code(&ruling), cause::GARBAGE);
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_cluster_holds_under_that_name_is_not_told_as_in_use() {
    let world = Small::default().with(
        "here",
        Held { found: BTreeMap::new(), ..has(|query| Ok(pods(query, vec![object("a")], None))) },
    );
    let ruling = shop(&Arc::new(Small { is_elsewhere: true, ..world })).await;
    assert_eq!(code(&ruling), cause::GARBAGE);
}

#[tokio::test(start_paused = true)]
async fn a_uid_that_nobody_recorded_is_not_compared() {
    let here = Held { found: BTreeMap::from([("shop".to_owned(), object("shop"))]), ..Held::default() };
    assert_eq!(shop(&Arc::new(Small::default().with("here", here))).await.verdict, Verdict::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_karmada_that_nobody_labelled_is_let_go_only_where_it_stands() {
    let yaml = "fleet: {karmada: {}}\nselect: labelled";
    let elsewhere = Arc::new(Small { is_elsewhere: true, ..Small::default() });
    assert_eq!(code(&ruling(yaml, &elsewhere, "namespaces", "karmada-cluster").await), cause::GARBAGE);
    let world = Arc::new(Small::default());
    assert_eq!(ruling(yaml, &world, "namespaces", "karmada-cluster").await.verdict, Verdict::Allow);
    assert_eq!(world.asked.lock().unwrap().as_slice(), ["here: namespaces karmada-cluster"]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_asks_and_hangs_hides_nothing_that_members_have() {
    let hanging = Held { hangs: true, ..Held::default() };
    let member = has(|query| Ok(pods(query, vec![object("a")], None)));
    let world = Arc::new(Small::default().with("here", hanging).with("m1", member));
    let begun = tokio::time::Instant::now();
    let ruling = ruling(KARMADA, &world, "namespaces", "shop").await;
    assert!(matches!(ruling.verdict, Verdict::Deny(_)), "{ruling:?}");
    let message = &denial(&ruling).message;
    let told = "in 1 of 2 clusters: m1 (1 pod: a); the control plane could not be asked (no answer in 5.0 s)";
    assert!(message.contains(told), "{message}");
    assert!(begun.elapsed() < Duration::from_millis(5200), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_recorded_lack_of_room_is_told_again_at_once_and_is_not_waited_out() {
    let folder = tempfile::tempdir().unwrap();
    let index = "version: 1\ntime: 2026-11-21T10:00:00Z\nclusters:\n  - name: here\n  - name: m1\n    \
                 unread: [{what: '*', cause: crowded, text: no room}]\n";
    std::fs::write(folder.path().join("world.yaml"), index).unwrap();
    std::fs::create_dir(folder.path().join("here")).unwrap();
    let clusters = r#"{"kind":"ClusterList","apiVersion":"cluster.karmada.io/v1alpha1","items":[{"metadata":{"name":"m1"}}]}"#;
    std::fs::write(folder.path().join("here/cluster.karmada.io_v1alpha1_clusters.json"), clusters).unwrap();
    let clients = Clients::snapshot(cluster::snapshot::Snapshot::open(folder.path()).unwrap());
    let (config, room) = (config(KARMADA), Room::default());
    let gathering = Gathering { clients: &clients, config: &config, progress: &|_| {}, room: &room };
    let began = tokio::time::Instant::now();
    let facts = gathering.about(&fixture::namespace("shop"), began + Duration::from_secs(10), false).await;
    let m1 = facts.seen.last().unwrap();
    assert!(m1.member.cluster.name() == "m1" && m1.sight.is_crowded(), "{:?}", m1.sight);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn clusters_are_asked_at_once_and_a_bounded_number_at_a_time() {
    let world = (0..3000).fold(Small::default(), |world, n| world.with(&format!("m{n}"), Held::default()));
    let world = Arc::new(world);
    let begun = tokio::time::Instant::now();
    assert_eq!(shop(&world).await.verdict, Verdict::Allow);
    let most = world.most_at_once.load(Ordering::Relaxed);
    // Every place, and the questions to the one that asks beside them.
    assert!((768..=768 + 9).contains(&most), "{most}");
    // Three thousand in four turns.
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
}

const ACKNOWLEDGED: [(&str, &str); 2] = [
    ("durward.dev/acknowledge-unreachable", "cut"),
    ("durward.dev/acknowledge-until", "2026-12-01T00:00:00Z"),
];

/// One member, which is acknowledged.
fn acknowledged(m1: Held) -> Arc<Small> {
    let members = Some(Ok([member("m1", &ACKNOWLEDGED, &[])].into()));
    Arc::new(Small { members, ..Small::default().with("m1", m1) })
}

/// So many members that hang, all of them acknowledged, before those that the world has.
fn behind_the_silent(silent: usize, world: Small) -> Small {
    let names: Vec<String> = (0..silent).map(|n| format!("a{n}")).collect();
    let mut members: Vec<_> = names.iter().map(|name| member(name, &ACKNOWLEDGED, &[])).collect();
    members.extend(world.members().iter().cloned());
    let silent = |world: Small, name: &String| world.with(name, Held { hangs: true, ..Held::default() });
    Small { members: Some(Ok(members.into())), ..names.iter().fold(world, silent) }
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_down_and_acknowledged_is_let_go_however_large() {
    for silent in [500, 1000, 3000, 4500] {
        let world = behind_the_silent(silent, Small::default().with("m1", Held::default()));
        let ruling = shop(&Arc::new(world)).await;
        assert!(ruling.verdict == Verdict::Allow, "{silent}: {:.300}", denial(&ruling).message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_down_takes_nobody_elses_time() {
    let used = has(|query| Ok(pods(query, vec![object("a")], None)));
    let world = behind_the_silent(3000, Small::default().with("m1", used));
    let ruling = shop(&Arc::new(world)).await;
    let message = &denial(&ruling).message;
    assert!(message.contains("in 1 of 3002 clusters: m1 (1 pod: a)"), "{message:.300}");
}

#[tokio::test(start_paused = true)]
async fn a_member_for_which_there_was_no_room_is_asked_again() {
    let turns = AtomicUsize::new(0);
    let lists = move |query: &ListQuery<'_>| match turns.fetch_add(1, Ordering::Relaxed) {
        0 => Err(Cause::new(cause::CROWDED, "m1 was not asked: too many questions are under way")),
        _ => Ok(pods(query, vec![object("a")], None)),
    };
    let ruling = shop(&Arc::new(Small::default().with("m1", has(lists)))).await;
    assert!(denial(&ruling).message.contains("m1 (1 pod: a)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn the_members_own_version_is_asked_for() {
    let lists = |query: &ListQuery<'_>| match query.resource.version.as_ref() {
        "v1" => Ok(Page { objects: vec![object("old-one")], next: None }),
        _ => Err(Cause::new(cause::NOT_SERVED, "404 page not found")),
    };
    let here = defines(&[("v1", false, false), ("v2", true, true)], |_| Ok(Page::default()));
    let world =
        Arc::new(Small::default().with("here", here).with("m1", defines(&[("v1", true, true)], lists)));
    let ruling = widgets(&world).await;
    assert!(
        denial(&ruling).message.contains("m1 (1 object: old-one). Delete the objects first"),
        "{ruling:?}"
    );
    let asked = world.asked.lock().unwrap();
    assert!(asked.contains(&"here: widgets.example.org/v2 in \"\"".to_owned()), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn the_stored_version_is_preferred_and_another_that_is_served_will_do() {
    for (versions, expected) in [
        (vec![("v1", true, false), ("v2", true, true)], Ok("v2")),
        (vec![("v1", true, false), ("v2", false, true)], Ok("v1")),
        (vec![("v1", false, true)], Err(cause::NOT_SERVED)),
        (vec![], Err(cause::NOT_SERVED)),
    ] {
        let world = Arc::new(Small::default().with("m1", defines(&versions, |_| Ok(Page::default()))));
        let ruling = widgets(&world).await;
        match expected {
            Ok(version) => {
                assert_eq!(ruling.verdict, Verdict::Allow);
                let question = format!("m1: widgets.example.org/{version} in \"\"");
                assert!(world.asked.lock().unwrap().contains(&question), "{version}");
            }
            Err(cause) => assert_eq!(code(&ruling), cause),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_makes_no_sense_is_unknown() {
    let garbled = |whole: serde_json::Value| {
        let definition = Object { raw: Some(to_raw_value(&whole).unwrap()), ..object(WIDGETS) };
        Held { found: BTreeMap::from([(WIDGETS.to_owned(), definition)]), ..Held::default() }
    };
    for whole in [
        json!({}),
        json!([]),
        json!({"spec": {"group": "other.org", "names": {"plural": "widgets"}, "versions": []}}),
        json!({"spec": {"group": "example.org", "names": {"plural": "../secrets"}, "versions": []}}),
        json!({"spec": {"group": "example.org", "names": {"plural": "widgets"}, "versions": null}}),
    ] {
        let told = whole.to_string();
        let world = Arc::new(Small::default().with("m1", garbled(whole)));
        assert_eq!(code(&widgets(&world).await), cause::GARBAGE, "{told}");
    }
    let bare = Held { found: BTreeMap::from([(WIDGETS.to_owned(), object(WIDGETS))]), ..Held::default() };
    assert_eq!(code(&widgets(&Arc::new(Small::default().with("m1", bare))).await), cause::GARBAGE);
}

#[tokio::test(start_paused = true)]
async fn every_refusal_of_a_member_is_unknown_and_keeps_its_name() {
    for refused in cause::ALL {
        let held = Held { refuses: Some(Cause::new(refused, "why it is so")), ..Held::default() };
        let world = Arc::new(Small::default().with("m1", held));
        let ruling = shop(&world).await;
        assert_eq!(code(&ruling), refused);
        assert!(denial(&ruling).message.contains("m1 (why it is so)"), "{ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_clusters_that_cannot_be_read_is_a_stale_fleet_whatever_the_reason() {
    let members = Some(Err(Cause::new(cause::UNREACHABLE, "no connection")));
    let ruling = shop(&Arc::new(Small { members, ..Small::default() })).await;
    assert_eq!(code(&ruling), cause::STALE_FLEET);
    assert!(
        denial(&ruling).message.contains("the list of the fleet's clusters could not be read: no connection")
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_of_clusters_is_waited_for_as_long_as_it_leaves_its_members_half_of_the_time() {
    let after = |seconds| Small { list_takes: Duration::from_secs(seconds), ..Small::default() };
    let with =
        |world: Small| Arc::new(world.with("here", has(|_| Ok(Page::default()))).with("m1", Held::default()));
    let slow = with(after(4));
    assert_eq!(shop(&slow).await.verdict, Verdict::Allow);
    assert!(slow.asked.lock().unwrap().contains(&"m1: namespaces shop".to_owned()));
    let begun = tokio::time::Instant::now();
    let ruling = shop(&with(after(7))).await;
    assert_eq!(code(&ruling), cause::STALE_FLEET);
    assert!(begun.elapsed() < Duration::from_millis(4300), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn karmadas_own_parts_cost_only_the_list() {
    let world = Arc::new(Small::default().with("m1", Held::default()));
    let ruling = ruling(KARMADA, &world, "namespaces", "karmada-cluster").await;
    assert!(matches!(ruling.verdict, Verdict::Deny(_)));
    assert_eq!(world.asked.lock().unwrap().as_slice(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_space_of_a_cluster_that_is_gone_needs_no_member() {
    let hanging = Held { hangs: true, ..Held::default() };
    let world = Arc::new(Small::default().with("m1", hanging));
    assert_eq!(ruling(KARMADA, &world, "namespaces", "karmada-es-m9").await.verdict, Verdict::Allow);
}

#[tokio::test(start_paused = true)]
async fn jobs_are_asked_for_whole_and_the_rest_by_metadata() {
    let lists = |query: &ListQuery<'_>| {
        let expected = if query.resource.plural == "jobs" { Part::Whole } else { Part::Metadata };
        assert_eq!(query.part, expected, "{query:?}");
        Ok(Page::default())
    };
    assert_eq!(shop(&Arc::new(Small::default().with("m1", has(lists)))).await.verdict, Verdict::Allow);
}

#[tokio::test(start_paused = true)]
async fn an_impact_tells_each_cluster_and_its_progress() {
    let world = Arc::new(
        Small::default()
            .with("m1", has(|query| Ok(pods(query, vec![object("a")], None))))
            .with("m2", Held { refuses: Some(Cause::new(cause::CREDENTIALS, "refused")), ..Held::default() }),
    );
    let survey = Survey::new(config(KARMADA));
    let seen = Mutex::new(Vec::new());
    let progress = |progress: Progress<'_>| {
        seen.lock().unwrap().push(format!("{} {}/{}", progress.cluster, progress.done, progress.of));
    };
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(10)).into_std();
    let impact = survey.impact(&clients(world), What::Namespace("shop".into()), deadline, &progress).await;
    assert_eq!((impact.verdict, impact.exists), ("deny", Some(true)));
    let clusters: Vec<_> = impact.clusters.iter().map(|c| (c.cluster.as_str(), c.finding)).collect();
    assert_eq!(clusters, [("here", Finding::Empty), ("m1", Finding::InUse), ("m2", Finding::Unknown)]);
    assert_eq!(impact.clusters[1].summary, "1 pod: a");
    assert_eq!(impact.clusters[2].unseen[0].cause, "credentials");
    assert_eq!(impact.time, "2026-11-21T10:00:00Z");
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 2);
    assert!(seen[1].ends_with("2/2"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn an_impact_of_what_is_not_here_says_so_and_is_no_doubt() {
    let small = Small { is_elsewhere: true, ..Small::default().with("m1", Held::default()) };
    let clients = clients(Arc::new(small));
    let survey = Survey::new(config(KARMADA));
    for what in [What::Namespace("shop".into()), What::Definition(WIDGETS.into())] {
        let deadline = (tokio::time::Instant::now() + Duration::from_secs(10)).into_std();
        let impact = survey.impact(&clients, what, deadline, &|_| {}).await;
        assert_eq!((impact.verdict, impact.exists), ("allow", Some(false)));
    }
}

mod ignored;
mod pages;
