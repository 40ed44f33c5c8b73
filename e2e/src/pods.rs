//! Creates pods and checks the result.
//!
//! ```no_run
//! # fn case(shop: &e2e::namespace::Namespace<'_>) -> anyhow::Result<()> {
//! shop.pod("web").annotated("durward.dev/lxcfs", "enabled").is_admitted()?.with_mounts(&["/proc/meminfo"])?;
//! shop.pod("root").with(|pod| pod["spec"]["hostPID"] = true.into()).is_denied_with("violates PodSecurity")?;
//! # Ok(()) }
//! ```
//!
//! Each check of an admitted pod returns the pod for the next check, or an error that shows the pod.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::api::Answer;
use crate::controlplane::User;
use crate::namespace::Namespace;
use crate::wait::{Poll, eventually};

/// A controller makes a pod within a second, later on a loaded machine.
const POD_WITHIN: Duration = Duration::from_secs(60);

/// The mount of the `ServiceAccount` plugin.
const TOKEN_MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A pod to be created.
#[derive(Debug, Clone)]
#[must_use = "a sentence that does not say what is expected creates nothing"]
pub struct Pod<'a> {
    namespace: &'a Namespace<'a>,
    object: Value,
    way: Way,
    dry_run: bool,
    user: Option<User>,
}

/// How a pod is sent to the API server.
#[derive(Debug, Clone, Copy)]
enum Way {
    Create,
    KubectlApply,
    ServerSideApply,
    Deployment,
}

