//! The decision, fact by fact.

use admission::{Denial, OnUnknown, SettlePolicy, Settled, settle};
use proptest::prelude::*;
use serde_json::Value;

use super::super::fixture::{config, definition, member, namespace, now, with_delete};
use super::super::questions::Noun;
use super::super::sight::{Count, Sight};
use super::*;
use crate::overrides;
use cluster::Metadata;
use cluster::fleet::{Cluster, FleetMember};

const KARMADA: &str = "fleet: {karmada: {}}\n";

fn count(one: &'static str, names: &[&str]) -> Count {
    let noun = Noun { one: one.into(), many: format!("{one}s").into() };
    Count::of(&noun, false, names.iter().map(|&name| name.to_owned()).collect()).unwrap()
}

fn in_use(names: &[&str]) -> Sight {
    Sight { in_use: vec![count("pod", names)], ..Sight::default() }
}

fn silent() -> Sight {
    Sight::blind(Cause::new(cause::TIMEOUT, "no answer in 1.5 s"))
}

fn stays() -> Sight {
    Sight { stays: vec![count("pod", &["old"])], ..Sight::default() }
}

fn here(sight: Sight) -> Seen {
    Seen { member: FleetMember { cluster: Cluster::Local, metadata: Metadata::default() }, sight }
}

/// The control plane is empty, and these are the members.
fn facts(members: Vec<(FleetMember, Sight)>) -> Facts {
    let list = members.iter().map(|(member, _)| member.clone()).collect();
    let seen = members.into_iter().map(|(member, sight)| Seen { member, sight });
    Facts {
        now: now(),
        members: Ok(list),
        seen: std::iter::once(here(Sight::default())).chain(seen).collect(),
    }
}

fn named(sights: Vec<(&str, Sight)>) -> Facts {
    facts(sights.into_iter().map(|(name, sight)| (member(name, &[], &[]), sight)).collect())
}

fn denial(ruling: &Ruling) -> &Denial {
    match (&ruling.verdict, &ruling.refusal) {
        (Verdict::Deny(denial), _) | (Verdict::Unknown(_), Some(denial)) => denial,
        _ => panic!("{ruling:?}"),
    }
}

fn settled(ruling: Ruling, settle_policy: &SettlePolicy) -> Settled {
    with_delete("namespaces", "shop", |_| {}, |request| settle(request, ruling, settle_policy))
}

#[test]
fn names_every_cluster_that_uses_it_and_every_one_that_could_not_be_asked() {
    let m1 = Sight {
        in_use: vec![count("pod", &["web-0", "web-1", "web-2"]), count("claim", &["data-web-0"])],
        ..Sight::default()
    };
    let facts =
        named(vec![("m1", m1), ("m2", Sight::default()), ("m4", in_use(&["cart-0"])), ("m5", silent())]);
    let ruling = close(&config(KARMADA), &namespace("shop"), &facts);
    assert_eq!(
        denial(&ruling).message,
        "namespace \"shop\" is still in use in 2 of 5 clusters: m1 (3 pods, 1 claim: web-0, web-1, web-2, data-web-0), \
         m4 (1 pod: cart-0); m5 could not be asked (no answer in 1.5 s). Empty them, or see: kubectl durward impact ns/shop; to delete in spite of all: kubectl annotate ns/shop durward.dev/delete-anyway=shop (without the verb break-glass also durward.dev/delete-reason and durward.dev/delete-until)"
    );
    assert!(matches!(ruling.verdict, Verdict::Deny(_)));
    let causes: Vec<_> =
        denial(&ruling).causes.iter().map(|c| (c.reason.as_str(), c.field.as_str())).collect();
    assert_eq!(causes, [("InUse", "m1"), ("InUse", "m4"), ("Unknown", "m5")]);
    let audit: Vec<_> = ruling.audit.iter().collect();
    assert_eq!(audit, [("clusters-asked", "5"), ("in-use", "m1, m4"), ("not-seen", "m5")]);
}

