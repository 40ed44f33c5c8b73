//! Sets of policies that don't load, and policies that harm a cluster: each is reported with the fix, and the old set stays in force.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use e2e::prelude::*;
use rustix::process::Signal;

use super::{exclusive, file, guards, policy};
use crate::cases::environment::eventually_ok;
use crate::cases::objects::contains_all;

const DENIED: &str = "data is missing";

/// The exit code of an invalid configuration.
const INVALID: i32 = 2;

/// A directory as the kubelet mounts a `ConfigMap` with one key.
struct Mounted {
    directory: PathBuf,
    versions: usize,
}

impl Mounted {
    fn new(context: &TestContext, name: &str) -> Result<Self> {
        let directory = context.directory(name)?.join("policies");
        std::fs::create_dir_all(&directory)?;
        symlink("..data/rules.yaml", directory.join("rules.yaml"))?;
        Ok(Self { directory, versions: 0 })
    }

    /// Replaces the text of the key.
    fn replace(&mut self, text: &str) -> Result<()> {
        self.versions += 1;
        let version = format!("..{}", self.versions);
        let files = self.directory.join(&version);
        std::fs::create_dir_all(&files)?;
        file(&files, "rules.yaml", text)?;
        let link = self.directory.join("..data_tmp");
        symlink(&version, &link)?;
        std::fs::rename(&link, self.directory.join("..data")).context("cannot replace ..data")
    }
}

#[e2e::case]
fn a_set_that_does_not_load_is_reported_and_the_old_one_stays(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let mut mounted = Mounted::new(context, "resources-bad-input")?;
    let good = policy("first", "configmaps", "Deny", "has(object.data)", DENIED);
    mounted.replace(&good)?;
    let guards = guards(&[mounted.directory.display().to_string()], "");
    let (installation, durward) = Installation::start(context, &cluster, &guards, "durward-bad-input")?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let is_denied = || {
        let answer = cluster.api().create("/api/v1/namespaces/default/configmaps?dryRun=All", &object)?;
        Ok::<_, anyhow::Error>((answer.message().contains(DENIED), answer.message().to_owned()))
    };
    until("the guard to deny", is_denied)?;

    let (definition, binding) = good.split_once("---\n").context("no binding")?;
    let of = |expression: &str| policy("first", "configmaps", "Deny", expression, DENIED);
    let half = good.get(..good.len() * 2 / 3).context("no half")?;
    let large = format!("{good}# {}\n", "x".repeat(3 << 20));
    let twice = format!("{good}---\n{definition}");
    let sets: [(&str, &str, &[&str]); 7] = [
        ("a ConfigMap cut in half", half, &["rules.yaml:"]),
        ("a binding without policy", binding, &["rules.yaml:1:", "no document defines this policy"]),
        ("two policies of one name", &twice, &["rules.yaml:", "Duplicate"]),
        ("a file over 3 MB", &large, &["rules.yaml", "larger than"]),
        (
            "no policy",
            &object.to_string(),
            &["contain no ValidatingAdmissionPolicy", "name files or directories"],
        ),
        ("an invalid expression", &of("object.data.x =="), &["rules.yaml:1:", "Syntax error"]),
        (
            "a policy that asks the authorizer",
            &of("authorizer.group('').resource('pods').check('get').allowed()"),
            &["rules.yaml:1:", "asks the authorizer", "kubectl apply -f FILE"],
        ),
    ];
    let metric = |name: &str| durward.metrics()?.value(name, &[]);
    let config = installation.config().display().to_string();
    for (what, text, words) in sets {
        let refused = metric("durward_config_refused_total")?;
        mounted.replace(text)?;
        durward.signal(Signal::HUP)?;
        let reported = || -> Result<()> {
            let page = durward.page("/readyz?verbose")?;
            ensure!(page.status == 200, "{}", page.body);
            contains_all(&page.body, &["stays active", words.first().unwrap_or(&"")])?;
            contains_all(&durward.log()?, words)?;
            ensure!(metric("durward_config_stale")? > 0.5, "durward_config_stale is 0");
            ensure!(
                metric("durward_config_refused_total")? > refused,
                "durward_config_refused_total is {refused}"
            );
            let checked = Durward::command(context, &["config", "check", "--config", &config])?;
            checked.exited_with(INVALID)?;
            contains_all(&checked.stderr, words)?;
            let (denied, text) = is_denied()?;
            ensure!(denied, "the old set is not in force: {text}");
            Ok(())
        };
        eventually_ok(what, reported).with_context(|| what.to_owned())?;
    }
    // A server that starts has no old set.
    let started = installation.serve().named("durward-bad-start").start(context)?;
    let exit = started.await_end(Duration::from_secs(60))?;
    ensure!(exit == Exit::Code(INVALID), "it ended with {exit}");

    std::fs::rename(&mounted.directory, mounted.directory.with_extension("gone"))?;
    durward.signal(Signal::HUP)?;
    eventually_ok("a directory that vanishes", || {
        contains_all(&durward.page("/readyz?verbose")?.body, &["stays active", "cannot be read"])?;
        let (denied, text) = is_denied()?;
        ensure!(denied, "{text}");
        Ok(())
    })?;
    std::fs::rename(mounted.directory.with_extension("gone"), &mounted.directory)?;
    mounted.replace(&good)?;
    eventually_ok("the good set", || {
        let stale = metric("durward_config_stale")?;
        ensure!(stale < 0.5, "durward_config_stale is {stale}");
        Ok(())
    })
}

