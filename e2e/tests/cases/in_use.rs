//! In-use rules on a real API server with controllers: each rule of the library, and deletions that take others along.

use e2e::prelude::*;

use super::attempt::{Attempt, DELETION, retry_until};
use super::objects::await_gone;

const GUARD: &str = "  deletion:
    scope: labeled
    inUse:
      library: [secrets, secret-owners, configmaps, serviceaccounts, storageclasses, priorityclasses, ingressclasses, \
                runtimeclasses, gatewayclasses, gateways, clusterissuers, issuers]";

/// Custom resources of the rules: group, version, plural, kind, scope.
const CUSTOM: [(&str, &str, &str, &str, &str); 12] = [
    ("external-secrets.io", "v1", "externalsecrets", "ExternalSecret", "Namespaced"),
    ("cert-manager.io", "v1", "certificates", "Certificate", "Namespaced"),
    ("cert-manager.io", "v1", "issuers", "Issuer", "Namespaced"),
    ("cert-manager.io", "v1", "clusterissuers", "ClusterIssuer", "Cluster"),
    ("bitnami.com", "v1alpha1", "sealedsecrets", "SealedSecret", "Namespaced"),
    ("gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass", "Cluster"),
    ("gateway.networking.k8s.io", "v1", "gateways", "Gateway", "Namespaced"),
    ("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", "Namespaced"),
    ("gateway.networking.k8s.io", "v1", "grpcroutes", "GRPCRoute", "Namespaced"),
    ("gateway.networking.k8s.io", "v1alpha2", "tlsroutes", "TLSRoute", "Namespaced"),
    ("gateway.networking.k8s.io", "v1alpha2", "tcproutes", "TCPRoute", "Namespaced"),
    ("gateway.networking.k8s.io", "v1alpha2", "udproutes", "UDPRoute", "Namespaced"),
];

/// A control plane with the controllers that delete what belongs to a deleted object.
fn cluster(context: &'static TestContext) -> Result<std::sync::Arc<Cluster>> {
    context.cluster(
        &Options::named("in-use")
            .with_these_controllers(&[
                "namespace",
                "garbagecollector",
                "serviceaccount",
                "deployment",
                "replicaset",
            ])
            .with_aggregator_routing(),
    )
}

fn delete(cluster: &Cluster, path: &str) -> Result<Attempt> {
    Ok(Attempt::new(cluster.api().delete(path)?, &DELETION))
}

/// Returns a pod that no node runs and that mounts a `ConfigMap`.
fn pod(name: &str, config_map: &str) -> Value {
    let volumes = json!([{"name": "v", "configMap": {"name": config_map}}]);
    json!({"kind": "Pod", "metadata": {"name": name}, "spec": {"volumes": volumes}})
}

/// An object of a kind in a namespace, or cluster-wide.
struct Created<'a> {
    cluster: &'a Cluster,
    path: String,
}

