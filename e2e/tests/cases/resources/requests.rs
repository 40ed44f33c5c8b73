//! Requests of every form go to one API server twice, with native policies and with the guard. The policies deny, and their messages
//! print what they see of the request, so that a request that looks otherwise to the guard has another message.

use e2e::api::Answer;
use e2e::prelude::*;

use super::parity::{difference, documents};
use super::{exclusive, file, guards};
use crate::cases::policies::{await_canary, canary, put_in_force, recorded};

const NAMESPACE: &str = "hostile";
/// A namespace without params, and one that no policy selects.
const EMPTY: &str = "hostile-empty";
const CALM: &str = "calm";

/// The group of a CRD with two versions.
const GROUP: &str = "hostile.example.com";

/// The text that a native policy prints for 3.0 in a new object.
const DOUBLE: &str = " share is a double ";
/// The text that the guard prints for the same number: the API server writes 3 in a review. See
/// `docs/src/resources/index.md#limits`.
const INT: &str = " share is an int ";

/// An expression that prints the parts of a request and its objects that a policy can read.
const VIEW: &str = "[request.operation, request.kind.group, request.kind.version, request.kind.kind, request.resource.group, \
    request.resource.version, request.resource.resource, request.?subResource.orValue('-'), request.requestKind.group, \
    request.requestKind.version, request.requestKind.kind, request.requestResource.version, request.requestResource.resource, \
    request.?requestSubResource.orValue('-'), request.?name.orValue('-'), request.?namespace.orValue('-'), string(request.dryRun), \
    request.userInfo.username, request.userInfo.groups.join('+'), \
    object == null ? 'none' : string(dyn(object.?apiVersion.orValue('-'))) + ' ' + string(size(object)), \
    object == null ? 'none' : string(size(object.?metadata.orValue({}))), \
    oldObject == null ? 'none' : string(dyn(oldObject.?apiVersion.orValue('-'))) + ' ' + string(size(oldObject)), \
    oldObject == null ? 'none' : string(size(oldObject.?metadata.orValue({}))), \
    request.options == null ? 'none' : string(dyn(request.options.?propagationPolicy.orValue('-'))) + string(size(request.options)), \
    namespaceObject == null ? 'none' : namespaceObject.metadata.name].join(' ')";

/// Returns a policy with its binding. `spec` and `binding` are the parts besides the usual ones.
fn policy(name: &str, constraints: &Value, validation: &Value, more: &Value, binding: &Value) -> Vec<Value> {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": constraints, "validations": [validation]},
    });
    let mut bound = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    for (object, more) in [(&mut policy, more), (&mut bound, binding)] {
        for (field, value) in more.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
    }
    vec![policy, bound]
}

fn rule(group: &str, version: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "operations": ["*"], "resources": [resource]})
}

