//! `impact --diff`: removed objects of two trees of manifests, over recorded fleets.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use crate::harness::{Run, TestDir, copy, durward, root};

const WORLD: &str = "examples/deletion/healthy";
const CUT: &str = "examples/deletion/m3-unreachable";
const OLD: &str = "examples/deletion/change/old";
const NEW: &str = "examples/deletion/change/new";

fn removal(old: &str, new: &str, snapshot: &str, arguments: &[&str]) -> Run {
    durward(&[&["impact", "--diff", old, new, "--snapshot", snapshot], arguments].concat())
}

fn namespace(name: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name:?}, annotations: {{{annotations}}}}}\n"
    )
}

/// Compares two texts without a cluster.
fn compare(old: &str, new: &str, arguments: &[&str]) -> Run {
    let dir = TestDir::new();
    dir.write("old.yaml", old);
    dir.write("new.yaml", new);
    copy(&root().join(WORLD), &dir.path().join("fleet"));
    dir.run(&[&["impact", "--diff", "old.yaml", "new.yaml", "--snapshot", "fleet"], arguments].concat())
}

/// An Application with or without the finalizer of Argo CD.
fn application(name: &str, set: &str, cascades: bool, server: &str, resources: &Value) -> Value {
    let finalizers = if cascades { json!(["resources-finalizer.argocd.argoproj.io"]) } else { json!([]) };
    let owners = if set.is_empty() { json!([]) } else { json!([{"kind": "ApplicationSet", "name": set}]) };
    json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": name, "namespace": "argocd", "uid": name, "finalizers": finalizers, "ownerReferences": owners},
        "spec": {"destination": {"server": server}}, "status": {"resources": resources}})
}

const HERE: &str = "https://kubernetes.default.svc";

/// Compares a text with nothing, over a fleet with these Applications.
fn applications(old: &str, items: &Value) -> Value {
    let dir = TestDir::new();
    dir.write("old.yaml", old);
    dir.write("new.yaml", "");
    copy(&root().join(WORLD), &dir.path().join("fleet"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    dir.write("fleet/here/applications.v1alpha1.argoproj.io.yaml", &list.to_string());
    dir.run(&["impact", "--diff", "old.yaml", "new.yaml", "--snapshot", "fleet", "-o", "json"]).json()
}

/// Returns the verdicts by short names, in the order of the report.
fn verdicts(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = report["removed"].as_array().unwrap().iter();
    all.map(|one| (text(&one["name"]), text(&one["verdict"]))).collect()
}

fn expected(names: &[(&str, &str)]) -> Vec<(String, String)> {
    names.iter().map(|(name, verdict)| ((*name).to_owned(), (*verdict).to_owned())).collect()
}

#[test]
fn a_renamed_namespace_is_a_removal_and_what_is_in_use_comes_first() {
    let run = removal(OLD, NEW, WORLD, &[]);
    assert_eq!((run.code, run.err.as_str()), (1, ""), "{}", run.out);
    let in_use = run.out.find("ns/shop  in use in member cluster m2").unwrap();
    let free = run.out.find("ns/docs  can be deleted").unwrap();
    assert!(in_use < free, "{}", run.out);
    for part in [
        "2 removed objects are in use\nfacts of a snapshot of 2026-11-21T10:00:00Z, ",
        "  m2  in use  2 pods (web-0, web-1), 1 PVC (data-web-0)\n",
        "  removed at examples/deletion/change/old/namespaces.yaml:",
        "ns/archive stays: argocd.argoproj.io/sync-options: Prune=false\n",
        "also removed: 1 ConfigMap\n",
    ] {
        assert!(run.out.contains(part), "{part:?} is not in {}", run.out);
    }
}

#[test]
fn a_removed_crd_with_objects_in_one_member_is_in_use() {
    let run = removal(OLD, NEW, WORLD, &["-o", "json"]);
    let report = run.json();
    assert_eq!(
        verdicts(&report),
        expected(&[("shop", "deny"), ("widgets.example.org", "deny"), ("docs", "allow")])
    );
    let widgets = &report["removed"][1];
    assert_eq!(
        (&widgets["kind"], &widgets["file"]),
        (&json!("CustomResourceDefinition"), &json!(format!("{OLD}/crd.yaml")))
    );
    assert_eq!(widgets["summary"], "m2: 1 object (shop/blue)");
    assert_eq!((&report["exitCode"], &report["others"]), (&json!(1), &json!({"ConfigMap": 1})));
}

#[test]
fn what_could_not_be_read_is_unknown() {
    let old = namespace("docs", "");
    let dir = TestDir::new();
    dir.write("old.yaml", &old);
    dir.write("new.yaml", "");
    copy(&root().join(CUT), &dir.path().join("fleet"));
    let run = dir.run(&["impact", "--diff", "old.yaml", "new.yaml", "--snapshot", "fleet"]);
    assert_eq!(run.code, 3, "{}", run.out);
    assert!(run.out.starts_with("1 removed object could not be checked\n"), "{}", run.out);
}

#[test]
fn nothing_is_read_if_nothing_with_contents_goes() {
    let config_map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n";
    let dir = TestDir::new();
    dir.write("old.yaml", &[namespace("shop", ""), config_map.to_owned()].concat());
    dir.write("new.yaml", &namespace("shop", ""));
    let arguments = ["impact", "--diff", "old.yaml", "new.yaml", "--kubeconfig", "missing"];
    let run = dir.run(&arguments);
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "no removed namespace, CRD or Application is in use\n\nalso removed: 1 ConfigMap\n")
    );
    // With a removed namespace, the cluster is needed.
    dir.write("new.yaml", "");
    assert_eq!(dir.run(&arguments).code, 2);
}

