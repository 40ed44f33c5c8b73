//! Valid and invalid snapshots.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use super::*;
use crate::fleet::Cluster;
use crate::{Address, MetadataResult, Reader as _, cause};

const INDEX_TEXT: &str = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters:\n  - name: here\n";
const NAMESPACES: &str = "here/namespaces.v1.yaml";
const ONE: &str = r#"{"apiVersion":"v1","kind":"NamespaceList","metadata":{"resourceVersion":"1"},"items":[
  {"metadata":{"name":"shop","labels":{"team":"a"},"deletionTimestamp":"2026-11-21T09:00:00Z"}}]}"#;

/// A directory that holds these files.
pub(super) fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

/// Returns the problems of a directory with these files, without its path.
pub(super) fn problems(files: &[(&str, &str)]) -> String {
    let directory = directory(files);
    problems_of(directory.path())
}

fn problems_of(path: &Path) -> String {
    let problems = open(path).expect_err("there is something wrong");
    let text: Vec<_> = problems.iter().map(ToString::to_string).collect();
    text.join("\n").replace(&format!("{}/", path.display()), "")
}

pub(super) fn opened(files: &[(&str, &str)]) -> (TempDir, World) {
    let directory = directory(files);
    let opened = open(directory.path()).unwrap();
    (directory, opened)
}

async fn get(snapshot: &World, name: &str) -> MetadataResult {
    let address = Address { resource: &Resource::NAMESPACES, namespace: "", name };
    snapshot.get(address, Instant::now()).await
}

#[tokio::test]
async fn recorded_objects_are_returned_and_a_complete_list_proves_absence() {
    let (_directory, snapshot) = opened(&[(INDEX, INDEX_TEXT), (NAMESPACES, ONE)]);
    let shop = get(&snapshot, "shop").await.unwrap().unwrap();
    assert_eq!((shop.labels["team"].as_str(), shop.deleting), ("a", true));
    assert_eq!(get(&snapshot, "other").await, Ok(None));
    assert_eq!(snapshot.time.unwrap(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_255_200));
    assert_eq!(snapshot.readiness()[0].reason, "snapshot, 1 objects");
}

#[tokio::test]
async fn an_explicit_empty_list_is_certain_absence() {
    for items in ["[]", "null"] {
        let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":{items}}}"#);
        let (_directory, snapshot) = opened(&[(INDEX, INDEX_TEXT), (NAMESPACES, &list)]);
        assert_eq!(get(&snapshot, "shop").await, Ok(None));
    }
}

#[tokio::test]
async fn data_that_is_not_recorded_is_unknown() {
    let (directory, snapshot) = opened(&[
        (INDEX, INDEX_TEXT),
        ("here/pods.v1.yaml", r#"{"apiVersion":"v1","kind":"PodList","items":[]}"#),
    ]);
    let found = get(&snapshot, "shop").await.unwrap_err();
    assert_eq!(found.code, cause::NOT_RECORDED);
    let expected = format!("(there is no {}/{NAMESPACES})", directory.path().display());
    assert!(found.text.ends_with(&expected), "{}", found.text);
}

#[tokio::test]
async fn a_recorded_failure_is_that_failure_again() {
    let index = format!(
        "{INDEX_TEXT}    unread:\n      - {{what: namespaces.v1, cause: forbidden, text: cannot list namespaces}}\n"
    );
    let (_directory, snapshot) = opened(&[(INDEX, &index)]);
    let found = get(&snapshot, "shop").await.unwrap_err();
    assert_eq!(found.code, cause::FORBIDDEN);
    assert!(found.text.ends_with("when the snapshot was taken: cannot list namespaces"), "{}", found.text);
}

#[tokio::test]
async fn a_failure_of_everything_applies_to_each_list_that_is_missing() {
    let index = format!("{INDEX_TEXT}    unread: [{{what: '*', cause: timeout, text: no answer in 5 s}}]\n");
    let (_directory, snapshot) = opened(&[(INDEX, &index)]);
    assert_eq!(get(&snapshot, "shop").await.unwrap_err().code, cause::TIMEOUT);
    let (_directory, snapshot) = opened(&[(INDEX, &index), (NAMESPACES, ONE)]);
    assert!(get(&snapshot, "shop").await.unwrap().is_some());
}

#[tokio::test]
async fn every_form_of_list_of_kubectl_and_the_api_is_read() {
    for list in [
        r#"{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}]}"#,
        r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{},"items":[{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"shop"}}]}"#,
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: shop\n    labels: {a: \"yes\"}\nkind: List\n",
        r#"{"kind":"NamespaceList","apiVersion":"v1","metadata":{"continue":""},"items":[{"metadata":{"name":"shop"},"spec":{"finalizers":["kubernetes"]}}]}"#,
    ] {
        let (_directory, snapshot) = opened(&[(INDEX, INDEX_TEXT), (NAMESPACES, list)]);
        assert!(get(&snapshot, "shop").await.unwrap().is_some(), "{list}");
    }
}

