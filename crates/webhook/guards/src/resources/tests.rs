//! Sets of policies: loading, problems with file and line, webhook entries, and remarks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use ::config::{parse, read};
use admission::Verdict;
use admission::budget::{Budget, ReviewMemory};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::match_conditions::send;

/// A rule of a policy.
struct Rule<'t> {
    name: &'t str,
    failure_policy: &'t str,
    rule: &'t str,
    more: &'t str,
}

const CLUSTERS: &str = "{apiGroups: [ecs.yun.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [kubernetesclusters]}";

const PODS: &str = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}";

const POLICY: Rule<'static> = Rule { name: "p", failure_policy: "Fail", rule: CLUSTERS, more: "" };

impl Rule<'_> {
    fn policy(&self) -> String {
        let Self { name, failure_policy, rule, more } = self;
        format!(
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
             failurePolicy: {failure_policy}\n  matchConstraints: {{resourceRules: [{rule}]}}\n  \
             validations: [{{expression: 'has(object.spec)'}}]\n{more}"
        )
    }

    fn binding(&self) -> String {
        let name = self.name;
        format!(
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {name}}}\n\
             spec: {{policyName: {name}, validationActions: [Deny]}}\n"
        )
    }

    /// Returns the policy with its binding.
    fn bound(&self) -> String {
        self.policy() + &self.binding()
    }
}

/// Loads the files of a directory, and returns the problems.
fn load(dir: &Path, section: &str) -> (Arc<Config>, Vec<String>) {
    let name = dir.join("durward.yaml").display().to_string();
    let root = parse(&name, section).unwrap();
    let (config, _, problems) =
        read(&name, root.as_ref(), |section| config::read(section, DEFAULTS, crate::NAMESPACE));
    (Arc::new(config), problems.iter().map(ToString::to_string).collect())
}

/// Writes one file and loads it.
fn loaded(policies: &str) -> (Arc<Config>, Vec<String>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("p.yaml"), policies).unwrap();
    let (config, problems) = load(dir.path(), "policies: [p.yaml]");
    (config, problems, dir)
}

#[track_caller]
fn valid(policies: &str) -> Arc<Config> {
    let (config, problems, _dir) = loaded(policies);
    assert_eq!(problems, [""; 0]);
    config
}

/// Asserts that a set is refused with these words: of the problem and its place.
#[track_caller]
fn refused(policies: &str, words: &[&str]) {
    let (config, problems, _dir) = loaded(policies);
    let text = problems.join("\n");
    assert!(!problems.is_empty() && words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    assert!(config.policies.is_none() || problems.iter().any(|problem| problem.contains("one version")));
}

#[test]
fn files_and_directories_are_read_as_check_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("policies")).unwrap();
    fs::write(dir.path().join("policies/p.yaml"), POLICY.policy()).unwrap();
    fs::write(dir.path().join("b.yml"), POLICY.binding()).unwrap();
    fs::write(dir.path().join("policies/README.md"), "no policy").unwrap();
    let (config, problems) = load(dir.path(), "policies: [policies, b.yml]");
    assert_eq!(problems, [""; 0]);
    let set = config.policies.as_ref().unwrap().set();
    assert_eq!(
        set.policies().map(|(policy, bindings)| (policy.name.as_str(), bindings.len())).collect::<Vec<_>>(),
        [("p", 1)]
    );
}

#[test]
fn a_section_without_paths_has_no_entry_and_other_paths_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for section in ["{}", "policies: []"] {
        let (config, problems) = load(dir.path(), section);
        assert_eq!((problems.len(), config.webhooks().len()), (0, 0), "{section}: {problems:?}");
    }
    for section in ["policies: ['-']", "policies: ['']"] {
        let (config, problems) = load(dir.path(), section);
        assert!(problems[0].contains("names something else than a file"), "{section}: {problems:?}");
        assert!(config.policies.is_none());
    }
}

#[test]
fn a_set_that_does_not_load_is_refused_with_file_and_line() {
    let invalid = POLICY.bound().replace("has(object.spec)", "has(object.spec");
    refused(&invalid, &["p.yaml:8:", "spec.validations[0].expression"]);
    refused(&POLICY.binding(), &["p.yaml:", "spec.policyName", "no document defines this policy"]);
    refused(&(POLICY.bound() + &POLICY.policy()), &["p.yaml:", "metadata.name", "Duplicate"]);
    refused(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
        &["contain no ValidatingAdmissionPolicy"],
    );
    // A ConfigMap that was cut in half.
    let whole = POLICY.bound();
    let half = whole.get(..whole.len() - 30).unwrap();
    refused(half, &["p.yaml:"]);
    let (_, problems) = load(Path::new("/nonexistent"), "policies: [policies]");
    assert!(
        problems[0].contains("/nonexistent/policies") && problems[0].contains("cannot be read"),
        "{problems:?}"
    );
}

