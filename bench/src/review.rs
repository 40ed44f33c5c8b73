//! The review that is sent: a pod of a Deployment, opted in to LXCFS.

use serde_json::json;

/// Returns a review of about 2.3 kB.
pub(crate) fn opted_in_pod() -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let token = json!({"name": "kube-api-access-x2v7q", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}});
    let container = json!({"name": "app", "image": "registry.example.test/team/web:1.2.3", "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "500m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "kube-api-access-x2v7q", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"});
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "e4c98957-8a52-4655-9441-cab6633c8b06", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": "web-7785b5c947-294np", "namespace": "shop", "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "uid": "019be2b6-4f79-470c-bd67-b97b6c56c0e5",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]},
        "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-7785b5c947-294np", "generateName": "web-7785b5c947-", "namespace": "shop",
            "labels": {"app": "web", "pod-template-hash": "7785b5c947"}, "annotations": {"durward.dev/lxcfs": "enabled"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7785b5c947", "uid": "f1b35ec7-d920-42b7-ac68-df7c09cd0db9", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"volumes": [token], "containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {},
                "schedulerName": "default-scheduler", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority"}, "status": {}},
        "oldObject": null, "dryRun": false, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})
    .to_string()
    .into_bytes()
}
