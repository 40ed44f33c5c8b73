//! Tests of fleets in snapshots, and of writing them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use admission::Cause;
use serde_json::value::RawValue;

use super::tests::{directory, opened, problems};
use super::{INDEX, open, write};
use crate::fleet::{
    Cluster, Fleet, GetQuery, ListQuery, MembersResult, Object, ObjectResult, PageResult, Part,
};
use crate::world::{ClusterContent, ObjectList, Rest, Scope, World};
use crate::{Address, Metadata, Reader as _, Resource, cause};

const FLEET: &str =
    "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters:\n  - name: here\n  - name: m1\n  - name: m2\n";
const CLUSTERS: &str = "here/clusters.v1alpha1.cluster.karmada.io.yaml";
const PODS: &str = "m1/pods.v1.yaml";
const CRDS: &str = "customresourcedefinitions.v1.apiextensions.k8s.io";

fn resource(stem: &str) -> Resource {
    Resource::from_argument(stem).unwrap()
}

fn member(name: &str) -> Cluster {
    Cluster::Member(Arc::from(name))
}

async fn list(
    snapshot: &World,
    of: &Cluster,
    stem: &str,
    namespace: &str,
    fields: &str,
    part: Part,
) -> PageResult {
    let resource = resource(stem);
    let query = ListQuery {
        resource: &resource,
        namespace,
        field_selector: fields,
        label_selector: "",
        part,
        limit: 500,
        continue_token: None,
    };
    snapshot.list(of, query, Instant::now()).await
}

async fn pods(snapshot: &World, fields: &str, part: Part) -> Result<Vec<String>, Cause> {
    let page = list(snapshot, &member("m1"), "pods.v1", "shop", fields, part).await?;
    assert_eq!(page.next, None);
    Ok(page.objects.into_iter().map(|object| object.name).collect())
}

async fn find(
    snapshot: &World,
    of: &Cluster,
    stem: &str,
    namespace: &str,
    name: &str,
    part: Part,
) -> ObjectResult {
    let resource = resource(stem);
    let address = Address { resource: &resource, namespace, name };
    snapshot.get_object(of, GetQuery { address, part }, Instant::now()).await
}

async fn members(snapshot: &World, fleet: &Fleet) -> MembersResult {
    snapshot.members(fleet, Instant::now()).await
}

fn unknown<T: std::fmt::Debug>(answer: Result<T, Cause>, code: &str, words: &str) {
    let found = answer.unwrap_err();
    assert_eq!(found.code, code, "{}", found.text);
    assert!(found.text.contains(words), "{words}\nis not in\n{}", found.text);
}

const WHOLE_PODS: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
  {"metadata":{"name":"web-0","namespace":"shop","uid":"1"},"status":{"phase":"Running"}},
  {"metadata":{"name":"job-0","namespace":"shop"},"status":{"phase":"Succeeded"}},
  {"metadata":{"name":"web-0","namespace":"other"},"status":{"phase":"Running"}}]}"#;
const ACTIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

#[tokio::test]
async fn a_complete_list_answers_gets_pages_and_selectors() {
    let (_directory, snapshot) = opened(&[(INDEX, FLEET), (PODS, WHOLE_PODS)]);
    assert_eq!(pods(&snapshot, "", Part::Metadata).await.unwrap(), ["job-0", "web-0"]);
    assert_eq!(pods(&snapshot, ACTIVE, Part::Metadata).await.unwrap(), ["web-0"]);
    unknown(
        pods(&snapshot, "spec.nodeName in (a)", Part::Metadata).await,
        cause::NOT_RECORDED,
        "is not supported in snapshots",
    );
    let all = list(&snapshot, &member("m1"), "pods.v1", "", ACTIVE, Part::Whole).await.unwrap();
    assert_eq!(all.objects.len(), 2);
    assert!(all.objects[0].raw.as_ref().unwrap().get().contains("Running"));

    let found =
        find(&snapshot, &member("m1"), "pods.v1", "shop", "web-0", Part::Whole).await.unwrap().unwrap();
    assert_eq!((found.uid.as_str(), found.raw.is_some()), ("1", true));
    let absent = find(&snapshot, &member("m1"), "pods.v1", "shop", "x", Part::Whole).await;
    assert!(absent.unwrap().is_none());
}