/// Returns the policies. Those with `Ignore` see every version, and those with `Fail` see one version of some resources.
fn policies() -> Vec<Value> {
    let in_namespaces = json!({"matchLabels": {"hostile": "yes"}});
    let sees = json!({"expression": "false", "messageExpression": VIEW});
    let ignore = json!({"failurePolicy": "Ignore"});
    let none = json!({});
    let others: Vec<Value> =
        [(GROUP, "*/*"), ("", "secrets"), ("", "events"), ("events.k8s.io", "events"), ("", "limitranges")]
            .map(|(group, resource)| rule(group, "*", resource))
            .into();
    let mut namespaced = rule("*", "*", "*/*");
    namespaced["scope"] = "Namespaced".into();
    let mut cluster = rule("*", "*", "*/*");
    (cluster["scope"], cluster["resourceNames"]) =
        ("Cluster".into(), json!(["hostile-thing", "things.hostile.example.org"]));
    let of = |rules: &[Value], match_policy: &str| json!({"resourceRules": rules, "matchPolicy": match_policy, "namespaceSelector": in_namespaces});
    let gadgets = [rule(GROUP, "v1", "gadgets"), rule(GROUP, "v1", "gadgets/scale")];
    let gadget = json!({
        "expression": "false",
        "messageExpression": format!("{VIEW} + ' ' + string(type(object.?spec.?size.orValue(0)) == int) + (type(object.?spec.?share.orValue(0)) == double ? '{DOUBLE}' : '{INT}') + string(double(object.?spec.?share.orValue(0)) / 2.0) + string(has(object.spec.nothing))"),
    });
    let mut all = Vec::new();
    all.extend(policy(
        "view",
        &json!({"resourceRules": [namespaced], "excludeResourceRules": others, "namespaceSelector": in_namespaces}),
        &sees,
        &ignore,
        &none,
    ));
    all.extend(policy("view-cluster", &json!({"resourceRules": [cluster]}), &sees, &ignore, &none));
    all.extend(policy("equivalent", &of(&gadgets, "Equivalent"), &gadget, &none, &none));
    let exact = json!({"expression": "object.?spec.?exact.orValue('') != 'yes'", "message": "exact"});
    all.extend(policy("exact", &of(&[rule(GROUP, "v1", "gadgets/status")], "Exact"), &exact, &none, &none));
    all.extend(policy(
        "events",
        &of(&[rule("events.k8s.io", "v1", "events")], "Equivalent"),
        &sees,
        &none,
        &none,
    ));
    let mut labeled = of(&[rule("", "v1", "secrets")], "Equivalent");
    labeled["objectSelector"] = json!({"matchLabels": {"watched": "yes"}});
    all.extend(policy("labeled", &labeled, &sees, &none, &none));
    // Params of one namespace, for a request in two. The API server never reads built-in params again after their last policy was
    // deleted, and other cases use ConfigMaps. It reads those of a CRD.
    let params = json!({"paramKind": {"apiVersion": format!("{GROUP}/v1"), "kind": "Bound"}});
    for action in ["Allow", "Deny"] {
        let reference = json!({"paramRef": {"name": "limits", "parameterNotFoundAction": action}});
        let mut limits = rule("", "v1", "limitranges");
        limits["resourceNames"] = json!([action.to_lowercase()]);
        let validation =
            json!({"expression": "params.data.name == 'other'", "message": "not the name of the params"});
        all.extend(policy(
            &format!("params-{}", action.to_lowercase()),
            &of(&[limits], "Equivalent"),
            &validation,
            &params,
            &reference,
        ));
    }
    all
}

/// A request: the method, the path and the body.
type Request = (&'static str, String, Value);

/// Sends a request.
fn send(api: &Api, (method, path, body): &Request) -> Result<Answer> {
    match *method {
        "create" => api.create(path, body),
        "apply" => api.apply(path, "e2e", body),
        "delete" => api.delete(path),
        _ => api.merge(path, body),
    }
}

fn object(api_version: &str, kind: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    for (field, value) in more.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

fn gadget(version: &str, name: &str) -> Value {
    let spec = json!({"size": 9_007_199_254_740_993_i64, "share": 3.0, "exact": "yes", "nothing": null, "replicas": 1});
    object(&format!("{GROUP}/{version}"), "Gadget", name, &json!({"spec": spec}))
}

fn pod(name: &str) -> Value {
    object("v1", "Pod", name, &json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}))
}

