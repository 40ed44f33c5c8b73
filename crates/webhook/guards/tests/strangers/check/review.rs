//! Builds a review from bytes: a stored object with changes that a stranger could make, then changes of the text.
//!
//! Each byte is one choice, so that a fuzzer and a property test that shrinks its input both work with it.

use serde_json::{Map, Value, json};

use super::world::{CRD, LOCAL};

/// Choices from bytes. After the last byte each choice is 0.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.byte() % all.len()]
    }

    /// Returns a position in a text of this length.
    fn position(&mut self, length: usize) -> usize {
        let at = self.byte() << 8 | self.byte();
        if length == 0 { 0 } else { at % length }
    }
}

/// Operation, API group, resource, subresource, and the kind and name of the stored object.
type Template = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// The requests that guards review. The last word is the name of the stored object.
const TEMPLATES: [Template; 12] = [
    ("DELETE", "", "pods", "", "kiwi-1"),
    ("DELETE", "", "pods", "", "kiwi-0"),
    ("CREATE", "", "pods", "eviction", "kiwi-1"),
    ("CREATE", "", "pods", "eviction", "kiwi-0"),
    ("DELETE", "", "namespaces", "", "shop"),
    ("DELETE", "", "namespaces", "", "spare"),
    ("DELETE", "", "namespaces", "", guards::NAMESPACE),
    ("DELETE", "", "namespaces", "", "karmada-system"),
    ("DELETE", "apiextensions.k8s.io", "customresourcedefinitions", "", CRD),
    ("DELETE", "apps", "statefulsets", "", "kiwi"),
    ("UPDATE", "", "pods", "", "kiwi-1"),
    ("CREATE", "", "pods", "", "melon-0"),
];

/// Names, uids and other texts of strangers.
const TEXTS: [&str; 35] = [
    "",
    "guessed",
    "uid-kiwi-0",
    "uid-kiwi-1",
    "uid-kiwi",
    "uid-shop",
    "uid-db",
    "other-uid-kiwi-1",
    "yes",
    "deletion",
    "kiwi-0",
    "kiwi-2",
    "kiwi",
    "etcd",
    "db",
    "shop",
    "spare",
    "karmada-system",
    "durward-system",
    CRD,
    "gadgets.example.org",
    "..",
    "../../api/v1/nodes",
    "a/b%2fc?x=y#z",
    "a\n::add-mask::b",
    "\u{1b}[31mred",
    "\u{202e}\u{0}",
    "{{ .Name }}",
    "ünïcode-名",
    "10.77.0.2",
    "169.254.169.254",
    "2026-11-21T10:00:00Z",
    "Failed",
    "Pending",
    "system:nodes",
];

/// Places in a request, as JSON pointers.
const PLACES: [&str; 41] = [
    "/oldObject/metadata/uid",
    "/oldObject/metadata/uid",
    "/oldObject/metadata/name",
    "/oldObject/metadata/namespace",
    "/oldObject/metadata/labels",
    "/oldObject/metadata/labels/app",
    "/oldObject/metadata/labels/guarded",
    "/oldObject/metadata/annotations",
    "/oldObject/metadata/ownerReferences",
    "/oldObject/metadata/ownerReferences/0/uid",
    "/oldObject/metadata/ownerReferences/0/name",
    "/oldObject/metadata/ownerReferences/0/kind",
    "/oldObject/metadata/deletionTimestamp",
    "/oldObject/status/phase",
    "/oldObject/status/podIP",
    "/oldObject/spec/nodeName",
    "/oldObject/spec/replicas",
    "/oldObject/spec/containers/0/image",
    "/oldObject",
    "/object/metadata/uid",
    "/object/metadata/name",
    "/object/metadata/labels",
    "/object/metadata/labels/app",
    "/object/metadata/labels/guarded",
    "/object/metadata/labels/exempt",
    "/object/metadata/annotations",
    "/object/metadata/ownerReferences",
    "/object/metadata/ownerReferences/0/uid",
    "/object/spec/activeDeadlineSeconds",
    "/object/spec/replicas",
    "/object/spec/containers/0/image",
    "/object/deleteOptions",
    "/object",
    "/name",
    "/namespace",
    "/subResource",
    "/operation",
    "/resource/resource",
    "/userInfo/username",
    "/userInfo/groups",
    "/dryRun",
];

