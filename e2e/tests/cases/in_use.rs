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

/// Returns a pod that no node runs.
fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "app", "image": "images.example/app:1"}]);
    pod["spec"]["nodeSelector"] = json!({"example.org/none": "true"});
    pod
}

/// An object of a kind in a namespace, or cluster-wide.
struct Created<'a> {
    cluster: &'a Cluster,
    path: String,
}

impl<'a> Created<'a> {
    fn new(namespace: &Namespace<'a>, resource: &str, object: &Value) -> Result<Self> {
        let cluster = namespace.cluster();
        let is_cluster_wide = ["classes", "clusterissuers"].iter().any(|word| resource.ends_with(word));
        let collection = match resource.strip_prefix("v1/") {
            _ if is_cluster_wide => format!("/apis/{resource}"),
            Some(core) => namespace.path(core),
            None => namespace.path(resource),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        until(format_args!("{resource} to be served"), || {
            let answer = cluster.api().create(&collection, object)?;
            ensure!(answer.status == 404 || answer.is_success(), "{}", answer.message());
            Ok((answer.is_success(), answer.message().to_owned()))
        })?;
        Ok(Self { cluster, path: format!("{collection}/{name}") })
    }

    fn removed(&self) -> Result<()> {
        self.cluster.api().delete(&self.path)?.succeeded().map(drop)
    }

    /// Expects that no deletion is allowed, and that the denial names one using object of this kind.
    fn is_used_by(&self, what: &str) -> Result<()> {
        let answer = self.cluster.api().delete(&self.path)?;
        let message = answer.message();
        let is_denied = answer.status == 403
            && message.contains(".in-use.durward.dev\" denied the request: ")
            && message.contains(&format!("is still in use: 1 {what}"));
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

/// An object, one that uses it, and how a denial names that one.
#[derive(Clone)]
struct UsageCase {
    resource: String,
    object: Value,
    by: String,
    user: Value,
    named: String,
}

fn usage(used: (&str, Value), by: (&str, Value), named: &str) -> UsageCase {
    UsageCase {
        resource: used.0.to_owned(),
        object: used.1,
        by: by.0.to_owned(),
        user: by.1,
        named: named.to_owned(),
    }
}

const PODS: &str = "v1/pods";
const SECRETS: &str = "v1/secrets";
const INGRESSES: &str = "networking.k8s.io/v1/ingresses";
const GATEWAYS: &str = "gateway.networking.k8s.io/v1/gateways";
const CERTIFICATES: &str = "cert-manager.io/v1/certificates";

/// Returns an object without a spec.
fn object(api: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}})
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

/// Returns an object of a custom resource.
fn custom(api: &str, kind: &str, name: &str, spec: Value) -> Value {
    with(object(api, kind, name), "spec", spec)
}

fn gateway() -> Value {
    custom("gateway.networking.k8s.io/v1", "Gateway", "edge", json!({"gatewayClassName": "fast"}))
}

fn route(api: &str, kind: &str) -> Value {
    custom(api, kind, "web", json!({"parentRefs": [{"name": "edge"}]}))
}

fn config_map() -> Value {
    object("v1", "ConfigMap", "app")
}

fn pod_with_config_map() -> Value {
    pod("web", &json!({"volumes": [{"name": "v", "configMap": {"name": "app"}}]}))
}

fn pod_with_secret() -> Value {
    pod("web", &json!({"volumes": [{"name": "v", "secret": {"secretName": "app"}}]}))
}

fn ingress(field: &str, value: Value) -> Value {
    let spec = json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}});
    custom("networking.k8s.io/v1", "Ingress", "web", with(spec, field, value))
}

/// The rules for `ConfigMaps`, Secrets and service accounts.
fn usages_of_core_objects() -> Vec<UsageCase> {
    let secret = || (SECRETS, object("v1", "Secret", "app"));
    let account = |name: &str| object("v1", "ServiceAccount", name);
    let puller = with(account("puller"), "imagePullSecrets", json!([{"name": "app"}]));
    let tls = ingress("tls", json!([{"secretName": "app"}]));
    let runs = pod("web", &json!({"serviceAccountName": "runner"}));
    vec![
        usage(("v1/configmaps", config_map()), (PODS, pod_with_config_map()), "pod (web)"),
        usage(secret(), (PODS, pod_with_secret()), "pod\n"),
        usage(secret(), ("v1/serviceaccounts", puller), "serviceaccount\n"),
        usage(secret(), (INGRESSES, tls), "ingress\n"),
        usage(("v1/serviceaccounts", account("runner")), (PODS, runs), "pod (web)"),
    ]
}

