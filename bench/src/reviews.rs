//! The reviews that are sent, in the form of the API server.

use serde_json::{Value, json};

/// The namespace that the deletion guard exempts.
pub(crate) const EXEMPT_NAMESPACE: &str = "scratch";
/// The namespace of an etcd cluster.
pub(crate) const ETCD_NAMESPACE: &str = "db";

/// Returns a review of about 2.3 kB: a pod of a Deployment, opted in to LXCFS.
pub(crate) fn opted_in_pod() -> Vec<u8> {
    create(&pod(true, 0))
}

/// Returns a review of a pod that did not opt in.
pub(crate) fn plain_pod() -> Vec<u8> {
    create(&pod(false, 0))
}

/// Returns a review of a pod that opted in, of about this many bytes: its containers have many environment variables.
pub(crate) fn large_pod(bytes: usize) -> Vec<u8> {
    create(&pod(true, bytes))
}

/// Returns a review of the deletion of an exempt namespace.
pub(crate) fn namespace_deletion() -> Vec<u8> {
    let old = json!({"kind": "Namespace", "apiVersion": "v1",
        "metadata": {"name": EXEMPT_NAMESPACE, "uid": "0b6a9f0e-8c3f-4a8d-9a86-2c1f7e2d8f11", "labels": {"kubernetes.io/metadata.name": EXEMPT_NAMESPACE}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    let names = (EXEMPT_NAMESPACE, EXEMPT_NAMESPACE);
    review("DELETE", ("", "v1", "Namespace", "namespaces"), names, &Value::Null, &old)
}

/// Returns a review of the deletion of a pod in the namespace of an etcd cluster, to which it does not belong.
pub(crate) fn pod_deletion() -> Vec<u8> {
    let mut old = pod(false, 0);
    old["metadata"]["namespace"] = json!(ETCD_NAMESPACE);
    old["metadata"]["uid"] = json!("3c5b3f1d-52b1-4b8e-bb5a-4e7c8d0e6f21");
    let names = ("web-7785b5c947-294np", ETCD_NAMESPACE);
    review("DELETE", ("", "v1", "Pod", "pods"), names, &Value::Null, &old)
}

/// Returns a review of the example's custom resource.
pub(crate) fn cluster() -> Vec<u8> {
    let kind = ("ecs.yun.com", "v1", "KubernetesCluster", "kubernetesclusters");
    let object = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": "test-cluster", "namespace": "shop", "uid": "f1b35ec7-d920-42b7-ac68-df7c09cd0db9", "generation": 1},
        "spec": {"clusterType": "kubernetes", "serviceCIDR": "", "masterList": [{"ip": "192.168.1.10"}], "nodeList": [{"ip": "192.168.1.11"}],
            "privateSSHKey": "ssh-ed25519 AAAA", "scaleUp": 0, "scaleDown": 0}});
    review("CREATE", kind, ("test-cluster", "shop"), &object, &Value::Null)
}

fn create(pod: &Value) -> Vec<u8> {
    review("CREATE", ("", "v1", "Pod", "pods"), ("web-7785b5c947-294np", "shop"), pod, &Value::Null)
}

fn review(
    operation: &str,
    (group, version, kind, plural): (&str, &str, &str, &str),
    (name, namespace): (&str, &str),
    object: &Value,
    old: &Value,
) -> Vec<u8> {
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": plural});
    let options = if operation == "CREATE" { "CreateOptions" } else { "DeleteOptions" };
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "e4c98957-8a52-4655-9441-cab6633c8b06", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": name, "namespace": namespace, "operation": operation,
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "uid": "019be2b6-4f79-470c-bd67-b97b6c56c0e5",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]},
        "object": object, "oldObject": old, "dryRun": false, "options": {"kind": options, "apiVersion": "meta.k8s.io/v1"}}})
    .to_string()
    .into_bytes()
}

/// Returns a pod of a Deployment. If `bytes` is not zero, it has three containers and about this size.
fn pod(is_opted_in: bool, bytes: usize) -> Value {
    let token = json!({"name": "kube-api-access-x2v7q", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}});
    let annotations = if is_opted_in {
        json!({"durward.dev/lxcfs": "enabled"})
    } else {
        json!({"example.test/owner": "web"})
    };
    let containers: Vec<Value> = if bytes == 0 {
        vec![container("app", 0)]
    } else {
        ["app", "proxy", "logs"].map(|name| container(name, bytes / 3)).to_vec()
    };
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-7785b5c947-294np", "generateName": "web-7785b5c947-", "namespace": "shop",
        "labels": {"app": "web", "pod-template-hash": "7785b5c947"}, "annotations": annotations,
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7785b5c947", "uid": "f1b35ec7-d920-42b7-ac68-df7c09cd0db9", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"volumes": [token], "containers": containers, "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {},
            "schedulerName": "default-scheduler", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority"}, "status": {}})
}

fn container(name: &str, bytes: usize) -> Value {
    /// Bytes of a variable in JSON.
    const VARIABLE: usize = 100;
    let mut container = json!({"name": name, "image": "registry.example.test/team/web:1.2.3", "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "500m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "kube-api-access-x2v7q", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"});
    if bytes > VARIABLE {
        let variable = |n: usize| json!({"name": format!("SETTING_{n:05}"), "value": "a value as long as such values tend to be, \"quotes\" included"});
        container["env"] = (0..bytes / VARIABLE).map(variable).collect();
    }
    container
}