#[test]
fn one_that_could_not_be_asked_makes_it_unknown_with_all_that_is_known() {
    let ruling =
        close(&config(KARMADA), &namespace("shop"), &named(vec![("m1", Sight::default()), ("m5", silent())]));
    let Verdict::Unknown(causes) = &ruling.verdict else { panic!("{ruling:?}") };
    assert_eq!(causes, &[Cause::new("timeout", "m5 could not be asked (no answer in 1.5 s)")]);
    assert_eq!(
        denial(&ruling).message,
        "namespace \"shop\" could not be checked in 1 of 3 clusters: m5 (no answer in 1.5 s). Nothing is in use in the other 2. \
         Try again when it answers, acknowledge it, or see: kubectl durward impact ns/shop; to delete in spite of all: kubectl annotate ns/shop durward.dev/delete-anyway=shop (without the verb break-glass also durward.dev/delete-reason and durward.dev/delete-until)"
    );
}

#[test]
fn causes_are_told_once_for_each_code_however_many_clusters() {
    let silent = (0..50).map(|n| (member(&format!("m{n}"), &[], &[]), silent())).collect();
    let ruling = close(&config(KARMADA), &namespace("shop"), &facts(silent));
    let Verdict::Unknown(causes) = &ruling.verdict else { panic!("{ruling:?}") };
    assert_eq!(causes.len(), 1);
    assert!(causes[0].text.ends_with(
        "m9 could not be asked (no answer in 1.5 s) and 40 more clusters that could not be asked"
    ));
    assert!(denial(&ruling).message.contains(" and 40 more clusters. "), "{}", denial(&ruling).message);
    assert_eq!(denial(&ruling).causes.len(), 50);
    assert!(
        ruling
            .warnings
            .iter()
            .last()
            .unwrap()
            .contains("40 more clusters; see: kubectl durward impact ns/shop")
    );
}

#[test]
fn a_fleet_list_that_could_not_be_read_is_unknown_unless_something_is_in_use_here() {
    let stale = |sight| Facts {
        now: now(),
        members: Err(Cause::new(
            cause::STALE_FLEET,
            "the list of the fleet's clusters could not be read: no answer",
        )),
        seen: vec![here(sight)],
    };
    let ruling = close(&config(KARMADA), &namespace("shop"), &stale(Sight::default()));
    assert!(
        matches!(&ruling.verdict, Verdict::Unknown(causes) if causes[0].code == "stale-fleet"),
        "{ruling:?}"
    );
    assert_eq!(
        denial(&ruling).message,
        "namespace \"shop\" could not be checked: the list of the fleet's clusters could not be read: no answer. \
         Try again, or see: kubectl durward impact ns/shop; to delete in spite of all: kubectl annotate ns/shop durward.dev/delete-anyway=shop (without the verb break-glass also durward.dev/delete-reason and durward.dev/delete-until)"
    );
    let ruling = close(&config(KARMADA), &namespace("shop"), &stale(in_use(&["a"])));
    assert!(matches!(ruling.verdict, Verdict::Deny(_)));
    assert!(denial(&ruling).message.contains("the control plane (1 pod: a); the list of the fleet's"));
}

#[test]
fn a_cluster_that_was_not_asked_is_never_taken_for_an_empty_one() {
    let mut facts = named(vec![("m1", Sight::default()), ("m2", Sight::default())]);
    assert_eq!(close(&config(KARMADA), &namespace("shop"), &facts).verdict, Verdict::Allow);
    let last = facts.seen.pop();
    let ruling = close(&config(KARMADA), &namespace("shop"), &facts);
    assert!(denial(&ruling).message.contains("one cluster was not asked"), "{ruling:?}");
    facts.seen = facts.seen.drain(1..).chain(last).collect();
    assert!(
        matches!(close(&config(KARMADA), &namespace("shop"), &facts).verdict, Verdict::Unknown(_)),
        "here is missing"
    );
}

