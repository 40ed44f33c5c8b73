//! Tests of the decision.

use admission::{Denial, OnUnknown, SettlePolicy, Settled, settle};
use proptest::prelude::*;
use serde_json::Value;

use super::super::cluster_facts::ObjectCount;
use super::super::fixture::{config, crd, member, namespace, now, with_delete};
use super::super::queries::Noun;
use super::*;
use crate::overrides;
use admission::Cause;
use cluster::cause;
use cluster::fleet::FleetMember;

const KARMADA: &str = "fleet: karmada\n";

fn count(one: &'static str, names: &[&str]) -> ObjectCount {
    let noun = Noun { one: one.into(), many: format!("{one}s").into() };
    ObjectCount::of(&noun, false, names.iter().map(|&name| name.to_owned()).collect()).unwrap()
}

fn in_use(names: &[&str]) -> ClusterFacts {
    ClusterFacts { in_use: vec![count("pod", names)], ..ClusterFacts::default() }
}

fn no_answer() -> ClusterFacts {
    ClusterFacts::unknown(Cause::new(cause::TIMEOUT, "no answer in 1.5 s"))
}

fn local(findings: ClusterFacts) -> ClusterFacts {
    ClusterFacts { member: ClusterFacts::default().member, ..findings }
}

/// Returns facts with an empty control plane and these members.
fn facts(members: Vec<(FleetMember, ClusterFacts)>) -> Facts {
    let list = members.iter().map(|(member, _)| member.clone()).collect();
    let clusters = members.into_iter().map(|(member, findings)| ClusterFacts { member, ..findings });
    Facts {
        members: Ok(list),
        clusters: std::iter::once(local(ClusterFacts::default())).chain(clusters).collect(),
    }
}

fn named(sights: Vec<(&str, ClusterFacts)>) -> Facts {
    facts(sights.into_iter().map(|(name, findings)| (member(name, &[]), findings)).collect())
}

