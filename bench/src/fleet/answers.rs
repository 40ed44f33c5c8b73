//! Prepared answers of members and control plane, in the form of kube-apiserver 1.35 and Karmada 1.16.

use std::collections::HashMap;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::Shape;

/// The namespace of the deletion.
pub(super) const NAMESPACE: &str = "shop";
/// The `ConfigMap` of the deletion.
pub(super) const CONFIG_MAP: &str = "settings";
/// Its uid.
pub(super) const UID: &str = "2d7c5b1e-7a3b-4f0e-9f0c-0c9d5f1a6b21";
/// Path of the Clusters.
pub(super) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
/// Page size of the guard and of client-go.
pub(super) const PAGE: usize = 500;

/// Returns the name of a member.
pub(super) fn member(index: usize) -> String {
    format!("member-{index:05}")
}

/// All answers.
pub(super) struct Answers {
    shape: Shape,
    /// Pages by their start.
    pages: HashMap<usize, Bytes>,
    namespace: Bytes,
    absent: Bytes,
    unknown: Bytes,
    pods: Bytes,
    metadata: Bytes,
    config_map: Bytes,
    /// A full page of whole pods, and the last page, by whether more pages follow.
    whole_pods: [Bytes; 2],
    /// Empty Lists of whole objects, by plural.
    whole: HashMap<&'static str, Bytes>,
}

/// An answer.
pub(super) enum Answer {
    /// A status code and a body.
    Say(u16, Bytes),
    /// The member hangs.
    Hang,
}

impl Answers {
    pub(super) fn new(shape: Shape) -> Self {
        let starts = (0..shape.members.max(1)).step_by(PAGE);
        Self {
            shape,
            pages: starts.map(|start| (start, bytes(&page(shape.members, start)))).collect(),
            namespace: bytes(&namespace()),
            absent: bytes(&not_found("namespaces", "", NAMESPACE)),
            unknown: "404 page not found\n".into(),
            pods: bytes(&list("PartialObjectMetadataList", "meta.k8s.io/v1", &vec![pod(); shape.pods])),
            metadata: bytes(&list("PartialObjectMetadataList", "meta.k8s.io/v1", &[])),
            config_map: bytes(&json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE, "uid": UID}})),
            whole_pods: [last_page(shape.pods), PAGE].map(|pods| {
                let pods = if shape.by_rule { pods } else { 0 };
                bytes(&list("PodList", "v1", &vec![whole_pod(); pods]))
            }),
            whole: [
                ("namespaces", "NamespaceList", "v1"),
                ("pods", "PodList", "v1"),
                ("persistentvolumeclaims", "PersistentVolumeClaimList", "v1"),
                ("services", "ServiceList", "v1"),
                ("deployments", "DeploymentList", "apps/v1"),
                ("statefulsets", "StatefulSetList", "apps/v1"),
                ("daemonsets", "DaemonSetList", "apps/v1"),
                ("jobs", "JobList", "batch/v1"),
                ("cronjobs", "CronJobList", "batch/v1"),
                ("replicasets", "ReplicaSetList", "apps/v1"),
                ("replicationcontrollers", "ReplicationControllerList", "v1"),
                ("customresourcedefinitions", "CustomResourceDefinitionList", "apiextensions.k8s.io/v1"),
            ]
            .map(|(plural, kind, version)| (plural, bytes(&list(kind, version, &[]))))
            .into(),
        }
    }

    /// Returns the answer to a GET.
    pub(super) fn to(&self, path: &str, query: &str, accepts_metadata: bool) -> Answer {
        if path == CLUSTERS {
            let from = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
            let start = from.map_or(Some(0), |token| token.parse().ok());
            let page = start.and_then(|start| self.pages.get(&start));
            return page.map_or_else(|| self.nothing(), |page| Answer::Say(200, page.clone()));
        }
        let proxied = path.strip_prefix(CLUSTERS).and_then(|rest| rest.strip_prefix("/member-"));
        let Some((index, path)) = proxied.and_then(|rest| rest.split_once("/proxy")) else {
            // The control plane has the namespace too, without objects.
            return self.within(path, query, true, accepts_metadata, false);
        };
        match index.parse::<usize>() {
            Ok(index) if Some(index) == self.shape.hangs => Answer::Hang,
            Ok(index) if index < self.shape.members => {
                self.within(path, query, self.shape.has(index), accepts_metadata, true)
            }
            _ => self.nothing(),
        }
    }

    /// Returns the answer of one cluster.
    fn within(&self, path: &str, query: &str, has: bool, accepts_metadata: bool, runs_pods: bool) -> Answer {
        let plural = path.rsplit('/').next().unwrap_or_default();
        if plural == CONFIG_MAP {
            return Answer::Say(200, self.config_map.clone());
        }
        if plural == "pods" && !accepts_metadata && has && runs_pods {
            return self.page_of_pods(query);
        }
        if plural == NAMESPACE {
            return if has {
                Answer::Say(200, self.namespace.clone())
            } else {
                Answer::Say(404, self.absent.clone())
            };
        }
        let Some(whole) = self.whole.get(plural) else { return self.nothing() };
        Answer::Say(
            200,
            match accepts_metadata {
                true if plural == "pods" && has && runs_pods => self.pods.clone(),
                true => self.metadata.clone(),
                false => whole.clone(),
            },
        )
    }

    /// Returns a page of whole pods. The token is the number of pages before it.
    fn page_of_pods(&self, query: &str) -> Answer {
        let from = query.split('&').find_map(|pair| pair.strip_prefix("continue=")).unwrap_or("0");
        let next = from.parse().unwrap_or(0) + 1;
        let [last, full] = &self.whole_pods;
        if next * PAGE >= self.shape.pods {
            return Answer::Say(200, last.clone());
        }
        let page = String::from_utf8_lossy(full).replacen(
            "\"resourceVersion\"",
            &format!("\"continue\":\"{next}\",\"resourceVersion\""),
            1,
        );
        Answer::Say(200, page.into())
    }

    fn nothing(&self) -> Answer {
        Answer::Say(404, self.unknown.clone())
    }
}