#[test]
fn annotations_of_other_tools_keep_objects() {
    for (annotation, by) in [
        (
            "argocd.argoproj.io/sync-options: 'ServerSideApply=true, Prune=false'",
            "argocd.argoproj.io/sync-options: Prune=false",
        ),
        ("kustomize.toolkit.fluxcd.io/prune: disabled", "kustomize.toolkit.fluxcd.io/prune: disabled"),
    ] {
        let run = compare(&namespace("shop", annotation), "", &["-o", "json"]);
        assert_eq!((run.code, &run.json()["kept"][0]["by"]), (0, &json!(by)), "{}", run.out);
    }
    // Helm keeps such an object, and Argo CD prunes it.
    let run = compare(&namespace("shop", "helm.sh/resource-policy: keep"), "", &[]);
    assert_eq!(run.code, 1);
    assert!(
        run.out.contains("Helm keeps it (helm.sh/resource-policy: keep), and Argo CD prunes it\n"),
        "{}",
        run.out
    );
    // Argo CD prunes an object with this option: it only stays if its Application goes.
    let run =
        compare(&namespace("shop", "argocd.argoproj.io/sync-options: Delete=false"), "", &["-o", "json"]);
    assert_eq!((run.code, verdicts(&run.json())), (1, expected(&[("shop", "deny")])));
}

#[test]
fn an_application_set_takes_its_applications_and_their_resources_along() {
    let set = "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: shops, namespace: argocd}\n";
    let namespace = |name| json!({"version": "v1", "kind": "Namespace", "name": name});
    let stateful_set =
        json!({"group": "apps", "version": "v1", "kind": "StatefulSet", "namespace": "shop", "name": "db"});
    let crd = json!({"group": "apiextensions.k8s.io", "version": "v1", "kind": "CustomResourceDefinition", "name": "widgets.example.org"});
    let report = applications(
        set,
        &json!([
            application("shop-prod", "shops", true, HERE, &json!([namespace("shop"), stateful_set, crd])),
            application("shop-kept", "shops", false, HERE, &json!([namespace("docs")])),
            application("elsewhere", "shops", true, "https://m9.example.org", &json!([namespace("docs")])),
            application("other", "", true, HERE, &json!([namespace("docs")])),
        ]),
    );
    assert_eq!(
        verdicts(&report),
        expected(&[
            ("shop", "deny"),
            ("elsewhere", "deny"),
            ("shop-prod", "deny"),
            ("shop-kept", "allow"),
            ("shops", "allow")
        ])
    );
    let [shop, elsewhere, prod, kept, shops] = [0, 1, 2, 3, 4].map(|at| &report["removed"][at]);
    assert_eq!(shop["via"], json!(["application/argocd/shop-prod", "applicationset/argocd/shops"]));
    assert_eq!(elsewhere["summary"], "Argo CD deletes its 1 object in https://m9.example.org: 1 Namespace");
    assert_eq!(prod["summary"], "Argo CD deletes its 2 objects: 1 Namespace, 1 StatefulSet");
    assert_eq!(kept["summary"], "its 1 object stays, because it has no resources finalizer");
    assert_eq!(shops["summary"], "its 3 Applications go with it");
}

