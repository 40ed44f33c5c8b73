//! The generated manifests: the kinds of a typical repository, with fields that break a rule now and then.

use fastrand::Rng;
use serde_json::{Value as Json, json};

/// Share of fields that break a rule, in percent.
const SLOPPY: u8 = 2;

const NAMESPACES: [&str; 5] = ["shop", "payments", "search", "monitoring", "platform"];
const TEAMS: [&str; 4] = ["checkout", "search", "platform", "data"];
const COMPONENTS: [&str; 6] = ["web", "api", "worker", "cache", "gateway", "indexer"];

/// Makes manifests.
pub(crate) struct Generator<'r> {
    rng: &'r mut Rng,
    number: usize,
}

/// Returns manifests. Their names differ.
pub(crate) fn manifests(rng: &mut Rng, count: usize) -> Vec<Json> {
    (0..count).map(|number| Generator { rng, number }.manifest()).collect()
}

impl Generator<'_> {
    fn manifest(&mut self) -> Json {
        let mut manifest = match self.rng.u8(..100) {
            0..24 => self.deployment(),
            24..32 => self.stateful_set(),
            32..35 => self.daemon_set(),
            35..42 => self.cron_job(),
            42..45 => self.job(),
            45..49 => self.pod(),
            49..67 => self.service(),
            67..83 => self.config_map(),
            83..88 => self.ingress(),
            88..92 => self.claim(),
            92..95 => self.role(),
            95..98 => self.autoscaler(),
            _ => {
                json!({ "apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false })
            }
        };
        manifest["metadata"] = self.metadata();
        manifest
    }

    /// Returns true for the few fields that break a rule.
    fn is_sloppy(&mut self) -> bool {
        self.rng.u8(..100) < SLOPPY
    }

    fn pick<T: Copy + Default>(&mut self, items: &[T]) -> T {
        items.get(self.rng.usize(..items.len().max(1))).copied().unwrap_or_default()
    }

    /// Returns the first value, or for a few fields the second one.
    fn or(&mut self, usual: impl Into<Json>, sloppy: impl Into<Json>) -> Json {
        if self.is_sloppy() { sloppy.into() } else { usual.into() }
    }

    /// Sets a field, except for a few objects.
    fn set(&mut self, object: &mut Json, field: &str, value: impl Into<Json>) {
        if !self.is_sloppy() {
            object[field] = value.into();
        }
    }

    /// Sets a field of a few objects.
    fn break_with(&mut self, object: &mut Json, field: &str, value: impl Into<Json>) {
        if self.is_sloppy() {
            object[field] = value.into();
        }
    }

    fn name(&self) -> String {
        let component = COMPONENTS.get(self.number % COMPONENTS.len()).copied().unwrap_or_default();
        format!("{component}-{}", self.number)
    }

    fn metadata(&mut self) -> Json {
        let (name, team) = (self.name(), self.pick(&TEAMS));
        let mut labels = json!({ "app.kubernetes.io/name": name });
        self.set(&mut labels, "app.kubernetes.io/part-of", "store");
        let team = self.or(team, "Team A");
        self.set(&mut labels, "team", team);
        self.set(&mut labels, "tier", "backend");
        let mut annotations = json!({ "example.test/contact": "oncall@example.test" });
        let owner = self.or("owners@example.test", "unknown");
        self.set(&mut annotations, "example.test/owner", owner);
        let name = if self.is_sloppy() { format!("{name}--copy") } else { name };
        let mut metadata =
            json!({ "name": name, "namespace": self.pick(&NAMESPACES), "annotations": annotations });
        self.set(&mut metadata, "labels", labels);
        metadata
    }

    fn deployment(&mut self) -> Json {
        let mut spec = self.workload();
        let replicas = self.pick(&[2, 3, 4]);
        let replicas = self.or(replicas, 12);
        self.set(&mut spec, "replicas", replicas);
        spec["strategy"] = json!({ "type": self.or("RollingUpdate", "Recreate") });
        spec["revisionHistoryLimit"] = self.or(3, 50);
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": spec })
    }

    fn stateful_set(&mut self) -> Json {
        let mut spec = self.workload();
        spec["serviceName"] = self.name().into();
        spec["replicas"] = self.or(3, 1);
        let storage = self.or("10Gi", "500Gi");
        spec["volumeClaimTemplates"] = json!([{
            "metadata": { "name": "data" },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": { "requests": { "storage": storage } },
            },
        }]);
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec })
    }

    fn daemon_set(&mut self) -> Json {
        let spec = self.workload();
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "spec": spec })
    }

    /// Selector and template of a workload.
    fn workload(&mut self) -> Json {
        let name = self.name();
        json!({
            "selector": { "matchLabels": { "app.kubernetes.io/name": name } },
            "template": {
                "metadata": { "labels": { "app.kubernetes.io/name": name, "team": self.pick(&TEAMS) } },
                "spec": self.pod_spec(),
            },
        })
    }

    fn cron_job(&mut self) -> Json {
        let mut pod = self.pod_spec();
        pod["restartPolicy"] = "OnFailure".into();
        let mut spec = json!({
            "schedule": self.or("15 3 * * *", "* * * * *"),
            "successfulJobsHistoryLimit": 1,
            "jobTemplate": { "spec": { "backoffLimit": 2, "template": { "spec": pod } } },
        });
        self.set(&mut spec, "concurrencyPolicy", "Forbid");
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "spec": spec })
    }

    fn job(&mut self) -> Json {
        let mut pod = self.pod_spec();
        pod["restartPolicy"] = "Never".into();
        let mut spec = json!({ "backoffLimit": 3, "template": { "spec": pod } });
        self.set(&mut spec, "ttlSecondsAfterFinished", 600);
        json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": spec })
    }

    fn pod(&mut self) -> Json {
        let spec = self.pod_spec();
        json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec })
    }

    fn pod_spec(&mut self) -> Json {
        let name = self.name();
        let containers: Vec<Json> =
            (0..self.pick(&[1, 1, 2, 3])).map(|number| self.container(number)).collect();
        let mut spec = json!({
            "serviceAccountName": self.or(name.clone(), "default"),
            "terminationGracePeriodSeconds": self.or(30, 600),
            "containers": containers,
            "volumes": [
                { "name": "config", "configMap": { "name": name } },
                { "name": "scratch", "emptyDir": { "sizeLimit": "100Mi" } },
            ],
            "topologySpreadConstraints": [
                self.spread("topology.kubernetes.io/zone"),
                self.spread("kubernetes.io/hostname"),
            ],
            "tolerations": [{ "key": self.or("dedicated", "node-role.kubernetes.io/control-plane"), "operator": "Exists" }],
        });
        if self.rng.u8(..4) == 0 {
            spec["initContainers"] = json!([self.container(9)]);
        }
        self.set(&mut spec, "automountServiceAccountToken", false);
        let mut context = json!({ "runAsNonRoot": true, "fsGroup": 2000 });
        self.set(&mut context, "seccompProfile", json!({ "type": "RuntimeDefault" }));
        self.set(&mut spec, "securityContext", context);
        let class = self.or("standard", "system-cluster-critical");
        spec["priorityClassName"] = class;
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            self.break_with(&mut spec, field, true);
        }
        if self.is_sloppy() {
            spec["volumes"][1] = json!({ "name": "scratch", "hostPath": { "path": "/var/log" } });
        }
        spec
    }

    fn spread(&mut self, key: &str) -> Json {
        json!({
            "maxSkew": 1,
            "topologyKey": self.or(key, "example.test/rack"),
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": { "app.kubernetes.io/name": self.name() } },
        })
    }

    fn container(&mut self, number: usize) -> Json {
        let component = self.pick(&COMPONENTS);
        let version = format!("{}.{}.{}", self.rng.u8(..9), self.rng.u8(..30), self.rng.u8(..9));
        let tag = self.or(version, "latest");
        let registry = self.or("registry.example.test", "docker.io");
        let [tag, registry] = [&tag, &registry].map(|text| text.as_str().unwrap_or_default());
        let mut resources = json!({ "requests": { "cpu": "100m", "memory": "128Mi" } });
        let limits = json!({ "cpu": self.or("500m", "4"), "memory": self.or("512Mi", "8Gi") });
        self.set(&mut resources, "limits", limits);
        let password = json!({ "secretKeyRef": { "name": "database", "key": "password" } });
        let mut container = json!({
            "name": format!("{component}-{number}"),
            "image": format!("{registry}/store/{component}:{tag}"),
            "args": ["--listen=:8080", "--log-level=info"],
            "ports": [{ "name": "http", "containerPort": 8080 }],
            "env": [
                { "name": "LOG_FORMAT", "value": "json" },
                { "name": "DATABASE_HOST", "value": "database.shop.svc" },
                { "name": "DATABASE_PASSWORD", "valueFrom": password },
            ],
            "resources": resources,
            "securityContext": self.security_context(),
            "volumeMounts": [{ "name": "config", "mountPath": "/etc/app" }, { "name": "scratch", "mountPath": "/tmp" }],
        });
        if self.is_sloppy() {
            container["env"][2] = json!({ "name": "API_TOKEN", "value": "not-a-secret" });
        }
        self.break_with(&mut container["ports"][0], "hostPort", 8080);
        for (field, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
            let probe = json!({ "httpGet": { "path": path, "port": "http" }, "periodSeconds": 10 });
            self.set(&mut container, field, probe);
        }
        container
    }

    fn security_context(&mut self) -> Json {
        let mut capabilities = json!({});
        self.set(&mut capabilities, "drop", json!(["ALL"]));
        self.break_with(&mut capabilities, "add", json!(["SYS_ADMIN", "NET_BIND_SERVICE"]));
        let mut context = json!({ "capabilities": capabilities, "runAsUser": self.or(10_001, 0) });
        self.set(&mut context, "allowPrivilegeEscalation", false);
        self.set(&mut context, "readOnlyRootFilesystem", true);
        self.break_with(&mut context, "privileged", true);
        context
    }

    fn service(&mut self) -> Json {
        let mut port = json!({ "port": 80, "targetPort": "http" });
        let name = self.or("http", "web");
        self.set(&mut port, "name", name);
        let mut spec = json!({
            "selector": { "app.kubernetes.io/name": self.name() },
            "ports": [port, { "name": "grpc-admin", "port": 9090, "targetPort": 9090 }],
            "type": self.or("ClusterIP", "NodePort"),
        });
        self.break_with(&mut spec, "externalIPs", json!(["192.0.2.7"]));
        json!({ "apiVersion": "v1", "kind": "Service", "spec": spec })
    }

    fn config_map(&mut self) -> Json {
        let lines = self.rng.usize(5..60);
        let lines: Vec<String> =
            (0..lines).map(|line| format!("setting.number.{line} = \"value {line}\"\n")).collect();
        let text = lines.concat();
        let mut data = json!({ "application.toml": text, "log.level": "info", "region": "eu-west-1" });
        self.break_with(&mut data, "database.password", "not-a-secret");
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data })
    }

    fn ingress(&mut self) -> Json {
        let host = format!("{}.apps.example.test", self.name());
        let host = self.or(host, "*.example.com");
        let backend = json!({ "service": { "name": self.name(), "port": { "name": "http" } } });
        let mut spec = json!({
            "ingressClassName": "internal",
            "rules": [{ "host": host, "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } }],
        });
        self.set(&mut spec, "tls", json!([{ "hosts": [host], "secretName": "tls" }]));
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": spec })
    }

    fn claim(&mut self) -> Json {
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.or("standard", "slow"),
            "resources": { "requests": { "storage": self.or("20Gi", "2Ti") } },
        } })
    }

    fn role(&mut self) -> Json {
        let verbs = self.or(json!(["get", "list", "watch"]), json!(["*"]));
        let resources = self.or(json!(["configmaps", "secrets"]), json!(["*"]));
        let rules = json!([{ "apiGroups": [""], "resources": resources, "verbs": verbs }]);
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules })
    }

    fn autoscaler(&mut self) -> Json {
        let target = json!({ "type": "Utilization", "averageUtilization": 70 });
        json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": self.name() },
            "minReplicas": 2,
            "maxReplicas": self.or(6, 100),
            "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }],
        } })
    }
}