#[test]
fn an_acknowledgement_stands_in_for_an_answer_and_says_what_follows() {
    let until = [
        ("durward.dev/acknowledge-unreachable", "link cut"),
        ("durward.dev/acknowledge-until", "2026-12-01T00:00:00Z"),
    ];
    let with = |sight| facts(vec![(member("m5", &until, &[]), sight)]);
    let ruling = close(&config(KARMADA), &namespace("shop"), &with(silent()));
    assert_eq!(ruling.verdict, Verdict::Allow);
    assert_eq!(
        ruling.warnings.iter().collect::<Vec<_>>(),
        [
            "deletion: m5 could not be asked (no answer in 1.5 s), acknowledged until 2026-12-01T00:00:00Z: link cut; \
          Karmada carries the deletion out there when it returns"
        ]
    );
    assert!(
        ruling.audit.iter().any(|pair| pair == ("acknowledged", "m5 until 2026-12-01T00:00:00Z: link cut"))
    );
    assert!(matches!(
        close(&config(KARMADA), &namespace("shop"), &with(in_use(&["a"]))).verdict,
        Verdict::Deny(_)
    ));
    let crowded = Sight::blind(Cause::new(cause::CROWDED, "no place"));
    assert!(matches!(
        close(&config(KARMADA), &namespace("shop"), &with(crowded)).verdict,
        Verdict::Unknown(_)
    ));
}

#[test]
fn an_acknowledgement_is_no_excuse_for_durwards_own_want_of_room_and_the_denial_says_so() {
    let until = [
        ("durward.dev/acknowledge-unreachable", "link cut"),
        ("durward.dev/acknowledge-until", "2026-12-01T00:00:00Z"),
    ];
    let crowded = Sight::blind(Cause::new(cause::CROWDED, "no place"));
    let facts = facts(vec![(member("m5", &until, &[]), crowded)]);
    let ruling = close(&config(KARMADA), &namespace("shop"), &facts);
    assert!(matches!(&ruling.verdict, Verdict::Unknown(causes) if causes[0].code == cause::CROWDED));
    let message = &denial(&ruling).message;
    let note =
        ". The acknowledgement of m5 does not count for what Durward had no room to ask. Try again, or";
    assert!(message.contains(note), "{message}");
}

#[test]
fn a_fleet_without_clusters_is_told_with_every_ruling() {
    let told = |yaml: &str, target: &Target, sight| {
        let ruling = close(&config(yaml), target, &Facts { seen: vec![here(sight)], ..named(vec![]) });
        let audit = ruling.audit.iter().any(|(key, _)| key == "fleet");
        let warned = ruling.warnings.iter().any(|warning| {
            warning.contains("the fleet has no clusters: only the control plane was looked at")
        });
        assert_eq!(audit, warned);
        audit
    };
    let shop = namespace("shop");
    assert!(told(KARMADA, &shop, Sight::default()));
    assert!(told(KARMADA, &shop, in_use(&["a"])));
    assert!(!told("select: all", &shop, Sight::default()), "there is no fleet");
    assert!(!told(KARMADA, &namespace("karmada-es-m9"), Sight::default()), "the others were not asked");
    let some = close(&config(KARMADA), &shop, &named(vec![("m1", Sight::default())]));
    assert!(some.warnings.is_empty());
}

#[test]
fn an_acknowledgement_that_does_not_count_is_told() {
    let over = [
        ("durward.dev/acknowledge-unreachable", "link cut"),
        ("durward.dev/acknowledge-until", "2026-11-01T00:00:00Z"),
    ];
    let ruling =
        close(&config(KARMADA), &namespace("shop"), &facts(vec![(member("m5", &over, &[]), silent())]));
    let message = &denial(&ruling).message;
    assert!(
        message
            .contains(". The acknowledgement of m5 on its Cluster ended at 2026-11-01T00:00:00Z. Try again"),
        "{message}"
    );
}