fn bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

fn list(kind: &str, version: &str, items: &[Value]) -> Value {
    json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "48213"}, "items": items})
}

fn not_found(kind: &str, group: &str, name: &str) -> Value {
    let mut details = json!({"name": name, "kind": kind});
    if !group.is_empty() {
        details["group"] = json!(group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{kind} {name:?} not found"), "reason": "NotFound", "details": details, "code": 404})
}

fn namespace() -> Value {
    let of = |manager: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1",
        "time": "2026-11-21T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {
        "name": NAMESPACE, "uid": "0b6a9f0e-8c3f-4a8d-9a86-2c1f7e2d8f11", "resourceVersion": "1207",
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "labels": {"karmada.io/managed": "true", "kubernetes.io/metadata.name": NAMESPACE, "work.karmada.io/permanent-id": "6a3e0d1f-6f0e-4b6e-8b1a-0b8f8f8b2a55"},
        "annotations": {"work.karmada.io/name": "shop-6c7d8f", "work.karmada.io/namespace": "karmada-es-member", "resourcetemplate.karmada.io/uid": "a4a1f1a0-3bb8-4d4f-9d55-6f35c6ef6a39"},
        "managedFields": [of("karmada-controller-manager", json!({"f:metadata": {"f:annotations": {".": {}, "f:work.karmada.io/name": {}, "f:work.karmada.io/namespace": {}},
            "f:labels": {".": {}, "f:karmada.io/managed": {}, "f:kubernetes.io/metadata.name": {}}}}))]}})
}

/// Returns the number of pods on the last page.
fn last_page(pods: usize) -> usize {
    pods - pods.saturating_sub(1) / PAGE * PAGE
}

/// Returns a whole pod of 8 kB, which mounts another `ConfigMap`.
fn whole_pod() -> Value {
    let mut pod = pod();
    let env: Vec<_> =
        (0..90).map(|at| json!({"name": format!("SETTING_{at}"), "value": "v".repeat(40)})).collect();
    pod["kind"] = json!("Pod");
    pod["apiVersion"] = json!("v1");
    pod["spec"] = json!({"containers": [{"name": "app", "image": "registry.example/app:1", "env": env}],
        "volumes": [{"name": "config", "configMap": {"name": "other"}}]});
    pod["status"] = json!({"phase": "Running"});
    pod
}

fn pod() -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {
        "name": "web-7785b5c947-294np", "generateName": "web-7785b5c947-", "namespace": NAMESPACE,
        "uid": "3c5b3f1d-52b1-4b8e-bb5a-4e7c8d0e6f21", "resourceVersion": "20117", "creationTimestamp": "2026-11-21T10:00:00Z",
        "labels": {"app": "web", "pod-template-hash": "7785b5c947"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7785b5c947", "uid": "f1b35ec7-d920-42b7-ac68-df7c09cd0db9", "controller": true, "blockOwnerDeletion": true}],
        "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-11-21T10:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}, "k:{\"uid\":\"f1b35ec7-d920-42b7-ac68-df7c09cd0db9\"}": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}},
                    "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:terminationGracePeriodSeconds": {}}}}]}})
}