impl<'a> Pod<'a> {
    pub(crate) fn new(namespace: &'a Namespace<'a>, name: &str) -> Self {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace.name()},
            "spec": {"containers": []},
        });
        Self { namespace, object, way: Way::Create, dry_run: false, user: None }
    }

    /// Adds an annotation.
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.object["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Adds a label.
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.object["metadata"]["labels"][key] = value.into();
        self
    }

    /// Adds a container. A pod without containers gets one, `app`.
    pub fn container(self, name: &str) -> Self {
        self.container_like(name, json!({}))
    }

    /// Adds a container with the fields of `rest`.
    pub fn container_like(self, name: &str, rest: Value) -> Self {
        self.listed("containers", name, rest)
    }

    /// Adds an init container with the fields of `rest`.
    pub fn init_container(self, name: &str, rest: Value) -> Self {
        self.listed("initContainers", name, rest)
    }

    fn listed(mut self, list: &str, name: &str, rest: Value) -> Self {
        let mut container = image_of(name);
        if let (Value::Object(container), Value::Object(rest)) = (&mut container, rest) {
            container.extend(rest);
        }
        match &mut self.object["spec"][list] {
            Value::Array(containers) => containers.push(container),
            absent => *absent = json!([container]),
        }
        self
    }

    /// Changes the pod object.
    pub fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.object);
        self
    }

    /// Replaces the name by a `generateName`.
    pub fn with_generated_name(mut self) -> Self {
        let name = format!("{}-", self.object["metadata"]["name"].as_str().unwrap_or_default());
        if let Value::Object(metadata) = &mut self.object["metadata"] {
            metadata.remove("name");
        }
        self.object["metadata"]["generateName"] = name.into();
        self
    }

    /// Uses `kubectl apply`.
    pub fn by_kubectl_apply(mut self) -> Self {
        self.way = Way::KubectlApply;
        self
    }

    /// Uses a server-side apply.
    pub fn by_server_side_apply(mut self) -> Self {
        self.way = Way::ServerSideApply;
        self
    }

    /// Uses a Deployment with this pod as its template.
    pub fn from_a_deployment(mut self) -> Self {
        self.way = Way::Deployment;
        self
    }

    /// Makes it a dry run. A dry run of a Deployment makes no pod.
    pub fn as_dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Sends it as this user instead of an administrator.
    pub fn by(mut self, user: &User) -> Self {
        self.user = Some(user.clone());
        self
    }

    /// Creates it and expects success.
    pub fn is_admitted(self) -> Result<Admitted> {
        match self.outcome()? {
            Outcome::Admitted(admitted) => Ok(admitted),
            Outcome::Denied(refused) => {
                bail!("expected the pod to be admitted, and it is refused: {}", refused.message)
            }
        }
    }

    /// Creates it and expects a denial with this text.
    pub fn is_denied_with(self, text: &str) -> Result<Denied> {
        match self.outcome()? {
            Outcome::Admitted(admitted) => {
                bail!("expected a refusal with {text:?}, and it is admitted: {}", admitted.pod)
            }
            Outcome::Denied(refused) if refused.message.contains(text) => Ok(refused),
            Outcome::Denied(refused) => {
                bail!("expected a refusal with {text:?}, and the message is: {}", refused.message)
            }
        }
    }

    /// Creates it and returns the result.
    pub fn outcome(mut self) -> Result<Outcome> {
        if self.object["spec"]["containers"].as_array().is_some_and(Vec::is_empty) {
            self = self.container("app");
        }
        match self.way {
            Way::Create => self.create(),
            Way::KubectlApply => self.kubectl_apply(),
            Way::ServerSideApply => self.server_side_apply(),
            Way::Deployment => self.deployment(),
        }
    }

    fn create(&self) -> Result<Outcome> {
        let path =
            format!("{}{}", self.namespace.path("pods"), if self.dry_run { "?dryRun=All" } else { "" });
        Ok(outcome(self.object.clone(), self.api().create(&path, &self.object)?))
    }

    fn server_side_apply(&self) -> Result<Outcome> {
        let dry_run = if self.dry_run { "?dryRun=All" } else { "" };
        let path = format!("{}/{}{dry_run}", self.namespace.path("pods"), self.name()?);
        Ok(outcome(self.object.clone(), self.api().apply(&path, "e2e", &self.object)?))
    }

    fn kubectl_apply(&self) -> Result<Outcome> {
        let kubectl = match &self.user {
            Some(user) => &user.kubectl,
            None => self.namespace.cluster().kubectl(),
        };
        let mut arguments = vec!["apply", "-o", "json", "-f", "-"];
        if self.dry_run {
            arguments.push("--dry-run=server");
        }
        let output = kubectl.run_with(&arguments, &self.object.to_string())?;
        let warnings = output
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix("Warning: "))
            .map(ToOwned::to_owned)
            .collect();
        if output.is_success() {
            let pod = serde_json::from_str(&output.stdout).context("kubectl printed no JSON")?;
            return Ok(Outcome::Admitted(Admitted { sent: self.object.clone(), pod, warnings }));
        }
        Ok(Outcome::Denied(Denied { status: None, message: output.stderr, warnings }))
    }

    /// Returns the pod, or the `ReplicaSet`'s error. The controller gets the warnings.
    fn deployment(&self) -> Result<Outcome> {
        ensure!(!self.dry_run, "a dry run of a Deployment makes no pod");
        let name = self.name()?;
        let mut template = json!({"metadata": self.object["metadata"], "spec": self.object["spec"]});
        template["metadata"]["labels"]["e2e.durward.dev/deployment"] = name.into();
        if let Value::Object(metadata) = &mut template["metadata"] {
            metadata.retain(|key, _| key != "name" && key != "namespace");
        }
        let selector = json!({"matchLabels": {"e2e.durward.dev/deployment": name}});
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 1, "selector": selector, "template": template},
        });
        self.api().create(&self.namespace.path("apps/v1/deployments"), &object)?.succeeded()?;
        let query = format!("?labelSelector=e2e.durward.dev/deployment%3D{name}");
        let pods = format!("{}{query}", self.namespace.path("pods"));
        let sets = format!("{}{query}", self.namespace.path("apps/v1/replicasets"));
        eventually(format_args!("a pod of Deployment {name}"), POD_WITHIN, || {
            let api = self.namespace.cluster().api();
            if let Some(pod) = api.get(&pods)?.succeeded()?.body["items"].get(0) {
                // An item of a list has no `kind`.
                let mut pod = pod.clone();
                pod["apiVersion"] = "v1".into();
                pod["kind"] = "Pod".into();
                let sent = json!({"metadata": template["metadata"], "spec": template["spec"]});
                return Ok(Poll::Ready(Outcome::Admitted(Admitted { sent, pod, warnings: Vec::new() })));
            }
            let sets = api.get(&sets)?.succeeded()?.body;
            Ok(match failure(&sets) {
                Some(message) => {
                    Poll::Ready(Outcome::Denied(Denied { status: None, message, warnings: Vec::new() }))
                }
                None => Poll::Pending("no pod, and no ReplicaSet that complains".to_owned()),
            })
        })
    }

    fn name(&self) -> Result<&str> {
        self.object["metadata"]["name"].as_str().context("this way of creating a pod needs a name")
    }

    fn api(&self) -> &crate::api::Api {
        match &self.user {
            Some(user) => &user.api,
            None => self.namespace.cluster().api(),
        }
    }
}

fn image_of(name: &str) -> Value {
    json!({"name": name, "image": format!("images.example/{name}:1")})
}

fn outcome(sent: Value, answer: Answer) -> Outcome {
    if answer.is_success() {
        return Outcome::Admitted(Admitted { sent, pod: answer.body, warnings: answer.warnings });
    }
    let message = answer.message().to_owned();
    Outcome::Denied(Denied { status: Some(answer.status), message, warnings: answer.warnings })
}