/// The rules for classes of Kubernetes.
fn usages_of_classes() -> Vec<UsageCase> {
    let class = |group: &str, plural: &str, kind: &str, field: &str, value: Value| {
        let api = format!("{group}/v1");
        (format!("{api}/{plural}"), with(object(&api, kind, "fast"), field, value))
    };
    let storage =
        class("storage.k8s.io", "storageclasses", "StorageClass", "provisioner", json!("example.org/x"));
    let priority = class("scheduling.k8s.io", "priorityclasses", "PriorityClass", "value", json!(7));
    let controller = json!({"controller": "example.org/x"});
    let ingresses = class("networking.k8s.io", "ingressclasses", "IngressClass", "spec", controller);
    let runtime = class("node.k8s.io", "runtimeclasses", "RuntimeClass", "handler", json!("runc"));
    let volume = json!({
        "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    });
    let claim = custom("v1", "PersistentVolumeClaim", "data", volume);
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"priorityClassName": "fast", "containers": [{"name": "app", "image": "images.example/app:1"}]},
    });
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let deployment = custom("apps/v1", "Deployment", "web", spec);
    let with_priority = pod("web", &json!({"priorityClassName": "fast"}));
    let with_runtime = pod("web", &json!({"runtimeClassName": "fast"}));
    let with_class = ingress("ingressClassName", json!("fast"));
    vec![
        usage((&storage.0, storage.1), ("v1/persistentvolumeclaims", claim), "PVC ("),
        usage((&priority.0, priority.1.clone()), (PODS, with_priority), "pod ("),
        usage((&priority.0, priority.1), ("apps/v1/deployments", deployment), "Deployment ("),
        usage((&ingresses.0, ingresses.1), (INGRESSES, with_class), "ingress ("),
        usage((&runtime.0, runtime.1), (PODS, with_runtime), "pod ("),
    ]
}

/// The rules for Gateways, issuers, and the owners of Secrets.
fn usages_of_custom_resources() -> Vec<UsageCase> {
    let gateways = "gateway.networking.k8s.io/v1";
    let manager = "cert-manager.io/v1";
    let certificate = |issuer: &str| {
        let spec = json!({"secretName": "tls", "issuerRef": {"name": "ca", "kind": issuer}});
        (CERTIFICATES, custom(manager, "Certificate", "tls", spec))
    };
    let class = custom(gateways, "GatewayClass", "fast", json!({}));
    let external =
        custom("external-secrets.io/v1", "ExternalSecret", "x", json!({"target": {"name": "app"}}));
    let owner = custom(manager, "Certificate", "x", json!({"secretName": "app"}));
    let sealed = custom("bitnami.com/v1alpha1", "SealedSecret", "app", json!({}));
    let issuer = |kind: &str| custom(manager, kind, "ca", json!({}));
    let secret_owner =
        |resource: &str, owner: Value| usage((resource, owner), (PODS, pod_with_secret()), "pod (web)");
    let mut all = vec![
        usage(("gateway.networking.k8s.io/v1/gatewayclasses", class), (GATEWAYS, gateway()), "gateway ("),
        usage(
            ("cert-manager.io/v1/clusterissuers", issuer("ClusterIssuer")),
            certificate("ClusterIssuer"),
            "certificate (",
        ),
        usage(("cert-manager.io/v1/issuers", issuer("Issuer")), certificate("Issuer"), "certificate ("),
        secret_owner("external-secrets.io/v1/externalsecrets", external),
        secret_owner(CERTIFICATES, owner),
        secret_owner("bitnami.com/v1alpha1/sealedsecrets", sealed),
    ];
    let is_route = |row: &&(&str, &str, &str, &str, &str)| row.3.ends_with("Route");
    all.extend(CUSTOM.iter().filter(is_route).map(|(group, version, plural, kind, _)| {
        let api = format!("{group}/{version}");
        let by = route(&api, kind);
        usage((GATEWAYS, gateway()), (&format!("{api}/{plural}"), by), &format!("{} (", kind.to_lowercase()))
    }));
    all
}

