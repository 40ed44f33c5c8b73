//! Deletions of CRDs: the version at which objects are listed, and invalid CRDs.

use super::*;

#[tokio::test(start_paused = true)]
async fn lists_custom_objects_at_a_version_that_the_member_serves() {
    let lists = |query: &ListQuery<'_>| match query.resource.version.as_ref() {
        "v1" => Ok(Page { objects: vec![object("old-one")], next: None }),
        _ => Err(Cause::new(cause::NOT_SERVED, "404 page not found")),
    };
    let local = crd_cluster(&[("v1", false, false), ("v2", true, true)], |_| Ok(Page::default()));
    let fleet = Arc::new(
        FakeFleet::default().with(LOCAL, local).with("m1", crd_cluster(&[("v1", true, true)], lists)),
    );
    let ruling = delete_widgets(&fleet).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 object (old-one)"), "{ruling:?}");
    let requests = fleet.requests.lock().unwrap();
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
        let fleet =
            Arc::new(FakeFleet::default().with("m1", crd_cluster(&versions, |_| Ok(Page::default()))));
        let ruling = delete_widgets(&fleet).await;
        match expected {
            Ok(version) => {
                assert_eq!(ruling.verdict, Verdict::Allow);
                let question = format!("m1: widgets.example.org/{version} in \"\"");
                assert!(fleet.requests.lock().unwrap().contains(&question), "{version}");
            }
            Err(cause) => assert_eq!(code(&ruling), cause),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn counts_objects_of_a_crd_that_a_member_is_deleting() {
    let lists = |_: &ListQuery<'_>| Ok(Page { objects: vec![object("a")], next: None });
    let mut m1 = crd_cluster(&[("v1", true, true)], lists);
    m1.objects.values_mut().for_each(|object| object.metadata.deleting = true);
    let ruling = delete_widgets(&Arc::new(FakeFleet::default().with("m1", m1))).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 object (a)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_crd_is_unknown() {
    let garbled = |whole: serde_json::Value| {
        let crd_object = Object { raw: Some(to_raw_value(&whole).unwrap()), ..object(WIDGETS) };
        FakeCluster { objects: BTreeMap::from([(WIDGETS.to_owned(), crd_object)]), ..FakeCluster::default() }
    };
    for whole in [
        json!({}),
        json!([]),
        json!({"spec": {"group": "other.org", "names": {"plural": "widgets"}, "versions": []}}),
        json!({"spec": {"group": "example.org", "names": {"plural": "../secrets"}, "versions": []}}),
        json!({"spec": {"group": "example.org", "names": {"plural": "widgets"}, "versions": null}}),
    ] {
        let text = whole.to_string();
        let fleet = Arc::new(FakeFleet::default().with("m1", garbled(whole)));
        assert_eq!(code(&delete_widgets(&fleet).await), cause::GARBAGE, "{text}");
    }
    let bare = FakeCluster {
        objects: BTreeMap::from([(WIDGETS.to_owned(), object(WIDGETS))]),
        ..FakeCluster::default()
    };
    assert_eq!(code(&delete_widgets(&Arc::new(FakeFleet::default().with("m1", bare))).await), cause::GARBAGE);
}