impl<'a> Created<'a> {
    /// Creates an object. `resource` is as in a path: `v1/pods`, `apps/v1/deployments`.
    fn new(namespace: &Namespace<'a>, resource: &str, object: &Value) -> Result<Self> {
        let cluster = namespace.cluster();
        let mut object = object.clone();
        let (version, _) = resource.rsplit_once('/').context("a resource without a version")?;
        object["apiVersion"] = version.into();
        if object["kind"] == "Pod" {
            object["spec"]["containers"] = json!([{"name": "app", "image": "images.example/app:1"}]);
            object["spec"]["nodeSelector"] = json!({"example.org/none": "true"});
        }
        let is_cluster_wide =
            ["classes", "clusterissuers", "persistentvolumes"].iter().any(|word| resource.ends_with(word));
        let collection = match resource.strip_prefix("v1/") {
            Some(core) if is_cluster_wide => format!("/api/v1/{core}"),
            None if is_cluster_wide => format!("/apis/{resource}"),
            Some(core) => namespace.path(core),
            None => namespace.path(resource),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        until(format_args!("{resource} to be served"), || {
            let answer = cluster.api().create(&collection, &object)?;
            ensure!(answer.status == 404 || answer.is_success(), "{}", answer.message());
            Ok((answer.is_success(), answer.message().to_owned()))
        })?;
        Ok(Self { cluster, path: format!("{collection}/{name}") })
    }

    fn removed(&self) -> Result<()> {
        self.cluster.api().delete(&self.path)?.succeeded().map(drop)
    }

    /// Expects that a deletion is denied with this end of the first line.
    fn is_used_by(&self, what: &str) -> Result<()> {
        let answer = self.cluster.api().delete(&self.path)?;
        let message = answer.message();
        let is_denied = answer.status == 403
            && message.contains(".in-use.durward.dev\" denied the request: ")
            && message.contains(&format!("is still in use: {what}\n"));
        ensure!(is_denied, "{}: {} {message}", self.path, answer.status);
        Ok(())
    }
}

fn install_custom_resources(cluster: &Cluster) -> Result<()> {
    for (group, version, plural, kind, scope) in CUSTOM {
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"),
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}},
            "spec": {"group": group, "scope": scope,
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        cluster.api().create(path, &crd)?.succeeded()?;
    }
    Ok(())
}

/// A row of `in_use.yaml`.
#[derive(serde::Deserialize)]
struct Row {
    used: ObjectOf,
    by: ObjectOf,
    denial: String,
}

#[derive(serde::Deserialize)]
struct ObjectOf {
    resource: String,
    object: Value,
}

#[e2e::case]
fn each_rule_of_the_library_denies_in_use_and_allows_free(context: &'static TestContext) -> Result<()> {
    let cluster = cluster(context)?;
    install_custom_resources(&cluster)?;
    let (_installation, durward) = Installation::start(context, &cluster, GUARD, "durward-in-use")?;
    let shop = cluster.namespace("shop")?;
    await_rules(&shop)?;
    let rows: Vec<Row> = serde_saphyr::from_str(include_str!("in_use.yaml"))?;
    for Row { used, by, denial } in &rows {
        let check = || {
            let protected = Created::new(&shop, &used.resource, &used.object)?;
            let using = Created::new(&shop, &by.resource, &by.object)?;
            protected.is_used_by(&denial.replace("NAMESPACE", shop.name()))?;
            // Another object of the kind is free.
            let mut free = used.object.clone();
            free["metadata"]["name"] = "free".into();
            for secret in ["/spec/secretName", "/spec/target/name"] {
                if let Some(secret) = free.pointer_mut(secret) {
                    *secret = "free".into();
                }
            }
            delete(&cluster, &Created::new(&shop, &used.resource, &free)?.path)?.allowed()?;
            using.removed()?;
            delete(&cluster, &protected.path)?.allowed()?;
            await_gone(&cluster, &protected.path)
        };
        check().with_context(|| format!("{} by {}", used.resource, by.resource))?;
    }
    for (resource, argument) in
        [("v1/configmaps", "configmaps/app"), (GATEWAYS, "gateways.gateway.networking.k8s.io/edge")]
    {
        let row = rows.iter().find(|row| row.used.resource == resource).context("a row of the resource")?;
        a_command_overrides_the_denial(context, &shop, row, argument)?;
    }
    let labels = [("policy", "secrets"), ("outcome", "deny")];
    let denied = durward.metrics()?.sum("durward_policy_outcomes_total", &labels);
    ensure!(denied > 2.5, "{denied} denials of the rule secrets are counted");
    Ok(())
}

const GATEWAYS: &str = "gateway.networking.k8s.io/v1/gateways";

