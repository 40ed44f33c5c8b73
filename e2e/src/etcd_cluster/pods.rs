//! The pods of an etcd cluster: a `StatefulSet`, its pods with the members' addresses, and a node for each.
//!
//! There is no kubelet. These functions write the status that a kubelet would report, and [`Pods::finish`] deletes a
//! terminating pod as a kubelet does at the end. If controllers make the pods, [`Pods::run_created_pods`] gives them a
//! node and a status.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::EtcdCluster;
use crate::api::{Answer, Api};
use crate::controlplane::{Cluster, User};
use crate::namespace::Namespace;
use crate::wait::{Poll, eventually};

/// The label of every pod of an etcd cluster.
pub const APP: (&str, &str) = ("app", "etcd");

/// A controller makes a pod within a second, later on a loaded machine.
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// The pods of one etcd cluster in one namespace.
#[derive(Debug)]
pub struct Pods<'a> {
    namespace: &'a Namespace<'a>,
    /// The name of the `StatefulSet`.
    set: String,
    uid: String,
    /// The pod template.
    template: Value,
}

impl EtcdCluster {
    /// Makes a `StatefulSet` and, instead of its controller, a pod for each member on a node of its own.
    pub fn pods_in<'a>(&self, namespace: &'a Namespace<'a>) -> Result<Pods<'a>> {
        self.pods_like(namespace, |_| {})
    }

    /// Does the same with a template that `change` has edited.
    pub fn pods_like<'a>(
        &self,
        namespace: &'a Namespace<'a>,
        change: impl FnOnce(&mut Value),
    ) -> Result<Pods<'a>> {
        let pods = self.stateful_set_in(namespace, change)?;
        for member in self.members() {
            pods.add(member.name(), member.address())?;
        }
        Ok(pods)
    }

    /// Makes only the `StatefulSet`; its controller makes the pods.
    pub fn stateful_set_in<'a>(
        &self,
        namespace: &'a Namespace<'a>,
        change: impl FnOnce(&mut Value),
    ) -> Result<Pods<'a>> {
        set(namespace, self.name(), self.members().len(), change)
    }
}

/// Makes a `StatefulSet` of this name and size without pods.
pub fn set<'a>(
    namespace: &'a Namespace<'a>,
    name: &str,
    replicas: usize,
    change: impl FnOnce(&mut Value),
) -> Result<Pods<'a>> {
    let mut template = template();
    change(&mut template);
    let object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {APP.0: APP.1}}, "template": template,
        },
    });
    let api = namespace.cluster().api();
    let made = api.create(&namespace.path("apps/v1/statefulsets"), &object)?.succeeded()?;
    let uid = made.body["metadata"]["uid"].as_str().context("a StatefulSet without a uid")?;
    Ok(Pods { namespace, set: name.to_owned(), uid: uid.to_owned(), template })
}