#[test]
fn a_policy_that_needs_more_than_namespaces_is_refused_with_file_and_line() {
    let reads = |expression: &str| POLICY.bound().replace("'has(object.spec)'", &format!("\"{expression}\""));
    refused(
        &reads("authorizer.group('').resource('pods').check('get').allowed()"),
        &["p.yaml:8:", "spec.validations[0].expression", "asks the authorizer", "kubectl apply"],
    );
    refused(
        &reads("namespaceObject.metadata.annotations['a'] == 'b'"),
        &["p.yaml:8:", "reads more of namespaceObject than metadata.name and metadata.labels"],
    );
    for expression in [
        "has(namespaceObject.status.phase)",
        "has(.namespaceObject.metadata.annotations)",
        "namespaceObject.metadata.?annotations['a'].orValue('') == ''",
        "dyn(namespaceObject)['metadata'] == null",
        "dyn(namespaceObject)[request.name] == null",
        "size(dyn(namespaceObject.metadata)) > 3",
        "[namespaceObject].all(n, has(n.spec))",
        "optional.of(namespaceObject).value().spec == null",
        "dyn(namespaceObject) == object",
    ] {
        refused(&reads(expression), &["p.yaml:8:", "reads more of namespaceObject"]);
    }
    refused(
        &reads(".authorizer.group('').resource('pods').check('get').allowed()"),
        &["p.yaml:8:", "asks the authorizer"],
    );
    for more in [
        "  variables: [{name: v, expression: namespaceObject.spec}]\n",
        "  matchConditions: [{name: v, expression: 'has(namespaceObject.spec)'}]\n",
        "  auditAnnotations: [{key: v, valueExpression: 'string(namespaceObject.status.phase)'}]\n",
    ] {
        refused(&Rule { more, ..POLICY }.bound(), &["p.yaml:9:", "reads more of namespaceObject"]);
    }
    valid(&reads(
        "namespaceObject == null || namespaceObject.metadata.labels['a'] == namespaceObject.metadata.name",
    ));

    let params = Rule { more: "  paramKind: {apiVersion: v1, kind: ConfigMap}\n", ..POLICY };
    let binding = |reference: &str| {
        params.binding().replace(
            "policyName",
            &format!("paramRef: {{parameterNotFoundAction: Deny, {reference}}}, policyName"),
        )
    };
    let with = |reference: &str, param: &str| params.policy() + &binding(reference) + param;
    let limits = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits, namespace: shop}\n";
    refused(
        &with("name: limits", ""),
        &["p.yaml:", "spec.paramRef", "names ConfigMap \"limits\", which is not in the files"],
    );
    refused(&with("name: others", limits), &["names ConfigMap \"others\""]);
    refused(&with("name: limits, namespace: bank", limits), &["names ConfigMap \"limits\""]);
    refused(&with("selector: {}", ""), &["selects params of kind ConfigMap, but the files contain none"]);
    valid(&with("name: limits", limits));
    valid(&with("selector: {}", limits));
}

#[test]
fn a_file_over_three_megabytes_is_refused() {
    let comment = format!("# {}\n", "x".repeat(3 << 20));
    refused(&(POLICY.bound() + &comment), &["p.yaml cannot be read", "larger than"]);
}

#[test]
fn a_set_in_a_mounted_config_map_is_read_once_and_changes_with_the_link() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join("policies").join(name);
    fs::create_dir(dir.path().join("policies")).unwrap();
    for (version, name) in [("..1", "p"), ("..2", "q")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("p.yaml"), Rule { name, ..POLICY }.bound()).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/p.yaml", at("p.yaml")).unwrap();
    let (config, problems) = load(dir.path(), "policies: [policies]");
    assert_eq!(problems, [""; 0]);
    let policies = config.policies.as_ref().unwrap();
    assert!(!policies.has_changed());
    symlink("..2", at("..tmp")).unwrap();
    fs::rename(at("..tmp"), at("..data")).unwrap();
    assert!(policies.has_changed());
    let (other, _) = load(dir.path(), "policies: [policies]");
    let other = other.policies.clone().unwrap();
    assert_eq!(other.set().names().collect::<Vec<_>>(), ["q"]);
    assert_ne!(other.digest(), policies.digest());
    fs::remove_dir_all(dir.path().join("policies")).unwrap();
    assert!(other.has_changed(), "a directory that vanishes is a change");
}