#[tokio::test]
async fn a_list_of_metadata_answers_only_queries_for_metadata() {
    let partial = |key: &str| {
        format!(
            r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"{key},"items":[{{"metadata":{{"name":"web-0","namespace":"shop"}}}}]}}"#
        )
    };
    let (_directory, snapshot) = opened(&[(INDEX, FLEET), (PODS, &partial(""))]);
    assert_eq!(pods(&snapshot, "", Part::Metadata).await.unwrap(), ["web-0"]);
    assert_eq!(pods(&snapshot, "metadata.name=x", Part::Metadata).await.unwrap(), Vec::<String>::new());
    unknown(
        pods(&snapshot, ACTIVE, Part::Metadata).await,
        cause::NOT_RECORDED,
        "only metadata was recorded, which does not contain",
    );
    unknown(pods(&snapshot, "", Part::Whole).await, cause::NOT_RECORDED, "only metadata was recorded");
    let whole = find(&snapshot, &member("m1"), "pods.v1", "shop", "web-0", Part::Whole).await;
    unknown(whole, cause::NOT_RECORDED, "only metadata was recorded");

    // A List with a selector answers queries with the same selector only.
    let (_directory, snapshot) =
        opened(&[(INDEX, FLEET), (PODS, &partial(&format!(r#","fieldSelector":"{ACTIVE}""#)))]);
    assert_eq!(pods(&snapshot, ACTIVE, Part::Metadata).await.unwrap(), ["web-0"]);
    unknown(pods(&snapshot, "", Part::Metadata).await, cause::NOT_RECORDED, "were recorded");
    let absent = find(&snapshot, &member("m1"), "pods.v1", "shop", "x", Part::Metadata).await;
    unknown(absent, cause::NOT_RECORDED, "were recorded");
    assert!(
        find(&snapshot, &member("m1"), "pods.v1", "shop", "web-0", Part::Metadata).await.unwrap().is_some()
    );
}

#[tokio::test]
async fn a_list_of_metadata_in_a_plain_list_is_metadata_too() {
    let text = r#"{"kind":"List","apiVersion":"v1","items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"web-0","namespace":"shop"}}]}"#;
    let (_directory, snapshot) = opened(&[(INDEX, FLEET), (PODS, text)]);
    unknown(pods(&snapshot, ACTIVE, Part::Metadata).await, cause::NOT_RECORDED, "only metadata was recorded");
}

#[tokio::test]
async fn a_list_of_some_namespaces_or_names_does_not_answer_for_others() {
    let text = r#"{"kind":"PodList","apiVersion":"v1","namespaces":["shop"],"items":[{"metadata":{"name":"a","namespace":"shop"}}]}"#;
    let spaces = r#"{"kind":"NamespaceList","apiVersion":"v1","names":["shop"],"items":[]}"#;
    let (_directory, snapshot) = opened(&[(INDEX, FLEET), (PODS, text), ("m1/namespaces.v1.yaml", spaces)]);
    let m1 = member("m1");
    assert_eq!(pods(&snapshot, "", Part::Metadata).await.unwrap(), ["a"]);
    for namespace in ["other", ""] {
        let answer = list(&snapshot, &m1, "pods.v1", namespace, "", Part::Metadata).await;
        unknown(answer, cause::NOT_RECORDED, "only other namespaces were recorded");
    }
    assert!(find(&snapshot, &m1, "namespaces.v1", "", "shop", Part::Metadata).await.unwrap().is_none());
    let other = find(&snapshot, &m1, "namespaces.v1", "", "other", Part::Metadata).await;
    unknown(other, cause::NOT_RECORDED, "only other names were recorded");
    let answer = list(&snapshot, &m1, "namespaces.v1", "", "", Part::Metadata).await;
    unknown(answer, cause::NOT_RECORDED, "only some names were recorded");
    let stray = text.replace("\"namespace\":\"shop\"", "\"namespace\":\"x\"");
    let found = problems(&[(INDEX, FLEET), (PODS, &stray)]);
    assert!(found.contains("items[0]: is not in the namespaces and names"), "{found}");
}

#[tokio::test]
async fn the_clusters_of_karmada_are_those_of_its_list_and_missing_recordings_are_unknown() {
    let clusters = r#"{"kind":"ClusterList","apiVersion":"cluster.karmada.io/v1alpha1","items":[
        {"metadata":{"name":"m1","labels":{"zone":"a"}}},{"metadata":{"name":"m9"}},{"metadata":{"name":"here"}}]}"#;
    let index = format!("{FLEET}    unread: [{{what: '*', cause: vanished, text: gone}}]\n");
    let (_directory, snapshot) = opened(&[(INDEX, &index), (CLUSTERS, clusters), (PODS, WHOLE_PODS)]);
    let read = members(&snapshot, &Fleet::Karmada).await.unwrap();
    assert_eq!(read.iter().map(|member| member.cluster.name()).collect::<Vec<_>>(), ["here", "m1", "m9"]);
    assert_eq!(read[1].metadata.labels["zone"], "a");
    for (name, code, words) in [
        ("m9", cause::NOT_RECORDED, "snapshot.yaml has no cluster \"m9\""),
        // This is not the control plane, which has that name in a snapshot.
        ("here", cause::NOT_RECORDED, "snapshot.yaml has no cluster \"here\""),
        ("m2", cause::VANISHED, "when the snapshot was taken: gone"),
    ] {
        unknown(list(&snapshot, &member(name), "pods.v1", "shop", "", Part::Metadata).await, code, words);
        unknown(find(&snapshot, &member(name), "pods.v1", "shop", "a", Part::Metadata).await, code, words);
    }
    let services = list(&snapshot, &member("m1"), "services.v1", "shop", "", Part::Metadata).await;
    unknown(services, cause::NOT_RECORDED, "services are not recorded (there is no ");
}

#[tokio::test]
async fn a_fleet_that_was_not_recorded_is_unknown() {
    let (_directory, snapshot) = opened(&[(INDEX, FLEET)]);
    unknown(
        members(&snapshot, &Fleet::Karmada).await,
        cause::STALE_FLEET,
        "clusters.cluster.karmada.io are not recorded",
    );
    let index = FLEET.replace("name: here\n", "name: here\n    unread: [{what: clusters.v1alpha1.cluster.karmada.io, cause: forbidden, text: cannot list}]\n");
    let (_directory, snapshot) = opened(&[(INDEX, &index)]);
    unknown(members(&snapshot, &Fleet::Karmada).await, cause::STALE_FLEET, "cannot list");
}

#[tokio::test]
async fn other_fleets_are_the_clusters_besides_the_local_one() {
    let index =
        "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here}, {name: admin@m1}, {name: m2}]\n";
    let (_directory, snapshot) = opened(&[(INDEX, index), ("admin%40m1/pods.v1.yaml", WHOLE_PODS)]);
    assert!(members(&snapshot, &Fleet::None).await.unwrap().is_empty());
    let contexts = |name: &str| Fleet::Contexts(vec![name.to_owned()]);
    let read = members(&snapshot, &contexts("admin@m1")).await.unwrap();
    assert_eq!(read[0].cluster, Cluster::Context(Arc::from("admin@m1")));
    let page = list(&snapshot, &read[0].cluster, "pods.v1", "shop", "", Part::Metadata).await.unwrap();
    assert_eq!(page.objects.len(), 2);
    for name in ["m3", "here"] {
        unknown(
            members(&snapshot, &contexts(name)).await,
            cause::STALE_FLEET,
            "snapshot.yaml has no other cluster",
        );
    }
    let secrets = Fleet::Secrets { namespace: "durward".to_owned() };
    assert_eq!(members(&snapshot, &secrets).await.unwrap().len(), 2);
    let recorded = r#"{"kind":"SecretList","apiVersion":"v1","items":[
        {"metadata":{"name":"m2","namespace":"durward","labels":{"durward.dev/fleet":"member","zone":"b"}}},
        {"metadata":{"name":"x","namespace":"durward"}},
        {"metadata":{"name":"y","namespace":"other","labels":{"durward.dev/fleet":"member"}}}]}"#;
    let (_directory, snapshot) = opened(&[(INDEX, index), ("here/secrets.v1.yaml", recorded)]);
    let read = members(&snapshot, &secrets).await.unwrap();
    assert_eq!(
        (read.len(), read[0].cluster.name(), read[0].metadata.labels["zone"].as_str()),
        (1, "m2", "b")
    );
    // A fleet of Secrets without Secrets is not empty.
    let elsewhere = Fleet::Secrets { namespace: "elsewhere".to_owned() };
    unknown(members(&snapshot, &elsewhere).await, cause::STALE_FLEET, "no Secret in namespace \"elsewhere\"");
    let alone = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here}]\n";
    let (_directory, snapshot) = opened(&[(INDEX, alone)]);
    unknown(members(&snapshot, &secrets).await, cause::STALE_FLEET, "no cluster besides here");
}