fn close(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    super::close(&Case::new(config, target, now()), facts)
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
fn names_clusters_in_use_and_clusters_that_could_not_be_checked() {
    let m1 = ClusterFacts {
        in_use: vec![count("pod", &["web-0", "web-1", "web-2"]), count("PVC", &["data-web-0"])],
        ..ClusterFacts::default()
    };
    let facts = named(vec![
        ("m1", m1),
        ("m2", ClusterFacts::default()),
        ("m4", in_use(&["cart-0"])),
        ("m5", no_answer()),
    ]);
    let ruling = close(&config(KARMADA), &namespace("shop"), &facts);
    assert_eq!(
        denial(&ruling).message,
        "namespace \"shop\" is still in use in 2 of 4 member clusters: m1, m4; 1 cluster could not be checked\n  \
         m1: 3 pods (web-0, web-1, web-2), 1 PVC (data-web-0)\n  m4: 1 pod (cart-0)\n  m5: no answer in 1.5 s\n\
         Next: delete them there and retry. Full list: kubectl durward impact ns/shop\n\
         Override, then delete again: kubectl annotate ns shop durward.dev/delete-anyway=shop durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z"
    );
    assert!(matches!(ruling.verdict, Verdict::Deny(_)));
    let causes: Vec<_> =
        denial(&ruling).causes.iter().map(|c| (c.reason.as_str(), c.field.as_str())).collect();
    assert_eq!(causes, [("InUse", "m1"), ("InUse", "m4"), ("Unknown", "m5")]);
    let audit: Vec<_> = ruling.audit.iter().collect();
    assert_eq!(audit, [("clusters-checked", "5"), ("in-use", "m1, m4"), ("not-checked", "m5")]);
}

#[test]
fn one_unknown_cluster_makes_the_ruling_unknown() {
    let ruling = close(
        &config(KARMADA),
        &namespace("shop"),
        &named(vec![("m1", ClusterFacts::default()), ("m5", no_answer())]),
    );
    let Verdict::Unknown(causes) = &ruling.verdict else { panic!("{ruling:?}") };
    assert_eq!(causes, &[Cause::new("timeout", "m5 could not be checked (no answer in 1.5 s)")]);
    assert_eq!(
        denial(&ruling).message,
        "cannot tell whether namespace \"shop\" is in use: member cluster m5 could not be checked (no answer in 1.5 s); \
         nothing in use in the other one\n\
         Next: retry when m5 is Ready (kubectl get cluster m5). If it stays offline, acknowledge it (Karmada deletes the objects there when it returns): kubectl annotate cluster m5 \
         durward.dev/acknowledge-unreachable='<reason>' durward.dev/acknowledge-until=2026-11-28\n\
         Override, then delete again: kubectl annotate ns shop durward.dev/delete-anyway=shop durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z"
    );
}

#[test]
fn reports_one_cause_per_code_for_many_clusters() {
    let no_answer = (0..50).map(|n| (member(&format!("m{n}"), &[]), no_answer())).collect();
    let ruling = close(&config(KARMADA), &namespace("shop"), &facts(no_answer));
    let Verdict::Unknown(causes) = &ruling.verdict else { panic!("{ruling:?}") };
    assert_eq!(causes.len(), 1);
    assert!(causes[0].text.ends_with("m9 could not be checked (no answer in 1.5 s) and 40 more clusters"));
    let message = &denial(&ruling).message;
    assert!(message.contains("50 of 50 member clusters could not be checked\n"), "{message}");
    assert!(message.contains("\n  m0, m1, m2, m3, m4 and 45 more: no answer in time\n"), "{message}");
    assert_eq!(denial(&ruling).causes.len(), 50);
    assert!(ruling.warnings.iter().next().is_none(), "warnings do not repeat a denial");
}

#[test]
fn an_unread_fleet_list_is_unknown_unless_the_local_cluster_is_in_use() {
    let stale = |findings| Facts {
        members: Err(Cause::new(
            cause::STALE_FLEET,
            "the list of the fleet's clusters could not be read: no answer",
        )),
        clusters: vec![local(findings)],
    };
    let ruling = close(&config(KARMADA), &namespace("shop"), &stale(ClusterFacts::default()));
    assert!(
        matches!(&ruling.verdict, Verdict::Unknown(causes) if causes[0].code == "stale-fleet"),
        "{ruling:?}"
    );
    let message = &denial(&ruling).message;
    let line = "cannot tell whether namespace \"shop\" is in use: the list of the fleet's clusters could not be read: no answer\nNext: retry";
    assert!(message.starts_with(line), "{message}");
    let ruling = close(&config(KARMADA), &namespace("shop"), &stale(in_use(&["a"])));
    assert!(matches!(ruling.verdict, Verdict::Deny(_)));
    let message = &denial(&ruling).message;
    assert!(
        message.contains("in use in the control plane: 1 pod (a); other clusters could not be checked\n  the list of the fleet's"),
        "{message}"
    );
}

#[test]
fn a_cluster_without_facts_is_unknown_and_not_empty() {
    let mut facts = named(vec![("m1", ClusterFacts::default()), ("m2", ClusterFacts::default())]);
    assert_eq!(close(&config(KARMADA), &namespace("shop"), &facts).verdict, Verdict::Allow);
    let last = facts.clusters.pop();
    let ruling = close(&config(KARMADA), &namespace("shop"), &facts);
    assert!(denial(&ruling).message.contains("1 cluster was not checked"), "{ruling:?}");
    facts.clusters = facts.clusters.drain(1..).chain(last).collect();
    assert!(
        matches!(close(&config(KARMADA), &namespace("shop"), &facts).verdict, Verdict::Unknown(_)),
        "the local cluster is missing"
    );
}

#[test]
fn an_acknowledgement_replaces_an_answer_and_warns() {
    let until = [
        ("durward.dev/acknowledge-unreachable", "link cut"),
        ("durward.dev/acknowledge-until", "2026-12-01T00:00:00Z"),
    ];
    let with = |findings| facts(vec![(member("m5", &until), findings)]);
    let ruling = close(&config(KARMADA), &namespace("shop"), &with(no_answer()));
    assert_eq!(ruling.verdict, Verdict::Allow);
    assert_eq!(
        ruling.warnings.iter().collect::<Vec<_>>(),
        [
            "deletion: m5 could not be checked (no answer in 1.5 s); acknowledged until 2026-12-01T00:00:00Z: link cut; \
          Karmada will delete it there when the cluster is back"
        ]
    );
    assert!(
        ruling.audit.iter().any(|pair| pair == ("acknowledged", "m5 until 2026-12-01T00:00:00Z: link cut"))
    );
    assert!(matches!(
        close(&config(KARMADA), &namespace("shop"), &with(in_use(&["a"]))).verdict,
        Verdict::Deny(_)
    ));
    let overloaded = ClusterFacts::unknown(Cause::new(cause::OVERLOADED, "no place"));
    assert!(matches!(
        close(&config(KARMADA), &namespace("shop"), &with(overloaded)).verdict,
        Verdict::Unknown(_)
    ));
}

#[test]
fn an_acknowledgement_does_not_cover_missing_capacity_and_the_denial_says_so() {
    let until = [
        ("durward.dev/acknowledge-unreachable", "link cut"),
        ("durward.dev/acknowledge-until", "2026-12-01T00:00:00Z"),
    ];
    let overloaded = ClusterFacts::unknown(Cause::new(cause::OVERLOADED, "no place"));
    let facts = facts(vec![(member("m5", &until), overloaded)]);
    let ruling = close(&config(KARMADA), &namespace("shop"), &facts);
    assert!(matches!(&ruling.verdict, Verdict::Unknown(causes) if causes[0].code == cause::OVERLOADED));
    let message = &denial(&ruling).message;
    let note = "\n  Acknowledgement ignored: m5: it does not cover what Durward had no capacity to check\nNext: retry";
    assert!(message.contains(note), "{message}");
}

#[test]
fn every_ruling_warns_of_a_fleet_without_clusters() {
    let warns = |yaml: &str, target: &Target, findings| {
        let ruling =
            close(&config(yaml), target, &Facts { clusters: vec![local(findings)], ..named(vec![]) });
        let audit = ruling.audit.iter().any(|(key, _)| key == "fleet");
        let warned = ruling.warnings.iter().any(|warning| {
            warning.contains("the fleet has no member clusters, so Durward checked only the control plane")
        });
        assert_eq!(audit, warned);
        audit
    };
    let shop = namespace("shop");
    assert!(warns(KARMADA, &shop, ClusterFacts::default()));
    assert!(warns(KARMADA, &shop, in_use(&["a"])));
    assert!(!warns("scope: all", &shop, ClusterFacts::default()), "there is no fleet");
    assert!(
        !warns(KARMADA, &namespace("karmada-es-m9"), ClusterFacts::default()),
        "the others were not asked"
    );
    let some = close(&config(KARMADA), &shop, &named(vec![("m1", ClusterFacts::default())]));
    assert!(some.warnings.is_empty());
}

#[test]
fn a_denial_names_invalid_acknowledgements() {
    let over = [
        ("durward.dev/acknowledge-unreachable", "link cut"),
        ("durward.dev/acknowledge-until", "2026-11-01T00:00:00Z"),
    ];
    let ruling =
        close(&config(KARMADA), &namespace("shop"), &facts(vec![(member("m5", &over), no_answer())]));
    let message = &denial(&ruling).message;
    assert!(
        message.contains(
            "\n  Acknowledgement ignored: m5: the expiry 2026-11-01T00:00:00Z is in the past\nNext: "
        ) && message.contains("kubectl annotate --overwrite cluster m5 "),
        "{message}"
    );
}

#[test]
fn the_calling_cluster_cannot_be_acknowledged() {
    let facts = Facts { clusters: vec![local(no_answer())], ..named(vec![]) };
    let yaml = "fleet: {contexts: [a]}\nunreachableClusters: [{cluster: (local), until: 2026-12-01T00:00:00Z, reason: x}]";
    let ruling = close(&config(yaml), &namespace("shop"), &facts);
    let text = "this cluster could not be checked (no answer in 1.5 s)\nNext: retry in";
    assert!(denial(&ruling).message.contains(text), "{ruling:?}");
}

#[test]
fn a_dry_run_warns_of_each_cluster_also_if_it_is_allowed() {
    let mut target = namespace("shop");
    target.dry_run = true;
    let ruling = close(&config(KARMADA), &target, &named(vec![("m1", ClusterFacts::default())]));
    assert_eq!(ruling.verdict, Verdict::Allow);
    let warnings: Vec<_> = ruling.warnings.iter().collect();
    assert_eq!(
        warnings,
        ["deletion: namespace \"shop\" is not in use in the control plane and 1 member cluster"]
    );
    let ruling = close(&config(KARMADA), &target, &named(vec![("m1", in_use(&["a"])), ("m2", no_answer())]));
    let warnings: Vec<_> = ruling.warnings.iter().collect();
    assert_eq!(
        warnings,
        ["deletion: m1 has 1 pod (a)", "deletion: m2 could not be checked: no answer in 1.5 s"]
    );
}

#[test]
fn a_message_without_a_fleet_names_no_cluster() {
    let facts = |findings| Facts { clusters: vec![local(findings)], ..named(vec![]) };
    let alone = config("scope: all");
    let message = |findings| denial(&close(&alone, &namespace("shop"), &facts(findings))).message.clone();
    assert_eq!(
        message(in_use(&["a"])),
        "namespace \"shop\" is still in use: 1 pod (a)\nNext: delete it and retry. Full list: kubectl durward impact ns/shop\n\
         Override, then delete again: kubectl annotate ns shop durward.dev/delete-anyway=shop durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z"
    );
    assert_eq!(
        message(no_answer()),
        "cannot tell whether namespace \"shop\" is in use: this cluster could not be checked (no answer in 1.5 s)\nNext: retry in a few seconds\n\
         Override, then delete again: kubectl annotate ns shop durward.dev/delete-anyway=shop durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z"
    );
}

#[test]
fn names_count_hides_object_names() {
    let facts = named(vec![("m1", in_use(&["secret-project-0"]))]);
    let ruling = close(&config(&format!("{KARMADA}showObjectNames: false")), &namespace("shop"), &facts);
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod\nNext"));
    assert!(!format!("{:?} {:?}", denial(&ruling), ruling.warnings).contains("secret-project"), "{ruling:?}");
}

#[test]
fn marks_a_long_list_of_names_as_cut() {
    let names: Vec<String> = (0..9).map(|n| format!("p{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ruling = close(&config(KARMADA), &namespace("shop"), &named(vec![("m1", in_use(&names))]));
    assert!(denial(&ruling).message.contains("m1: 9 pods (p0, p1, p2, p3, p4, …)"), "{ruling:?}");
}

#[test]
fn denies_parts_of_karmada_that_the_fleet_needs() {
    let config = config(&format!("{KARMADA}scope: labeled"));
    let needed = Facts { clusters: vec![], ..named(vec![("m1", ClusterFacts::default())]) };
    for target in [namespace("karmada-system"), namespace("karmada-cluster"), crd("works.work.karmada.io")] {
        let ruling = close(&config, &target, &needed);
        let Verdict::Deny(denial) = &ruling.verdict else { panic!("{ruling:?}") };
        assert!(
            denial.message.contains(
                "is part of Karmada: deleting it breaks the fleet of 1 member cluster\nNext: unjoin"
            ) && !denial.message.contains("Override: "),
            "{denial:?}"
        );
    }
    let ruling = close(&config, &namespace("karmada-es-m1"), &needed);
    assert!(denial(&ruling).message.contains("is Karmada's work queue for member cluster m1"), "{ruling:?}");
    let facts = Facts { clusters: vec![local(ClusterFacts::default())], ..named(vec![]) };
    let ruling = close(&config, &namespace("karmada-es-m9"), &facts);
    assert_eq!(ruling.verdict, Verdict::Allow, "not labeled, not needed");
    assert!(!ruling.is_unguarded, "logged, because the fleet was read");
    for clusters in [vec![], vec![local(no_answer())]] {
        let ruling = close(&config, &namespace("karmada-es-m9"), &Facts { clusters, ..named(vec![]) });
        assert!(
            matches!(ruling.verdict, Verdict::Unknown(_)),
            "the local cluster did not confirm it: {ruling:?}"
        );
    }
}

#[test]
fn parts_of_karmada_are_unknown_without_the_fleet_list() {
    let stale = Facts { members: Err(Cause::new(cause::STALE_FLEET, "no answer")), clusters: vec![] };
    let ruling = close(&config(&format!("{KARMADA}scope: labeled")), &namespace("karmada-system"), &stale);
    assert!(matches!(ruling.verdict, Verdict::Unknown(_)), "{ruling:?}");
}

#[test]
fn prints_the_configuration_for_a_crd_with_an_unreadable_group() {
    let config = config(&format!("{KARMADA}crds: {{apiGroups: [example.com]}}"));
    let ruling = close(&config, &crd("widgets.example.org"), &named(vec![]));
    assert!(matches!(&ruling.verdict, Verdict::Unknown(causes) if causes[0].code == "forbidden"));
    assert!(denial(&ruling).message.contains("crds: {apiGroups: [example.com, example.org]}"), "{ruling:?}");
}

#[test]
fn names_what_is_wrong_with_the_override_of_such_a_crd() {
    let ruling = |anyway: &str| {
        let mut target = crd("widgets.example.org");
        target.annotations.insert(overrides::DELETE_ANYWAY.to_owned(), anyway.to_owned());
        close(&config(KARMADA), &target, &named(vec![]))
    };
    for (anyway, wrong) in
        [("widgets", "delete-anyway is \"widgets\""), ("widgets.example.org", "delete-reason")]
    {
        let ruling = ruling(anyway);
        let message = &denial(&ruling).message;
        assert!(message.contains("\n  Override ignored: ") && message.contains(wrong), "{message}");
        assert!(
            message.contains(
                "\nOverride, then delete again: kubectl annotate --overwrite crd widgets.example.org "
            ),
            "{message}"
        );
    }
}

/// Decides by the request, and then by the metadata of an object that is stored as the request contains it.
///
/// Without a ruling, returns whether clusters are read.
fn opened(
    yaml: &str,
    resource: &str,
    name: &str,
    change: impl FnOnce(&mut Value),
) -> Result<bool, Box<Ruling>> {
    with_delete(resource, name, change, |request| {
        let config = config(yaml);
        let target = open(&config, request)?;
        let case = Case::new(&config, &target, now());
        by_metadata(&case).map_or(Ok(case.reads_clusters()), |ruling| Err(Box::new(ruling)))
    })
}

fn ruled(yaml: &str, change: impl FnOnce(&mut Value)) -> Option<Ruling> {
    opened(yaml, "namespaces", "shop", change).err().map(|ruling| *ruling)
}

#[test]
fn allows_terminating_exempt_and_unlabelled_objects_without_facts() {
    let all = "scope: all\n";
    let audit = |ruling: Option<Ruling>| {
        let ruling = ruling?;
        assert_eq!(ruling.verdict, Verdict::Allow);
        let (_, value) = ruling.audit.iter().next()?;
        let is_left_out = ["exempt.namespaces", "not labeled durward.dev/guard=deletion"];
        assert_eq!(ruling.is_unguarded, is_left_out.contains(&value), "{value}");
        ruling.audit.iter().next().map(|(key, value)| format!("{key}: {value}"))
    };
    let deleting =
        |r: &mut Value| r["oldObject"]["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
    assert_eq!(audit(ruled(all, deleting)).as_deref(), Some("allowed: already being deleted"));
    assert_eq!(
        audit(ruled("scope: labeled", |_| {})).as_deref(),
        Some("allowed: not labeled durward.dev/guard=deletion")
    );
    let labelled = |r: &mut Value| {
        r["oldObject"]["metadata"]["labels"] = serde_json::json!({"durward.dev/guard": "deletion"});
    };
    assert!(ruled("scope: labeled", labelled).is_none());
    assert!(ruled(all, |_| {}).is_none());
    for (yaml, expected) in [
        ("exempt: {users: [ann]}\n", "exempt: exempt.users"),
        ("exempt: {namespaces: ['sh*']}\n", "exempt: exempt.namespaces"),
    ] {
        assert_eq!(audit(ruled(&format!("{yaml}{all}"), |_| {})).as_deref(), Some(expected));
    }
    assert!(ruled(&format!("namespace: shop\n{KARMADA}"), |_| {}).is_none(), "guarded on Karmada");
}

#[test]
fn exempt_namespaces_do_not_exempt_crds() {
    let yaml = "scope: all\nexempt: {namespaces: ['*']}\ncrds: {apiGroups: ['*']}";
    let in_one = |r: &mut Value| r["namespace"] = "shop".into();
    opened(yaml, "customresourcedefinitions", "w.example.org", in_one).unwrap();
}

#[test]
fn controllers_are_not_exempt() {
    for user in ["system:serviceaccount:kube-system:generic-garbage-collector", "system:admin"] {
        assert!(ruled("scope: all", |r| r["userInfo"]["username"] = user.into()).is_none(), "{user}");
    }
}

#[test]
fn an_invalid_review_is_unknown_before_exemptions() {
    let ruling = ruled("scope: labeled\nexempt: {users: [ann]}", |r| r["oldObject"] = Value::Null).unwrap();
    assert!(matches!(&ruling.verdict, Verdict::Unknown(causes) if causes[0].code == "garbage"), "{ruling:?}");
}

#[test]
fn reads_the_list_for_unlabelled_parts_of_karmada() {
    let yaml = format!("{KARMADA}scope: labeled");
    assert!(!opened(&yaml, "namespaces", "karmada-es-m1", |_| {}).unwrap());
    let works = opened(KARMADA, "customresourcedefinitions", "works.work.karmada.io", |_| {});
    assert!(!works.unwrap(), "its objects could not be read");
    assert!(opened(KARMADA, "namespaces", "karmada-system", |_| {}).unwrap());
}

#[test]
fn a_denial_names_invalid_override_annotations_and_valid_ones_allow() {
    let mut target = namespace("shop");
    target.annotations.insert(overrides::DELETE_ANYWAY.to_owned(), "shpo".to_owned());
    let message =
        denial(&close(&config(KARMADA), &target, &named(vec![("m1", in_use(&["a"]))]))).message.clone();
    assert!(
        message.contains("\n  Override ignored: delete-anyway is \"shpo\", expected \"shop\"; ")
            && message.contains("\nOverride, then delete again: kubectl annotate --overwrite ns shop "),
        "{message}"
    );
    let right = serde_json::json!({"durward.dev/delete-anyway": "shop", "durward.dev/delete-reason": "moved",
        "durward.dev/delete-until": "2026-11-21T11:00:00Z"});
    let ruling = ruled(KARMADA, |r| r["oldObject"]["metadata"]["annotations"] = right).unwrap();
    assert_eq!(ruling.verdict, Verdict::Allow);
    assert!(ruling.audit.iter().any(|pair| pair == ("override", "until 2026-11-21T11:00:00Z: moved")));
}

mod property;
