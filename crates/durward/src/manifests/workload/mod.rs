//! The workload: a Deployment with the configuration file, its Service, and related objects. Ports, times and names come from
//! the file. Settings that do not work in a pod are reported.
//!
//! It passes Pod Security `restricted`. The entry point of the image is `durward`.
//!
//! The selectors use two labels, because the objects of `deploy/lxcfs` have the first label too and can be in the same
//! namespace.

mod files;

use std::net::SocketAddr;
use std::time::Duration;

use config::Problem;
use config::names::is_dns_subdomain;
use serde_json::{Value, json};

use super::rbac::service_account;
use super::{NAME, called};
use crate::file::{File, WebhookAddress};
use crate::manifests::Args;
use files::{CONFIG_DIR, CONFIGURATION};

/// A user id without a name in images and without files.
const USER: u32 = 65532;

/// Time from the last answer to the end of the process. The kubelet kills the process after the grace period.
const MARGIN: Duration = Duration::from_secs(5);

/// The API server's limit for a `ConfigMap`.
const LONGEST_FILE: usize = 1 << 20;

const MIB: usize = 1 << 20;

/// Returns the namespace of the workload. If all guards are called by Karmada, the URL contains it.
pub(super) fn home(file: &File) -> String {
    service_of_url(file).map_or_else(|| file.namespace.clone(), |(_, namespace)| namespace)
}

/// Returns the name and namespace of the Service in a URL, if it is one.
fn service_of_url(file: &File) -> Option<(String, String)> {
    let reach = &file.server.webhook_address;
    if !matches!(reach, WebhookAddress::Url(_)) {
        return None;
    }
    let host = called(reach);
    let mut parts = host.split('.');
    let (name, namespace) = (parts.next()?, parts.next()?);
    (parts.next()? == "svc").then(|| (name.to_owned(), namespace.to_owned()))
}

/// Returns all objects in the order in which they are needed.
pub(super) fn objects(file: &File, args: &Args, with_account: bool) -> Result<Vec<Value>, Vec<Problem>> {
    let home = home(file);
    let mut problems = unfit(file, &home);
    let image = args.image.as_deref().unwrap_or_default();
    if image.is_empty() || image.contains(char::is_whitespace) {
        let problem = Problem::new("--only workload needs --image");
        problems.push(problem.next("add --image registry.example.com/durward:1.0.0"));
    }
    if !is_dns_subdomain(&args.tls_secret) {
        let problem = Problem::new(format!("--tls-secret {:?} is not the name of a Secret", args.tls_secret));
        problems.push(problem.next("use at most 253 characters of a-z, 0-9, - and ."));
    }
    if !args.priority_class.is_empty() && !is_dns_subdomain(&args.priority_class) {
        let problem = Problem::new(format!(
            "--priority-class {:?} is not the name of a PriorityClass",
            args.priority_class
        ));
        problems.push(problem.next("use at most 253 characters of a-z, 0-9, - and .; \"\" for none"));
    }
    let single_replica_reason = single_replica_reason(file);
    if let Some(why) = single_replica_reason.as_ref().filter(|_| args.replicas > 1) {
        let problem =
            Problem::new(format!("--replicas {}: this configuration allows only one replica", args.replicas));
        let next = "use --replicas 1 (no replica answers during an update), or set coordination: lease";
        problems.push(problem.why(why.clone()).next(next));
    }
    let placed = match files::placed(file, args, &home) {
        Ok(placed) if problems.is_empty() => placed,
        Ok(_) => return Err(problems),
        Err(more) => return Err(problems.into_iter().chain(more).collect()),
    };
    let (service, port, target) = reached(file);
    let mut arguments = vec!["serve".to_owned(), format!("--config={CONFIG_DIR}/{CONFIGURATION}")];
    arguments.extend(placed.flags);
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, &home),
        "spec": {
            "replicas": args.replicas,
            "selector": {"matchLabels": labels()},
            "strategy": strategy(single_replica_reason.is_some()),
            "template": {"metadata": {"labels": labels()}, "spec": pod(file, (image, &args.priority_class), &arguments, &placed.volumes, &placed.mounts)},
        },
    });
    let policy_ports = [target, file.server.metrics_bind_address]
        .map(|address| json!({"port": address.port(), "protocol": "TCP"}));
    let mut objects = Vec::new();
    if with_account {
        objects.push(service_account(&home));
    }
    objects.extend([
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(NAME, &home),
            "data": {CONFIGURATION: file.text},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(&service, &home),
            "spec": {
                "selector": labels(),
                "ports": [{"name": "webhook", "port": port, "targetPort": "webhook", "protocol": "TCP"}],
            },
        }),
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(NAME, &home),
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": labels()},
                // A pod that is not ready serves no request, so it can be evicted.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(NAME, &home),
            // No selector matches an API server, so only the port is restricted.
            "spec": {"podSelector": {"matchLabels": labels()}, "policyTypes": ["Ingress"], "ingress": [{"ports": policy_ports}]},
        }),
        deployment,
    ]);
    for note in placed.notes {
        crate::output::note(note);
    }
    if let (WebhookAddress::Url(url), None) = (&file.server.webhook_address, service_of_url(file)) {
        crate::output::note(format!(
            "note: API servers call {url}, which must lead to the Service {service} in {home}"
        ));
    }
    Ok(objects)
}