fn world() -> World {
    let metadata = Metadata {
        labels: BTreeMap::from([("a".to_owned(), "b: \"c\"".to_owned())]),
        annotations: BTreeMap::from([("d".to_owned(), "e\nf".to_owned())]),
        deleting: true,
    };
    let web = Object { namespace: "shop".into(), name: "web-0".into(), uid: "1".into(), metadata, raw: None };
    let raw = r#"{"metadata":{"name":"mice.example.org"},"spec":{"group":"example.org"}}"#;
    let mice = Object {
        name: "mice.example.org".into(),
        raw: Some(RawValue::from_string(raw.to_owned()).unwrap()),
        ..Object::default()
    };
    let list = |fields: &str, is_whole, names, objects: Vec<Object>| {
        let scope = Scope { fields: fields.to_owned(), is_whole, names, ..Scope::default() };
        let mut list = ObjectList::new(scope);
        for object in objects {
            list.insert(object);
        }
        Ok(list)
    };
    let time = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_255_200));
    let mut world = World { time, ..World::default() };
    *world.cluster(&Cluster::Local) = ClusterContent {
        kubernetes: Some("v1.35.4".into()),
        lists: BTreeMap::from([(resource(CRDS), list("", true, None, vec![mice]))]),
        ..ClusterContent::default()
    };
    let shop = Some(BTreeSet::from(["shop".to_owned()]));
    let forbidden = Cause::new(cause::FORBIDDEN, "may \"not\":\n# list");
    world.cluster(&member("admin@m1")).lists = BTreeMap::from([
        (resource("pods.v1"), list(ACTIVE, false, None, vec![web])),
        (resource("namespaces.v1"), list("", false, shop, Vec::new())),
        (resource("services.v1"), Err(forbidden)),
    ]);
    world.cluster(&member("m2")).rest = Rest::Failed(Cause::new(cause::OVERLOADED, "too many questions"));
    world
}

