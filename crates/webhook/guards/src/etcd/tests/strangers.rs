//! Reviews that no API server sent: they write nothing and ask no member.

use serde_json::{Value, json};

use super::super::fixture::{LEAST, delete, evict};
use super::expect::{Expected, Reviewed, assert_outcome, quorum, text_of, verdict_of};
use super::fake::{Fake, review};
use cluster::cause;

/// Reviews a deletion of `etcd-1` as the API server stores it, with changes.
async fn forged(fake: &Fake, change: impl FnOnce(&mut Value)) -> Reviewed {
    let stored = fake.pod("etcd-1");
    let body = delete("etcd-1", |request| {
        request["oldObject"] = stored;
        change(request);
    });
    review(&fake.guard(LEAST), &body).await
}

#[tokio::test(start_paused = true)]
async fn a_review_with_another_uid_has_no_effect() {
    let changes: [fn(&mut Value); 6] = [
        |r| r["oldObject"]["metadata"]["uid"] = "guessed".into(),
        |r| drop(r["oldObject"]["metadata"].as_object_mut().unwrap().remove("uid")),
        |r| r["oldObject"]["metadata"]["uid"] = "".into(),
        // A pod that never started is allowed and reserved, if it exists.
        |r| {
            r["oldObject"]["metadata"]["uid"] = "guessed".into();
            r["oldObject"]["status"] = json!({"phase": "Pending"});
        },
        // The leader of a terminating pod is asked, if the pod exists.
        |r| {
            r["oldObject"]["metadata"]["uid"] = "guessed".into();
            r["oldObject"]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
            r["oldObject"]["status"]["podIP"] = "10.0.0.9".into();
            r["options"]["gracePeriodSeconds"] = 0.into();
        },
        |r| {
            let metadata = &mut r["oldObject"]["metadata"];
            metadata["uid"] = "guessed".into();
            metadata["annotations"] = json!({"durward.dev/delete-anyway": "etcd-1", "durward.dev/delete-reason": "x",
                "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
        },
    ];
    for change in changes {
        let fake = Fake::of(3);
        let ruling = forged(&fake, change).await;
        assert_eq!(fake.activity(), (0, 0), "{}", text_of(&ruling));
        assert!(!text_of(&ruling).contains("etcd-0"), "{}", text_of(&ruling));
    }
}

#[tokio::test(start_paused = true)]
async fn the_stored_pod_decides_and_not_the_one_of_the_review() {
    // The review says that etcd never started, and gives another address.
    let fake = Fake::of(3).down(&["etcd-2"]);
    let ruling = forged(&fake, |r| {
        r["oldObject"]["status"] = json!({"phase": "Pending", "podIP": "10.9.9.9"});
    })
    .await;
    assert_outcome(&ruling, quorum(1, 3));
    let ruling = forged(&fake, |r| {
        r["oldObject"]["metadata"]["ownerReferences"][0]["uid"] = "gone".into();
    })
    .await;
    assert_outcome(&ruling, quorum(1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_is_allowed_only_if_its_review_alone_decides() {
    let unreadable = || Fake::of(3).with_error("pods");
    assert_outcome(&forged(&unreadable(), |_| {}).await, Expected::Unread(cause::FORBIDDEN));
    let stopped = unreadable();
    let ruling = forged(&stopped, |r| r["oldObject"]["status"] = json!({"phase": "Failed"})).await;
    assert_eq!((verdict_of(&ruling), stopped.activity()), ("allow", (0, 0)));
    let eviction = review(&unreadable().guard(LEAST), &evict("etcd-1", |_| {})).await;
    assert_outcome(&eviction, Expected::Unread(cause::FORBIDDEN));
}

#[tokio::test(start_paused = true)]
async fn pods_that_no_entry_selects_cost_no_read() {
    let fake = Fake::of(3).with_error("pods");
    let ruling = forged(&fake, |r| r["oldObject"]["metadata"]["labels"] = json!({"app": "web"})).await;
    assert_outcome(&ruling, Expected::Allow);
}
