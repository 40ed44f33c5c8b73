//! Texts for arguments that functions parse, and the values of the variables.

use fastrand::Rng;
use serde_json::{Value as Json, json};

use super::types::Type;

/// One of some items.
pub(crate) fn pick<T: Copy>(rng: &mut Rng, items: &[T]) -> T {
    items[rng.usize(..items.len())]
}

/// Texts that a function parses. The names are those of functions and of their members.
pub(crate) fn texts(function: &str) -> &'static [&'static str] {
    match function {
        "ip" | "isIP" | "ip.isCanonical" | "containsIP" => &[
            "10.0.0.1",
            "::1",
            "fe80::1",
            "10.0.0",
            "01.2.3.4",
            "::ffff:1.2.3.4",
            "224.0.0.1",
            "2001:DB8::1",
            "fe80::1%eth0",
        ],
        "cidr" | "isCIDR" | "containsCIDR" => &[
            "10.0.0.0/8",
            "10.1.2.3/16",
            "::/0",
            "2001:db8::/32",
            "10.0.0.0/33",
            "10.0.0.0",
            "::ffff:1.2.3.4/96",
        ],
        "url" | "isURL" => &[
            "https://a.com:80/p?q=1#f",
            "/p/q?x=1&x=2",
            "http://[::1]:80/",
            "http://a b/",
            "mailto:x",
            "../x",
            "http://u:p@h/%2f",
            ":x",
        ],
        "quantity" | "isQuantity" => {
            &["1", "1.5Gi", "500m", "-10", "1e3", "1E", "0.1n", "abc", "", "100k", "12345678901234567890"]
        }
        "semver" | "isSemver" => {
            &["1.2.3", "1.2.3-alpha.1", "1.2.3+b", "v1.2.3", "01.2.3", "1.2", "1.10.0", "x.y.z"]
        }
        "duration" => &["1h", "1h30m", "-1.5s", "0", "1d", "9223372036854775807ns", "10ms"],
        "timestamp" => &[
            "2020-01-01T00:00:00Z",
            "2020-02-29T23:59:59.999Z",
            "2021-02-29T00:00:00Z",
            "2020-06-15T12:00:00+05:30",
            "x",
        ],
        "matches" | "find" | "findAll" => {
            &["^a", "[a-z]+", "b*", "(", "\\\\d{2}", "[[:alpha:]]", "a|", "(?i)A", "\\\\bx"]
        }
        "format" => &["%s", "%d and %s", "%.2f", "%x", "%e", "%b", "%o", "%%", "%q", "%", "%X %s"],
        "format.named" => &["dns1123Label", "uuid", "labelValue", "qualifiedName", "nope", "date"],
        "validate" => &[
            "a",
            "A_b",
            "a.b/c",
            "2020-01-01",
            "YQ==",
            "123e4567-e89b-12d3-a456-426614174000",
            "http://a",
            "",
        ],
        "int" | "uint" | "double" | "bool" => {
            &["1", "-7", "1.5", "true", "x", "", "9223372036854775808", "1e3", "NaN"]
        }
        "check" => &["get", "list", "fail"],
        "group" | "resource" | "subresource" | "namespace" | "name" | "serviceAccount" => {
            &["apps", "pods", "a", "", "kube-system"]
        }
        "path" => &["/healthz", "/x", "", "no-slash"],
        "fieldSelector" => &["metadata.name=a", "a=b,c!=d", "=", "a"],
        "labelSelector" => &["app=web", "a in (b,c)", "!x", "a in (", "x=y,z"],
        name if name.starts_with("get") => &["UTC", "CET", "+01:00", "-08:30", "Nowhere/Land", "EST5EDT"],
        _ => &["", "a", "abc", "ABC", "a,b", "aé😀", " x ", "hello hello", "-1", "b", "web-1"],
    }
}

/// Expressions without operators for a type, except for strings, lists, maps and optionals.
pub(crate) fn constants(of: &str) -> &'static [&'static str] {
    match of {
        "bool" => &["true", "false"],
        "int" => &["0", "1", "2", "-1", "7", "3", "100", "9223372036854775807", "-9223372036854775808"],
        "uint" => &["0u", "1u", "7u", "18446744073709551615u"],
        "double" => &["0.0", "1.5", "-0.5", "1e3", "2.675", "1e-7", "1e21"],
        "bytes" => &["b''", "b'abc'", "b'\\xff'"],
        "null_type" | "null" => &["null"],
        "timestamp" | "google.protobuf.Timestamp" => {
            &["timestamp('2020-01-01T00:00:00Z')", "timestamp('2024-02-29T12:34:56.5Z')"]
        }
        "duration" | "google.protobuf.Duration" => &["duration('1h')", "duration('90s')", "duration('-1ms')"],
        "net.IP" => &["ip('10.0.0.1')", "ip('::1')", "ip('192.168.1.1')"],
        "net.CIDR" => &["cidr('10.0.0.0/8')", "cidr('2001:db8::/32')", "cidr('10.1.2.3/16')"],
        "kubernetes.URL" => &["url('https://a.com:80/p?q=1')", "url('/x')"],
        "kubernetes.Quantity" => &["quantity('1')", "quantity('1.5Gi')", "quantity('500m')"],
        "kubernetes.Semver" => &["semver('1.2.3')", "semver('2.0.0-rc.1')"],
        "kubernetes.NamedFormat" => &["format.dns1123Label()", "format.uuid()", "format.labelValue()"],
        "kubernetes.authorization.Authorizer" => {
            &["authorizer", "authorizer.serviceAccount('kube-system', 'default')"]
        }
        "kubernetes.authorization.PathCheck" => &["authorizer.path('/healthz')"],
        "kubernetes.authorization.GroupCheck" => &["authorizer.group('apps')", "authorizer.group('')"],
        "kubernetes.authorization.ResourceCheck" => {
            &["authorizer.requestResource", "authorizer.group('').resource('pods').namespace('a')"]
        }
        "kubernetes.authorization.Decision" => &[
            "authorizer.path('/x').check('get')",
            "authorizer.requestResource.check('fail')",
            "authorizer.path('/x').check('list')",
        ],
        _ => &[],
    }
}

