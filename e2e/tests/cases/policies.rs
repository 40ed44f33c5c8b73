//! A kube-apiserver answers requests and refuses policies as recorded in `crates/webhook/durward/tests/data/live-1.35.4`.
//!
//! The tests of `durward check` compare its verdicts with the same records. `DURWARD_BLESS=1 make e2e TEST=policies::`
//! records the answers of the API server.
//!
//! The API server evaluates a policy some time after it was created. One canary, which is created last, is enough for all
//! policies. A watch delivers the objects of a kind in the order of their creation, and the API server replaces all
//! policies at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;

use e2e::api::{Answer, Api};
use e2e::context;
use e2e::controlplane::User;
use e2e::prelude::*;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/webhook/durward/tests/data/live-1.35.4");

pub(super) const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/kubernetesclusters");

const THREADS: usize = 8;

/// The time until the API server serves a CRD, evaluates a new policy, or has the status of one.
pub(super) const IN_FORCE_WITHIN: Duration = Duration::from_secs(60);

const AUDITED: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
    {"level": "Metadata", "users": ["admin", "ann"], "verbs": ["create", "update", "delete"]}]}"#;

/// Prefix of the annotation that lists failed validations.
const FAILURES: &str = "validation.policy.admission.k8s.io/";

#[e2e::case]
fn requests_are_answered_as_recorded(context: &TestContext) -> Result<()> {
    let server = Server::get(context)?;
    let cases = read("requests.jsonl")?;
    for fact in read("facts.jsonl")? {
        // The API server serves custom resources some time after their CRD was created.
        eventually("a fact to be created", IN_FORCE_WITHIN, || {
            let path = format!("{}/{}", collection(&fact)?, name(&fact));
            Ok(Poll::from(server.admin.api.apply(&path, "e2e", &fact)?.succeeded()))
        })?;
    }
    let old = parallel(&cases, |_, case| match &case["oldObject"] {
        Value::Null => Ok(Value::Null),
        object => Ok(server.admin.api.create(&collection(object)?, object)?.succeeded()?.body),
    })?;
    for path in ["/api/v1/namespaces/shop/configmaps", "/metrics"] {
        server.ann.await_permitted(path)?;
    }
    put_in_force(&server.admin.api, &cases)?;
    let mut answers = parallel(&cases, |index, case| server.request(index, case, &old[index]))?;
    let annotations = server.annotations()?;
    for (index, answer) in answers.iter_mut().enumerate() {
        answer["annotations"] = json!(annotations.get(&index).cloned().unwrap_or_default());
    }
    for (case, answer) in cases.iter().zip(&mut answers).filter(|(case, _)| !case["status"].is_null()) {
        answer["status"] = server.type_checking(&case["policies"][0])?;
    }
    compare("requests.jsonl", cases, answers)
}

#[e2e::case]
fn policies_are_refused_as_recorded(context: &TestContext) -> Result<()> {
    let server = Server::get(context)?;
    let cases = read("refusals.jsonl")?;
    let answers = parallel(&cases, |_, case| {
        let refused = case["policies"].as_array().and_then(|all| all.last()).context("no document")?;
        let answer = server.admin.api.create(&format!("{}?dryRun=All", collection(refused)?), refused)?;
        ensure!(matches!(answer.status, 201 | 422), "{}: {}: {}", case["title"], answer.status, answer.body);
        let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let mut causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"field": cause["field"], "message": without_syntax_error(&cause["message"])}))
            .collect();
        causes.sort_by_key(Value::to_string);
        Ok(json!({"refused": causes}))
    })?;
    compare("refusals.jsonl", cases, answers)
}

/// Returns a message without the text of a syntax error, for which Durward has words of its own.
fn without_syntax_error(message: &Value) -> String {
    const FAILED: &str = "compilation failed: ";
    let message = message.as_str().unwrap_or_default();
    match message.split_once(FAILED) {
        Some((before, error)) if error.contains("Syntax error") => format!("{before}{FAILED}Syntax error"),
        _ => message.to_owned(),
    }
}