/// Returns the objects that exist before policies are in force: the collection, and the object.
fn stored() -> Vec<(String, Value)> {
    let core = |resource: &str| format!("/api/v1/namespaces/{NAMESPACE}/{resource}");
    let deployment = json!({"spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let watched = json!({"metadata": {"name": "watched", "labels": {"watched": "yes"}}});
    vec![
        (core("configmaps"), object("v1", "ConfigMap", "limits", &json!({"data": {"name": "limits"}}))),
        (core("pods"), pod("old")),
        (core("secrets"), object("v1", "Secret", "watched", &watched)),
        (core("secrets"), object("v1", "Secret", "plain", &json!({}))),
        (
            format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"),
            object("apps/v1", "Deployment", "old", &deployment),
        ),
        (format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/gadgets"), gadget("v1", "old")),
        (format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/bounds"), bound()),
        ("/api/v1/namespaces".to_owned(), object("v1", "Namespace", "hostile-thing", &json!({}))),
    ]
}

/// Returns the path of a resource in the namespace, as a dry run.
fn core(resource: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{resource}?dryRun=All")
}

fn within(group: &str, resource: &str) -> String {
    format!("/apis/{group}/namespaces/{NAMESPACE}/{resource}?dryRun=All")
}

/// Returns a change of labels.
fn label(watched: impl Into<Value>) -> Value {
    json!({"metadata": {"labels": {"watched": watched.into(), "a": "b"}}})
}

/// Returns requests for objects of a namespace. All are dry runs, apart from connections, which the policies deny.
fn in_namespace() -> Vec<Request> {
    let config_map = |name: &str| object("v1", "ConfigMap", name, &json!({}));
    let connection = |subresource: &str| format!("/api/v1/namespaces/{NAMESPACE}/pods/old/{subresource}");
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"]}});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "metadata": {"namespace": NAMESPACE},
        "spec": {"user": "ann", "resourceAttributes": {"namespace": NAMESPACE, "verb": "get", "resource": "pods"}},
    });
    let container = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}});
    let target = json!({"target": {"kind": "Node", "name": "n"}});
    vec![
        ("create", core("configmaps"), config_map("a")),
        ("create", format!("/api/v1/namespaces/{CALM}/configmaps?dryRun=All"), config_map("a")),
        ("merge", core("configmaps/limits"), label("no")),
        ("apply", core("configmaps/applied"), config_map("applied")),
        ("delete", core("configmaps/limits"), Value::Null),
        ("delete", core("pods/old") + "&propagationPolicy=Orphan&gracePeriodSeconds=3", Value::Null),
        ("delete", core("secrets") + "&labelSelector=watched", Value::Null),
        ("create", core("pods"), pod("new")),
        ("create", core("pods/old/eviction"), object("policy/v1", "Eviction", "old", &json!({}))),
        ("create", core("pods/old/binding"), object("v1", "Binding", "old", &target)),
        ("merge", core("pods/old/ephemeralcontainers"), container),
        ("merge", core("pods/old/status"), json!({"status": {"message": "m"}})),
        ("create", connection("exec?command=ls&container=c"), json!({})),
        ("create", connection("attach?container=c"), json!({})),
        ("create", connection("portforward?ports=80"), json!({})),
        ("create", connection("proxy/path"), json!({})),
        ("create", core("serviceaccounts/default/token"), token),
        ("merge", within("apps/v1", "deployments/old/scale"), json!({"spec": {"replicas": 3}})),
        ("merge", within("apps/v1", "deployments/old"), label("x")),
        (
            "create",
            within("coordination.k8s.io/v1", "leases"),
            object("coordination.k8s.io/v1", "Lease", "a", &json!({})),
        ),
        ("create", within("authorization.k8s.io/v1", "localsubjectaccessreviews"), review),
        // The object selector takes labels of the object before or after the request.
        ("merge", core("secrets/plain"), label("no")),
        ("merge", core("secrets/plain"), label("yes")),
        ("merge", core("secrets/watched"), label(Value::Null)),
        ("delete", core("secrets/watched"), Value::Null),
        ("delete", core("secrets/plain"), Value::Null),
    ]
}

/// Returns requests for objects without a namespace.
fn in_cluster() -> Vec<Request> {
    let of = |path: &str| format!("{path}?dryRun=All");
    let create = |path: &str, version: &str, kind: &str, more: &Value| {
        ("create", of(path), object(version, kind, "hostile-thing", more))
    };
    let (rbac, scheduling) = ("rbac.authorization.k8s.io/v1", "scheduling.k8s.io/v1");
    let namespace = "/api/v1/namespaces/hostile-thing";
    let annotation = json!({"metadata": {"annotations": {"a": "b"}}});
    vec![
        ("merge", of(namespace), label("x")),
        ("merge", of(&format!("{namespace}/status")), annotation),
        ("delete", of(namespace), Value::Null),
        create(&format!("/apis/{rbac}/clusterroles"), rbac, "ClusterRole", &json!({})),
        create("/api/v1/nodes", "v1", "Node", &json!({})),
        create(
            &format!("/apis/{scheduling}/priorityclasses"),
            scheduling,
            "PriorityClass",
            &json!({"value": 1}),
        ),
    ]
}