#[test]
fn a_snapshot_can_have_several_clusters() {
    let index = "version: 2\ntime: 2026-11-21T10:00:00+01:00\nclusters:\n  - {name: here, kubernetes: v1.35.4}\n  - name: m1.example\n";
    let (_directory, snapshot) = opened(&[
        (INDEX, index),
        (
            "m1.example/deployments.v1.apps.yaml",
            r#"{"apiVersion":"apps/v1","kind":"DeploymentList","items":[]}"#,
        ),
    ]);
    assert_eq!(snapshot.others().collect::<Vec<_>>(), ["m1.example"]);
    let m1 = Cluster::Context("m1.example".into());
    assert_eq!((snapshot.kubernetes(&Cluster::Local), snapshot.kubernetes(&m1)), (Some("v1.35.4"), None));
}

#[test]
fn a_directory_without_index_is_rejected_with_an_explanation() {
    assert!(problems(&[]).starts_with("snapshot.yaml: cannot be read: No such file"), "{}", problems(&[]));
    assert!(problems(&[]).contains("a snapshot is a directory with a file snapshot.yaml"));
    let missing = directory(&[]).path().join("nowhere");
    assert!(problems_of(&missing).contains("cannot be read"));
    let directory = directory(&[(INDEX, INDEX_TEXT)]);
    assert!(problems_of(&directory.path().join(INDEX)).contains("cannot be read: Not a directory"));
}

#[test]
fn all_problems_of_the_index_are_reported_with_their_lines() {
    let found = problems(&[(
        INDEX,
        "version: 1\ntime: yesterday\nclusters:\n  - name: ../m1\n  - kubernetes: v1.35.4\n    unread:\n      - {what: pods, cause: tired, texts: x}\n  - name: m1\n  - name: m1\nkind: World\n",
    )]);
    for expected in [
        "snapshot.yaml:1:10: version: \"1\" is not supported",
        "snapshot.yaml:2:7: time: invalid value \"yesterday\"",
        "snapshot.yaml:4:11: clusters[0].name: \"../m1\" is not a cluster's name",
        "clusters[1].name: is required",
        "clusters[1].unread[0].what: \"pods\" is not the name of a List",
        "clusters[1].unread[0].cause: invalid value \"tired\"",
        "must be one of: unreachable, timeout, credentials, forbidden, busy, refused, garbage",
        "clusters[1].unread[0].text: is required",
        "unknown field \"clusters[1].unread[0].texts\"",
        "clusters: no cluster is named \"here\"",
        "clusters: \"m1\" is listed twice",
        "snapshot.yaml:10:1: unknown field \"kind\"",
    ] {
        assert!(found.contains(expected), "{expected}\nis not in\n{found}");
    }
}

