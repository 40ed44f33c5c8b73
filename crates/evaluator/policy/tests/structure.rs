//! Required fields and enums of built-in kinds, as far as an API server enforces them.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use policy::normalize::normalize;
use policy::value::{Arena, read_json};

/// Returns the errors of an object of `v1`, `apps/v1` or another version.
fn errors(api_version: &str, kind: &str, object: &str) -> Vec<String> {
    let arena = Arena::new();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let object = read_json(arena.text(object), &arena).unwrap();
    let normalized = normalize((group, version, kind), object, &arena).unwrap();
    normalized.invalid.iter().map(ToString::to_string).collect()
}

fn pod(spec: &str) -> Vec<String> {
    errors("v1", "Pod", &format!(r#"{{"metadata": {{"name": "a"}}, "spec": {spec}}}"#))
}

#[test]
fn reports_absent_fields_with_the_text_of_the_api_server() {
    assert_eq!(pod(r#"{"containers": [{"name": "a"}]}"#), Vec::<String>::new());
    for spec in [r#"{"containers": []}"#, r#"{"containers": null}"#, "{}"] {
        assert_eq!(pod(spec), ["spec.containers: Required value"], "{spec}");
    }
    // An empty text decodes to the same as an absent one.
    for container in ["{}", r#"{"name": ""}"#, r#"{"name": null}"#] {
        let spec = format!(r#"{{"containers": [{{"name": "a"}}, {container}]}}"#);
        assert_eq!(pod(&spec), ["spec.containers[1].name: Required value"], "{container}");
    }
    let service = r#"{"spec": {"ports": [{"port": 0}, {"port": 1}]}}"#;
    assert_eq!(
        errors("v1", "Service", service),
        ["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"]
    );
    assert_eq!(
        errors("apps/v1", "Deployment", r#"{"spec": {"selector": {}}}"#),
        ["spec.template: Required value"]
    );
}

#[test]
fn reports_texts_that_are_not_in_an_enum() {
    let with = |field: &str| {
        format!(r#"{{"containers": [{{"name": "a", "ports": [{{"containerPort": 1{field}}}]}}]}}"#)
    };
    assert_eq!(
        pod(&with(r#", "protocol": "tcp""#)),
        [
            "spec.containers[0].ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\""
        ]
    );
    // An empty text stands for the default.
    for field in ["", r#", "protocol": "UDP""#, r#", "protocol": """#, r#", "protocol": null"#] {
        assert_eq!(pod(&with(field)), Vec::<String>::new(), "{field}");
    }
    let policy = r#"{"spec": {"policyTypes": ["Egress", "ingress"]}}"#;
    assert_eq!(
        errors("networking.k8s.io/v1", "NetworkPolicy", policy),
        ["spec.policyTypes[1]: Unsupported value: \"ingress\": supported values: \"Ingress\", \"Egress\""]
    );
}

/// OpenAPI requires these fields, and the API server accepts objects without them.
#[test]
fn accepts_what_the_api_server_accepts() {
    for (api_version, kind, object) in [
        ("scheduling.k8s.io/v1", "PriorityClass", "{}"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", r#"{"roleRef": {"kind": "Role", "name": "a"}}"#),
        ("apps/v1", "ControllerRevision", r#"{"data": {}}"#),
        ("discovery.k8s.io/v1", "EndpointSlice", r#"{"addressType": "IPv4"}"#),
        // Metadata and status are not validated in this way, and no try covers ephemeral containers.
        (
            "v1",
            "PodTemplate",
            r#"{"metadata": {"ownerReferences": [{}]}, "template": {"metadata": {"ownerReferences": [{}]}, "spec": {"containers": [{"name": "a"}]}}}"#,
        ),
        (
            "v1",
            "Pod",
            r#"{"spec": {"containers": [{"name": "a"}]}, "status": {"conditions": [{}], "phase": "Nonesuch"}}"#,
        ),
        ("v1", "Pod", r#"{"spec": {"containers": [{"name": "a"}], "ephemeralContainers": [{"env": [{}]}]}}"#),
        // Zero values of structs are not in the object.
        (
            "v1",
            "Pod",
            r#"{"spec": {"containers": [{"name": "a", "lifecycle": null, "livenessProbe": null}], "affinity": {}}}"#,
        ),
    ] {
        assert_eq!(errors(api_version, kind, object), Vec::<String>::new(), "{object}");
    }
}