/// `override` finds the resource by discovery.
fn a_command_overrides_the_denial(
    context: &TestContext,
    shop: &Namespace<'_>,
    Row { used, by, denial }: &Row,
    argument: &str,
) -> Result<()> {
    let cluster = shop.cluster();
    let protected = Created::new(shop, &used.resource, &used.object)?;
    let using = Created::new(shop, &by.resource, &by.object)?;
    protected.is_used_by(&denial.replace("NAMESPACE", shop.name()))?;
    let kubeconfig = cluster.kubectl().kubeconfig().display().to_string();
    let object = ["override", argument, "-n", shop.name(), "--kubeconfig", &kubeconfig];
    let command = [&object[..], &["--reason", "end of the case", "--for", "1h"]].concat();
    Durward::command(context, &command)?.succeeded()?;
    delete(cluster, &protected.path)?.allowed()?;
    using.removed()
}

/// Waits until the API server sends deletions to Durward.
fn await_rules(shop: &Namespace<'_>) -> Result<()> {
    let used = Created::new(shop, "v1/configmaps", &json!({"metadata": {"name": "probe"}}))?;
    let by = Created::new(shop, "v1/pods", &pod("probe", "probe"))?;
    let dry_run = format!("{}?dryRun=All", used.path);
    retry_until(
        "the rules to be in force",
        || delete(used.cluster, &dry_run),
        |attempt| attempt.contains("1 pod (probe)"),
    )?;
    by.removed()?;
    used.removed()
}

/// The namespace controller and the garbage collector delete what belongs to a deleted object, in any order. A pruner that deletes a
/// used object first is denied, and its next attempt succeeds.
#[e2e::case]
fn deletions_that_take_others_along_end(context: &'static TestContext) -> Result<()> {
    let cluster = cluster(context)?;
    let (_installation, _durward) = Installation::start(context, &cluster, GUARD, "durward-cascades")?;
    await_rules(&cluster.namespace("probe")?)?;
    let configured = pod("web", "app");
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "app"}});

    let both = cluster.namespace("both")?;
    Created::new(&both, "v1/configmaps", &map)?;
    Created::new(&both, "v1/pods", &configured)?;
    let path = format!("/api/v1/namespaces/{}", both.name());
    delete(&cluster, &path)?.allowed()?;
    await_gone(&cluster, &path)?;

    for policy in ["background", "foreground"] {
        an_owner_takes_its_config_map_along(&cluster, policy)?;
    }

    let pruned = cluster.namespace("pruned")?;
    let used = Created::new(&pruned, "v1/configmaps", &map)?;
    let by = Created::new(&pruned, "v1/pods", &configured)?;
    let mut left = vec![used.path.as_str(), by.path.as_str()];
    for attempt in 0.. {
        left.retain(|path| {
            cluster.api().delete(path).is_ok_and(|answer| !answer.is_success() && answer.status != 404)
        });
        if left.is_empty() {
            ensure!(attempt == 1, "the pruner needed {} attempts", attempt + 1);
            break;
        }
        ensure!(attempt < 10, "{left:?} are left");
    }
    Ok(())
}

/// Deletes a Deployment whose pods use a `ConfigMap` that it owns.
fn an_owner_takes_its_config_map_along(cluster: &Cluster, policy: &str) -> Result<()> {
    let owned = cluster.namespace("owned")?;
    let pod = json!({
        "containers": [{"name": "app", "image": "images.example/app:1"}],
        "volumes": [{"name": "v", "configMap": {"name": "owned"}}],
    });
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
    });
    let deployment = json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    let deployment = Created::new(&owned, "apps/v1/deployments", &deployment)?;
    let uid = cluster.api().get(&deployment.path)?.succeeded()?.body["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "blockOwnerDeletion": true}]);
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": owner}});
    let used = Created::new(&owned, "v1/configmaps", &map)?;
    let dry_run = format!("{}?dryRun=All", used.path);
    let try_delete = || delete(cluster, &dry_run);
    retry_until("the pod of the Deployment", try_delete, |attempt| attempt.contains("still in use"))?;
    let cascade = format!("--cascade={policy}");
    let command = ["delete", "deployment", "web", "-n", owned.name(), &cascade, "--timeout=60s"];
    cluster.kubectl().run(&command)?.succeeded()?;
    await_gone(cluster, &used.path)
}
