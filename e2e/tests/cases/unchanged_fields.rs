//! A pod keeps all its fields. The injector that Durward replaces dropped some.

use e2e::prelude::*;

use super::environment::{OPTED_IN, shared};
use super::files::{DEFAULT_FILES, LxcfsChecks as _, without_additions};

/// Returns a pod with fields of many Kubernetes versions, and annotations that need escaping.
fn pod_with_many_fields<'a>(namespace: &'a Namespace<'_>) -> Pod<'a> {
    let app = json!({
        "ports": [{"containerPort": 8080, "name": "http"}],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "startupProbe": {"grpc": {"port": 8080, "service": "ready"}, "failureThreshold": 30},
        "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
        "securityContext": {
            "seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/app.json"},
            "appArmorProfile": {"type": "RuntimeDefault"},
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "z", "mountPath": "/z", "mountPropagation": "HostToContainer"},
            {"name": "a", "mountPath": "/a", "readOnly": true, "recursiveReadOnly": "IfPossible"},
        ],
        "lifecycle": {"stopSignal": "SIGUSR1", "preStop": {"sleep": {"seconds": 3}}},
    });
    namespace
        .pod("rich")
        .labelled("app.kubernetes.io/name", "web")
        .annotated("prometheus.io/scrape", "true")
        .annotated("example.org/a.b_c", "~1 / ~0 \"quoted\" \\ \u{e9}\u{1f980}")
        .annotated("kubectl.kubernetes.io/default-container", "app")
        .container_like("app", app)
        .container_like("plain", json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}))
        .init_container("sidecar", json!({"restartPolicy": "Always", "volumeMounts": [{"name": "z", "mountPath": "/z"}]}))
        .init_container("once", json!({}))
        .with(|pod| {
            let spec = &mut pod["spec"];
            spec["volumes"] = json!([{"name": "z", "emptyDir": {"medium": "Memory"}}, {"name": "a", "configMap": {"name": "a", "optional": true}}]);
            spec["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}, "fsGroupChangePolicy": "OnRootMismatch", "supplementalGroupsPolicy": "Strict"});
            spec["os"] = json!({"name": "linux"});
            spec["schedulingGates"] = json!([{"name": "example.org/wait"}]);
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "web"}}, "matchLabelKeys": ["pod-template-hash"],
                "nodeTaintsPolicy": "Honor",
            }]);
            // Its volume has a random name, which differs between twins.
            spec["automountServiceAccountToken"] = false.into();
        })
}

#[e2e::case]
fn an_injected_pod_equals_its_twin_except_for_our_additions(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let (opted_in_namespace, plain) =
        (fixture.cluster.labelled_namespace("asking", &OPTED_IN)?, fixture.cluster.namespace("silent")?);
    let injected = pod_with_many_fields(&opted_in_namespace)
        .is_admitted()?
        .with_files(&DEFAULT_FILES)?
        .without_warnings()?;
    let twin = pod_with_many_fields(&plain).is_admitted()?.untouched()?.without_warnings()?;
    for field in [
        "/spec/containers/0/securityContext/seccompProfile/localhostProfile",
        "/spec/containers/0/startupProbe/grpc/port",
        "/spec/containers/0/resizePolicy/1",
        "/metadata/annotations/example.org~1a.b_c",
    ] {
        ensure!(
            twin.pod.pointer(field).is_some(),
            "this API server does not know {field}, so the case proves nothing"
        );
    }
    let (left, right) = (without_additions(&injected.pod), without_additions(&twin.pod));
    ensure!(
        left == right,
        "the pod differs from its twin in more than our additions: {}",
        differences(&left, &right)
    );
    // The stored pod equals the returned one.
    let path = format!("{}/rich", opted_in_namespace.path("pods"));
    let stored = fixture.cluster.api().get(&path)?.succeeded()?.body;
    ensure!(without_additions(&stored) == right, "the stored pod differs from the twin");
    Ok(())
}

/// Returns the JSON pointers at which two values differ, with both values.
pub(crate) fn differences(left: &Value, right: &Value) -> String {
    fn walk(at: &str, left: &Value, right: &Value, differences: &mut Vec<String>) {
        match (left, right) {
            (Value::Object(a), Value::Object(b)) => {
                for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                    let none = Value::Null;
                    let (a, b) = (a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none));
                    walk(&format!("{at}/{key}"), a, b, differences);
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (index, (a, b)) in a.iter().zip(b).enumerate() {
                    walk(&format!("{at}/{index}"), a, b, differences);
                }
            }
            _ if left == right => {}
            _ => differences.push(format!("{at}: {left} and {right}")),
        }
    }
    let mut differences = Vec::new();
    walk("", left, right, &mut differences);
    differences.join("; ")
}
