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
fn pod(name: &str, spec: Value) -> Value {
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
    fn new(namespace: &Namespace<'a>, resource: &str, object: Value) -> Result<Self> {
        let cluster = namespace.cluster();
        let is_cluster_wide = ["classes", "clusterissuers"].iter().any(|word| resource.ends_with(word));
        let collection = match resource.strip_prefix("v1/") {
            _ if is_cluster_wide => format!("/apis/{resource}"),
            Some(core) => namespace.path(core),
            None => namespace.path(resource),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        until(&format!("{resource} to be served"), || {
            let answer = cluster.api().create(&collection, &object)?;
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

/// Returns an object of a custom resource.
fn custom(kind: &str, name: &str, spec: Value) -> Value {
    let (group, version, ..) = CUSTOM.iter().find(|row| row.3 == kind).expect("a kind of the table");
    json!({"apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[e2e::case]
fn each_rule_of_the_library_denies_in_use_and_allows_free(context: &'static TestContext) -> Result<()> {
    let cluster = cluster(context)?;
    install_custom_resources(&cluster)?;
    let (_installation, durward) = Installation::start(context, &cluster, GUARD, "durward-in-use")?;
    let shop = cluster.namespace("shop")?;
    await_rules(&shop)?;
    let named =
        |kind: &str, name: &str| json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": name}});
    let class = |api: &str, kind: &str, more: Value| {
        let mut class = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "fast"}});
        class.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        class
    };
    let using = |object: Value| ("v1/pods", object);
    let secret_pod = || pod("web", json!({"volumes": [{"name": "v", "secret": {"secretName": "app"}}]}));
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let ingress = |spec: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web"},
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}, "tls": spec["tls"], "ingressClassName": spec["class"]}})
    };
    let parent = json!({"parentRefs": [{"name": "edge"}]});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "puller"}, "imagePullSecrets": [{"name": "app"}]});
    let priority = class("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 7}));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"priorityClassName": "fast", "containers": [{"name": "app", "image": "images.example/app:1"}]}}}});
    let issuer = |kind: &str| json!({"secretName": "tls", "issuerRef": {"name": "ca", "kind": kind}});
    let routes = ["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"].map(|kind| {
        let (group, version, plural, ..) =
            CUSTOM.iter().find(|row| row.3 == kind).expect("a kind of the table");
        (format!("{group}/{version}/{plural}"), custom(kind, "web", parent.clone()), kind.to_lowercase())
    });
    let gateways = "gateway.networking.k8s.io/v1/gateways";
    let certificates = "cert-manager.io/v1/certificates";
    let mut rows: Vec<(&str, Value, String, Value, String)> = Vec::new();
    let mut row = |protected: (&'static str, Value), by: (&str, Value), what: &str| {
        rows.push((protected.0, protected.1, by.0.to_owned(), by.1, what.to_owned()));
    };
    row(
        ("v1/configmaps", named("ConfigMap", "app")),
        using(pod("web", json!({"volumes": [{"name": "v", "configMap": {"name": "app"}}]}))),
        "pod (web)",
    );
    row(("v1/secrets", named("Secret", "app")), using(secret_pod()), "pod\n");
    row(("v1/secrets", named("Secret", "app")), ("v1/serviceaccounts", account), "serviceaccount\n");
    row(
        ("v1/secrets", named("Secret", "app")),
        ("networking.k8s.io/v1/ingresses", ingress(json!({"tls": [{"secretName": "app"}]}))),
        "ingress\n",
    );
    row(
        ("v1/serviceaccounts", named("ServiceAccount", "runner")),
        using(pod("web", json!({"serviceAccountName": "runner"}))),
        "pod (web)",
    );
    row(
        (
            "storage.k8s.io/v1/storageclasses",
            class("storage.k8s.io/v1", "StorageClass", json!({"provisioner": "example.org/x"})),
        ),
        ("v1/persistentvolumeclaims", claim),
        "PVC (",
    );
    row(
        ("scheduling.k8s.io/v1/priorityclasses", priority.clone()),
        using(pod("web", json!({"priorityClassName": "fast"}))),
        "pod (",
    );
    row(
        ("scheduling.k8s.io/v1/priorityclasses", priority),
        ("apps/v1/deployments", deployment),
        "Deployment (",
    );
    row(
        (
            "networking.k8s.io/v1/ingressclasses",
            class("networking.k8s.io/v1", "IngressClass", json!({"spec": {"controller": "example.org/x"}})),
        ),
        ("networking.k8s.io/v1/ingresses", ingress(json!({"class": "fast"}))),
        "ingress (",
    );
    row(
        (
            "node.k8s.io/v1/runtimeclasses",
            class("node.k8s.io/v1", "RuntimeClass", json!({"handler": "runc"})),
        ),
        using(pod("web", json!({"runtimeClassName": "fast"}))),
        "pod (",
    );
    row(
        ("gateway.networking.k8s.io/v1/gatewayclasses", custom("GatewayClass", "fast", json!({}))),
        (gateways, custom("Gateway", "edge", json!({"gatewayClassName": "fast"}))),
        "gateway (",
    );
    for (resource, route, what) in routes {
        row(
            (gateways, custom("Gateway", "edge", json!({"gatewayClassName": "x"}))),
            (&resource, route),
            &format!("{what} ("),
        );
    }
    row(
        ("cert-manager.io/v1/clusterissuers", custom("ClusterIssuer", "ca", json!({}))),
        (certificates, custom("Certificate", "tls", issuer("ClusterIssuer"))),
        "certificate (",
    );
    row(
        ("cert-manager.io/v1/issuers", custom("Issuer", "ca", json!({}))),
        (certificates, custom("Certificate", "tls", issuer("Issuer"))),
        "certificate (",
    );
    row(
        (
            "external-secrets.io/v1/externalsecrets",
            custom("ExternalSecret", "x", json!({"target": {"name": "app"}})),
        ),
        using(secret_pod()),
        "pod (web)",
    );
    row(
        (certificates, custom("Certificate", "x", json!({"secretName": "app"}))),
        using(secret_pod()),
        "pod (web)",
    );
    row(
        ("bitnami.com/v1alpha1/sealedsecrets", custom("SealedSecret", "app", json!({}))),
        using(secret_pod()),
        "pod (web)",
    );
    for (protected, object, resource, user, what) in rows {
        let described = format!("{protected} by {resource}");
        let check = || {
            let used = Created::new(&shop, protected, object)?;
            let by = Created::new(&shop, &resource, user)?;
            used.is_used_by(&what)?;
            by.removed()?;
            delete(&cluster, &used.path)?.allowed()?;
            await_gone(&cluster, &used.path)
        };
        check().context(described)?;
    }
    // Durward reads no Secret and stores none.
    let log = durward.log()?;
    ensure!(!log.contains("/secrets"), "a request for Secrets is in the log");
    let denied = durward
        .metrics()?
        .sum("durward_policy_outcomes_total", &[("policy", "secrets"), ("outcome", "deny")]);
    ensure!(denied > 2.5, "{denied} denials of the rule secrets are counted");
    Ok(())
}

/// Waits until the API server sends deletions to Durward.
fn await_rules(shop: &Namespace<'_>) -> Result<()> {
    let used = Created::new(shop, "v1/configmaps", json!({"metadata": {"name": "probe"}}))?;
    let by = Created::new(
        shop,
        "v1/pods",
        pod("probe", json!({"volumes": [{"name": "v", "configMap": {"name": "probe"}}]})),
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
    let configured = pod("web", json!({"volumes": [{"name": "v", "configMap": {"name": "app"}}]}));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}});

    let both = cluster.namespace("both")?;
    Created::new(&both, "v1/configmaps", map.clone())?;
    Created::new(&both, "v1/pods", configured.clone())?;
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
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": template}},
            }),
        )?;
        let uid = cluster.api().get(&deployment.path)?.succeeded()?.body["metadata"]["uid"].clone();
        let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "blockOwnerDeletion": true}]);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": owner}});
        let used = Created::new(&owned, "v1/configmaps", map)?;
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
    let used = Created::new(&pruned, "v1/configmaps", map)?;
    let by = Created::new(&pruned, "v1/pods", configured)?;
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