#[test]
fn an_index_without_required_keys_is_rejected() {
    for (index, expected) in [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("[]", "is not a map"),
        ("clusters: here", "clusters: is not a list"),
        ("version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: []\n", "add the local cluster: - name: here"),
        ("time: 2026-11-21T10:00:00Z\nclusters: [{name: here}]\n", "version: is required"),
        ("version: 1\nclusters: [{name: here}]\n", "time: is required"),
        ("version: 1\nversion: 1\n", "duplicate field"),
        ("version: [\n", "the file is not YAML"),
        (
            "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here, unread: [{what: \"*\", cause: busy, text: x}, {what: \"*\", cause: busy, text: y}]}]\n",
            "\"*\" is listed twice",
        ),
        (
            "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here, unread: [{what: \"*\", text: x}]}]\n",
            "cause: is required",
        ),
    ] {
        let found = problems(&[(INDEX, index)]);
        assert!(found.contains(expected), "{index:?}: {found}");
    }
}

#[test]
fn invalid_lists_are_reported_with_file_and_reason() {
    let list =
        |items: &str| format!("{{\"apiVersion\":\"v1\",\"kind\":\"NamespaceList\",\"items\":[\n{items}\n]}}");
    for (text, expected) in [
        (String::new(), "here/namespaces.v1.yaml: this is not a List"),
        ("{\"kind\":\"NamespaceList\",\n\"apiVersion\":\"v1\"}".to_owned(), "here/namespaces.v1.yaml: this is not a List: missing field `items`"),
        ("apiVersion: v1\nkind: List\n".to_owned(), "here/namespaces.v1.yaml: this is not a List: missing field `items`"),
        (list("{\"metadata\":{\"name\":\"a\"}},\n  {\"metadata\":{}}"), "here/namespaces.v1.yaml: items[1].metadata.name: is missing"),
        (list("{\"metadata\":{\"name\":\"a\"}},\n{\"metadata\":{\"name\":\"a\"}}"), "here/namespaces.v1.yaml: items[1]: \"a\" is in the List twice"),
        (list("{\"metadata\":{\"name\":\"a\",\"labels\":[]}}"), "items[0]: invalid type: sequence, expected a map"),
        (list("{}"), "items[0]: missing field `metadata`"),
        (list("{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"}}"), "items[0]: v1 Pod is not one of the namespaces"),
        (list("{\"kind\":\"Namespace\",\"apiVersion\":\"v2\",\"metadata\":{\"name\":\"a\"}}"), "items[0]: v2 Namespace is not one of the namespaces"),
        ("{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[]}".to_owned(), "kind \"PodList\" of \"v1\": is not a List of namespaces"),
        ("{\"apiVersion\":\"v2\",\"kind\":\"NamespaceList\",\"items\":[]}".to_owned(), "does not fit the file's name"),
        ("{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"items\":[]}".to_owned(), "is not a List"),
        ("{\"apiVersion\":\"v1\",\"kind\":\"NamespaceList\",\"metadata\":{\"continue\":\"x\"},\"items\":[]}".to_owned(), "is one page of a longer List"),
        ("[".repeat(100_000), "this is not a List"),
        ("{".repeat(100_000), "this is not a List"),
        ("items: [a\n".to_owned(), "this is not a List"),
    ] {
        let found = problems(&[(INDEX, INDEX_TEXT), (NAMESPACES, &text)]);
        assert!(found.contains(expected), "{expected}\nis not in\n{found}");
    }
}

#[test]
fn a_list_that_is_wrong_throughout_does_not_fill_the_screen() {
    let items = vec!["{\"metadata\":{}}"; 1000].join(",");
    let text = format!("{{\"apiVersion\":\"v1\",\"kind\":\"NamespaceList\",\"items\":[{items}]}}");
    let found = problems(&[(INDEX, INDEX_TEXT), (NAMESPACES, &text)]);
    assert_eq!(found.lines().count(), 11);
    assert!(found.ends_with("990 more items are invalid"), "{found}");
}