/// Returns each entry with its rules, as `resources-fail: CREATE,UPDATE ecs.yun.com/v1 kubernetesclusters *`.
fn entries(config: &Arc<Config>) -> Vec<String> {
    let list = |list: &Option<Vec<String>>| list.as_ref().unwrap().join(",");
    config
        .webhooks()
        .iter()
        .flat_map(|entry| {
            entry.rules.iter().map(move |rule| {
                let (groups, versions) = (list(&rule.api_groups), list(&rule.api_versions));
                let (operations, resources) = (list(&rule.operations), list(&rule.resources));
                let scope = rule.scope.as_ref().unwrap();
                format!("{}: {operations} {groups}/{versions} {resources} {scope}", entry.name)
            })
        })
        .collect()
}

#[test]
fn there_is_one_entry_for_each_failure_policy_with_the_rules_of_its_bound_policies() {
    let deletes = CLUSTERS.replace("CREATE, UPDATE", "DELETE");
    let policies = [
        Rule { name: "a", ..POLICY },
        Rule { name: "b", rule: &deletes, ..POLICY },
        Rule { name: "c", failure_policy: "Ignore", rule: PODS, ..POLICY },
    ];
    let unbound = Rule { name: "d", rule: PODS, ..POLICY };
    let config = valid(&(policies.each_ref().map(Rule::bound).concat() + &unbound.policy()));
    assert_eq!(
        entries(&config),
        [
            "resources-fail: CREATE,DELETE,UPDATE ecs.yun.com/v1 kubernetesclusters *",
            "resources-ignore: CREATE /v1 pods *",
        ]
    );
    let entries = config.webhooks();
    let of = |entry: &WebhookEntry| (entry.failure_policy, entry.guard, entry.timeout_seconds);
    assert_eq!(of(&entries[0]), (FailurePolicy::Fail, Some("resources"), 5));
    assert_eq!(of(&entries[1]), (FailurePolicy::Ignore, Some("resources-ignore"), 5));
    let guards = config.build(&Clients::offline());
    assert_eq!(
        guards.iter().map(|guard| guard.name()).collect::<Vec<_>>(),
        ["resources", "resources-ignore"]
    );
    assert_eq!(guards[1].settle_policy().users, OnUnknown::Allow);
    let needed: Vec<_> = needed_rules(&config).into_iter().map(|one| (one.policy, one.entry)).collect();
    let expected = [("a", "resources-fail"), ("b", "resources-fail"), ("c", "resources-ignore")];
    assert_eq!(needed, expected.map(|(policy, entry)| (policy.to_owned(), entry)));
}

#[test]
fn an_entry_has_no_selectors_names_and_conditions_of_policies() {
    let narrow = POLICY
        .bound()
        .replace("resourceRules", "objectSelector: {matchLabels: {a: b}}, namespaceSelector: {matchLabels: {a: b}}, excludeResourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'], resourceNames: [x]}], resourceRules")
        .replace("apiGroups: [ecs.yun.com]", "resourceNames: [a], apiGroups: [ecs.yun.com]");
    let config = valid(&narrow);
    assert_eq!(entries(&config), entries(&valid(&POLICY.bound())));
    let entry = &config.webhooks()[0];
    assert_eq!(
        entry.namespace_selector.to_string(),
        "kubernetes.io/metadata.name notin (durward-system,kube-system)"
    );
    assert!(entry.object_selector.to_string().is_empty() && entry.match_conditions.is_empty());
}

#[test]
fn names_of_exempt_namespaces_are_in_the_entry_and_patterns_are_not() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("p.yaml"), POLICY.bound()).unwrap();
    let (config, problems) = load(dir.path(), "policies: [p.yaml]\nexempt: {namespaces: [a, b-*]}");
    assert_eq!(problems, [""; 0]);
    let selector = config.webhooks()[0].namespace_selector.to_string();
    assert_eq!(selector, "kubernetes.io/metadata.name notin (a,durward-system)");
}