/// Returns a page of 500 Clusters with metadata only. The token is the start of the next page; a real one is longer.
fn page(members: usize, start: usize) -> Value {
    let end = members.min(start + PAGE);
    let items: Vec<_> = (start..end).map(cluster).collect();
    let mut page = list("PartialObjectMetadataList", "meta.k8s.io/v1", &items);
    if end < members {
        page["metadata"]["continue"] = json!(end.to_string());
        page["metadata"]["remainingItemCount"] = json!(members - end);
    }
    page
}

/// Returns the metadata of a Cluster: 2.4 kB, mostly managed fields.
fn cluster(index: usize) -> Value {
    let fields = |names: &[&str]| -> Value {
        names.iter().map(|name| (format!("f:{name}"), json!({}))).collect::<serde_json::Map<_, _>>().into()
    };
    let of = |manager: &str, sub: &str, fields: &Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "cluster.karmada.io/v1alpha1",
        "time": "2026-11-21T10:00:00Z", "fieldsType": "FieldsV1", "subresource": sub, "fieldsV1": fields})
    };
    let secret = json!({".": {}, "f:name": {}, "f:namespace": {}});
    let condition = fields(&[".", "lastTransitionTime", "message", "reason", "status", "type"]);
    let spec = json!({"f:metadata": {"f:labels": {".": {}, "f:topology.durward.dev/stage": {}, "f:topology.durward.dev/team": {}}},
        "f:spec": {"f:apiEndpoint": {}, "f:id": {}, "f:impersonatorSecretRef": secret, "f:secretRef": secret, "f:syncMode": {},
        "f:provider": {}, "f:region": {}, "f:zone": {}, "f:zones": {}, "f:resourceModels": {}}});
    let status = json!({"f:status": {".": {}, "f:apiEnablements": {}, "f:kubernetesVersion": {}, "f:nodeSummary": fields(&[".", "readyNum", "totalNum"]),
        "f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": condition, "k:{\"type\":\"CompleteAPIEnablements\"}": condition},
        "f:resourceSummary": {".": {}, "f:allocatable": fields(&[".", "cpu", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi", "memory", "pods"]),
            "f:allocated": fields(&[".", "cpu", "ephemeral-storage", "memory", "pods"]), "f:allocating": fields(&[".", "cpu", "memory", "pods"]),
            "f:allocatableModelings": {}}}});
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {
        "name": member(index), "uid": format!("5d0b5a1e-4a51-4c8f-8d5e-{index:012x}"), "resourceVersion": (10_000 + index).to_string(), "generation": 2,
        "creationTimestamp": "2026-11-21T10:00:00Z", "finalizers": ["karmada.io/cluster-controller"],
        "labels": {"topology.durward.dev/stage": "production", "topology.durward.dev/team": format!("team-{}", index % 40)},
        "managedFields": [
            of("karmadactl", "", &spec),
            of("karmada-controller-manager", "", &json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"karmada.io/cluster-controller\"": {}}}})),
            of("karmada-webhook", "", &json!({"f:spec": {"f:taints": {".": {}, "k:{\"effect\":\"NoSchedule\",\"key\":\"cluster.karmada.io/not-ready\"}": fields(&[".", "effect", "key", "timeAdded"])}}})),
            of("karmada-controller-manager", "status", &status)]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_eight_kilobytes() {
        let size = whole_pod().to_string().len();
        assert!((7_500..8_500).contains(&size), "{size}");
    }

    /// Karmada 1.16 returned 2.4 kB for a Cluster that karmadactl joined.
    #[test]
    fn the_metadata_of_a_cluster_is_as_large_as_a_real_one() {
        let size = cluster(4_711).to_string().len();
        assert!((2_300..2_500).contains(&size), "{size}");
    }

    #[test]
    fn pages_hold_every_member_once() {
        let answers = Answers::new(Shape::of(1_200, 0));
        let (mut names, mut query) = (Vec::new(), "limit=500".to_owned());
        loop {
            let Answer::Say(200, page) = answers.to(CLUSTERS, &query, true) else { panic!("no page") };
            let page: Value = serde_json::from_slice(&page).unwrap();
            let items = page["items"].as_array().unwrap();
            names.extend(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()));
            let Some(token) = page["metadata"]["continue"].as_str() else { break };
            query = format!("limit=500&continue={token}");
        }
        assert_eq!(names, (0..1_200).map(member).collect::<Vec<_>>());
    }
}