/// Returns the reason why only one replica can run.
fn single_replica_reason(file: &File) -> Option<String> {
    file.guards.iter().find_map(|guard| {
        let why = guard.configured.requirements().single_replica_reason?;
        Some(format!("guards.{}.{why}", guard.kind.name()))
    })
}

/// Returns the rollout strategy: a new pod is ready before an old one ends, unless only one can run.
fn strategy(is_alone: bool) -> Value {
    if is_alone {
        json!({"type": "Recreate"})
    } else {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}})
    }
}

/// Returns name and port of the Service and the port of its pods.
fn reached(file: &File) -> (String, u16, SocketAddr) {
    let (name, port) = match &file.server.webhook_address {
        WebhookAddress::Service { name, port, .. } => (name.clone(), *port),
        WebhookAddress::Url(url) => {
            let authority = url.trim_start_matches("https://").split('/').next().unwrap_or_default();
            let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            (service_of_url(file).map_or_else(|| NAME.to_owned(), |(name, _)| name), port.unwrap_or(443))
        }
    };
    (name, port, file.server.bind_address)
}

/// Reports settings of the file that do not work in a pod.
fn unfit(file: &File, home: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, address) in
        [("bindAddress", file.server.bind_address), ("metricsBindAddress", file.server.metrics_bind_address)]
    {
        let what = format!("server.{key}: {address} does not work in a pod");
        let next = |port: u16| {
            let any = if address.is_ipv6() { "[::]" } else { "0.0.0.0" };
            format!("use {any}:{port}; the port of the Service is server.webhookConfiguration.service.port")
        };
        let default = if key == "bindAddress" { 8443 } else { 8080 };
        if !address.ip().is_unspecified() {
            let why = "the API server and the kubelet cannot reach this address";
            let port = if address.port() == 0 { default } else { address.port() };
            problems.push(Problem::new(what).why(why).next(next(port)));
        } else if address.port() == 0 {
            problems.push(Problem::new(what).why("a Service needs a fixed port").next(next(default)));
        } else if address.port() < 1024 {
            let why = "only root can bind ports below 1024";
            problems.push(Problem::new(what).why(why).next(next(default)));
        }
    }
    let here = file.guards.iter().any(|guard| guard.configured.requirements().user.is_none());
    if here && home != file.namespace {
        let what = format!(
            "server.webhookConfiguration.url is in the namespace {home}, but namespace is {}",
            file.namespace
        );
        problems.push(Problem::new(what).next(format!("add: namespace: {home}")));
    }
    if file.text.len() > LONGEST_FILE {
        let what = format!(
            "{} has {} bytes, and a ConfigMap takes {LONGEST_FILE}",
            file.path.display(),
            file.text.len()
        );
        problems.push(Problem::new(what));
    }
    problems
}

fn pod(
    file: &File,
    (image, priority_class): (&str, &str),
    arguments: &[String],
    volumes: &[Value],
    mounts: &[Value],
) -> Value {
    let server = &file.server;
    let leaves = server.shutdown.delay + server.shutdown.timeout + MARGIN;
    // A pending request is held as received and as processed. The rest is the program, connections and caches. Measured with
    // all 64 MiB in use: 84 MiB.
    let most = 2 * server.limits.max_total_bytes.div_ceil(MIB) + 128;
    let probe = |path: &str, every: u32, failures: u32| json!({"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": every, "timeoutSeconds": 2, "failureThreshold": failures});
    let mut pod = json!({
        "serviceAccountName": NAME,
        "enableServiceLinks": false,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "terminationGracePeriodSeconds": leaves.as_secs() + u64::from(leaves.subsec_nanos() > 0),
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            // This group can read the key.
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels()},
            "matchLabelKeys": ["pod-template-hash"],
        }],
        "containers": [{
            "name": NAME,
            "image": image,
            "args": arguments,
            "ports": [
                {"name": "webhook", "containerPort": server.bind_address.port(), "protocol": "TCP"},
                {"name": "metrics", "containerPort": server.metrics_bind_address.port(), "protocol": "TCP"},
            ],
            "readinessProbe": probe("/readyz", 5, 2),
            "livenessProbe": probe("/livez", 10, 3),
            "resources": {
                "requests": {"cpu": "50m", "memory": "64Mi"},
                "limits": {"memory": format!("{most}Mi")},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    });
    // The kubelet does not evict pods of this class under node pressure, and a guard that fails closed must not be evicted
    // first. Since Kubernetes 1.17 any namespace can use the class unless a quota limits it (GKE), hence the flag.
    if !priority_class.is_empty() {
        pod["priorityClassName"] = json!(priority_class);
    }
    pod
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "server"})
}

fn metadata(name: &str, home: &str) -> Value {
    json!({"name": name, "namespace": home, "labels": labels()})
}
