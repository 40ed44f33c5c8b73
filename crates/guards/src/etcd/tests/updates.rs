//! Updates that take a pod or a namespace out of the guard.

use serde_json::{Value, json};

use super::super::decide::Warning;
use super::super::facts::Leaving;
use super::super::fixture::{LEAST, delete};
use super::super::table::MemberState;
use super::super::update::Change as PodChange;
use super::expect::{Expected, Reviewed, assert_outcome, assert_text, quorum, reserved, text_of, verdict_of};
use super::fake::{Fake, Reply, review};
use cluster::cause;

const BY_OWNER: &str = "clusters: [{namespace: db, selector: app=etcd, owner: {apiVersion: etcd.example.org/v1, kind: EtcdCluster}}]";

/// Returns the review of an update of a stored pod.
fn updated(fake: &Fake, name: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    updated_by(fake, "", name, change)
}

/// Returns the review of an update by a subresource.
fn updated_by(fake: &Fake, subresource: &str, name: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let old = fake.pod(name);
    let mut new = old.clone();
    change(&mut new);
    delete(name, |request| {
        request["operation"] = "UPDATE".into();
        request["subResource"] = subresource.into();
        request["options"] = json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"});
        request["oldObject"] = old;
        request["object"] = new;
    })
}

async fn update(fake: &Fake, yaml: &str, name: &str, change: impl FnOnce(&mut Value)) -> Reviewed {
    review(&fake.guard(yaml), &updated(fake, name, change)).await
}

fn without_label(pod: &mut Value) {
    pod["metadata"]["labels"] = json!({"tier": "db"});
}

fn with_unknown_owner(pod: &mut Value) {
    pod["metadata"]["ownerReferences"][0]["uid"] = "x".into();
}

fn with_image(pod: &mut Value) {
    pod["spec"]["containers"][0]["image"] = "etcd:3.6.0".into();
}

fn with_deadline(pod: &mut Value) {
    pod["spec"]["activeDeadlineSeconds"] = 1.into();
}

fn without_owner(pod: &mut Value) {
    pod["metadata"]["ownerReferences"] = json!([]);
}

type Change = fn(&mut Value);

const REMOVALS: [(Change, &str); 5] = [
    (without_label, "changing label app of pod db/etcd-1 takes it out of the guard: "),
    (with_unknown_owner, "changing the owner of pod db/etcd-1 takes it out of the guard: "),
    (without_owner, "changing the owner of pod db/etcd-1 takes it out of the guard: "),
    (with_image, "changing an image of pod db/etcd-1 restarts it: "),
    (with_deadline, "changing activeDeadlineSeconds of pod db/etcd-1 ends it: "),
];

#[tokio::test(start_paused = true)]
async fn an_update_that_removes_a_member_needs_quorum_and_is_reserved() {
    for (change, text) in REMOVALS {
        let fake = Fake::of(3);
        assert_outcome(&update(&fake, LEAST, "etcd-1", change).await, Expected::Allow);
        assert_eq!(fake.state().actions, ["reserved etcd-1"], "{text}");
        let ruling = update(&Fake::of(3).down(&["etcd-2"]), LEAST, "etcd-1", change).await;
        assert_text(&ruling, "deny", &format!("{text}1 of 3 members would be left, 2 are needed"));
        assert_text(
            &ruling,
            "deny",
            "then repeat the change: kubectl annotate -n db pod etcd-1 durward.dev/",
        );
        let unknown =
            Fake::of(3).with(|s| s.members.get_mut("etcd-2").unwrap().reply = Reply::NoResponse(cause::TLS));
        assert_outcome(&update(&unknown, LEAST, "etcd-1", change).await, Expected::Unread(cause::TLS));
    }
}

