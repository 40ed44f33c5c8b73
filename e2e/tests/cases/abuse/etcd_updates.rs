//! A user who can only patch pods tries to take etcd members out of the guard, or to end them.

use std::sync::Barrier;

use anyhow::Error;
use e2e::etcd_cluster::EtcdCluster;
use e2e::etcd_cluster::pods::{self, Pods};
use e2e::prelude::*;

use super::user_with;
use crate::cases::attempt::Attempt;
use crate::cases::etcd::configuration::one_hour_ahead;
use crate::cases::etcd::environment::{Environment, Profile, environment, guarded_etcd, lease_path};
use crate::cases::etcd::quorum::two_followers;
use crate::cases::etcd::requests::{attempt, delete};

/// A uid that no object has.
const UNKNOWN_UID: &str = "0ddba11a-0000-4000-8000-000000000000";

/// A change of a pod that counts as its removal.
struct Change {
    /// The start of the denial, with `POD` instead of the pod.
    text: &'static str,
    /// Returns the merge patch for a pod.
    patch: fn(&Value) -> Value,
}

impl Change {
    fn send(&self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        Ok(attempt(api.merge(&pods.path(name), &(self.patch)(&pods.object(name)?))?))
    }

    /// Expects a denial because of the quorum.
    fn is_denied(&self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<()> {
        let pod = format!("pod {}/{name}", pods.namespace().name());
        let start = format!("{}: 1 of 3 members would be left, 2 are needed", self.text.replace("POD", &pod));
        let before = pods.object(name)?;
        self.send(api, pods, name)?.denied()?.with_message(&[&start, ", then repeat the change: "])?;
        ensure!(pods.object(name)? == before, "{name} was changed");
        Ok(())
    }
}

const OWNER: &str = "changing the owner of POD takes it out of the guard";
const LABEL: &str = "changing label app of POD takes it out of the guard";

const IMAGE: &str = "changing an image of POD restarts it";

fn owners(pod: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut owners = pod["metadata"]["ownerReferences"].clone();
    change(&mut owners[0]);
    json!({"metadata": {"ownerReferences": owners}})
}

const WITH_UNKNOWN_OWNER: Change =
    Change { text: OWNER, patch: |pod| owners(pod, |owner| owner["uid"] = UNKNOWN_UID.into()) };

const WITHOUT_LABEL: Change =
    Change { text: LABEL, patch: |_| json!({"metadata": {"labels": {"app": null}}}) };

const CHANGES: [Change; 8] = [
    WITH_UNKNOWN_OWNER,
    Change { text: OWNER, patch: |pod| owners(pod, |owner| owner["controller"] = false.into()) },
    Change { text: OWNER, patch: |_| json!({"metadata": {"ownerReferences": null}}) },
    WITHOUT_LABEL,
    Change { text: LABEL, patch: |_| json!({"metadata": {"labels": null}}) },
    Change { text: LABEL, patch: |_| json!({"metadata": {"labels": {"app": "other"}}}) },
    Change {
        text: IMAGE,
        patch: |pod| {
            let mut containers = pod["spec"]["containers"].clone();
            containers[0]["image"] = "images.example/other:1".into();
            json!({"spec": {"containers": containers}})
        },
    },
    Change {
        text: "changing activeDeadlineSeconds of POD ends it",
        patch: |_| json!({"spec": {"activeDeadlineSeconds": 1}}),
    },
];

/// Changes that keep a pod in the guard.
fn other_changes() -> [Value; 5] {
    [
        json!({"metadata": {"labels": {"tier": "db"}}}),
        json!({"metadata": {"labels": {"tier": null}}}),
        json!({"metadata": {"annotations": {"note": "x"}}}),
        json!({"metadata": {"annotations": null}}),
        json!({"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}),
    ]
}

#[e2e::case]
fn changes_that_take_members_out_of_the_guard_keep_the_quorum(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let mallory = user_with(cluster, "changes-pods", "", (&["pods"], &["get", "patch"]))?;
    let etcd = EtcdCluster::of(3).start(context)?;
    for change in &CHANGES {
        let ns = environment(context)?.namespace("changed", Profile::Transfer)?;
        let pods = etcd.pods_in(&ns)?;
        let [first, second] = two_followers(&etcd)?;
        mallory.await_permitted(&pods.path(first.name()))?;
        change.send(&mallory.api, &pods, first.name())?.allowed()?;
        if change.text != IMAGE {
            // The first member is lost, also after its reservation has expired.
            cluster.api().delete(&lease_path(ns.name()))?.succeeded()?;
        }
        for name in [second.name(), etcd.leader()?.name()] {
            change.is_denied(&mallory.api, &pods, name)?;
        }
    }
    Ok(())
}

#[e2e::case]
fn one_of_two_changes_at_the_same_time_is_allowed(context: &'static TestContext) -> Result<()> {
    let etcd = EtcdCluster::of(3).start(context)?;
    for [one, other] in [[&WITHOUT_LABEL, &WITHOUT_LABEL], [&WITH_UNKNOWN_OWNER, &WITHOUT_LABEL]] {
        let ns = environment(context)?.namespace("at-once", Profile::Transfer)?;
        let (pods, api) = (etcd.pods_in(&ns)?, ns.cluster().api());
        let (leader, follower) = (etcd.leader()?.name(), etcd.follower()?.name());
        let barrier = Barrier::new(2);
        let send = |change: &Change, name: &str| {
            barrier.wait();
            change.send(api, &pods, name)
        };
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| send(one, leader));
            let second = send(other, follower);
            (first.join().unwrap_or_else(|_| Err(Error::msg("a change panicked"))), second)
        });
        let attempts = [first?, second?];
        let texts = attempts.each_ref().map(Attempt::describe);
        ensure!(attempts.iter().filter(|attempt| attempt.is_allowed()).count() == 1, "{texts:?}");
        for denied in attempts.into_iter().filter(|attempt| !attempt.is_allowed()) {
            // The third member has a pod and stays. The first line can end after "is leaving".
            let counts_other = ["leaving", "no pod"].map(|text| denied.contains(text));
            ensure!(counts_other.contains(&true), "the other change does not count: {texts:?}");
            // One member is left, or none: the third one can be unhealthy while the leadership is transferred.
            denied.denied()?.with_message(&["of 3 members would be left, 2 are needed"])?;
        }
    }
    Ok(())
}