/// Returns requests for objects that the API server converts to the version of a rule, and for those that need params.
fn in_versions() -> Vec<Request> {
    let mut requests = Vec::new();
    for version in ["v1", "v2"] {
        let of = |resource: &str| within(&format!("{GROUP}/{version}"), resource);
        requests.extend([
            ("create", of("gadgets"), gadget(version, "new")),
            ("merge", of("gadgets/old"), label("x")),
            ("merge", of("gadgets/old/status"), json!({"status": {"a": "b"}})),
            ("merge", of("gadgets/old/scale"), json!({"spec": {"replicas": 2}})),
            ("apply", of("gadgets/applied"), gadget(version, "applied")),
            ("delete", of("gadgets/old"), Value::Null),
            ("delete", of("gadgets"), Value::Null),
        ]);
    }
    let pod = json!({"kind": "Pod", "namespace": NAMESPACE, "name": "old"});
    let of_core = object("v1", "Event", "e", &json!({"involvedObject": pod, "reason": "r"}));
    let event = json!({
        "regarding": pod, "reason": "r", "action": "a", "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "e2e.example.org/c", "reportingInstance": "i",
    });
    requests.push(("create", core("events"), of_core));
    let event = object("events.k8s.io/v1", "Event", "e", &event);
    requests.push(("create", within("events.k8s.io/v1", "events"), event));
    for namespace in [NAMESPACE, EMPTY] {
        for name in ["allow", "deny"] {
            let range = object("v1", "LimitRange", name, &json!({"spec": {"limits": []}}));
            requests.push((
                "create",
                format!("/api/v1/namespaces/{namespace}/limitranges?dryRun=All"),
                range,
            ));
        }
    }
    requests
}

/// Returns the kind of the params.
fn bounds_crd() -> Value {
    crd("Bound", &[("v1", true)])
}

/// Returns a kind with two versions.
fn gadgets_crd() -> Value {
    crd("Gadget", &[("v1", true), ("v2", false)])
}

fn bound() -> Value {
    let data = json!({"metadata": {"name": "limits", "namespace": NAMESPACE}, "data": {"name": "limits"}});
    object(&format!("{GROUP}/v1"), "Bound", "limits", &data)
}

fn crd(kind: &str, versions: &[(&str, bool)]) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("{plural}.{GROUP}"),
        &json!({"spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": versions.iter().map(|(name, storage)| version(name, *storage)).collect::<Vec<_>>(),
        }}),
    )
}

/// Sends a request when the params of the policies are known.
fn answer(api: &Api, request: &Request) -> Result<Value> {
    eventually("the params of a policy to be read", Duration::from_secs(60), || {
        let answer = send(api, request)?;
        let is_early = answer.message().contains("not yet synced");
        Ok(if is_early {
            Poll::Pending(answer.message().to_owned())
        } else {
            Poll::Ready(recorded(&answer, &Value::Null))
        })
    })
}