/// Returns a pod template of etcd with persistent data.
fn template() -> Value {
    json!({
        "metadata": {"labels": {APP.0: APP.1}},
        "spec": {
            "containers": [{
                "name": "etcd", "image": "durward.test/etcd:1", "args": ["etcd", "--data-dir=/var/lib/etcd"],
                "ports": [{"name": "client", "containerPort": 2379}, {"name": "peer", "containerPort": 2380}],
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    })
}

impl<'a> Pods<'a> {
    /// Returns their namespace.
    pub fn namespace(&self) -> &'a Namespace<'a> {
        self.namespace
    }

    /// Returns the path of a pod.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace.path("pods"))
    }

    /// Returns the path of the `StatefulSet`.
    pub fn stateful_set_path(&self) -> String {
        format!("{}/{}", self.namespace.path("apps/v1/statefulsets"), self.set)
    }

    /// Returns the name of a pod's node.
    pub fn node(&self, pod: &str) -> String {
        format!("{}-{pod}", self.namespace.name())
    }

    fn cluster(&self) -> &'a Cluster {
        self.namespace.cluster()
    }

    fn api(&self) -> &'a Api {
        self.cluster().api()
    }

    /// Makes a pod of the set on its node, with this address.
    pub fn add(&self, name: &str, address: Ipv4Addr) -> Result<()> {
        self.add_like(name, address, |_| {})
    }

    /// Does the same with a template that `change` has edited.
    pub fn add_like(&self, name: &str, address: Ipv4Addr, change: impl FnOnce(&mut Value)) -> Result<()> {
        self.make_node(&self.node(name))?;
        let mut pod = self.template.clone();
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": self.set, "uid": self.uid, "controller": true,
            "blockOwnerDeletion": true,
        }]);
        pod["spec"]["nodeName"] = self.node(name).into();
        change(&mut pod);
        self.api().create(&self.namespace.path("pods"), &pod)?.succeeded()?;
        self.say_running(name, address)
    }

    /// Gives the controller's pods a node and a status, as scheduler and kubelet would, until every member has a
    /// running pod.
    pub fn run_created_pods(&self, etcd: &EtcdCluster) -> Result<()> {
        for member in etcd.members() {
            let (name, path) = (member.name(), self.path(member.name()));
            let pod = eventually(format_args!("pod {name} to be made"), MADE_WITHIN, || {
                let answer = self.api().get(&path)?;
                let going = answer.body["metadata"]["deletionTimestamp"].is_string();
                Ok(match (answer.is_success(), going) {
                    (true, false) => Poll::Ready(answer.body),
                    (true, true) => Poll::Pending("the one before is still ending".to_owned()),
                    (false, _) => Poll::Pending(answer.message().to_owned()),
                })
            })?;
            if pod["status"]["podIP"].is_string() {
                continue;
            }
            let node = self.node(name);
            self.make_node(&node)?;
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            self.api().create(&format!("{path}/binding"), &binding)?.succeeded()?;
            self.say_running(name, member.address())?;
        }
        Ok(())
    }

    fn make_node(&self, name: &str) -> Result<()> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let made = self.api().create("/api/v1/nodes", &node)?;
        if made.status == 409 { Ok(()) } else { made.succeeded().map(drop) }
    }

    fn say_running(&self, name: &str, address: Ipv4Addr) -> Result<()> {
        let now = "2026-01-01T00:00:00Z";
        let status = json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": now},
                {"type": "ContainersReady", "status": "True", "lastTransitionTime": now},
            ],
            "containerStatuses": [{
                "name": "etcd", "image": "durward.test/etcd:1", "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "state": {"running": {"startedAt": now}},
            }],
        }});
        self.set_status(name, &status)
    }

    /// Writes a pod's status, as a kubelet would.
    pub fn set_status(&self, name: &str, status: &Value) -> Result<()> {
        self.api().merge(&format!("{}/status", self.path(name)), status)?.succeeded().map(drop)
    }

    /// Returns a pod.
    pub fn object(&self, name: &str) -> Result<Value> {
        Ok(self.api().get(&self.path(name))?.succeeded()?.body)
    }

    /// Returns a pod's uid.
    pub fn uid(&self, name: &str) -> Result<String> {
        let uid = self.object(name)?["metadata"]["uid"].as_str().map(ToOwned::to_owned);
        uid.with_context(|| format!("{name} has no uid"))
    }

    /// Returns whether a pod is terminating.
    pub fn is_terminating(&self, name: &str) -> Result<bool> {
        Ok(self.object(name)?["metadata"]["deletionTimestamp"].is_string())
    }

    /// Returns the names of the pods that are not terminating.
    pub fn active(&self) -> Result<Vec<String>> {
        let list = self.api().get(&self.namespace.path("pods"))?.succeeded()?.body;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let staying = items.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(staying.filter_map(|pod| pod["metadata"]["name"].as_str().map(ToOwned::to_owned)).collect())
    }

    /// Deletes a terminating pod for good as the kubelet of its node, with its uid as a precondition.
    pub fn finish_as(&self, kubelet: &User, name: &str) -> Result<Answer> {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid(name)?}});
        kubelet.api.delete_with(&self.path(name), &options)
    }

    /// Does the same and expects success.
    pub fn finish(&self, name: &str) -> Result<()> {
        let kubelet = kubelet(self.cluster(), &self.node(name))?;
        ensure!(self.is_terminating(name)?, "the deletion of {name} was not completed");
        self.finish_as(&kubelet, name)?.succeeded().map(drop)
    }

    /// Ends a terminating pod and makes another one of its name, with the same member.
    pub fn replace(&self, name: &str) -> Result<()> {
        let address = self.object(name)?["status"]["podIP"].as_str().map(str::parse);
        let address = address.with_context(|| format!("{name} has no address"))??;
        self.finish(name)?;
        self.add(name, address)
    }
}

/// Makes the user of this node's kubelet.
pub fn kubelet(cluster: &Cluster, node: &str) -> Result<User> {
    // Without the Node authorizer, kubelets have no permissions.
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubelets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let made = cluster.api().create(path, &binding)?;
    if made.status != 409 {
        made.succeeded()?;
    }
    let user = cluster.certified(&format!("system:node:{node}"), Some("system:nodes"))?;
    user.await_permitted(&format!("/api/v1/nodes/{node}"))?;
    Ok(user)
}