#[e2e::case]
fn the_example_is_judged_as_check_says(context: &TestContext) -> Result<()> {
    let kubectl = &Server::get(context)?.admin.kubectl;
    let file = |name: &str| format!("{EXAMPLE}/{name}");
    let (crd, policy) = (file("crd.yaml"), file("policy.yaml"));
    kubectl.run(&["apply", "-f", &crd, "-f", &policy])?.succeeded()?;
    let check = |paths: &[&str]| -> Result<Vec<Value>> {
        let arguments = [&["check"], paths, &["--with", &crd, "--with", &policy, "-o", "json"]].concat();
        let report: Value = serde_json::from_str(&Durward::command(context, &arguments)?.stdout)?;
        let documents = report["documents"].as_array().context("no documents")?;
        let findings = documents.iter().filter_map(|document| document["findings"].as_array()).flatten();
        let denials = findings.filter(|finding| finding["verdict"] == "deny");
        Ok(denials.map(|finding| finding["message"].clone()).collect())
    };
    let denies = |output: &Output, messages: &[Value]| {
        let is_printed = |message: &Value| message.as_str().is_some_and(|text| output.stderr.contains(text));
        output.stderr.matches(" denied request: ").count() == messages.len()
            && messages.iter().all(is_printed)
    };
    let (sample, with_key) = (file("sample.yaml"), file("with-key.yaml"));
    let (before, after) = (file("before"), file("after"));
    let messages = check(&[&sample])?;
    ensure!(messages.len() == 1, "check finds {messages:?}");
    until("the sample to be denied", || {
        let output = kubectl.run(&["create", "--dry-run=server", "-f", &sample])?;
        Ok((denies(&output, &messages), output.stderr))
    })?;
    ensure!(check(&[&with_key])?.is_empty(), "check denies the sample with a key");
    kubectl.run(&["create", "--dry-run=server", "-f", &with_key])?.succeeded()?;
    let messages = check(&[&after, "--old", &before])?;
    ensure!(messages.len() == 1, "check finds {messages:?}");
    kubectl.run(&["create", "-f", &before])?.succeeded()?;
    let output = kubectl.run(&["replace", "--dry-run=server", "-f", &after])?;
    ensure!(denies(&output, &messages), "{messages:?} is answered with {}", output.stderr);
    let patch =
        |patch: &str| kubectl.run(&["patch", "kubernetesclusters", "reordered", "--type=merge", "-p", patch]);
    let output = patch(r#"{"spec": {"privateSSHKey": ""}}"#)?;
    ensure!(
        output.stderr.contains("are both empty; set one of them"),
        "an update is answered with {output:?}"
    );
    patch(r#"{"metadata": {"finalizers": ["ecs.yun.com/machines"]}}"#)?.succeeded()?;
    kubectl.run(&["delete", "kubernetesclusters", "reordered", "--wait=false"])?.succeeded()?;
    // The policy leaves an object alone that is being deleted, so it can lose its finalizers.
    patch(r#"{"metadata": {"finalizers": null}, "spec": {"nodeList": []}}"#)?.succeeded()?;
    Ok(())
}

/// The API server, with an audit log and the controller that checks the types of policies.
struct Server {
    admin: User,
    ann: User,
    audit_log: PathBuf,
}

impl Server {
    fn get(context: &TestContext) -> Result<&'static Self> {
        static SERVER: Lazy<Server> = Lazy::new();
        SERVER.get(|| {
            let directory = context.directory("policies")?;
            let audit_log = directory.join("audit.log");
            let policy = context::write(&directory, "audit-policy.json", AUDITED)?;
            let options = Options::named("policies")
                .with_these_controllers(&["validatingadmissionpolicy-status-controller"])
                .flag(format!("--audit-policy-file={}", policy.display()))
                .flag(format!("--audit-log-path={}", audit_log.display()))
                .flag("--audit-log-mode=blocking");
            let cluster = context.cluster(&options)?;
            let user = |name| cluster.user(name, &[]);
            let admin = User { api: cluster.api().clone(), kubectl: cluster.kubectl().clone() };
            Ok(Self { admin, ann: user("ann")?, audit_log })
        })
    }

    /// Sends the request of a case as a dry run. Its path has the number of the case, for the audit log.
    fn request(&self, index: usize, case: &Value, old: &Value) -> Result<Value> {
        let user = if case["user"] == "ann" { &self.ann } else { &self.admin };
        let query = format!("?dryRun=All&case={index}");
        let mut object = case["object"].clone();
        // Custom resources can be replaced only with the version of the stored object.
        if !object.is_null() && !old.is_null() {
            object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        }
        let subresource = case["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        let target = if old.is_null() { &object } else { old };
        let stored = format!("{}/{}{subresource}{query}", collection(target)?, name(target));
        eventually("the params of a policy to be read", IN_FORCE_WITHIN, || {
            let answer = match (object.is_null(), old.is_null()) {
                (false, true) => user.api.create(&format!("{}{query}", collection(&object)?), &object)?,
                (false, false) => user.api.replace(&stored, &object)?,
                (true, _) => user.api.delete(&stored)?,
            };
            Ok(if answer.message().contains("not yet synced") {
                Poll::Pending(answer.message().to_owned())
            } else {
                Poll::Ready(recorded(&answer, &object))
            })
        })
    }

    /// Returns the annotations that policies have written to the audit log, by number of the case.
    fn annotations(&self) -> Result<BTreeMap<usize, BTreeMap<String, Value>>> {
        let log = std::fs::read_to_string(&self.audit_log).context("cannot read the audit log")?;
        let mut found = BTreeMap::new();
        // Another case can be writing the last line.
        for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let event: Value = serde_json::from_str(line)?;
            let path = event["requestURI"].as_str().unwrap_or_default();
            let Some((_, index)) = path.split_once("&case=") else { continue };
            let index: usize = index.parse()?;
            let of_policy = |key: &str| key.starts_with(FAILURES) || key.starts_with(&format!("p{index}/"));
            let annotations = event["annotations"].as_object().into_iter().flatten();
            let annotations = annotations.filter(|(key, _)| of_policy(key));
            found.insert(index, annotations.map(|(key, value)| (key.clone(), value.clone())).collect());
        }
        Ok(found)
    }

    /// Returns the warnings of the controller that checks a policy against the schemas of the kinds that it matches.
    fn type_checking(&self, policy: &Value) -> Result<Value> {
        let path = format!("{}/{}", collection(policy)?, name(policy));
        eventually("the types of a policy to be checked", IN_FORCE_WITHIN, || {
            let status = self.admin.api.get(&path)?.succeeded()?.body["status"].take();
            Ok(match status.get("typeChecking") {
                Some(checked) => Poll::Ready(checked["expressionWarnings"].clone()),
                None => Poll::Pending(status.to_string()),
            })
        })
    }
}

/// Creates all policies and bindings, then a canary, and waits until it denies a request.
pub(super) fn put_in_force(api: &Api, cases: &[Value]) -> Result<()> {
    let all: Vec<&Value> = cases.iter().filter_map(|case| case["policies"].as_array()).flatten().collect();
    let create = |_: usize, object: &&Value| api.create(&collection(object)?, object)?.succeeded();
    let (policies, bindings): (Vec<&Value>, Vec<&Value>) =
        all.into_iter().partition(|object| object["kind"] == "ValidatingAdmissionPolicy");
    parallel(&policies, create)?;
    parallel(&bindings, create)?;
    let [policy, binding] = canary();
    create(0, &&policy)?;
    create(0, &&binding)?;
    await_canary(api, true)
}

/// Returns the policy of the canary and its binding.
pub(super) fn canary() -> [Value; 2] {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"], "resourceNames": ["canary"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "canary"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false", "message": "in force"}]},
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "canary"},
        "spec": {"policyName": "canary", "validationActions": ["Deny"]},
    });
    [policy, binding]
}