#[e2e::case]
fn a_pod_without_its_label_counts_as_deleted(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "moved", Profile::Transfer)?;
    let verbs: &[&str] = &["get", "patch", "delete"];
    let mallory = user_with(ns.cluster(), "deletes-pods", "", (&["pods"], verbs))?;
    let pods = etcd.pods_in(&ns)?;
    let [first, second] = two_followers(&etcd)?;
    let remove = |name: &str| Ok::<_, Error>(attempt(mallory.api.delete(&pods.path(name))?));
    mallory.await_permitted(&pods.path(first.name()))?;
    WITHOUT_LABEL.send(&mallory.api, &pods, first.name())?.allowed()?;
    remove(first.name())?.allowed()?.without_warnings()?;
    for name in [second.name(), etcd.leader()?.name()] {
        WITHOUT_LABEL.is_denied(&mallory.api, &pods, name)?;
        remove(name)?.denied()?.with_message(&["1 of 3 members would be left"])?;
    }
    ensure!(pods.active()?.len() == 2, "{:?} are left", pods.active()?);
    // The deleted pod returns with its label, and then another one can go.
    pods.replace(first.name())?;
    WITHOUT_LABEL.send(&mallory.api, &pods, second.name())?.allowed().map(drop)
}

#[e2e::case]
fn an_override_on_the_stored_pod_allows_a_change_until_it_expires(
    context: &'static TestContext,
) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "overridden", Profile::Transfer)?;
    let cluster = ns.cluster();
    let mallory = user_with(cluster, "overrides-pods", "", (&["pods"], &["get", "patch"]))?;
    let pods = etcd.pods_in(&ns)?;
    let [down, up] = two_followers(&etcd)?;
    let _stopped = down.stop()?;
    let name = up.name();
    mallory.await_permitted(&pods.path(name))?;
    let overridden = |until: &str| {
        json!({"durward.dev/delete-anyway": name, "durward.dev/delete-reason": "moved",
            "durward.dev/delete-until": until})
    };
    // The annotations of the change itself don't count, valid or not.
    for until in ["2026-01-01T00:00:00Z", &one_hour_ahead()?] {
        let both = json!({"metadata": {"labels": {"app": null}, "annotations": overridden(until)}});
        attempt(mallory.api.merge(&pods.path(name), &both)?)
            .denied()?
            .with_message(&["changing label app of pod"])?;
    }
    let annotate = |annotations: Value| {
        let change = json!({"metadata": {"annotations": annotations}});
        mallory.api.merge(&pods.path(name), &change)?.succeeded().map(drop)
    };
    annotate(overridden("2026-01-01T00:00:00Z"))?;
    let root = cluster.certified("root", Some("system:masters"))?;
    for api in [&mallory.api, &root.api] {
        WITHOUT_LABEL
            .send(api, &pods, name)?
            .denied()?
            .with_message(&["2026-01-01T00:00:00Z is in the past"])?;
    }
    // The key for callers with the permission counts for them only.
    annotate(json!({"durward.dev/delete-anyway": null, "durward.dev/break-glass": name}))?;
    WITHOUT_LABEL.send(&mallory.api, &pods, name)?.denied()?;
    let dry_run = format!("{}?dryRun=All", pods.path(name));
    let change = json!({"metadata": {"labels": {"app": null}}});
    attempt(root.api.merge(&dry_run, &change)?).allowed()?.without_warnings()?;
    annotate(Value::Null)?;

    let denied = WITH_UNKNOWN_OWNER.send(&mallory.api, &pods, name)?.denied()?;
    cluster.kubectl().shell(&denied.command("Override", "moved to another cluster")?)?.succeeded()?;
    for change in [WITH_UNKNOWN_OWNER, WITHOUT_LABEL] {
        let allowed = change.send(&mallory.api, &pods, name)?.allowed()?;
        allowed.with_warning("moved to another cluster")?;
        // The pod returns to its owner.
        if change.text == OWNER {
            let owner = owners(&pods.object(etcd.leader()?.name())?, |_| ());
            mallory.api.merge(&pods.path(name), &owner)?.succeeded()?;
        }
    }
    Ok(())
}

