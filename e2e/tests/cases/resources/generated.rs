//! Generated policies and requests go to one API server twice: first with native policies, then with the guard. The verdict, the code
//! and the warnings are the same, and the native message is one of the guard's.
//!
//! The generator is that of `make parity`. Each run has another seed; `PARITY_SEED` repeats one, and `PARITY_POLICIES` changes the number
//! of cases. All policies are in force at the same time, so each one names the object of its case.

use e2e::prelude::*;

use super::generator::cases::{Accepted, Cases};
use super::parity::{difference, documents, refused, request};
use super::{exclusive, file, guards};
use crate::cases::policies::{IN_FORCE_WITHIN, await_canary, canary, collection, parallel, put_in_force};

/// Generated expressions that API server 1.35 has accepted.
const EXPRESSIONS: &str =
    include_str!("../../../../crates/evaluator/policy/tests/data/cel/generated-1.35.4-env-1.34.jsonl");

/// Cases that are generated. About a quarter is invalid on purpose, and some need what the guard does not read.
const CASES: usize = 440;

/// The kinds of generated objects and params that Kubernetes does not have, with the plural, and whether they are namespaced.
const KINDS: [(&str, &str, &str, bool); 3] = [
    ("example.com", "Widget", "widgets", true),
    ("rules.example.com", "Limit", "limits", true),
    ("rules.example.com", "ClusterLimit", "clusterlimits", false),
];

#[e2e::case]
fn generated_requests_are_answered_as_by_native_policies(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    judged_alike(context, &cluster)
}

/// Sends generated requests to the API server, first with native policies and then with the guard.
pub(in crate::cases) fn judged_alike(context: &'static TestContext, cluster: &Cluster) -> Result<()> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("PARITY_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    let count = number("PARITY_POLICIES").map_or(Ok(CASES), usize::try_from)?;
    compare(context, cluster, (seed, count)).with_context(|| format!("PARITY_SEED={seed}"))
}