/// Waits until the canary is denied, or allowed.
pub(super) fn await_canary(api: &Api, is_denied: bool) -> Result<()> {
    let canary = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "canary", "namespace": "default"}});
    let path = format!("{}?dryRun=All", collection(&canary)?);
    eventually(format_args!("the canary to be denied: {is_denied}"), IN_FORCE_WITHIN, || {
        let answer = api.create(&path, &canary)?;
        let found = answer.message().ends_with(": in force");
        let is_expected = found == is_denied && (is_denied || answer.is_success());
        Ok(if is_expected { Poll::Ready(()) } else { Poll::Pending(answer.body.to_string()) })
    })
}

/// Returns code, reason and message of a denial, and the warnings. A generated name is replaced.
pub(super) fn recorded(answer: &Answer, object: &Value) -> Value {
    let mut message = answer.message().to_owned();
    if let (Some(_), Some(generated)) =
        (object["metadata"].get("generateName"), answer.body["details"]["name"].as_str())
    {
        message = message.replace(generated, "GENERATED");
    }
    let mut warnings = answer.warnings.clone();
    warnings.sort();
    let denial = json!({"code": answer.status, "reason": answer.body["reason"], "message": message});
    json!({"answer": if answer.is_success() { Value::Null } else { denial }, "warnings": warnings})
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the path of an object's collection.
pub(super) fn collection(object: &Value) -> Result<String> {
    let version = object["apiVersion"].as_str().context("no apiVersion")?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let kind = object["kind"].as_str().context("no kind")?.to_lowercase();
    let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    Ok(format!("/{root}/{version}{namespace}/{plural}"))
}

/// Calls a function for each item with its index, and returns the results in order.
pub(super) fn parallel<T: Sync, R: Send>(
    items: &[T],
    call: impl Fn(usize, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let call = &call;
    let part = |first: usize| -> Result<Vec<(usize, R)>> {
        let mine = items.iter().enumerate().skip(first).step_by(THREADS);
        mine.map(|(index, item)| Ok((index, call(index, item)?))).collect()
    };
    let parts: Vec<Result<Vec<(usize, R)>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || part(first))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    let mut results: Vec<(usize, R)> =
        parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

pub(super) fn read(file: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(Path::new(DATA).join(file)).with_context(|| file.to_owned())?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Compares answers with the records, or records them.
fn compare(file: &str, cases: Vec<Value>, answers: Vec<Value>) -> Result<()> {
    let count = cases.len();
    let (mut text, mut differences) = (String::new(), Vec::new());
    for (mut case, answer) in cases.into_iter().zip(answers) {
        for (key, value) in answer.as_object().into_iter().flatten() {
            if case[key] != *value {
                differences
                    .push(format!("{}: {key}\n  recorded {}\n  answered {value}", case["title"], case[key]));
            }
            case[key] = value.clone();
        }
        text.push_str(&case.to_string());
        text.push('\n');
    }
    if std::env::var_os("DURWARD_BLESS").is_some() {
        return std::fs::write(Path::new(DATA).join(file), text).with_context(|| file.to_owned());
    }
    ensure!(
        differences.is_empty(),
        "{} of {count} in {file}:\n{}",
        differences.len(),
        differences.join("\n")
    );
    Ok(())
}