#[e2e::case]
fn changes_are_reviewed_if_fields_are_absent(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "absent", Profile::Transfer)?;
    changes_are_reviewed(&ns, &etcd)
}

/// Stops one of three members, and changes another one. The API server evaluates the match conditions also on objects without labels,
/// annotations and owners.
pub(in crate::cases) fn changes_are_reviewed(ns: &Namespace<'_>, etcd: &EtcdCluster) -> Result<()> {
    let (pods, api) = (etcd.pods_in(ns)?, ns.cluster().api());
    let [down, up] = two_followers(etcd)?;
    let _stopped = down.stop()?;
    for change in &CHANGES {
        change.is_denied(api, &pods, up.name())?;
    }
    for change in other_changes() {
        attempt(api.merge(&pods.path(up.name()), &change)?).allowed()?.without_warnings()?;
    }

    // The set is deleted with `--cascade=orphan`. Without a garbage collector it stays, and the case removes its references.
    let orphaned = json!({"metadata": {"ownerReferences": null}});
    let set = pods.stateful_set_path();
    api.delete_with(&set, &json!({"propagationPolicy": "Orphan"}))?.succeeded()?;
    let owner = owners(&pods.object(up.name())?, |_| ());
    for member in etcd.members() {
        attempt(api.merge(&pods.path(member.name()), &orphaned)?).allowed()?.without_warnings()?;
    }
    api.merge(&set, &json!({"metadata": {"finalizers": null}}))?.succeeded()?;
    // The deleted set cannot adopt a pod, and its successor can.
    let adopted = attempt(api.merge(&pods.path(up.name()), &owner)?);
    adopted.denied()?.with_message(&["changing the owner of pod"])?;
    WITHOUT_LABEL.is_denied(api, &pods, up.name())?;
    let pods = pods::set(ns, etcd.name(), 3, |_| {})?;
    let uid = api.get(&pods.stateful_set_path())?.succeeded()?.body["metadata"]["uid"].clone();
    let mut adopted = owner;
    adopted["metadata"]["ownerReferences"][0]["uid"] = uid;
    for member in etcd.members() {
        attempt(api.merge(&pods.path(member.name()), &adopted)?).allowed()?.without_warnings()?;
    }

    // A pod without labels and owner enters the guard. It never ran, so it can leave again.
    ns.pod("bare").is_admitted()?;
    for label in [json!("etcd"), Value::Null] {
        let change = json!({"metadata": {"labels": {"app": label}}});
        attempt(api.merge(&pods.path("bare"), &change)?).allowed()?;
    }
    delete(&pods, up.name())?.denied().map(drop)
}

/// The subresource `status` of a pod also writes its labels.
#[e2e::case]
fn the_status_of_a_pod_does_not_change_its_labels(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 3, "status", Profile::Transfer)?;
    let mallory = user_with(cluster, "writes-status", "", (&["pods/status"], &["get", "patch"]))?;
    let pods = etcd.pods_in(&ns)?;
    let [first, second] = two_followers(&etcd)?;
    let status = |name: &str| format!("{}/status", pods.path(name));
    mallory.await_permitted(&status(first.name()))?;
    let change = (WITHOUT_LABEL.patch)(&Value::Null);
    attempt(mallory.api.merge(&status(first.name()), &change)?).allowed()?;
    let denied = attempt(mallory.api.merge(&status(second.name()), &change)?).denied()?;
    denied.with_message(&["changing label app of pod", "1 of 3 members would be left"]).map(drop)
}
