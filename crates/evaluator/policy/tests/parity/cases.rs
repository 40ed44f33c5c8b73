//! Generates policies with bindings, parameters, namespaces and a request. An end-to-end case sends them to a running API server, so
//! this file and those that it uses name no others of this test.

use fastrand::Rng;
use serde_json::{Value as Json, json};

use super::defects::{DEFECTS, apply};
use super::literals::{pick, workload};

/// The aim of a case. The expressions are random, so not every case reaches it.
#[derive(Clone, Copy)]
enum Aim {
    Refused,
    Skipped,
    /// A runtime error under a failure policy.
    Error(&'static str),
    Denied,
    Any,
}

/// Group, kind, resource, and whether it is namespaced.
type Resource = (&'static str, &'static str, &'static str, bool);

const RESOURCES: [Resource; 5] = [
    ("apps", "Deployment", "deployments", true),
    ("", "Pod", "pods", true),
    ("", "Namespace", "namespaces", false),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false),
    ("example.com", "Widget", "widgets", true),
];

/// Conditions that fail at run time for most objects.
const ERRORS: [&str; 21] = [
    "object.spec.nope == 1",
    "object.metadata.labels['nope'] == 'a'",
    "1 / (object.spec.replicas - object.spec.replicas) == 1",
    "object.spec.numbers[7] > 0",
    "dyn(object.spec.image) + dyn(1) == 'a'",
    "int(object.spec.image) > 1",
    "quantity(object.spec.image).isInteger()",
    "ip(object.spec.image).family() == 4",
    "object.spec.names.map(n, int(n)).size() == 1",
    "timestamp(object.spec.image) < timestamp('2020-01-01T00:00:00Z')",
    "object.spec.image.matches(object.spec.image + '(')",
    "object.spec.mixed.all(m, m > 0)",
    "object.spec.containers[0].image.nope == 'a'",
    "object.spec.nothing.x == 1",
    "object.spec.image ? true : false",
    "object.spec.image && object.spec.replicas",
    "!object.spec.image",
    "duration(object.spec.image) > duration('1s')",
    "object.spec.names['a'] == 'a'",
    "optional.of(object).value().spec.nope == 1",
    "url(object.spec.image + '%zz').getHost() == 'a'",
];

/// Expressions that the API server accepts.
pub(crate) struct Accepted {
    pub(crate) conditions: Vec<String>,
    pub(crate) texts: Vec<String>,
}

/// Generates cases.
pub(crate) struct Cases {
    rng: Rng,
    accepted: Accepted,
}

impl Cases {
    pub(crate) fn new(rng: Rng, accepted: Accepted) -> Self {
        Self { rng, accepted }
    }

    fn condition(&mut self) -> String {
        self.accepted.conditions[self.rng.usize(..self.accepted.conditions.len())].clone()
    }

    fn text(&mut self) -> String {
        self.accepted.texts[self.rng.usize(..self.accepted.texts.len())].clone()
    }

    /// A case.
    pub(crate) fn case(&mut self) -> Json {
        let aim = match self.rng.u32(..100) {
            0..24 => Aim::Refused,
            24..32 => Aim::Skipped,
            32..57 => Aim::Error("Fail"),
            57..82 => Aim::Error("Ignore"),
            82..94 => Aim::Denied,
            _ => Aim::Any,
        };
        let resource = pick(&mut self.rng, &RESOURCES);
        let params = self.params();
        let policies: Vec<Json> = (0..self.rng.usize(1..3))
            .map(|index| self.policy(&format!("p{index}"), resource, &params, aim))
            .collect();
        let count = policies.len() + self.rng.usize(..2);
        let mut bindings: Vec<Json> = (0..count)
            .map(|index| {
                self.binding(&format!("b{index}"), &format!("p{}", index % policies.len()), &params, aim)
            })
            .collect();
        let mut policies = policies;
        if matches!(aim, Aim::Refused) {
            for _ in 0..self.rng.usize(1..3) {
                apply(pick(&mut self.rng, &DEFECTS), &mut policies[0], &mut bindings[0]);
            }
        }
        let namespace = pick(&mut self.rng, &["prod", "dev", "prod", "dev", "prod", "dev", "prod", "gone"]);
        json!({
            "policies": policies,
            "bindings": bindings,
            "params": params.objects,
            "paramKinds": { (params.kind): params.scope },
            "namespaces": [
                namespace_object("prod"),
                namespace_object("dev"),
            ],
            "request": self.request(resource, namespace, aim),
        })
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    fn params(&mut self) -> Params {
        let (api_version, kind, scope) = pick(
            &mut self.rng,
            &[
                ("v1", "ConfigMap", "namespaced"),
                ("rules.example.com/v1", "Limit", "namespaced"),
                ("rules.example.com/v1", "Limit", "cluster"),
                ("rules.example.com/v1", "Missing", "unknown"),
            ],
        );
        let mut objects = Vec::new();
        let namespaces: &[&str] = if scope == "namespaced" { &["prod", "dev"] } else { &[""] };
        for namespace in namespaces {
            for name in ["one", "two"] {
                if self.chance(70) {
                    objects.push(self.param(api_version, kind, namespace, name));
                }
            }
        }
        Params { api_version, kind, scope, objects }
    }

    fn param(&mut self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Json {
        let mut metadata = json!({ "name": name, "labels": { "tier": pick(&mut self.rng, &["a", "b"]) } });
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        let maximum = self.rng.i64(0..5);
        let data = if kind == "ConfigMap" {
            json!({ "maximum": maximum.to_string(), "image": "nginx:1.25" })
        } else {
            json!({ "maximum": maximum, "names": ["a", "web"] })
        };
        json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "data": data })
    }