/// Returns the body of a review.
pub(crate) fn body(bytes: &[u8]) -> Vec<u8> {
    let mut choices = Choices(bytes);
    let mut request = request(choices.pick(&TEMPLATES));
    if choices.byte() % 4 != 0 {
        let uid = value(&mut choices);
        set(&mut request, "/oldObject/metadata/uid", uid);
    }
    for _ in 0..choices.byte() % 6 {
        let place = choices.pick(&PLACES);
        let value = value(&mut choices);
        set(&mut request, place, value);
    }
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let mut text = review.to_string().into_bytes();
    if choices.byte() % 8 == 7 {
        for _ in 0..=choices.byte() % 3 {
            change_text(&mut text, &mut choices);
        }
    }
    text
}

/// Returns the request that the API server would send for a stored object.
fn request((operation, group, resource, subresource, name): Template) -> Value {
    let stored =
        LOCAL.iter().find(|(plural, object)| *plural == resource && object["metadata"]["name"] == name);
    let stored = stored.map_or(Value::Null, |(_, object)| object.clone());
    let namespace = if resource == "namespaces" {
        name.to_owned()
    } else {
        stored["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()
    };
    let (old, mut new) = match operation {
        "DELETE" => (stored, Value::Null),
        "CREATE" => (Value::Null, stored),
        _ => (stored.clone(), stored),
    };
    if subresource == "eviction" {
        new = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}});
    }
    json!({
        "uid": "review", "operation": operation, "name": name, "namespace": namespace,
        "kind": {"group": group, "version": "v1", "kind": ""},
        "resource": {"group": group, "version": "v1", "resource": resource}, "subResource": subresource,
        "userInfo": {"username": "ann", "groups": ["system:authenticated"]},
        "object": new, "oldObject": old, "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    })
}

/// Returns a value that a stranger could put anywhere.
fn value(choices: &mut Choices<'_>) -> Value {
    match choices.byte() % 16 {
        0 => Value::Null,
        1 => json!(choices.byte()),
        2 => json!([choices.pick(&TEXTS)]),
        3 => json!({"app": choices.pick(&TEXTS), "guarded": choices.pick(&TEXTS)}),
        8 => json!({"durward.dev/guard": "deletion", "guarded": "yes", "exempt": choices.pick(&TEXTS)}),
        4 => json!("x".repeat(300)),
        5 => {
            json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": choices.pick(&TEXTS), "uid": choices.pick(&TEXTS), "controller": true}])
        }
        6 => {
            json!({"durward.dev/delete-anyway": choices.pick(&TEXTS), "durward.dev/delete-reason": "x", "durward.dev/delete-until": "2026-11-21T18:00:00Z"})
        }
        7 => json!({"gracePeriodSeconds": 0, "preconditions": {"uid": choices.pick(&TEXTS)}}),
        9 => json!(["UPDATE", "DELETE", "CREATE", "CONNECT"][choices.byte() % 4]),
        _ => json!(choices.pick(&TEXTS)),
    }
}

/// Sets the value at a pointer, and creates the objects above it.
fn set(at: &mut Value, pointer: &str, value: Value) {
    let (step, rest) = match pointer.strip_prefix('/').map(|rest| rest.split_once('/')) {
        Some(Some((step, rest))) => (step, &pointer[pointer.len() - rest.len() - 1..]),
        Some(None) => (&pointer[1..], ""),
        None => {
            *at = value;
            return;
        }
    };
    match (at, step.parse::<usize>()) {
        (Value::Array(items), Ok(index)) => {
            if let Some(item) = items.get_mut(index) {
                set(item, rest, value);
            }
        }
        (Value::Object(fields), _) => {
            let field = fields.entry(step).or_insert(Value::Null);
            if field.is_null() && !rest.is_empty() {
                *field = Value::Object(Map::new());
            }
            set(field, rest, value);
        }
        _ => {}
    }
}

/// Changes the text of a review: a byte, a repeated or missing part, or a second key.
fn change_text(text: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let at = choices.position(text.len());
    let end = text.len().min(at + 1 + choices.byte() % 32);
    match choices.byte() % 4 {
        0 => text[at] = choices.pick(b"\"\\{}[],:0x\n\x00"),
        1 => drop(text.drain(at..end)),
        2 => {
            let part = text[at..end].to_vec();
            drop(text.splice(at..at, part));
        }
        _ => {
            let keys = [
                "\"uid\":\"uid-kiwi-1\",",
                "\"name\":\"kiwi-2\",",
                "\"metadata\":{},",
                "\"namespace\":\"db\",",
            ];
            let key = choices.pick(&keys);
            // Behind the next opening brace, where a key can be.
            let brace =
                text[at..].iter().position(|byte| *byte == b'{').map_or(text.len(), |next| at + next + 1);
            drop(text.splice(brace..brace, key.bytes()));
        }
    }
}