#[e2e::case]
fn each_rule_of_the_library_denies_in_use_and_allows_free(context: &'static TestContext) -> Result<()> {
    let cluster = cluster(context)?;
    install_custom_resources(&cluster)?;
    let (_installation, durward) = Installation::start(context, &cluster, GUARD, "durward-in-use")?;
    let shop = cluster.namespace("shop")?;
    await_rules(&shop)?;
    let all = [usages_of_core_objects(), usages_of_classes(), usages_of_custom_resources()].concat();
    ensure!(all.len() == 21, "{} usages", all.len());
    for UsageCase { resource, object, by: user_resource, user, named } in &all {
        let check = || {
            let used = Created::new(&shop, resource, object)?;
            let by = Created::new(&shop, user_resource, user)?;
            used.is_used_by(named)?;
            by.removed()?;
            delete(&cluster, &used.path)?.allowed()?;
            await_gone(&cluster, &used.path)
        };
        check().with_context(|| format!("{resource} by {user_resource}"))?;
    }
    // Durward reads no Secret and stores none.
    let log = durward.log()?;
    ensure!(!log.contains("/secrets"), "a request for Secrets is in the log");
    let denied = durward
        .metrics()?
        .sum("durward_policy_outcomes_total", &[("policy", "secrets"), ("outcome", "deny")]);
    ensure!(denied > 2.5, "{denied} denials of the rule secrets are counted");
    commands_override_denials(context, &shop)
}

/// `override` finds the resource by discovery.
fn commands_override_denials(context: &TestContext, shop: &Namespace<'_>) -> Result<()> {
    let cluster = shop.cluster();
    let kubeconfig = cluster.kubectl().kubeconfig().display().to_string();
    let routes = "gateway.networking.k8s.io/v1/httproutes";
    let http = route("gateway.networking.k8s.io/v1", "HTTPRoute");
    for (usage, argument) in [
        (
            usage(("v1/configmaps", config_map()), (PODS, pod_with_config_map()), "pod (web)"),
            "configmaps/app",
        ),
        (
            usage((GATEWAYS, gateway()), (routes, http), "httproute ("),
            "gateways.gateway.networking.k8s.io/edge",
        ),
    ] {
        let used = Created::new(shop, &usage.resource, &usage.object)?;
        let by = Created::new(shop, &usage.by, &usage.user)?;
        used.is_used_by(&usage.named)?;
        let for_it = ["override", argument, "-n", shop.name(), "--kubeconfig", &kubeconfig];
        let command = [&for_it[..], &["--reason", "end of the case", "--for", "1h"]].concat();
        Durward::command(context, &command)?.succeeded()?;
        delete(cluster, &used.path)?.allowed()?;
        by.removed()?;
    }
    Ok(())
}

/// Waits until the API server sends deletions to Durward.
fn await_rules(shop: &Namespace<'_>) -> Result<()> {
    let used = Created::new(shop, "v1/configmaps", &object("v1", "ConfigMap", "probe"))?;
    let by = Created::new(
        shop,
        "v1/pods",
        &pod("probe", &json!({"volumes": [{"name": "v", "configMap": {"name": "probe"}}]})),
    )?;
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
    let (configured, map) = (pod_with_config_map(), config_map());

    let both = cluster.namespace("both")?;
    Created::new(&both, "v1/configmaps", &map)?;
    Created::new(&both, PODS, &configured)?;
    let path = format!("/api/v1/namespaces/{}", both.name());
    delete(&cluster, &path)?.allowed()?;
    await_gone(&cluster, &path)?;

    for policy in ["background", "foreground"] {
        let owned = cluster.namespace("owned")?;
        let mut template = configured["spec"].clone();
        template["volumes"][0]["configMap"]["name"] = "owned".into();
        let deployment = Created::new(
            &owned,
            "apps/v1/deployments",
            &json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": template}},
            }),
        )?;
        let uid = cluster.api().get(&deployment.path)?.succeeded()?.body["metadata"]["uid"].clone();
        let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "blockOwnerDeletion": true}]);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": owner}});
        let used = Created::new(&owned, "v1/configmaps", &map)?;
        until("the pod of the Deployment", || {
            let attempt = delete(&cluster, &format!("{}?dryRun=All", used.path))?;
            Ok((attempt.contains("still in use"), "the ConfigMap is free".to_owned()))
        })?;
        let cascade = format!("--cascade={policy}");
        let command = ["delete", "deployment", "web", "-n", owned.name(), &cascade, "--timeout=60s"];
        cluster.kubectl().run(&command)?.succeeded()?;
        await_gone(&cluster, &used.path)?;
    }

    let pruned = cluster.namespace("pruned")?;
    let used = Created::new(&pruned, "v1/configmaps", &map)?;
    let by = Created::new(&pruned, PODS, &configured)?;
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
