//! Several deletions at once, by several replicas, and what is noted between them.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::super::fixture::{LEAST, delete, evict};
use super::fake::{Fake, Reply, deleted, evicted, ruled, word};
use super::says;
use cluster::cause;

/// How many of these deletions pass, each by a replica of its own.
async fn passing(fake: &Fake, yaml: &str, names: &[&str]) -> usize {
    let doors: Vec<_> = names.iter().map(|name| (fake.door(yaml), delete(name, |_| {}))).collect();
    let rulings = join_all(doors.iter().map(|(door, body)| ruled(door, body))).await;
    rulings.iter().filter(|ruling| word(ruling) == "allow").count()
}

#[tokio::test(start_paused = true)]
async fn of_two_at_once_at_three_members_one_passes() {
    for names in [["etcd-1", "etcd-2"], ["etcd-2", "etcd-1"], ["etcd-0", "etcd-1"]] {
        assert_eq!(passing(&Fake::of(3), LEAST, &names).await, 1, "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn at_five_members_two_pass_and_the_third_does_not() {
    assert_eq!(passing(&Fake::of(5), LEAST, &["etcd-1", "etcd-2", "etcd-3"]).await, 2);
    assert_eq!(passing(&Fake::of(5), LEAST, &["etcd-0", "etcd-1", "etcd-2", "etcd-3", "etcd-4"]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn of_many_at_once_as_many_pass_as_may_be_missing_and_the_others_when_those_are_back() {
    for members in [3, 4, 5, 7] {
        let fake = Fake::of(members);
        let mut waiting: Vec<String> = (0..members).map(|at| format!("etcd-{at}")).collect();
        let most = usize::try_from(members - members / 2 - 1).unwrap();
        while !waiting.is_empty() {
            let doors: Vec<_> = waiting
                .iter()
                .map(|name| {
                    let stored = fake.pod(name);
                    (fake.door(LEAST), delete(name, |request| request["oldObject"] = stored))
                })
                .collect();
            let rulings = join_all(doors.iter().map(|(door, body)| ruled(door, body))).await;
            let passed: Vec<String> = waiting
                .iter()
                .zip(&rulings)
                .filter(|(_, ruling)| word(ruling) == "allow")
                .map(|(name, _)| name.clone())
                .collect();
            // Who is to lead next waits for that, and may be among the last.
            let all = most.min(waiting.len());
            assert!(passed.len() <= most && passed.len() + 1 >= all, "{passed:?} of {waiting:?}");
            assert!(
                !passed.is_empty() && (waiting.len() < 3 || passed.len() == all),
                "{passed:?} of {waiting:?}"
            );
            waiting.retain(|name| !passed.contains(name));
            for name in &passed {
                fake.mark(name);
            }
            for name in &waiting {
                if passed.len() == most {
                    says(&deleted(&fake, LEAST, name).await, "deny", "");
                }
            }
            for name in &passed {
                fake.replace(name);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_process_by_itself_needs_no_lease() {
    // What is noted outlives a test, so that this one has a namespace of Durward's to itself.
    let local = format!("reservation: local\ninstallNamespace: one-process\n{LEAST}");
    let fake = Fake::of(3).with(|s| {
        s.refuses.insert("leases", cause::FORBIDDEN);
        s.refuses.insert("write", cause::FORBIDDEN);
    });
    assert_eq!(passing(&fake, &local, &["etcd-1", "etcd-2"]).await, 1);
    assert!(fake.state().lease.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_same_pod_passes_again_and_another_one_does_not() {
    let fake = Fake::of(3);
    says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "");
    says(&evicted(&fake, LEAST, "etcd-1").await, "allow", "");
    assert_eq!(fake.state().deeds, ["noted etcd-1"], "it is noted once");
    fake.state().later = Duration::from_secs(6);
    says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "");
    assert_eq!(fake.state().deeds, ["noted etcd-1", "noted etcd-1"], "and again before it is void");
    let ruling = deleted(&fake, LEAST, "etcd-2").await;
    says(&ruling, "deny", "leaving: its pod was asked for or let go a moment ago");
    says(
        &ruling,
        "deny",
        "\nWait until etcd-1 is back; it counts again 30 s after nobody asks for it: if a drain tries in vain, stop it; to delete",
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_noted_is_void_when_the_pod_has_not_gone_and_holds_while_it_goes() {
    let fake = Fake::of(3);
    says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "");
    // The review had 8.5 s (less what is kept for the answer), and 30 s begin after that.
    fake.state().later = Duration::from_secs(38);
    says(&deleted(&fake, LEAST, "etcd-2").await, "deny", "let go a moment ago");
    fake.state().later = Duration::from_secs(39);
    says(&deleted(&fake, LEAST, "etcd-2").await, "allow", "");
    let fake = Fake::of(3);
    says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "");
    fake.mark("etcd-1");
    fake.state().later = Duration::from_secs(3600);
    says(&deleted(&fake, LEAST, "etcd-2").await, "deny", "leaving: its pod is being deleted");
}

#[tokio::test(start_paused = true)]
async fn when_the_replacement_is_healthy_the_next_one_may_go_at_once() {
    let fake = Fake::of(3);
    says(&deleted(&fake, LEAST, "etcd-2").await, "allow", "");
    fake.state().pods[2]["metadata"]["uid"] = "uid-of-the-next".into();
    fake.state().members.get_mut("etcd-2").unwrap().reply = Reply::Hangs;
    says(&evicted(&fake, LEAST, "etcd-1").await, "deny", "only 1 other member");
    fake.state().members.get_mut("etcd-2").unwrap().reply = Reply::Whole;
    says(&evicted(&fake, LEAST, "etcd-1").await, "allow", "");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_falls_ill_after_it_was_noted_is_seen() {
    let fake = Fake::of(3);
    // The write is what the test hangs the change on: whoever is asked before it is well.
    let door = fake.door(LEAST);
    let body = delete("etcd-1", |_| {});
    let falling = async {
        while fake.state().lease.is_none() {
            tokio::task::yield_now().await;
        }
        fake.state().members.get_mut("etcd-2").unwrap().reply = Reply::Silent(cause::TIMEOUT);
    };
    let (ruling, ()) = futures_util::future::join(ruled(&door, &body), falling).await;
    says(&ruling, "deny", "only 1 other member is healthy");
    assert_eq!(fake.state().deeds, ["noted etcd-1"]);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_noted_no_healthy_member_goes() {
    for what in ["leases", "write"] {
        let fake = Fake::of(3).refusing(what);
        let ruling = deleted(&fake, LEAST, "etcd-1").await;
        says(&ruling, "unknown", "it cannot be noted that it leaves");
        let down = fake.down(&["etcd-2"]);
        let warned = "it cannot be noted that it leaves: ";
        says(&deleted(&down, LEAST, "etcd-2").await, "allow", warned);
        says(&deleted(&down, LEAST, "etcd-2").await, "allow", "; let no other go until this one is back");
    }
    let broken = Fake::of(3).with(|s| {
        let lease = json!({"metadata": {"annotations": {"durward.dev/reservations": "soon"}}});
        s.lease = Some((1, lease));
    });
    says(&deleted(&broken, LEAST, "etcd-1").await, "unknown", "cannot be read");
}

#[tokio::test(start_paused = true)]
async fn two_ensembles_do_not_stand_in_each_others_way() {
    let fake = Fake::of(3).with(|s| {
        let mut other = s.pods[1].clone();
        other["metadata"]["name"] = "other-0".into();
        other["metadata"]["uid"] = "uid-other-0".into();
        other["metadata"]["ownerReferences"][0]["name"] = "other".into();
        other["metadata"]["ownerReferences"][0]["uid"] = "uid-other".into();
        s.pods.push(other);
    });
    // It neither answers for this ensemble nor is missed in it.
    says(&evicted(&fake, LEAST, "etcd-1").await, "allow", "");
    let stranger = evict("other-0", |_| {});
    says(&ruled(&fake.door(LEAST), &stranger).await, "allow", "");
}