#[test]
fn what_is_not_in_the_snapshot_and_what_is_not_followed_is_unknown() {
    let app =
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: empty, namespace: argocd}\n";
    let report = applications(app, &json!([application("empty", "", true, HERE, &json!([]))]));
    assert_eq!(verdicts(&report), expected(&[("empty", "unknown")]));
    let set = app.replace("kind: Application", "kind: ApplicationSet");
    assert_eq!(verdicts(&applications(&set, &json!([]))), expected(&[("empty", "unknown")]));
    let report = applications(app, &json!([]));
    assert_eq!(verdicts(&report), expected(&[("empty", "unknown")]));
    let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: apps, namespace: flux-system}\n";
    let run = compare(&(namespace("new", "") + "---\n" + flux), "", &["-o", "json"]);
    assert_eq!((run.code, verdicts(&run.json())), (3, expected(&[("new", "unknown"), ("apps", "unknown")])));
}

#[test]
fn applications_that_could_not_be_read_are_unknown() {
    let app =
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: shop, namespace: argocd}\n";
    let run = compare(app, "", &["-o", "json"]);
    let report = run.json();
    assert_eq!((run.code, verdicts(&report)), (3, expected(&[("shop", "unknown")])));
    assert!(
        report["removed"][0]["summary"].as_str().unwrap().contains("applications.argoproj.io"),
        "{report}"
    );
}

#[test]
fn reads_lists_directories_standard_input_and_generated_names() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: shop}\n\
                - apiVersion: batch/v1\n  kind: Job\n  metadata: {generateName: hook-, namespace: shop}\n";
    let run = compare(list, "", &["-o", "json"]);
    let report = run.json();
    assert_eq!((run.code, verdicts(&report)), (1, expected(&[("shop", "deny")])));
    assert_eq!((&report["removed"][0]["line"], &report["generated"]), (&json!(4), &json!(1)));
    // A CRD with the same name in another group is another CRD.
    let crd = |group: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: widgets.{group}}}\n"
        )
    };
    let run = compare(&crd("example.org"), &crd("example.com"), &["-o", "name"]);
    assert_eq!((run.code, run.out.as_str()), (1, "crd/widgets.example.org\n"));
}

#[test]
fn bad_input_is_an_error_with_its_place() {
    for (old, new, parts) in [
        (
            namespace("a", "") + &namespace("a", ""),
            String::new(),
            &["old.yaml:8:12", "the object is in old.yaml:2 too"][..],
        ),
        (
            namespace("{{ .Values.name }}", ""),
            String::new(),
            &["old.yaml:", "is not rendered", "helm template"],
        ),
        (
            "kind: {{ .Values.kind }}\nmetadata: {}\n".to_owned(),
            String::new(),
            &["old.yaml:1", "render it first"],
        ),
        (namespace("a", ""), "kind: [\n".to_owned(), &["new.yaml:"]),
    ] {
        let run = compare(&old, &new, &[]);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
        for part in parts {
            assert!(run.err.contains(part), "{part:?} is not in {}", run.err);
        }
    }
    let empty = compare("", &namespace("a", ""), &[]);
    assert_eq!(empty.code, 2);
    assert!(empty.err.contains("old.yaml contains no object"), "{}", empty.err);
    let missing = removal(OLD, "missing", WORLD, &[]);
    assert_eq!((missing.code, missing.out.as_str()), (2, ""));
    assert!(missing.err.contains("missing"), "{}", missing.err);
    let both = removal("-", "-", WORLD, &[]);
    assert_eq!(both.code, 2, "{}", both.err);
    for format in ["markdown", "github"] {
        assert_eq!(durward(&["impact", "ns/shop", "--snapshot", WORLD, "-o", format]).code, 2);
    }
}