fn compare(context: &'static TestContext, cluster: &Cluster, (seed, generated): (u64, usize)) -> Result<()> {
    let api = cluster.api();
    let mut cases = Cases::new(fastrand::Rng::with_seed(seed), accepted()?);
    let cases: Vec<Value> = (0..generated).map(|index| adapted(cases.case(), index)).collect();
    let invalid = parallel(&cases, |_, case| is_refused(cluster, case))?;
    let mut cases: Vec<Value> =
        cases.into_iter().zip(invalid).filter_map(|(case, invalid)| (!invalid).then_some(case)).collect();
    let _namespaces = ["prod", "dev"]
        .map(|name| cluster.exact_namespace(name, &[("env", name)]))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let crds: Vec<Value> = KINDS.into_iter().map(crd).collect();
    for crd in &crds {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        api.apply(&path, "e2e", crd)?.succeeded()?;
    }

    let directory = context.directory("resources-generated")?;
    let params: Vec<Value> =
        cases.iter().filter_map(|case| case["params"].as_array()).flatten().cloned().collect();
    let canary = canary();
    let mut files = vec![
        file(&directory, "facts.yaml", &documents(&[crds, params.clone()].concat()))?,
        file(&directory, "canary.yaml", &documents(&canary))?,
    ];
    let name = |index: usize| format!("case-{index}.yaml");
    for (index, case) in cases.iter().enumerate() {
        files.push(file(&directory, &name(index), &documents(array(&case["policies"])))?);
    }
    let refused = refused(context, &directory, &files)?;
    files.retain(|path| !refused.contains(path));
    let mut index = 0..cases.len();
    cases.retain(|_| {
        let is_refused = |index| refused.iter().any(|path| path.ends_with(&format!("/{}", name(index))));
        index.next().is_some_and(|index| !is_refused(index))
    });
    parallel(&params, |_, param| {
        eventually("a param to be created", IN_FORCE_WITHIN, || {
            Ok(Poll::from(api.create(&collection(param)?, param)?.succeeded()))
        })
    })?;
    let old = parallel(&cases, |_, case| match &case["oldObject"] {
        Value::Null => Ok(Some(Value::Null)),
        // A namespace of a case does not exist.
        object => eventually("an object to be created", IN_FORCE_WITHIN, || {
            let answer = api.create(&collection(object)?, object)?;
            if answer.status == 404 && answer.message().contains("namespaces") {
                return Ok(Poll::Ready(None));
            }
            Ok(Poll::from(answer.succeeded().map(|answer| Some(answer.body))))
        }),
    })?;
    let cases: Vec<(Value, Value)> =
        cases.into_iter().zip(old).filter_map(|(case, old)| Some((case, old?))).collect();

    let policies: Vec<Value> = cases.iter().map(|(case, _)| case.clone()).collect();
    put_in_force(api, &policies)?;
    let native = parallel(&cases, |_, (case, old)| {
        eventually("the params of a policy to be read", IN_FORCE_WITHIN, || {
            let answer = request(api, case, old)?;
            let text = answer["answer"]["message"].as_str().unwrap_or_default();
            let is_early = text.contains("not yet synced");
            Ok(if is_early { Poll::Pending(text.to_owned()) } else { Poll::Ready(answer) })
        })
    })?;
    for kind in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        api.delete(&format!("/apis/admissionregistration.k8s.io/v1/{kind}"))?.succeeded()?;
    }
    await_canary(api, false)?;

    let (_installation, _durward) =
        Installation::start(context, cluster, &guards(&files, ""), "durward-generated")?;
    await_canary(api, true)?;
    let answers = parallel(&cases, |_, (case, old)| request(api, case, old))?;
    let mut differences = Vec::new();
    for (((case, _), native), guard) in cases.iter().zip(&native).zip(&answers) {
        if let Some(difference) = difference(native, guard) {
            differences.push(format!("{case}\n  {difference}"));
        }
    }
    let count = cases.len();
    ensure!(
        differences.is_empty(),
        "{} of {count} requests are answered in another way:\n{}",
        differences.len(),
        differences.join("\n")
    );
    let is_denied = |answer: &&Value| {
        answer["answer"]["message"].as_str().is_some_and(|text| text.contains("ValidatingAdmissionPolicy '"))
    };
    let denied = native.iter().filter(is_denied).count();
    e2e::console::print(format_args!(
        "the guard and native policies agree on {count} generated requests, {denied} of them denied (seed {seed})"
    ));
    ensure!(
        count * 11 >= generated * 5 && denied * 8 >= generated,
        "only {count} requests, {denied} of them denied"
    );
    Ok(())
}

/// Returns the generated expressions that the API server has accepted. The guard refuses policies that read more of the namespace
/// than its name and labels, or that ask the authorizer.
fn accepted() -> Result<Accepted> {
    let mut accepted = Accepted { conditions: Vec::new(), texts: Vec::new() };
    for line in EXPRESSIONS.lines() {
        let line: Value = serde_json::from_str(line)?;
        let expression = line["expr"].as_str().unwrap_or_default();
        if ["authorizer", "params", "namespaceObject"].iter().any(|name| expression.contains(name)) {
            continue;
        }
        // The text of a whole object contains its uid and its time, and each request creates an object with others.
        if expression.contains("format([object])") {
            continue;
        }
        match line["type"].as_str() {
            Some("bool") => accepted.conditions.push(expression.to_owned()),
            Some("string") => accepted.texts.push(expression.to_owned()),
            _ => {}
        }
    }
    ensure!(accepted.conditions.len() > 100 && accepted.texts.len() > 50, "few expressions");
    Ok(accepted)
}