/// Returns the message of a `ReplicaSet` that could not make its pods.
fn failure(sets: &Value) -> Option<String> {
    let conditions =
        sets["items"].as_array()?.iter().filter_map(|set| set["status"]["conditions"].as_array()).flatten();
    conditions
        .filter(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True")
        .find_map(|condition| condition["message"].as_str().map(ToOwned::to_owned))
}

/// The result of a creation.
#[derive(Debug)]
pub enum Outcome {
    /// The pod was admitted.
    Admitted(Admitted),
    /// The pod was denied.
    Denied(Denied),
}

/// A denial.
#[derive(Debug)]
pub struct Denied {
    /// The HTTP status, unless kubectl or a controller got it.
    pub status: Option<u16>,
    /// The message, or kubectl's standard error.
    pub message: String,
    /// The API server's warnings.
    pub warnings: Vec<String>,
}

/// An admitted pod.
#[derive(Debug)]
pub struct Admitted {
    sent: Value,
    /// The pod as the API server has it.
    pub pod: Value,
    /// The API server's warnings.
    pub warnings: Vec<String>,
}

impl Admitted {
    /// Expects exactly these mount paths in every container, in any order, without init containers and token mounts.
    pub fn with_mounts(self, paths: &[&str]) -> Result<Self> {
        let containers = self.pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
        ensure!(!containers.is_empty(), "the pod has no container: {}", self.pod);
        for container in containers {
            check_mounts(container, paths)?;
        }
        Ok(self)
    }

    /// Expects exactly these mount paths in the container of this name, which can be an init or ephemeral container.
    pub fn with_mounts_in(self, container: &str, paths: &[&str]) -> Result<Self> {
        check_mounts(self.find(container)?, paths)?;
        Ok(self)
    }

    /// Expects that no webhook changed the pod: mounts, volumes, annotations and containers are as sent.
    pub fn untouched(self) -> Result<Self> {
        let (sent, has) = (&self.sent["metadata"]["annotations"], &self.pod["metadata"]["annotations"]);
        let ours = |key: &str| key != "kubectl.kubernetes.io/last-applied-configuration";
        ensure!(
            entries(sent, ours) == entries(has, ours),
            "expected annotations {sent}, and the pod has {has}"
        );
        for list in ["containers", "initContainers"] {
            let (sent, has) = (named(&self.sent["spec"][list]), named(&self.pod["spec"][list]));
            ensure!(sent == has, "expected {list} {sent:?}, and the pod has {has:?}");
        }
        let sent = named(&self.sent["spec"]["volumes"]);
        let mut has = named(&self.pod["spec"]["volumes"]);
        // The token volume of the `ServiceAccount` plugin.
        has.retain(|name| !name.starts_with("kube-api-access-"));
        ensure!(sent == has, "expected volumes {sent:?}, and the pod has {has:?}");
        Ok(self)
    }

    /// Expects this annotation.
    pub fn with_annotation(self, key: &str, value: &str) -> Result<Self> {
        let has = &self.pod["metadata"]["annotations"][key];
        ensure!(has == value, "expected annotation {key}: {value:?}, and it is {has}");
        Ok(self)
    }

    /// Expects that this annotation is missing.
    pub fn without_annotation(self, key: &str) -> Result<Self> {
        let has = &self.pod["metadata"]["annotations"][key];
        ensure!(has.is_null(), "expected no annotation {key}, and it is {has}");
        Ok(self)
    }

    /// Expects this value at this JSON pointer.
    pub fn with_field(self, pointer: &str, expected: &Value) -> Result<Self> {
        let has = self.pod.pointer(pointer);
        ensure!(has == Some(expected), "expected {expected} at {pointer}, and it is {has:?} in {}", self.pod);
        Ok(self)
    }

    /// Expects a warning with this text.
    pub fn with_warning(self, text: &str) -> Result<Self> {
        let warned = self.warnings.iter().any(|warning| warning.contains(text));
        ensure!(warned, "expected a warning with {text:?}, and there are {:?}", self.warnings);
        Ok(self)
    }

    /// Expects no warnings.
    pub fn without_warnings(self) -> Result<Self> {
        ensure!(self.warnings.is_empty(), "expected no warnings, and there are {:?}", self.warnings);
        Ok(self)
    }

    /// Returns its name, given or generated.
    pub fn name(&self) -> &str {
        self.pod["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn find(&self, name: &str) -> Result<&Value> {
        ["containers", "initContainers", "ephemeralContainers"]
            .iter()
            .filter_map(|list| self.pod["spec"][list].as_array())
            .flatten()
            .find(|container| container["name"] == name)
            .with_context(|| format!("the pod has no container {name}: {}", self.pod))
    }
}

fn check_mounts(container: &Value, paths: &[&str]) -> Result<()> {
    let has: BTreeSet<&str> = container["volumeMounts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|mount| mount["mountPath"].as_str())
        .filter(|path| *path != TOKEN_MOUNT)
        .collect();
    let expected: BTreeSet<&str> = paths.iter().copied().collect();
    let name = &container["name"];
    ensure!(has == expected, "expected container {name} to have the mounts {expected:?}, and it has {has:?}");
    Ok(())
}

/// Returns the entries of an object with wanted keys.
fn entries(object: &Value, wanted: impl Fn(&str) -> bool) -> BTreeMap<&String, &Value> {
    object.as_object().into_iter().flatten().filter(|(key, _)| wanted(key)).collect()
}

/// Returns the names of a list's items in order, each with the number of its mounts.
fn named(list: &Value) -> Vec<String> {
    let mounts = |item: &Value| {
        let all = item["volumeMounts"].as_array().into_iter().flatten();
        all.filter(|mount| mount["mountPath"] != TOKEN_MOUNT).count()
    };
    let items = list.as_array().into_iter().flatten();
    items
        .map(|item| format!("{} ({} mounts)", item["name"].as_str().unwrap_or_default(), mounts(item)))
        .collect()
}