#[test]
fn the_control_plane_itself_cannot_be_acknowledged() {
    let facts = Facts { seen: vec![here(silent())], ..named(vec![]) };
    let yaml = format!("{KARMADA}acknowledge: [{{cluster: here, until: 2026-12-01T00:00:00Z, reason: x}}]");
    let ruling = close(&config(&yaml), &namespace("shop"), &facts);
    assert!(
        denial(&ruling).message.contains("the control plane (no answer in 1.5 s). Try again, or see"),
        "{ruling:?}"
    );
}

#[test]
fn what_would_stay_is_allowed_and_told() {
    let facts = named(vec![("m1", stays())]);
    let ruling = close(&config(&format!("{KARMADA}unmanaged: ignore")), &namespace("shop"), &facts);
    assert_eq!(ruling.verdict, Verdict::Allow);
    assert_eq!(ruling.warnings.iter().collect::<Vec<_>>(), ["deletion: m1 would keep 1 pod: old"]);
}

#[test]
fn a_dry_run_is_told_what_is_where_also_when_it_passes() {
    let mut target = namespace("shop");
    target.dry_run = true;
    let ruling = close(&config(KARMADA), &target, &named(vec![("m1", Sight::default())]));
    assert_eq!(ruling.verdict, Verdict::Allow);
    let warnings: Vec<_> = ruling.warnings.iter().collect();
    assert_eq!(warnings, ["deletion: nothing of namespace \"shop\" is in use in 2 clusters"]);
    let ruling = close(&config(KARMADA), &target, &named(vec![("m1", in_use(&["a"])), ("m2", silent())]));
    let warnings: Vec<_> = ruling.warnings.iter().collect();
    assert_eq!(
        warnings,
        ["deletion: m1 has 1 pod: a", "deletion: m2 could not be asked: no answer in 1.5 s"]
    );
}

#[test]
fn without_a_fleet_it_speaks_of_one_cluster() {
    let facts = |sight| Facts { seen: vec![here(sight)], ..named(vec![]) };
    let alone = config("select: all");
    let message = |sight| denial(&close(&alone, &namespace("shop"), &facts(sight))).message.clone();
    assert_eq!(
        message(in_use(&["a"])),
        "namespace \"shop\" is still in use: 1 pod: a. Empty it, or see: kubectl durward impact ns/shop; to delete in spite of all: kubectl annotate ns/shop durward.dev/delete-anyway=shop (without the verb break-glass also durward.dev/delete-reason and durward.dev/delete-until)"
    );
    assert_eq!(
        message(silent()),
        "namespace \"shop\" could not be checked: no answer in 1.5 s. Try again, or see: kubectl durward impact ns/shop; to delete in spite of all: kubectl annotate ns/shop durward.dev/delete-anyway=shop (without the verb break-glass also durward.dev/delete-reason and durward.dev/delete-until)"
    );
}

#[test]
fn names_can_be_kept_from_those_who_may_not_read_members() {
    let facts = named(vec![("m1", in_use(&["secret-project-0"]))]);
    let ruling = close(&config(&format!("{KARMADA}names: count")), &namespace("shop"), &facts);
    assert!(denial(&ruling).message.contains("m1 (1 pod). Empty it"));
    assert!(!format!("{:?} {:?}", denial(&ruling), ruling.warnings).contains("secret-project"), "{ruling:?}");
}