#[test]
fn resources_that_no_policy_judges_are_left_out() {
    let reviews = "{apiGroups: [authorization.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [subjectaccessreviews]}";
    assert_eq!(valid(&Rule { rule: reviews, ..POLICY }.bound()).webhooks(), []);
    let both = reviews.replace("[subjectaccessreviews]", "[subjectaccessreviews, others]");
    assert_eq!(
        entries(&valid(&Rule { rule: &both, ..POLICY }.bound())),
        ["resources-fail: CREATE authorization.k8s.io/v1 others *"]
    );
    let all = "{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}";
    let config = valid(&Rule { rule: all, ..POLICY }.bound());
    assert_eq!(entries(&config), ["resources-fail: * */* */* *"]);
    let entry = &config.webhooks()[0];
    assert_eq!(entry.match_conditions[0].name, "judged-by-policies");
    let excluded = [
        ("authentication.k8s.io", "tokenreviews", false),
        ("", "pods", true),
        ("apps", "tokenreviews", true),
    ];
    for (group, resource, is_sent) in excluded {
        let request = json!({"resource": {"group": group, "version": "v1", "resource": resource}});
        assert_eq!(send(entry, &request, &json!({}), &json!(null)), is_sent, "{group} {resource}");
    }
}

#[test]
fn policies_that_need_one_object_in_two_versions_are_refused() {
    let of = |name, groups: &str, versions: &str, resources: &str, more| {
        let rule = format!(
            "{{apiGroups: [{groups}], apiVersions: [{versions}], operations: ['*'], resources: [{resources}]}}"
        );
        Rule { name, rule: &rule, more, ..POLICY }.bound()
    };
    let v1 = of("a", "ecs.yun.com", "v1", "kubernetesclusters", "");
    let v2 = of("b", "ecs.yun.com", "v2", "kubernetesclusters", "");
    refused(
        &(v1.clone() + &v2),
        &[
            "p.yaml:",
            "policy \"a\" needs kubernetesclusters.ecs.yun.com in another version than v2",
            "policy \"b\" needs",
        ],
    );
    let any = of("b", "'*'", "'*'", "'*'", "");
    refused(
        &(v1.clone() + &any),
        &["policy \"a\" needs kubernetesclusters.ecs.yun.com in another version than *"],
    );
    let events = of("a", "''", "v1", "events", "") + &of("b", "events.k8s.io", "v1", "events", "");
    refused(&events, &["policy \"a\" needs events in another version than v1"]);
    // One of them judges no other version, both judge the same ones, or the resource has one version.
    valid(&(v1.clone() + &of("b", "ecs.yun.com", "v1, v2", "others", "")));
    valid(&(v1.clone() + &of("b", "ecs.yun.com", "v1", "'*'", "")));
    valid(&(of("a", "''", "v1", "pods", "") + &any));
    valid(
        &(of("a", "ecs.yun.com", "v1, v2", "kubernetesclusters", "")
            + &of("b", "ecs.yun.com", "v2, v1", "'*/*'", "")),
    );
    let exact = |text: &str| text.replace("resourceRules", "matchPolicy: Exact, resourceRules");
    valid(&(exact(&v1) + &exact(&v2)));
    // A policy with Ignore has an entry of its own.
    valid(&(v1 + &v2.replace("failurePolicy: Fail", "failurePolicy: Ignore")));
}

#[test]
fn remarks_list_the_policies_and_warn_of_those_that_a_cluster_can_not_live_with() {
    let texts = |policies: &str| -> Vec<String> {
        let remarks = valid(policies).remarks(SystemTime::UNIX_EPOCH);
        let text = |remark| match remark {
            Remark::Rule(text) => text,
            Remark::Warning(text) => format!("warning: {text}"),
            Remark::Note(text) => format!("note: {text}"),
        };
        remarks.into_iter().map(text).collect()
    };
    assert_eq!(
        texts(&POLICY.policy()),
        [
            "policy \"p\": CREATE, UPDATE of kubernetesclusters.ecs.yun.com; actions none; failurePolicy Fail",
            "warning: policy \"p\" is never evaluated, because no binding names it: add a binding to the files",
        ]
    );
    let pods = Rule { rule: PODS, ..POLICY };
    assert_eq!(
        texts(&pods.bound()),
        [
            "policy \"p\": CREATE of pods; actions Deny; failurePolicy Fail",
            "warning: policy \"p\" has failurePolicy: Fail, and spec.matchConstraints.resourceRules[0] matches pods: while Durward is down, no pod starts outside of the exempt namespaces; narrow the rule, or set failurePolicy: Ignore",
        ]
    );
    for (rule, is_vital) in [
        (
            "{apiGroups: [coordination.k8s.io], apiVersions: [v1], operations: [UPDATE], resources: [leases]}",
            true,
        ),
        ("{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [nodes]}", true),
        ("{apiGroups: [events.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [events]}", true),
        ("{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: ['*']}", true),
        ("{apiGroups: [''], apiVersions: [v1], operations: [DELETE], resources: [pods]}", false),
        ("{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods/exec]}", false),
        (CLUSTERS, false),
    ] {
        let all = texts(&Rule { rule, ..POLICY }.bound());
        assert_eq!(all.len(), 1 + usize::from(is_vital), "{all:?}");
        let ignored = texts(&Rule { rule, failure_policy: "Ignore", ..POLICY }.bound());
        assert_eq!(ignored.len(), 1, "{ignored:?}");
    }
}