#[test]
fn the_comment_is_a_table_that_fits() {
    let run = removal(OLD, NEW, WORLD, &["-o", "markdown"]);
    assert_eq!(run.code, 1);
    assert!(
        run.out
            .starts_with("### Durward: 2 removed objects are in use\n\n| removed | | what goes with it |\n"),
        "{}",
        run.out
    );
    assert!(
        run.out.contains("| `ns/shop` | 🔴 in use | m2: 2 pods (web-0, web-1), 1 PVC (data-web-0) |\n"),
        "{}",
        run.out
    );
    let old: String = (0..2000).fold(String::new(), |mut all, at| {
        let _ = write!(all, "{}", namespace(&format!("team-{at:04}-with-a-longer-name"), ""));
        all
    });
    let run = compare(&old, "", &["-o", "markdown"]);
    assert!(
        run.out.len() < 60_000 && run.out.contains("more removed objects are not shown"),
        "{}",
        run.out.len()
    );
}

#[test]
fn the_comment_shows_texts_as_they_are() {
    let dir = TestDir::new();
    copy(&root().join(WORLD), &dir.path().join("fleet"));
    let pods = fs::read_to_string(root().join(WORLD).join("m2/pods.v1.yaml")).unwrap();
    // The control plane has the pods too.
    dir.write("fleet/here/pods.v1.yaml", &pods.replace("name: web-0", "name: \"a|b`<i>c_https://d@e#1\""));
    let old = namespace("shop", "") + "---\napiVersion: x/v1\nkind: \"K|<b>\"\nmetadata: {name: x}\n";
    dir.write("old.yaml", &(old + &namespace("later", "")));
    dir.write("new.yaml", "");
    let arguments = ["impact", "--diff", "old.yaml", "new.yaml", "--snapshot", "fleet", "-o", "markdown"];
    let run = dir.run(&arguments);
    let name = r"a\|b\`&lt;i&gt;c\_https&#58;//d@&#8203;e#&#8203;1";
    for part in [
        format!("| `ns/shop` | 🔴 in use | the control plane: 2 pods ({name}, web-1); m2: "),
        format!("- the control plane: in use: 2 pods ({name}, web-1)\n"),
        r"- also removed: 1 K\|&lt;b&gt;".to_owned(),
        "| `ns/later` | 🟡 not checked | is not in the snapshot |\n".to_owned(),
    ] {
        assert!(run.out.contains(&part), "{part:?} is not in {}", run.out);
    }
}

#[test]
fn annotations_of_github_have_the_place() {
    let run = removal(OLD, NEW, WORLD, &["-o", "github"]);
    let expected = format!("::error file={OLD}/namespaces.yaml,line=");
    let line = run.out.lines().find(|line| line.contains("ns/shop")).unwrap();
    assert!(line.starts_with(&expected) && line.contains("title=ns/shop is in use::m2"), "{line}");
    assert_eq!(run.out.lines().count(), 2, "{}", run.out);
}

#[test]
fn the_page_has_no_script_and_escapes_texts() {
    let run = removal(OLD, NEW, WORLD, &["-o", "html"]);
    assert_eq!(run.code, 1);
    for part in ["<!doctype html>", "<td class=\"u\">3</td>", "<a href=\"#o", "ns/archive stays"] {
        assert!(run.out.contains(part), "{part:?} is not in {}", run.out);
    }
    assert!(
        !run.out.contains("<script") && !run.out.contains("src=") && !run.out.contains("://"),
        "{}",
        run.out
    );
    let one = durward(&["impact", "ns/shop", "--snapshot", WORLD, "-o", "html"]);
    assert!(one.out.contains("<th scope=\"row\">PVCs</th>"), "{}", one.out);
    let all = durward(&["impact", "--all", "--snapshot", WORLD, "-o", "html"]);
    assert!(all.out.contains("2 of 3 objects are in use"), "{}", all.out);
    let dir = TestDir::new();
    copy(&root().join(WORLD), &dir.path().join("fleet"));
    let file = "fleet/m2/pods.v1.yaml";
    let pods = fs::read_to_string(root().join(WORLD).join("m2/pods.v1.yaml")).unwrap();
    dir.write(file, &pods.replace("name: web-0", "name: \"<b>web</b>\""));
    let run = dir.run(&["impact", "ns/shop", "--snapshot", "fleet", "-o", "html"]);
    assert!(run.code == 1 && run.out.contains("&lt;b&gt;web"), "{}", run.err);
    assert!(!run.out.contains("<b>web"), "{}", run.out);
}