#[tokio::test]
async fn a_written_snapshot_is_read_back() {
    let place = directory(&[]);
    let path = place.path().join("snapshot");
    write(&path, &world()).unwrap();
    let snapshot = open(&path).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!((snapshot.time, snapshot.kubernetes(&Cluster::Local)), (world().time, Some("v1.35.4")));
    let m1 = Cluster::Context(Arc::from("admin@m1"));
    let page = list(&snapshot, &m1, "pods.v1", "shop", ACTIVE, Part::Metadata).await.unwrap();
    let recorded = world();
    let pods = recorded.clusters["admin@m1"].lists[&resource("pods.v1")].as_ref().unwrap();
    let (read, written) = (&page.objects[0], pods.iter().next().unwrap());
    assert_eq!((&read.metadata, &read.uid), (&written.metadata, &written.uid));
    unknown(
        list(&snapshot, &m1, "services.v1", "shop", "", Part::Metadata).await,
        cause::FORBIDDEN,
        "may \"not\": # list",
    );
    assert!(find(&snapshot, &m1, "namespaces.v1", "", "shop", Part::Metadata).await.unwrap().is_none());
    unknown(
        find(&snapshot, &m1, "namespaces.v1", "", "x", Part::Metadata).await,
        cause::NOT_RECORDED,
        "only other names",
    );
    unknown(
        list(&snapshot, &member("m2"), "pods.v1", "", "", Part::Metadata).await,
        cause::OVERLOADED,
        "too many questions",
    );
    let crd =
        find(&snapshot, &Cluster::Local, CRDS, "", "mice.example.org", Part::Whole).await.unwrap().unwrap();
    assert!(crd.raw.unwrap().get().contains("example.org"));
    // No other file is left.
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn existing_files_are_kept_and_an_empty_directory_is_used() {
    let place = directory(&[("full/README.md", "x"), ("file", "x")]);
    std::fs::create_dir(place.path().join("empty")).unwrap();
    write(&place.path().join("empty"), &world()).unwrap();
    for (name, words) in [
        ("full", "is not empty"),
        ("empty", "is not empty"),
        ("file", "cannot be written"),
        ("a/b", "cannot be written"),
    ] {
        let found = write(&place.path().join(name), &world()).unwrap_err().to_string();
        assert!(found.contains(words), "{name}: {found}");
    }
    assert!(!place.path().join("full").join(INDEX).exists());
}

#[test]
fn invalid_worlds_are_not_written() {
    let refused = |change: &dyn Fn(&mut World), words: &str| {
        let place = directory(&[]);
        let mut world = world();
        change(&mut world);
        let found = write(&place.path().join("w"), &world).unwrap_err().to_string();
        assert!(found.contains(words), "{found}");
        assert_eq!(std::fs::read_dir(place.path() as &Path).unwrap().count(), 0);
    };
    refused(&|world| drop(world.clusters.remove("(local)")), "there is no local cluster");
    for name in ["../m1", "here", "", ".m1"] {
        refused(&|world| world.cluster(&member(name)).rest = Rest::Empty, "cannot be recorded");
    }
    let outside = Resource { plural: "../pods".into(), ..resource("pods.v1") };
    refused(&|world| world.cluster(&member("m2")).insert(&outside, Object::default()), "cannot be recorded");
}
