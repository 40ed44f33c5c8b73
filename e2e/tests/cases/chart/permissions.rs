//! The permissions and the bindings in the chart are those of `durward manifests`.

use std::collections::BTreeSet;

use e2e::context;
use e2e::prelude::*;

use super::configurations::{self, HOME, Rendered, parse};

/// One verb on one resource: namespace, API group, resource, name (`*` is all), verb.
type Grant = [String; 5];

#[e2e::case]
fn the_chart_grants_what_durward_manifests_prints(context: &'static TestContext) -> Result<()> {
    let directory = context.directory("chart-permissions")?;
    for rendered in configurations::all(context)? {
        let name = &rendered.name;
        let mut configuration = rendered.configuration()?.to_owned();
        if let Some(map) = rendered.object("ConfigMap", "durward-policies") {
            // `durward manifests` reads the policies that the pods have.
            let policies = context.directory("chart-policies")?;
            for (file, text) in map["data"].as_object().context("a ConfigMap without data")? {
                context::write(&policies, file, text.as_str().unwrap_or_default())?;
            }
            configuration = configuration.replace("/etc/durward-policies", &policies.display().to_string());
        }
        let file = context::write(&directory, &format!("{name}.yaml"), &configuration)?;
        let file = file.display().to_string();
        let arguments = ["manifests", "--config", &file, "--only", "rbac", "--target", "cluster"];
        let printed = Durward::command(context, &arguments)?.succeeded()?.stdout;
        let expected = grants(&parse(&printed)?)?;
        let granted = grants(&rendered.objects)?;
        let differ = |some: &BTreeSet<Grant>, other: &BTreeSet<Grant>| -> Vec<String> {
            some.difference(other).map(|grant| grant.join(" ")).collect()
        };
        let (missing, surplus) = (differ(&expected, &granted), differ(&granted, &expected));
        ensure!(
            missing.is_empty() && surplus.is_empty(),
            "{name}: the chart lacks {missing:?}, and durward manifests does not print {surplus:?}"
        );
        bindings_are_complete(rendered).with_context(|| name.clone())?;
        if configuration.contains("manage: all") {
            let arguments = ["manifests", "--config", &file, "--only", "webhooks", "--target", "cluster"];
            let printed = parse(&Durward::command(context, &arguments)?.succeeded()?.stdout)?;
            let (expected, has) = (policy_bindings(&printed), policy_bindings(&rendered.objects));
            ensure!(
                has == expected,
                "{name}: the chart has {has:?}, and durward manifests prints {expected:?}"
            );
        }
    }
    Ok(())
}

/// Returns the bindings of native policies: name and spec.
fn policy_bindings(objects: &[Value]) -> BTreeSet<String> {
    // The policy for the agents on nodes has no parameter.
    let is_native = |object: &&Value| {
        object["kind"] == "ValidatingAdmissionPolicyBinding" && object["spec"]["paramRef"].is_object()
    };
    let bindings = objects.iter().filter(is_native);
    bindings.map(|binding| format!("{} {}", binding["metadata"]["name"], binding["spec"])).collect()
}

/// Returns all grants of the roles called `durward`.
fn grants(objects: &[Value]) -> Result<BTreeSet<Grant>> {
    let mut grants = BTreeSet::new();
    for role in objects.iter().filter(|object| is_ours(object, "Role") || is_ours(object, "ClusterRole")) {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().context("a role without rules")? {
            let texts = |field: &str| -> Vec<String> {
                let values = rule[field].as_array().into_iter().flatten();
                values.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
            };
            let mut names = texts("resourceNames");
            if names.is_empty() {
                names.push("*".to_owned());
            }
            for group in texts("apiGroups") {
                for resource in texts("resources") {
                    for name in &names {
                        for verb in texts("verbs") {
                            let parts = [namespace, &group, &resource, name, &verb];
                            grants.insert(parts.map(ToOwned::to_owned));
                        }
                    }
                }
            }
        }
    }
    Ok(grants)
}

fn is_ours(object: &Value, kind: &str) -> bool {
    object["kind"] == kind && object["metadata"]["name"] == "durward"
}

/// Expects a binding of each role to the service account of the pods.
fn bindings_are_complete(rendered: &Rendered) -> Result<()> {
    let subject = json!([{"kind": "ServiceAccount", "name": "durward", "namespace": HOME}]);
    for (role, binding) in [("Role", "RoleBinding"), ("ClusterRole", "ClusterRoleBinding")] {
        let of = |kind: &str| -> Vec<&Value> {
            rendered.objects.iter().filter(|object| is_ours(object, kind)).collect()
        };
        let (roles, bindings) = (of(role), of(binding));
        ensure!(roles.len() == bindings.len(), "{} of {role} and {} bindings", roles.len(), bindings.len());
        for role in roles {
            let is_its = |binding: &&&Value| {
                binding["metadata"]["namespace"] == role["metadata"]["namespace"]
                    && binding["roleRef"]["kind"] == role["kind"]
                    && binding["roleRef"]["name"] == "durward"
                    && binding["subjects"] == subject
            };
            ensure!(bindings.iter().any(|binding| is_its(&binding)), "no binding of {role}");
        }
    }
    let account =
        &rendered.object("Deployment", "durward").context("no Deployment")?["spec"]["template"]["spec"];
    ensure!(account["serviceAccountName"] == "durward", "another account: {account}");
    Ok(())
}