/// Runs a script of a pipeline in a directory, with programs of this test before all others. Returns its exit code.
fn shell(script: &str, directory: &std::path::Path, programs: &std::path::Path) -> i32 {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_durward")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = std::process::Command::new("bash")
        .args(["-eo", "pipefail", "-c", script])
        .current_dir(directory)
        .env("PATH", format!("{}:{}:{path}", programs.display(), binary.display()))
        .env("RUNNER_TEMP", programs)
        .env("GITHUB_STEP_SUMMARY", programs.join("summary.md"))
        .envs([("GITLAB_TOKEN", "token"), ("CI_API_V4_URL", "https://gitlab.example.org/api/v4")])
        .envs([
            ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main"),
            ("CI_PROJECT_ID", "1"),
            ("CI_MERGE_REQUEST_IID", "7"),
        ])
        .envs([
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@example.org"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@example.org"),
        ])
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    assert!(code < 2, "{script}: {}", String::from_utf8_lossy(&output.stderr));
    code
}

/// Creates a repository with the branches `main`, `fleet-snapshot` and the one of the pull request, which is checked out.
fn repository(dir: &TestDir) {
    let script = format!(
        "git init -q --bare origin.git && git init -q -b main clone && cd clone && git remote add origin ../origin.git
        git checkout -q -b fleet-snapshot && cp -r {root}/{WORLD} snapshot && git add . && git commit -qm snapshot
        git checkout -q --orphan main && git rm -rfq . && cp -r {root}/{OLD} deploy && git add . && git commit -qm old
        git push -q origin main fleet-snapshot
        git checkout -q -b change && git rm -rfq deploy && cp -r {root}/{NEW} deploy && git add . && git commit -qm new
        git branch -qD main fleet-snapshot && git fetch -q origin",
        root = root().display()
    );
    assert_eq!(shell(&script, dir.path(), dir.path()), 0);
}

#[test]
fn the_workflow_for_github_writes_the_summary_and_fails() {
    let dir = TestDir::new();
    repository(&dir);
    // GitHub checks out the merge of the pull request.
    let merge = "cd clone && git checkout -q --detach origin/main && git merge -q --no-ff -m merge change";
    assert_eq!(shell(merge, dir.path(), dir.path()), 0);
    let workflow: Value =
        serde_saphyr::from_str(&fs::read_to_string(root().join("examples/ci/github.yaml")).unwrap()).unwrap();
    let steps = workflow["jobs"]["impact"]["steps"].as_array().unwrap().iter();
    let codes: Vec<i32> = steps
        .filter_map(|step| step["run"].as_str())
        .map(|script| shell(script, &dir.path().join("clone"), dir.path()))
        .collect();
    assert_eq!(codes, [0, 0, 1]);
    let summary = fs::read_to_string(dir.path().join("summary.md")).unwrap();
    assert!(summary.starts_with("### Durward: 2 removed objects are in use\n"), "{summary}");
}

#[test]
fn the_job_for_gitlab_comments_on_the_merge_request_and_fails() {
    let dir = TestDir::new();
    repository(&dir);
    dir.write("curl", "#!/bin/sh\necho \"$@\" > \"$RUNNER_TEMP/called\"\n");
    assert_eq!(shell("chmod +x curl", dir.path(), dir.path()), 0);
    let job: Value =
        serde_saphyr::from_str(&fs::read_to_string(root().join("examples/ci/gitlab.yaml")).unwrap()).unwrap();
    let lines: Vec<&str> =
        job["impact"]["script"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!(shell(&lines.join("\n"), &dir.path().join("clone"), dir.path()), 1);
    let called = fs::read_to_string(dir.path().join("called")).unwrap();
    assert!(
        called.ends_with("https://gitlab.example.org/api/v4/projects/1/merge_requests/7/notes\n"),
        "{called}"
    );
}
