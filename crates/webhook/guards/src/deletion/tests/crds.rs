//! Deletions of CRDs: the version at which objects are listed, and invalid CRDs.

use cluster::world::{ObjectList, Scope};

use super::*;

#[tokio::test(start_paused = true)]
async fn lists_custom_objects_at_a_version_that_the_member_serves() {
    let fleet = fleet(|content| {
        content.insert(CRDS, crd(&[("v1", false, false), ("v2", true, true)]));
        add_crd(content, &[("v1", true, true)]);
        content.insert_in("m1", "widgets.v1.example.org", json!({"metadata": {"name": "old-one"}}));
        let why = Cause::new(cause::NOT_SERVED, "404 page not found");
        content.fault("m1: widgets.example.org/v2", RequestFault::Fails(why));
    });
    let ruling = delete_widgets(&fleet).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 object (old-one)"), "{ruling:?}");
    let requests = fleet.requests();
    assert!(requests.contains(&"(local): widgets.example.org/v2 in \"\"".to_owned()), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn prefers_the_stored_version_to_other_served_versions() {
    for (versions, expected) in [
        (vec![("v1", true, false), ("v2", true, true)], Ok("v2")),
        (vec![("v1", true, false), ("v2", false, true)], Ok("v1")),
        (vec![("v1", false, true)], Err(cause::NOT_SERVED)),
        (vec![], Err(cause::NOT_SERVED)),
    ] {
        let fleet = fleet(|content| add_crd(content, &versions));
        let ruling = delete_widgets(&fleet).await;
        match expected {
            Ok(version) => {
                assert_eq!(ruling.verdict, Verdict::Allow);
                let question = format!("m1: widgets.example.org/{version} in \"\"");
                assert!(fleet.requests().contains(&question), "{version}");
            }
            Err(cause) => assert_eq!(code(&ruling), cause),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn counts_objects_of_a_crd_that_a_member_is_deleting() {
    let fleet = fleet(|content| {
        content.add_member_cluster("m1", &[]);
        let mut deleting = crd(&[("v1", true, true)]);
        deleting["metadata"]["deletionTimestamp"] = "2026-11-21T09:59:00Z".into();
        content.insert_in("m1", CRDS, deleting);
        content.insert_in("m1", "widgets.v1.example.org", json!({"metadata": {"name": "a"}}));
    });
    let ruling = delete_widgets(&fleet).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 object (a)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_crd_is_unknown() {
    let stored = |raw| {
        let mut list = ObjectList::new(Scope { is_whole: true, ..Scope::default() });
        list.insert(Object { name: WIDGETS.to_owned(), raw, ..Object::default() });
        fleet(|content| {
            content.add_member_cluster("m1", &[]);
            content.cluster("m1").lists.insert(Resource::from_argument(CRDS).unwrap(), Ok(list));
        })
    };
    for whole in [
        json!({}),
        json!([]),
        json!({"spec": {"group": "other.org", "names": {"plural": "widgets"}, "versions": []}}),
        json!({"spec": {"group": "example.org", "names": {"plural": "../secrets"}, "versions": []}}),
        json!({"spec": {"group": "example.org", "names": {"plural": "widgets"}, "versions": null}}),
    ] {
        let fleet = stored(Some(to_raw_value(&whole).unwrap()));
        assert_eq!(code(&delete_widgets(&fleet).await), cause::GARBAGE, "{whole}");
    }
    assert_eq!(code(&delete_widgets(&stored(None)).await), cause::GARBAGE);
}