#[e2e::case]
fn requests_of_every_form_look_the_same_to_the_guard(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let api = cluster.api();
    for crd in [gadgets_crd(), bounds_crd()] {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        api.apply(&path, "e2e", &crd)?.succeeded()?;
    }
    for (name, label) in [(NAMESPACE, "yes"), (EMPTY, "yes"), (CALM, "no")] {
        cluster.exact_namespace(name, &[("hostile", label)])?;
    }
    let account = object("v1", "ServiceAccount", "default", &json!({}));
    let created = api.create(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account)?;
    ensure!(created.is_success() || created.status == 409, "{}", created.body);
    for (collection, object) in stored() {
        eventually("an object to be created", Duration::from_secs(60), || {
            Ok(Poll::from(api.create(&collection, &object)?.succeeded().map(drop)))
        })?;
    }
    let policies = policies();
    let requests = [in_namespace(), in_cluster(), in_versions()].concat();
    let answers = || -> Result<Vec<Value>> { requests.iter().map(|request| answer(api, request)).collect() };
    put_in_force(api, &[json!({"policies": policies})])?;
    // With `parameterNotFoundAction: Allow`, the API server allows requests until it has read the params.
    let range = object("v1", "LimitRange", "allow", &json!({"spec": {"limits": []}}));
    eventually("the params to be read", Duration::from_secs(60), || {
        let answer = api.create(&core("limitranges"), &range)?;
        let is_read = answer.message().ends_with("not the name of the params");
        Ok(if is_read { Poll::Ready(()) } else { Poll::Pending(answer.body.to_string()) })
    })?;
    let native = Value::from(answers()?).to_string();
    let half = format!("{DOUBLE}1.5");
    ensure!(native.contains(&half), "no native policy saw 3.0 as a double: {native}");
    let native: Vec<Value> = serde_json::from_str(&native.replace(DOUBLE, INT))?;
    for kind in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        api.delete(&format!("/apis/admissionregistration.k8s.io/v1/{kind}"))?.succeeded()?;
    }
    await_canary(api, false)?;

    let directory = context.directory("resources-requests")?;
    let all = [policies, canary().into(), vec![bound(), gadgets_crd(), bounds_crd()]].concat();
    let paths = [file(&directory, "policies.yaml", &documents(&all))?];
    let (_installation, _durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-requests")?;
    await_canary(api, true)?;
    let guard = answers()?;
    let mut differences = Vec::new();
    for (((method, path, _), native), guard) in requests.iter().zip(&native).zip(&guard) {
        if let Some(difference) = difference(native, guard) {
            differences.push(format!("{method} {path}: {difference}"));
        }
    }
    ensure!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        native.len(),
        differences.join("\n")
    );
    let is_denied = |answer: &&Value| answer["answer"].to_string().contains("ValidatingAdmissionPolicy '");
    let (denied, count) = (native.iter().filter(is_denied).count(), native.len());
    print(format_args!("{count} requests of every form look the same, {denied} of them denied"));
    ensure!(denied >= 35, "only {denied} of {count} are denied: {native:?}");
    Ok(())
}

/// The API server accepts any segment of a path as the name of a Role.
#[e2e::case]
fn a_role_with_an_unusual_name_is_reviewed(context: &'static TestContext) -> Result<()> {
    const MESSAGE: &str = "name the verbs";
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-names")?;
    let rules = json!({"resourceRules": [rule("rbac.authorization.k8s.io", "v1", "roles")]});
    let validation =
        json!({"expression": "!object.rules.exists(rule, '*' in rule.verbs)", "message": MESSAGE});
    let documents = policy("roles", &rules, &validation, &json!({"failurePolicy": "Ignore"}), &json!({}));
    let text: Vec<_> = documents.iter().map(ToString::to_string).collect();
    let paths = [file(&directory, "roles.yaml", &text.join("\n---\n"))?];
    let (_installation, _durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-names")?;
    let create = |name: &str, verb: &str| {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}],
        });
        cluster.api().create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles?dryRun=All", &role)
    };
    until("a denial", || {
        let answer = create("reader", "*")?;
        let text = answer.message().to_owned();
        Ok((text.contains(MESSAGE), text))
    })?;
    for name in ["a b", "a\nb", "é", "a".repeat(300).as_str()] {
        let answer = create(name, "*")?;
        ensure!(answer.message().contains(MESSAGE), "{name:?}: {} {}", answer.status, answer.message());
        create(name, "get")?.succeeded()?;
    }
    Ok(())
}