    fn policy(&mut self, name: &str, resource: Resource, params: &Params, aim: Aim) -> Json {
        let failure_policy = match aim {
            Aim::Error(policy) => policy,
            _ => pick(&mut self.rng, &["Fail", "Ignore"]),
        };
        let mut spec =
            json!({ "failurePolicy": failure_policy, "matchConstraints": self.constraints(resource, aim) });
        let with_params = self.chance(40);
        if with_params {
            spec["paramKind"] = json!({ "apiVersion": params.api_version, "kind": params.kind });
        }
        if self.chance(40) {
            let conditions: Vec<Json> = (0..self.rng.usize(1..3))
                .map(|index| json!({ "name": format!("c{index}"), "expression": self.match_condition(aim) }))
                .collect();
            spec["matchConditions"] = json!(conditions);
        }
        let variables = if self.chance(40) { self.rng.usize(1..4) } else { 0 };
        if variables > 0 {
            let variables: Vec<Json> = (0..variables)
                .map(|index| json!({ "name": format!("v{index}"), "expression": self.variable(index) }))
                .collect();
            spec["variables"] = json!(variables);
        }
        let mut validations: Vec<Json> =
            (0..self.rng.usize(1..4)).map(|_| self.validation(variables, with_params, aim)).collect();
        if matches!(aim, Aim::Error(_)) {
            // It exceeds the cost limit with little memory, of which the guard gives less than the API server.
            let expensive = "[lists.range(250)].all(l, l.all(x, l.all(y, l.all(z, z >= 0))))";
            let error = if self.chance(2) { expensive } else { pick(&mut self.rng, &ERRORS) };
            validations.push(json!({ "expression": error }));
        }
        if matches!(aim, Aim::Denied) {
            validations
                .push(json!({ "expression": "object == null && oldObject == null", "message": "denied" }));
        }
        spec["validations"] = json!(validations);
        if self.chance(25) {
            let annotations: Vec<Json> = (0..self.rng.usize(1..3))
                .map(|index| json!({ "key": format!("k{index}"), "valueExpression": self.annotation(variables) }))
                .collect();
            spec["auditAnnotations"] = json!(annotations);
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name },
            "spec": spec,
        })
    }

    fn match_condition(&mut self, aim: Aim) -> String {
        match aim {
            Aim::Skipped if self.chance(50) => "false".to_owned(),
            Aim::Any => self.condition(),
            _ => (pick(&mut self.rng, &["true", "request.operation != 'NONE'", "has(request.name) || true"]))
                .to_owned(),
        }
    }

    fn variable(&mut self, index: usize) -> String {
        match self.rng.u32(..6) {
            0 if index > 0 => format!("[variables.v{}]", index - 1),
            0 | 1 => self.text(),
            2 => self.condition(),
            _ => (pick(
                &mut self.rng,
                &[
                    "object.spec.replicas",
                    "object.?spec.?replicas.orValue(7)",
                    "'text'",
                    "[1, 2]",
                    "{'a': 1}",
                    "object.spec.nope",
                    "1 / 0",
                    "null",
                ],
            ))
            .to_owned(),
        }
    }

    fn validation(&mut self, variables: usize, params: bool, aim: Aim) -> Json {
        let expression = match self.rng.u32(..10) {
            0..4 => self.condition(),
            4 if variables > 0 => format!("dyn(variables.v{}) == 'text'", self.rng.usize(..variables)),
            5 if variables > 0 => format!("dyn(variables.v{}) != 1", self.rng.usize(..variables)),
            6 if params => "int(params.data.maximum) >= object.spec.replicas".to_owned(),
            7 if params => "params == null || has(params.kind)".to_owned(),
            8 => "object.spec.replicas >= 3".to_owned(),
            _ => "request.operation in ['CREATE', 'UPDATE', 'DELETE', 'CONNECT']".to_owned(),
        };
        let mut validation = json!({ "expression": expression });
        if self.chance(40) {
            validation["message"] = json!(pick(&mut self.rng, &["too many", " spaces ", "é <b> & \"c\""]));
        }
        if self.chance(30) {
            validation["messageExpression"] = json!(match self.rng.u32(..5) {
                0 | 1 => self.text(),
                2 if variables > 0 => "'v: ' + string(dyn(variables.v0))".to_owned(),
                3 => "'replicas: ' + string(object.spec.replicas)".to_owned(),
                _ => "object.metadata.name + ' is bad'".to_owned(),
            });
        }
        if self.chance(30) {
            validation["reason"] =
                json!(pick(&mut self.rng, &["Forbidden", "Invalid", "RequestEntityTooLarge"]));
        }
        if matches!(aim, Aim::Skipped) && self.chance(50) {
            validation["message"] = json!("must be skipped");
        }
        validation
    }

    fn annotation(&mut self, variables: usize) -> String {
        match self.rng.u32(..6) {
            0 => self.text(),
            1 if variables > 0 => "string(dyn(variables.v0))".to_owned(),
            2 => "object.spec.replicas > 2 ? 'many' : ''".to_owned(),
            3 => pick(&mut self.rng, &["string(object.spec.nope)", "null"]).to_owned(),
            4 => "'  ' + request.operation + ' '".to_owned(),
            _ => "request.userInfo.username".to_owned(),
        }
    }

    fn constraints(&mut self, resource: Resource, aim: Aim) -> Json {
        if matches!(aim, Aim::Error(_) | Aim::Denied) && self.chance(60) {
            return json!({ "resourceRules": [{
                "apiGroups": [resource.0], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource.2, format!("{}/status", resource.2)],
            }] });
        }
        let mut constraints = json!({ "resourceRules": [self.rule(resource)] });
        if self.chance(20) {
            constraints["matchPolicy"] = json!(pick(&mut self.rng, &["Exact", "Equivalent"]));
        }
        if self.chance(20) {
            constraints["excludeResourceRules"] = json!([{
                "apiGroups": ["*"],
                "apiVersions": ["*"],
                "operations": ["*"],
                "resources": ["*"],
                "resourceNames": [pick(&mut self.rng, &["web-1", "other", "other"])],
            }]);
        }
        if self.chance(25) {
            constraints["namespaceSelector"] = self.selector("env", "prod");
        }
        if self.chance(25) {
            constraints["objectSelector"] = self.selector("app", "web");
        }
        if matches!(aim, Aim::Skipped) && self.chance(70) {
            let (field, value) = pick(
                &mut self.rng,
                &[
                    ("apiGroups", "other.example.com"),
                    ("apiVersions", "v9"),
                    ("operations", "CONNECT"),
                    ("resources", "secrets"),
                    ("resources", "*/status"),
                    ("scope", ""),
                    ("resourceNames", "nope"),
                ],
            );
            constraints["matchPolicy"] = json!("Exact");
            let rule = &mut constraints["resourceRules"][0];
            rule[field] = if field == "scope" {
                json!(if resource.3 { "Cluster" } else { "Namespaced" })
            } else {
                json!([value])
            };
        }
        constraints
    }

    fn rule(&mut self, resource: Resource) -> Json {
        let mut rule = json!({
            "apiGroups": [if self.chance(30) { "*" } else { resource.0 }],
            "apiVersions": [pick(&mut self.rng, &["v1", "*"])],
            "operations": pick(&mut self.rng, &[&["*"] as &[&str], &["CREATE", "UPDATE", "DELETE", "CONNECT"], &["DELETE", "CREATE"]]),
            "resources": [pick(&mut self.rng, &[resource.2, resource.2, "*", "*/*"])],
        });
        if self.chance(15) {
            rule["scope"] = json!(pick(&mut self.rng, &["*", "Namespaced", "Cluster"]));
        }
        if self.chance(15) {
            rule["resourceNames"] = json!(["other", "web-1"]);
        }
        rule
    }

    fn selector(&mut self, key: &str, value: &str) -> Json {
        match self.rng.u32(..6) {
            0 => json!({}),
            1 => json!({ "matchLabels": { (key): value } }),
            2 => json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] }),
            3 => json!({ "matchExpressions": [{ "key": key, "operator": "NotIn", "values": ["x", "y"] }] }),
            4 => json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": [value, "x"] }] }),
            _ => json!({ "matchExpressions": [{ "key": "zone", "operator": "DoesNotExist" }] }),
        }
    }

    fn binding(&mut self, name: &str, policy: &str, params: &Params, aim: Aim) -> Json {
        let actions: &[&[&str]] = match aim {
            Aim::Denied => &[&["Deny"], &["Deny", "Audit"]],
            _ => &[&["Deny"], &["Warn"], &["Audit"], &["Deny", "Audit"], &["Warn", "Audit"]],
        };
        let mut spec = json!({ "policyName": policy, "validationActions": pick(&mut self.rng, actions) });
        if self.chance(85) {
            spec["paramRef"] = self.param_ref(params);
        }
        if self.chance(20) {
            spec["matchResources"] = match self.rng.u32(..4) {
                0 => json!({ "namespaceSelector": self.selector("env", "prod") }),
                1 => json!({ "objectSelector": self.selector("app", "web") }),
                2 => json!({ "excludeResourceRules": [{
                    "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["*"],
                }] }),
                _ => json!({ "resourceRules": [{
                    "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*"],
                }] }),
            };
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": name },
            "spec": spec,
        })
    }

    fn param_ref(&mut self, params: &Params) -> Json {
        let mut reference = json!({ "parameterNotFoundAction": pick(&mut self.rng, &["Allow", "Deny"]) });
        if self.chance(60) {
            reference["name"] = json!(pick(&mut self.rng, &["one", "two", "three"]));
        } else {
            reference["selector"] = self.selector("tier", "a");
        }
        if params.scope == "namespaced" && self.chance(40) || self.chance(5) {
            reference["namespace"] = json!(pick(&mut self.rng, &["prod", "dev"]));
        }
        reference
    }

    fn request(&mut self, resource: Resource, namespace: &str, aim: Aim) -> Json {
        let (group, kind, plural, namespaced) = resource;
        let mut object = workload(&mut self.rng);
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") });
        let is_namespace = kind == "Namespace";
        let name = if is_namespace { "prod" } else { "web-1" };
        object["metadata"]["name"] = json!(name);
        let namespace = if namespaced { namespace } else { "" };
        if namespaced {
            object["metadata"]["namespace"] = json!(namespace);
        } else {
            object["metadata"].as_object_mut().expect("metadata").remove("namespace");
        }
        let mut old = object.clone();
        old["spec"]["replicas"] = json!(self.rng.i64(0..6));
        let operation = match self.rng.u32(..100) {
            // Most conditions fail without an object.
            0..12 if !matches!(aim, Aim::Denied) => "DELETE",
            0..40 => "UPDATE",
            _ => "CREATE",
        };
        let options = match operation {
            "CREATE" => json!({ "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions" }),
            "UPDATE" => {
                json!({ "apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions", "fieldManager": "m" })
            }
            _ => json!({ "apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 }),
        };
        json!({
            "operation": operation,
            "group": group,
            "version": "v1",
            "kind": kind,
            "resource": plural,
            "subresource": if self.chance(5) { "status" } else { "" },
            // The API server takes the name of a new object from the request, which has none for a generated one.
            "name": if operation == "CREATE" && self.chance(10) { "" } else { name },
            "namespace": if is_namespace { name } else { namespace },
            "object": if operation == "DELETE" { Json::Null } else { object },
            "oldObject": if operation == "CREATE" { Json::Null } else { old },
            "options": options,
            "dryRun": self.chance(20),
            "user": {
                "name": pick(&mut self.rng, &["ann", "system:serviceaccount:kube-system:default"]),
                "uid": pick(&mut self.rng, &["u1", ""]),
                "groups": pick(&mut self.rng, &[&["dev", "ops"] as &[&str], &[]]),
                "extra": { "scopes": ["a", "b"] },
            },
        })
    }
}

/// Parameters of a case.
struct Params {
    api_version: &'static str,
    kind: &'static str,
    scope: &'static str,
    objects: Vec<Json>,
}

fn namespace_object(name: &str) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "labels": { "env": name } },
        "spec": { "finalizers": ["kubernetes"] },
        "status": { "phase": "Active" },
    })
}