#[test]
fn a_long_list_of_names_is_cut_and_says_so() {
    let names: Vec<String> = (0..9).map(|n| format!("p{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ruling = close(&config(KARMADA), &namespace("shop"), &named(vec![("m1", in_use(&names))]));
    assert!(denial(&ruling).message.contains("m1 (9 pods: p0, p1, p2, p3, p4, …)"), "{ruling:?}");
}

#[test]
fn karmadas_own_parts_are_refused_while_the_fleet_needs_them() {
    let config = config(&format!("{KARMADA}select: labelled"));
    let needed = Facts { seen: vec![], ..named(vec![("m1", Sight::default())]) };
    for target in
        [namespace("karmada-system"), namespace("karmada-cluster"), definition("works.work.karmada.io")]
    {
        let ruling = close(&config, &target, &needed);
        let Verdict::Deny(denial) = &ruling.verdict else { panic!("{ruling:?}") };
        assert!(
            denial.message.contains("is a part of Karmada itself: without it the fleet of 1 cluster is lost"),
            "{denial:?}"
        );
    }
    let ruling = close(&config, &namespace("karmada-es-m1"), &needed);
    assert!(denial(&ruling).message.contains("holds all that Karmada has brought to m1"), "{ruling:?}");
    let looked = Facts { seen: vec![here(Sight::default())], ..named(vec![]) };
    assert_eq!(
        close(&config, &namespace("karmada-es-m9"), &looked).verdict,
        Verdict::Allow,
        "not labelled, not needed"
    );
    for seen in [vec![], vec![here(silent())]] {
        let ruling = close(&config, &namespace("karmada-es-m9"), &Facts { seen, ..named(vec![]) });
        assert!(matches!(ruling.verdict, Verdict::Unknown(_)), "nobody saw it where it stands: {ruling:?}");
    }
}

#[test]
fn karmadas_own_parts_are_unknown_while_the_list_of_clusters_is() {
    let stale = Facts { members: Err(Cause::new(cause::STALE_FLEET, "no answer")), seen: vec![], now: now() };
    let ruling = close(&config(&format!("{KARMADA}select: labelled")), &namespace("karmada-system"), &stale);
    assert!(matches!(ruling.verdict, Verdict::Unknown(_)), "{ruling:?}");
}

#[test]
fn a_definition_whose_group_may_not_be_read_prints_the_line_to_add() {
    let config = config(&format!("{KARMADA}crds: {{groups: [example.com]}}"));
    let ruling = close(&config, &definition("widgets.example.org"), &named(vec![]));
    assert!(matches!(&ruling.verdict, Verdict::Unknown(causes) if causes[0].code == "forbidden"));
    assert!(denial(&ruling).message.contains("crds: {groups: [example.com, example.org]}"), "{ruling:?}");
}

#[test]
fn whoever_broke_the_glass_of_such_a_definition_wrongly_is_told_what_is_wrong() {
    let ruling = |anyway: &str| {
        let mut target = definition("widgets.example.org");
        target.annotations.insert(overrides::DELETE_ANYWAY.to_owned(), anyway.to_owned());
        close(&config(KARMADA), &target, &named(vec![]))
    };
    for (anyway, wrong) in
        [("widgets", "is \"widgets\" and must be"), ("widgets.example.org", overrides::REASON)]
    {
        let ruling = ruling(anyway);
        let message = &denial(&ruling).message;
        assert!(message.contains(". The annotation durward.dev/delete-anyway does not count: "), "{message}");
        assert!(message.contains(wrong) && !message.contains("kubectl annotate"), "{message}");
    }
}

fn opened(yaml: &str, resource: &str, name: &str, change: impl FnOnce(&mut Value)) -> Step {
    with_delete(resource, name, change, |request| open(&config(yaml), request, now()))
}

fn ruled(yaml: &str, change: impl FnOnce(&mut Value)) -> Option<Ruling> {
    match opened(yaml, "namespaces", "shop", change) {
        Step::Rule(ruling) => Some(ruling),
        Step::Look { .. } => None,
    }
}

#[test]
fn what_is_going_already_exempt_or_not_labelled_passes_without_a_look() {
    let all = "select: all\n";
    let audit = |ruling: Option<Ruling>| {
        let ruling = ruling?;
        assert_eq!(ruling.verdict, Verdict::Allow);
        ruling.audit.iter().next().map(|(key, value)| format!("{key}: {value}"))
    };
    let deleting =
        |r: &mut Value| r["oldObject"]["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
    assert_eq!(audit(ruled(all, deleting)).as_deref(), Some("allowed: it is being deleted already"));
    assert_eq!(audit(ruled("{}", |_| {})).as_deref(), Some("allowed: it is not labelled to be guarded"));
    let labelled = |r: &mut Value| {
        r["oldObject"]["metadata"]["labels"] = serde_json::json!({"durward.dev/guard": "deletion"});
    };
    assert!(ruled("{}", labelled).is_none());
    assert!(ruled(all, |_| {}).is_none());
    for (yaml, expected) in [
        ("exempt: {users: [ann]}", "exempt: exempt.users"),
        ("exempt: {namespaces: ['sh*']}", "exempt: exempt.namespaces"),
        ("installNamespace: shop", "exempt: installNamespace"),
    ] {
        assert_eq!(audit(ruled(&format!("{all}{yaml}"), |_| {})).as_deref(), Some(expected));
    }
    let selector = "select: all\nexempt: {namespaceSelector: {matchLabels: {env: ci}}}";
    let ci = |r: &mut Value| r["oldObject"]["metadata"]["labels"] = serde_json::json!({"env": "ci"});
    assert_eq!(audit(ruled(selector, ci)).as_deref(), Some("exempt: exempt.namespaceSelector"));
    assert!(ruled(selector, |_| {}).is_none());
    assert!(ruled(&format!("{KARMADA}installNamespace: shop"), |_| {}).is_none(), "guarded on Karmada");
}

#[test]
fn exemptions_of_namespaces_are_not_for_definitions() {
    let yaml = "select: all\nexempt: {namespaces: ['*']}\ncrds: {groups: ['*']}";
    let in_one = |r: &mut Value| r["namespace"] = "shop".into();
    assert!(matches!(opened(yaml, "customresourcedefinitions", "w.example.org", in_one), Step::Look { .. }));
}

#[test]
fn controllers_are_not_exempt() {
    for user in ["system:serviceaccount:kube-system:generic-garbage-collector", "system:admin"] {
        assert!(ruled("select: all", |r| r["userInfo"]["username"] = user.into()).is_none(), "{user}");
    }
}

#[test]
fn a_broken_review_is_unknown_before_anything_else() {
    let ruling = ruled("select: labelled\nexempt: {users: [ann]}", |r| r["oldObject"] = Value::Null).unwrap();
    assert!(matches!(&ruling.verdict, Verdict::Unknown(causes) if causes[0].code == "garbage"), "{ruling:?}");
}

#[test]
fn karmadas_own_parts_are_looked_at_although_nobody_labelled_them() {
    let yaml = format!("{KARMADA}select: labelled");
    assert!(matches!(
        opened(&yaml, "namespaces", "karmada-es-m1", |_| {}),
        Step::Look { only_own: true, .. }
    ));
    let works = opened(KARMADA, "customresourcedefinitions", "works.work.karmada.io", |_| {});
    assert!(matches!(works, Step::Look { only_own: true, .. }), "its objects could not be read");
    assert!(matches!(
        opened(KARMADA, "namespaces", "karmada-system", |_| {}),
        Step::Look { only_own: false, .. }
    ));
}

#[test]
fn annotations_that_are_wrong_are_told_with_the_denial_and_right_ones_pass() {
    let mut target = namespace("shop");
    target.annotations.insert(overrides::DELETE_ANYWAY.to_owned(), "shpo".to_owned());
    let message =
        denial(&close(&config(KARMADA), &target, &named(vec![("m1", in_use(&["a"]))]))).message.clone();
    assert!(
        message.contains(
            ". The annotation durward.dev/delete-anyway does not count: durward.dev/delete-anyway is \"shpo\""
        ),
        "{message}"
    );
    let right = serde_json::json!({"durward.dev/delete-anyway": "shop", "durward.dev/delete-reason": "moved",
        "durward.dev/delete-until": "2026-11-21T11:00:00Z"});
    let ruling = ruled(KARMADA, |r| r["oldObject"]["metadata"]["annotations"] = right).unwrap();
    assert_eq!(ruling.verdict, Verdict::Allow);
    assert!(ruling.audit.iter().any(|pair| pair == ("break-glass", "until 2026-11-21T11:00:00Z: moved")));
}

mod property;