/// Selections with their types. Those of `object`, `oldObject` and `params` are dynamic; the type is that of their value.
pub(crate) const PATHS: [(&str, &str, bool); 38] = [
    ("object.spec.replicas", "int", true),
    ("object.spec.ratio", "double", true),
    ("object.spec.paused", "bool", true),
    ("object.spec.image", "string", true),
    ("object.spec.address", "string", true),
    ("object.spec.network", "string", true),
    ("object.spec.size", "string", true),
    ("object.spec.version", "string", true),
    ("object.spec.link", "string", true),
    ("object.spec.time", "string", true),
    ("object.spec.period", "string", true),
    ("object.spec.numbers", "list(int)", true),
    ("object.spec.names", "list(string)", true),
    ("object.spec.mixed", "list(dyn)", true),
    ("object.spec.empty", "list(int)", true),
    ("object.spec.nested", "list(list(int))", true),
    ("object.spec.nothing", "null", true),
    ("object.spec.absent", "int", true),
    ("object.absent.name", "string", true),
    ("object.spec.containers", "list(dyn)", true),
    ("object.spec.containers[0].ports[0].containerPort", "int", true),
    ("object.metadata.name", "string", true),
    ("object.metadata.labels", "map(string, string)", true),
    ("object.metadata.labels.app", "string", true),
    ("oldObject.spec.replicas", "int", true),
    ("params.data.maximum", "int", true),
    ("params.data.names", "list(string)", true),
    ("request.name", "string", false),
    ("request.namespace", "string", false),
    ("request.operation", "string", false),
    ("request.dryRun", "bool", false),
    ("request.userInfo.username", "string", false),
    ("request.userInfo.groups", "list(string)", false),
    ("request.userInfo.extra", "map(string, list(string))", false),
    ("request.resource.resource", "string", false),
    ("namespaceObject.metadata.name", "string", false),
    ("namespaceObject.metadata.labels", "map(string, string)", false),
    ("namespaceObject.status.phase", "string", false),
];

/// The paths of values with a type.
pub(crate) fn paths(of: &Type) -> Vec<&'static str> {
    let fits = |path: &&(&str, &str, bool)| Type::parse(path.1) == *of || (of.name == "dyn" && path.2);
    PATHS.iter().filter(fits).map(|path| path.0).collect()
}

/// Values of the variables. Maps have one entry where expressions can loop over them, since Go's order of maps is random.
pub(crate) fn variables(rng: &mut Rng) -> Json {
    let object = workload(rng);
    let mut old = workload(rng);
    old["spec"]["paused"] = json!(true);
    let namespace = pick(rng, &["prod", "dev"]);
    json!({
        "object": object,
        "oldObject": if rng.bool() { old } else { Json::Null },
        "params": { "data": { "maximum": rng.i64(0..5), "names": ["a", "web"] } },
        "request": {
            "uid": "r1",
            "kind": { "group": "apps", "version": "v1", "kind": "Deployment" },
            "resource": { "group": "apps", "version": "v1", "resource": "deployments" },
            "name": "web-1",
            "namespace": namespace,
            "operation": pick(rng, &["CREATE", "UPDATE"]),
            "userInfo": { "username": "ann", "uid": "u1", "groups": ["dev", "ops"], "extra": { "scopes": ["a", "b"] } },
            "dryRun": rng.bool(),
            "options": { "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions" },
        },
        "namespaceObject": {
            "metadata": { "name": namespace, "labels": { "env": namespace } },
            "spec": {},
            "status": { "phase": "Active" },
        },
    })
}

/// An object with fields of all types.
pub(crate) fn workload(rng: &mut Rng) -> Json {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web-1", "namespace": "prod", "labels": { "app": pick(rng, &["web", "api"]) } },
        "spec": {
            "replicas": rng.i64(0..6),
            "ratio": pick(rng, &[0.5, 1.25, 3.0]),
            "paused": rng.bool(),
            "image": pick(rng, &["nginx:1.25", "docker.io/library/nginx", "a"]),
            "address": pick(rng, &["10.0.0.1", "::1", "x"]),
            "network": pick(rng, &["10.0.0.0/8", "fd00::/8"]),
            "size": pick(rng, &["1.5Gi", "500m", "big"]),
            "version": pick(rng, &["1.2.3", "v2"]),
            "link": "https://example.com:8443/a/b?c=d",
            "time": "2024-03-01T10:00:00Z",
            "period": pick(rng, &["1h30m", "5s", "soon"]),
            "numbers": [rng.i64(0..4), 2, 3],
            "names": ["a", "b", "a"],
            "mixed": [1, "a", true, null, 1.5],
            "empty": [],
            "nested": [[1], [2, 3]],
            "nothing": null,
            "containers": [{
                "name": "c",
                "image": "nginx",
                "ports": [{ "containerPort": 80 }],
                "resources": { "limits": { "cpu": "500m" } },
            }],
        },
    })
}