#[test]
fn every_file_in_the_directory_is_read_or_reported() {
    let list = r#"{"apiVersion":"v1","kind":"List","items":[]}"#;
    let index = format!("{INDEX_TEXT}    unread: [{{what: pods.v1, cause: busy, text: x}}]\n");
    let found = problems(&[
        (INDEX, &index),
        ("namespaces.v1.json", list),
        ("m1/namespaces.v1.yaml", list),
        ("here/namespaces.json", list),
        ("here/namespaces.v1.yaml", list),
        ("here/namespaces.v1.json", list),
        ("here/pods.v1.yaml", list),
    ]);
    for expected in [
        "namespaces.v1.json: is not in a cluster's directory\n    move it to a cluster's directory, like here/namespaces.v1.json",
        "m1: snapshot.yaml has no cluster \"m1\"",
        "here/namespaces.json: is not the name of a List",
        "here/namespaces.v1.yaml: is the second file for this List",
        "here/pods.v1.yaml: snapshot.yaml has an entry under unread",
    ] {
        assert!(found.contains(expected), "{expected}\nis not in\n{found}");
    }
    // Other files are allowed there.
    opened(&[
        (INDEX, INDEX_TEXT),
        ("README.md", "x"),
        (".git/config", "x"),
        ("here/.gitkeep", ""),
        ("..data/x.json", "x"),
    ]);
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_directory_is_rejected_and_one_inside_is_followed() {
    use std::os::unix::fs::symlink;
    let outside = directory(&[("secret.json", ONE), ("there/namespaces.v1.yaml", ONE)]);
    let snapshot = directory(&[(INDEX, INDEX_TEXT), ("..data/namespaces.json", ONE), ("here/.keep", "")]);
    let at = snapshot.path().join(NAMESPACES);
    symlink("../..data/namespaces.json", &at).unwrap();
    open(snapshot.path()).unwrap();
    fs::remove_file(&at).unwrap();
    symlink(outside.path().join("secret.json"), &at).unwrap();
    assert!(problems_of(snapshot.path()).contains("is a link out of the directory"));
    fs::remove_dir_all(snapshot.path().join("here")).unwrap();
    symlink(outside.path().join("there"), snapshot.path().join("here")).unwrap();
    assert!(problems_of(snapshot.path()).contains("is a link out of the directory"));
}

#[cfg(unix)]
#[test]
fn directories_binary_files_and_huge_files_are_rejected() {
    use std::os::unix::ffi::OsStrExt as _;
    let snapshot = directory(&[(INDEX, INDEX_TEXT), ("here/.keep", "")]);
    let at = snapshot.path().join(NAMESPACES);
    fs::create_dir(&at).unwrap();
    assert!(problems_of(snapshot.path()).contains("is not a file"));
    fs::remove_dir(&at).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&at).unwrap();
    assert!(problems_of(snapshot.path()).contains("is not a file"));
    drop(socket);
    fs::remove_file(&at).unwrap();
    fs::write(&at, b"\"abc\xff").unwrap();
    assert!(problems_of(snapshot.path()).contains("is not UTF-8 from byte 4"));
    // A sparse file takes no disk space and no time.
    fs::File::create(&at).unwrap().set_len(FILE_LIMIT + 1).unwrap();
    assert!(problems_of(snapshot.path()).contains("is larger than 512 MiB"));
    fs::remove_file(&at).unwrap();
    fs::write(snapshot.path().join("here").join(std::ffi::OsStr::from_bytes(b"\xff.json")), "x").unwrap();
    assert!(problems_of(snapshot.path()).contains("the name is not UTF-8"));
}

#[test]
fn a_deeply_nested_index_is_a_problem_and_no_crash() {
    for text in ["[".repeat(200_000), "{a: ".repeat(200_000), "- ".repeat(200_000)] {
        let directory = directory(&[(INDEX, &text)]);
        assert!(open(directory.path()).is_err());
    }
}