/// Returns whether the API server refuses a policy or a binding of a case.
fn is_refused(cluster: &Cluster, case: &Value) -> Result<bool> {
    for object in array(&case["policies"]) {
        let answer = cluster.api().create(&format!("{}?dryRun=All", collection(object)?), object)?;
        ensure!(matches!(answer.status, 201 | 422), "{}: {}", answer.status, answer.body);
        if !answer.is_success() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn crd((group, kind, plural, is_namespaced): (&str, &str, &str, bool)) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the items of the array at a path.
fn items<'v>(value: &'v mut Value, path: &str) -> impl Iterator<Item = &'v mut Value> {
    value.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns a generated case in the form of the recorded ones. All names have the number of the case.
fn adapted(mut case: Value, index: usize) -> Value {
    let suffix = format!("-{index}");
    let object_name = format!("web-1{suffix}");
    let mut policies = Vec::new();
    let scopes = case["paramKinds"].take();
    // If the webhooks of both failure policies deny, the API server reports one of them.
    let failure_policy = case["policies"][0]["spec"]["failurePolicy"].clone();
    for mut policy in items(&mut case, "/policies").map(Value::take) {
        add_suffix(&mut policy, "/metadata/name", &suffix);
        // A kind has one scope.
        if scopes["Limit"] == "cluster"
            && let Some(kind) = policy.pointer_mut("/spec/paramKind/kind").filter(|kind| **kind == "Limit")
        {
            *kind = "ClusterLimit".into();
        }
        policy["spec"]["failurePolicy"] = failure_policy.clone();
        // All policies of a webhook entry need an object in one version.
        let versions = if policy["spec"]["failurePolicy"] == "Ignore" { "*" } else { "v1" };
        for rule in items(&mut policy, "/spec/matchConstraints/resourceRules") {
            if array(&rule["apiVersions"]).len() == 1 {
                rule["apiVersions"] = json!([versions]);
            }
            if rule["resourceNames"].is_null() {
                rule["resourceNames"] = json!(["web-1"]);
            }
            rename(rule, &object_name);
        }
        for rule in items(&mut policy, "/spec/matchConstraints/excludeResourceRules") {
            rename(rule, &object_name);
        }
        policies.push(policy);
    }
    for mut binding in items(&mut case, "/bindings").map(Value::take) {
        for path in ["/metadata/name", "/spec/policyName", "/spec/paramRef/name"] {
            add_suffix(&mut binding, path, &suffix);
        }
        if let Some(Value::Object(selector)) = binding.pointer_mut("/spec/paramRef/selector") {
            let labels = selector.entry("matchLabels").or_insert_with(|| json!({}));
            labels["case"] = format!("c{index}").into();
        }
        policies.push(binding);
    }
    for param in items(&mut case, "/params") {
        add_suffix(param, "/metadata/name", &suffix);
        param["metadata"]["labels"]["case"] = format!("c{index}").into();
        if param["metadata"]["namespace"].is_null() {
            param["kind"] = "ClusterLimit".into();
        }
    }
    let request = &case["request"];
    let object = |field: &str| as_served(request[field].clone(), &object_name);
    let subresource = if request["operation"] == "UPDATE" && request["kind"] != "ClusterRole" {
        request["subresource"].clone()
    } else {
        Value::Null
    };
    let subresource = if subresource == "" { Value::Null } else { subresource };
    json!({
        "policies": policies, "params": case["params"], "subresource": subresource,
        "object": object("object"), "oldObject": object("oldObject"),
    })
}

/// Appends to the name at a path, if it is valid.
fn add_suffix(object: &mut Value, path: &str, suffix: &str) {
    let Some(Value::String(name)) = object.pointer_mut(path) else { return };
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !name.is_empty() {
        name.push_str(suffix);
    }
}

/// Replaces the name of the object in a rule.
fn rename(rule: &mut Value, name: &str) {
    for item in items(rule, "/resourceNames").filter(|item| **item == "web-1") {
        *item = name.into();
    }
}

/// Returns a generated object with the fields that the API server requires of its kind.
fn as_served(mut object: Value, name: &str) -> Value {
    if object.is_null() {
        return object;
    }
    object["metadata"]["name"] = name.into();
    if object["kind"] == "Deployment" {
        let (labels, containers) =
            (object["metadata"]["labels"].clone(), object["spec"]["containers"].clone());
        object["spec"]["selector"] = json!({"matchLabels": labels});
        object["spec"]["template"] =
            json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    }
    object
}