#[test]
fn namespaces_are_watched_only_if_a_policy_or_an_exemption_needs_them() {
    let is_watched = |config: Arc<Config>| config.requirements().watches_namespaces;
    assert!(!is_watched(valid(&POLICY.bound())));
    let selects = POLICY.bound().replace(
        "validationActions",
        "matchResources: {namespaceSelector: {matchLabels: {a: b}}}, validationActions",
    );
    assert!(is_watched(valid(&selects)));
    let reads = POLICY.bound().replace("'has(object.spec)'", "namespaceObject.metadata.name != 'a'");
    assert!(is_watched(valid(&reads)));
    // A reload can add such a policy.
    assert_eq!(valid(&POLICY.bound()).permissions().own.len(), 1);
}

/// A user can create such an object, so `failurePolicy: Ignore` must not admit it.
#[tokio::test]
async fn an_object_with_too_many_levels_is_denied_also_with_ignore() {
    let config = valid(&Rule { failure_policy: "Ignore", ..POLICY }.bound());
    let guards = config.build(&Clients::offline());
    let guard = guards.iter().find(|guard| guard.name() == "resources-ignore").unwrap();
    let deep = "[".repeat(1_001) + &"]".repeat(1_001);
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE",
        "kind":{{"group":"ecs.yun.com","version":"v1","kind":"KubernetesCluster"}},
        "resource":{{"group":"ecs.yun.com","version":"v1","resource":"kubernetesclusters"}},"name":"a",
        "object":{{"metadata":{{"name":"a"}},"spec":{deep}}}}}}}"#
    );
    let review = admission::decode(body.as_bytes(), guard.fields()).unwrap();
    let ruling = guard.review(&review.request, Instant::now() + Duration::from_secs(5)).await;
    let Verdict::Deny(denial) = ruling.verdict else { panic!("{ruling:?}") };
    let text = "policies can't read KubernetesCluster a\n  nested too deeply at byte ";
    assert!(denial.message.starts_with(text), "{denial:?}");
}

#[tokio::test]
async fn an_object_whose_values_find_no_memory_is_unknown() {
    let config = valid(&POLICY.bound());
    let guard = config.build(&Clients::offline()).remove(0);
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE",
        "kind":{{"group":"ecs.yun.com","version":"v1","kind":"KubernetesCluster"}},
        "resource":{{"group":"ecs.yun.com","version":"v1","resource":"kubernetesclusters"}},"name":"a",
        "object":{{"metadata":{{"name":"a"}},"spec":[0{}]}}}}}}"#,
        ",0".repeat(100_000)
    );
    let mut review = admission::decode(body.as_bytes(), guard.fields()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    assert_eq!(guard.review(&review.request, deadline).await.verdict, Verdict::Allow);
    for (size, others, is_busy) in [(1 << 20, 0, false), (16 << 20, 14 << 20, true)] {
        let budget = Budget::new(size);
        let _others = budget.reserve(others);
        let memory = ReviewMemory::new(budget.empty());
        review.request.memory = memory.clone();
        let Verdict::Unknown(causes) = guard.review(&review.request, deadline).await.verdict else {
            panic!()
        };
        assert_eq!(causes[0].code, cluster::cause::TOO_LONG);
        assert!(causes[0].text.contains("the value needs too much memory"), "{causes:?}");
        assert_eq!(memory.lacks_memory(), is_busy);
    }
}