#[tokio::test(start_paused = true)]
async fn labels_that_the_status_of_a_pod_changes_are_reviewed() {
    let fake = Fake::of(3).down(&["etcd-2"]);
    let ruling = review(&fake.guard(LEAST), &updated_by(&fake, "status", "etcd-1", without_label)).await;
    assert_outcome(&ruling, quorum(1, 3));
    assert_eq!(ruling.changes, [PodChange::Label("app".to_owned())]);
    let ended = |pod: &mut Value| pod["status"]["phase"] = "Failed".into();
    let ruling = review(&fake.guard(LEAST), &updated_by(&fake, "status", "etcd-1", ended)).await;
    assert_outcome(&ruling, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn an_update_of_a_second_member_is_denied_while_the_first_is_reserved() {
    for (change, _) in REMOVALS {
        let fake = Fake::of(3);
        assert_outcome(&update(&fake, LEAST, "etcd-2", change).await, Expected::Allow);
        assert_outcome(&update(&fake, LEAST, "etcd-1", change).await, reserved("etcd-2"));
    }
}

/// Otherwise all members could get deadlines that end at the same time.
#[tokio::test(start_paused = true)]
async fn a_member_with_a_deadline_does_not_count() {
    let fake = Fake::of(3).with(|s| with_deadline(&mut s.pods[2]));
    for change in [with_deadline, without_label] {
        let ruling = update(&fake, LEAST, "etcd-1", change).await;
        assert_outcome(&ruling, quorum(1, 3));
        assert_outcome(&ruling, MemberState::Leaving(Leaving::Deadline));
    }
    assert_outcome(&review(&fake.guard(LEAST), &delete("etcd-1", |_| {})).await, quorum(1, 3));
    assert_outcome(&review(&fake.guard(LEAST), &delete("etcd-2", |_| {})).await, Expected::Allow);
    assert_eq!(fake.state().actions, ["reserved etcd-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_transfers_before_its_update() {
    let fake = Fake::of(3);
    assert_outcome(
        &update(&fake, LEAST, "etcd-0", with_image).await,
        Warning::Transferred { to: "etcd-1".into() },
    );
    assert_eq!(fake.state().actions, ["reserved etcd-0", "etcd-0 to 11"]);
}

#[tokio::test(start_paused = true)]
async fn other_updates_are_allowed_without_a_request_to_a_member() {
    let changes: [fn(&mut Value); 5] = [
        |pod| pod["metadata"]["labels"]["tier"] = "db".into(),
        |pod| pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into(),
        |pod| pod["metadata"]["finalizers"] = json!(["example.org/x"]),
        |pod| pod["metadata"]["annotations"] = json!({"a": "b"}),
        // The garbage collector's deletion for another owner is reviewed.
        |pod| {
            let more = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"});
            pod["metadata"]["ownerReferences"].as_array_mut().unwrap().push(more);
        },
    ];
    for change in changes {
        let fake = Fake::of(3).down(&["etcd-2"]);
        assert_outcome(&update(&fake, LEAST, "etcd-1", change).await, Expected::Allow);
        assert_eq!(fake.activity(), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn orphaning_and_adoption_are_allowed_without_quorum() {
    let set = |s: &mut super::fake::State, change: &dyn Fn(&mut Value)| {
        change(s.others.get_mut(&("statefulsets", "etcd".to_owned())).unwrap());
    };
    let weak = || Fake::of(3).down(&["etcd-2"]);
    // kubectl delete --cascade=orphan: the set is being deleted, then gone.
    let orphaned = weak().with(|s| {
        set(s, &|set| {
            set["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
            set["metadata"]["finalizers"] = json!(["orphan"]);
        });
    });
    assert_outcome(&update(&orphaned, LEAST, "etcd-1", without_owner).await, Expected::Allow);
    assert_eq!(orphaned.activity(), (0, 0));
    let gone = weak().with(|s| drop(s.others.remove(&("statefulsets", "etcd".to_owned()))));
    assert_outcome(&update(&gone, LEAST, "etcd-1", without_owner).await, Expected::Allow);
    // The set is created again and adopts its pods.
    let alone = || {
        weak().with(|s| {
            for pod in &mut s.pods {
                without_owner(pod);
            }
        })
    };
    let adopted = |uid: &'static str, name: &'static str| {
        move |pod: &mut Value| {
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": uid, "controller": true}]);
        }
    };
    assert_outcome(&update(&alone(), LEAST, "etcd-1", adopted("uid-etcd", "etcd")).await, Expected::Allow);
    // A set with another uid, another set, and a set without a pod of this name.
    let other = || {
        alone().with(|s| {
            let set = json!({"metadata": {"name": "other", "namespace": "db", "uid": "uid-other"}, "spec": {"replicas": 3}});
            s.others.insert(("statefulsets", "other".to_owned()), set);
        })
    };
    let small = || alone().with(|s| set(s, &|set| set["spec"]["replicas"] = 1.into()));
    for (fake, uid, name) in
        [(other(), "x", "etcd"), (other(), "uid-other", "other"), (small(), "uid-etcd", "etcd")]
    {
        let ruling = update(&fake, LEAST, "etcd-1", adopted(uid, name)).await;
        assert_ne!(verdict_of(&ruling), "allow", "{name}: {}", text_of(&ruling));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_the_configured_kind_adopts_and_releases_pods() {
    let owner = json!([{"apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "name": "etcd", "uid": "uid-custom", "controller": true}]);
    let owned = |fake: Fake| {
        fake.with(|s| {
            for pod in &mut s.pods {
                pod["metadata"]["ownerReferences"] = owner.clone();
            }
        })
    };
    let with_custom = |fake: Fake| {
        fake.with(|s| {
            let custom = json!({"metadata": {"name": "etcd", "namespace": "db", "uid": "uid-custom"}, "spec": {"size": 3}});
            s.others.insert(("etcdclusters", "etcd".to_owned()), custom);
        })
    };
    let weak = || owned(Fake::of(3).down(&["etcd-2"]));
    let living = with_custom(weak());
    let ruling = update(&living, BY_OWNER, "etcd-1", without_owner).await;
    assert_outcome(&ruling, quorum(1, 3));
    assert_eq!(ruling.changes, [PodChange::Owner]);
    assert_outcome(&update(&weak(), BY_OWNER, "etcd-1", without_owner).await, Expected::Allow);
    let alone =
        with_custom(Fake::of(3).down(&["etcd-2"])).with(|s| s.pods.iter_mut().for_each(without_owner));
    let adopted = |pod: &mut Value| pod["metadata"]["ownerReferences"] = owner.clone();
    assert_outcome(&update(&alone, BY_OWNER, "etcd-1", adopted).await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_another_entry_selects_leaves_its_own() {
    let yaml = "clusters: [{namespace: db, selector: 'app=etcd,role=old', memberOnPodDelete: remove}, {namespace: db, selector: app=etcd}]";
    let fake = Fake::of(3).down(&["etcd-2"]);
    let moved = |pod: &mut Value| pod["metadata"]["labels"]["role"] = "old".into();
    let ruling = update(&fake, yaml, "etcd-1", moved).await;
    assert_outcome(&ruling, Expected::Deny);
    assert_eq!(ruling.changes, [PodChange::Label("role".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_or_overridden_can_be_changed() {
    let deleting = Fake::of(3).down(&["etcd-2"]);
    deleting.mark_deleted("etcd-1");
    assert_outcome(&update(&deleting, LEAST, "etcd-1", without_label).await, Expected::Allow);
    let overridden = Fake::of(3).down(&["etcd-2"]).with(|s| {
        s.pods[1]["metadata"]["annotations"] = json!({"durward.dev/delete-anyway": "etcd-1",
            "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    });
    assert_outcome(&update(&overridden, LEAST, "etcd-1", without_label).await, Expected::Overridden);
    // The annotations of the update itself don't count.
    let fake = Fake::of(3).down(&["etcd-2"]);
    let both = |pod: &mut Value| {
        without_label(pod);
        pod["metadata"]["annotations"] = json!({"durward.dev/delete-anyway": "etcd-1",
            "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    };
    let ruling = update(&fake, LEAST, "etcd-1", both).await;
    assert_outcome(&ruling, quorum(1, 3));
    assert_eq!(ruling.changes, [PodChange::Label("app".to_owned())]);
}

mod namespaces {
    use super::*;

    const LABELED: &str = "clusters: [{namespaceSelector: {matchLabels: {etcd: 'yes'}}, selector: app=etcd}]";

    fn relabeled(before: &Value, after: &Value, uid: &str) -> Vec<u8> {
        relabeled_by("", before, after, uid)
    }

    fn relabeled_by(subresource: &str, before: &Value, after: &Value, uid: &str) -> Vec<u8> {
        let namespace = |labels: &Value| json!({"metadata": {"name": "db", "uid": uid, "labels": labels}});
        let (old, new) = (namespace(before), namespace(after));
        delete("db", |request| {
            request["operation"] = "UPDATE".into();
            request["subResource"] = subresource.into();
            request["resource"] = json!({"group": "", "version": "v1", "resource": "namespaces"});
            request["kind"] = json!({"group": "", "version": "v1", "kind": "Namespace"});
            request["options"] = json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"});
            request["oldObject"] = old;
            request["object"] = new;
        })
    }

    async fn relabel(fake: &Fake, yaml: &str, before: Value, after: Value) -> Reviewed {
        review(&fake.guard(yaml), &relabeled(&before, &after, "uid-db")).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_with_etcd_pods_stays_in_the_guard() {
        let fake = Fake::of(3);
        let ruling = relabel(&fake, LABELED, json!({"etcd": "yes"}), json!({})).await;
        let text = "cannot change label etcd of namespace db: 3 etcd pods would no longer be guarded, such as etcd-0";
        assert_text(&ruling, "deny", text);
        assert_text(
            &ruling,
            "deny",
            "then repeat the change: kubectl annotate namespace db durward.dev/delete-anyway=db",
        );
        let exempt = format!("exempt: {{namespaceSelector: {{matchLabels: {{free: 'yes'}}}}}}\n{LEAST}");
        let ruling = relabel(&fake, &exempt, json!({}), json!({"free": "yes"})).await;
        assert_text(&ruling, "deny", "cannot change label free of namespace db");
        let section = format!("webhook: {{namespaceSelector: {{matchLabels: {{env: prod}}}}}}\n{LEAST}");
        let ruling = relabel(&fake, &section, json!({"env": "prod"}), json!({"env": "dev"})).await;
        assert_text(&ruling, "deny", "cannot change label env of namespace db");
        assert_eq!(fake.activity(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_keeps_the_entry_of_its_etcd_pods() {
        let yaml = "clusters: [{namespaceSelector: {matchLabels: {operator: x}}, selector: app=etcd, memberOnPodDelete: remove}, \
                    {namespaceSelector: {matchLabels: {etcd: 'yes'}}, selector: app=etcd}, \
                    {namespaceSelector: {matchLabels: {last: 'yes'}}, selector: app=etcd}]";
        let (fake, etcd) = (Fake::of(3), json!({"etcd": "yes"}));
        let ruling = relabel(&fake, yaml, etcd.clone(), json!({"etcd": "yes", "operator": "x"})).await;
        let text = "cannot change label operator of namespace db: 3 etcd pods would be guarded by another entry of clusters, such as etcd-0";
        assert_text(&ruling, "deny", text);
        let ruling = relabel(&fake, yaml, etcd.clone(), json!({"last": "yes"})).await;
        assert_text(&ruling, "deny", "cannot change label etcd of namespace db");
        let later = json!({"etcd": "yes", "last": "yes"});
        assert_text(&relabel(&fake, yaml, etcd.clone(), later.clone()).await, "allow", "");
        assert_text(&relabel(&fake, yaml, later, etcd).await, "allow", "");
    }

    #[tokio::test(start_paused = true)]
    async fn subresources_of_a_namespace_keep_its_labels() {
        for subresource in ["status", "finalize"] {
            let body = relabeled_by(subresource, &json!({"etcd": "yes"}), &json!({}), "uid-db");
            let ruling = review(&Fake::of(3).guard(LABELED), &body).await;
            assert_text(&ruling, "deny", "cannot change label etcd of namespace db");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_enters_stays_out_or_has_no_etcd_pods_can_change() {
        let fake = Fake::of(3);
        for (before, after) in [
            (json!({}), json!({"etcd": "yes"})),
            (json!({"etcd": "no"}), json!({})),
            (json!({"etcd": "yes"}), json!({"etcd": "yes", "a": "b"})),
        ] {
            assert_text(&relabel(&fake, LABELED, before, after).await, "allow", "");
        }
        let empty = Fake::of(3).with(|s| s.pods.clear());
        assert_text(&relabel(&empty, LABELED, json!({"etcd": "yes"}), json!({})).await, "allow", "");
        let forged =
            review(&fake.guard(LABELED), &relabeled(&json!({"etcd": "yes"}), &json!({}), "guessed")).await;
        assert_text(&forged, "unknown", "does not have this namespace");
        assert!(!text_of(&forged).contains("etcd-0"), "{}", text_of(&forged));
    }

    #[tokio::test(start_paused = true)]
    async fn an_override_of_the_namespace_lets_it_leave() {
        let fake = Fake::of(3).with(|s| {
            s.others.get_mut(&("namespaces", "db".to_owned())).unwrap()["metadata"]["annotations"] = json!({
                "durward.dev/delete-anyway": "db", "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
        });
        assert_text(
            &relabel(&fake, LABELED, json!({"etcd": "yes"}), json!({})).await,
            "allow",
            "is not checked",
        );
    }
}