#[e2e::case]
fn a_native_policy_of_the_same_name_is_reported(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-native")?;
    let text = policy("both", "configmaps", "Deny", "has(object.data)", DENIED);
    let paths = [file(&directory, "both.yaml", &text)?];
    let (installation, _durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-native")?;
    let config = installation.config().display().to_string();
    let kubeconfig = cluster.kubectl().kubeconfig().display().to_string();
    let doctor = ["doctor", "install", "--config", &config, "--kubeconfig", &kubeconfig];
    let doctor = || Durward::command(context, &doctor);
    let before = doctor()?;
    ensure!(!before.stdout.contains("native-policy"), "{}", before.stdout);
    let (definition, _) = text.split_once("---\n").context("no binding")?;
    cluster.kubectl().apply(definition)?.succeeded()?;
    let found = doctor()?;
    found.exited_with(1)?;
    contains_all(
        &found.stdout,
        &["native-policy", "the policy both", "kubectl delete validatingadmissionpolicies both"],
    )?;
    cluster.kubectl().run(&["delete", "validatingadmissionpolicies", "both"])?.succeeded().map(drop)
}

/// An expression that costs more than the budget of a policy, and takes little time: the cost of a search is that of the text.
const EXPENSIVE: &str =
    "[lists.range(3000).map(x, '0123456789').join('')].all(s, lists.range(10000).all(i, !s.contains('y')))";

#[e2e::case]
fn a_policy_that_exhausts_its_budget_is_counted_and_logged(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-budget")?;
    let closed = policy("closed", "secrets", "Deny", EXPENSIVE, "closed");
    let open = policy("open", "configmaps", "Deny", EXPENSIVE, "open");
    let open = open.replacen("\"spec\":{", "\"spec\":{\"failurePolicy\":\"Ignore\",", 1);
    let paths = [file(&directory, "closed.yaml", &closed)?, file(&directory, "open.yaml", &open)?];
    let (_installation, durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-budget")?;
    let create = |kind: &str, plural: &str| {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
        cluster.api().create(&format!("/api/v1/namespaces/default/{plural}?dryRun=All"), &object)
    };
    until("a denial", || {
        let answer = create("Secret", "secrets")?;
        let text = answer.message().to_owned();
        Ok((
            answer.status == 422
                && text.contains("denied, since the evaluation failed, by policy \"closed\""),
            text,
        ))
    })?;
    contains_all(create("Secret", "secrets")?.message(), &["cost limit exceeded", "correct the policy"])?;
    eventually_ok("the outcomes of both policies", || {
        create("ConfigMap", "configmaps")?.succeeded()?;
        let metrics = durward.metrics()?;
        for name in ["closed", "open"] {
            let count =
                metrics.sum("durward_policy_outcomes_total", &[("policy", name), ("outcome", "error")]);
            ensure!(count > 0.5, "no error of the policy {name} is counted");
        }
        contains_all(&durward.log()?, &["closed (error)", "open (error)", "correct the policy"])
    })
}

/// Rules that reach what a cluster needs while Durward is down, with a word of the warning.
const VITAL: [(&str, &str, &str); 5] = [
    ("coordination.k8s.io", "leases", "lose their leases"),
    ("", "nodes", "can't report their state"),
    ("events.k8s.io", "events", "no event is recorded"),
    ("", "pods", "no pod starts"),
    ("*", "*/*", "narrow the rule, or set failurePolicy: Ignore"),
];

#[e2e::case]
fn policies_that_a_cluster_cannot_live_with_are_warned_of(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-vital")?;
    let mut words = Vec::new();
    for (index, (group, resource, consequence)) in VITAL.into_iter().enumerate() {
        let text = policy(&format!("vital-{index}"), resource, "Warn", "true", "never");
        let text = text.replace("\"apiGroups\":[\"\"]", &format!("\"apiGroups\":[\"{group}\"]"));
        file(
            &directory,
            &format!("{index}.yaml"),
            &text.replace("\"apiVersions\":[\"v1\"]", "\"apiVersions\":[\"*\"]"),
        )?;
        words.extend([format!("policy \"vital-{index}\" has failurePolicy: Fail"), consequence.to_owned()]);
    }
    words.push("spec.matchConstraints.resourceRules[0] matches".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let guards = guards(&[directory.display().to_string()], "");
    let (installation, durward) = Installation::start(context, &cluster, &guards, "durward-vital")?;
    let config = installation.config().display().to_string();
    let checked = Durward::command(context, &["config", "check", "--config", &config])?.succeeded()?;
    contains_all(&format!("{}{}", checked.stdout, checked.stderr), &words)?;
    contains_all(&durward.log()?.replace("\\\"", "\""), &words)?;

    // The entry is in force once its absence is an error. Objects in kube-system, and objects that no policy judges, are left out.
    drop(durward);
    let create = |path: &str, object: &Value| cluster.api().create(path, object);
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    until("the webhook to be called", || {
        let answer = create("/api/v1/namespaces/default/configmaps?dryRun=All", &config_map)?;
        let text = answer.message().to_owned();
        Ok((text.contains("failed calling webhook \"resources-fail.durward.dev\""), text))
    })?;
    create("/api/v1/namespaces/kube-system/configmaps?dryRun=All", &config_map)?.succeeded()?;
    let attributes = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    for (group, kind, spec) in [
        ("authorization.k8s.io", "SelfSubjectAccessReview", json!({"resourceAttributes": attributes})),
        (
            "authorization.k8s.io",
            "SubjectAccessReview",
            json!({"user": "ann", "resourceAttributes": attributes}),
        ),
        ("authorization.k8s.io", "SelfSubjectRulesReview", json!({"namespace": "default"})),
        ("authentication.k8s.io", "TokenReview", json!({"token": "none"})),
        ("authentication.k8s.io", "SelfSubjectReview", json!({})),
    ] {
        let path = format!("/apis/{group}/v1/{}s", kind.to_lowercase());
        let mut review = json!({"apiVersion": format!("{group}/v1"), "kind": kind});
        if kind != "SelfSubjectReview" {
            review["spec"] = spec;
        }
        create(&path, &review)?.succeeded().with_context(|| kind.to_owned())?;
    }
    Ok(())
}
