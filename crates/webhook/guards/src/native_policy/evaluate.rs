//! Evaluates native policies in tests, as the oldest and the newest supported API server do.

use policy::Authorization;
use policy::facts::{Facts, Lookup, ParamKind, ParamQuery};
use policy::release::{NEWEST, OLDEST, Release};
use policy::request::{AdmissionRequest, GroupVersion, RequestUser};
use policy::set::{PolicySet, PolicySetBuilder};
use policy::value::{Arena, read_json};
use serde_json::{Value, json};

use super::NativePolicy;
use crate::common::NAMESPACE_NAME;

const ANN: &str = "ann";

/// A request about an object.
pub(crate) struct AskedRequest {
    operation: &'static str,
    resource: &'static str,
    kind: &'static str,
    subresource: &'static str,
    user: &'static str,
    groups: &'static [&'static str],
    options: Value,
    object: Value,
    old: Value,
    namespace_labels: Value,
    has_verb: bool,
    is_registered: bool,
}

impl AskedRequest {
    /// Creates the request of a user without special rights.
    fn new(operation: &'static str, kind: &'static str, old: Value, object: Value) -> Self {
        let resource = match kind {
            "Pod" => "pods",
            "Namespace" => "namespaces",
            "StatefulSet" => "statefulsets",
            "PersistentVolumeClaim" => "persistentvolumeclaims",
            _ => "customresourcedefinitions",
        };
        Self {
            operation,
            resource,
            kind,
            subresource: "",
            user: ANN,
            groups: &["system:authenticated"],
            options: Value::Null,
            object,
            old,
            namespace_labels: json!({}),
            has_verb: false,
            is_registered: true,
        }
    }

    pub(crate) fn create(kind: &'static str, object: Value) -> Self {
        Self::new("CREATE", kind, Value::Null, object)
    }

    /// Changes a copy of the object.
    pub(crate) fn update(kind: &'static str, old: &Value, change: impl FnOnce(&mut Value)) -> Self {
        let mut object = old.clone();
        change(&mut object);
        Self::new("UPDATE", kind, old.clone(), object)
    }

    pub(crate) fn delete(kind: &'static str, old: Value) -> Self {
        Self::new("DELETE", kind, old, Value::Null)
    }

    pub(crate) fn sub(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    pub(crate) fn by(self, user: &'static str) -> Self {
        Self { user, ..self }
    }

    pub(crate) fn in_groups(self, groups: &'static [&'static str]) -> Self {
        Self { groups, ..self }
    }

    pub(crate) fn with_options(self, options: Value) -> Self {
        Self { options, ..self }
    }

    pub(crate) fn in_labeled(self, namespace_labels: Value) -> Self {
        Self { namespace_labels, ..self }
    }

    /// The caller has the verb `break-glass`.
    pub(crate) fn with_verb(self) -> Self {
        Self { has_verb: true, ..self }
    }

    /// The webhook configuration of Durward does not exist.
    pub(crate) fn unregistered(self) -> Self {
        Self { is_registered: false, ..self }
    }

    /// Returns the messages of the denials, or of the warnings.
    pub(crate) fn answers(&self, policies: &[NativePolicy]) -> Vec<String> {
        let [old, new] = [OLDEST, NEWEST].map(|server| self.answers_of(server, policies));
        assert_eq!(old, new);
        old
    }

    pub(crate) fn is_allowed(&self, policies: &[NativePolicy]) -> bool {
        self.answers(policies).is_empty()
    }

    fn answers_of(&self, server: u8, policies: &[NativePolicy]) -> Vec<String> {
        let set = load(server, policies);
        let arena = Arena::new();
        let read = |value: &Value| read_json(arena.text(&value.to_string()), &arena).unwrap();
        let metadata = if self.old.is_null() { &self.object["metadata"] } else { &self.old["metadata"] };
        let name = metadata["name"].as_str().unwrap_or_default();
        let namespace = match self.kind {
            "Namespace" => name,
            _ => metadata["namespace"].as_str().unwrap_or_default(),
        };
        let group = match self.kind {
            "StatefulSet" => "apps",
            "CustomResourceDefinition" => "apiextensions.k8s.io",
            _ => "",
        };
        let (kind_group, kind) = match self.subresource {
            "scale" => ("autoscaling", "Scale"),
            _ => (group, self.kind),
        };
        let request = AdmissionRequest {
            operation: self.operation,
            kind: GroupVersion { group: kind_group, version: "v1", name: kind },
            resource: GroupVersion { group, version: "v1", name: self.resource },
            subresource: self.subresource,
            name,
            namespace,
            user: RequestUser { name: self.user, groups: self.groups, ..RequestUser::default() },
            options: read(&self.options),
            object: read(&self.object),
            old_object: read(&self.old),
            ..AdmissionRequest::default()
        };
        let mut facts = Facts { params_are_complete: true, ..Facts::default() };
        let mut labels = self.namespace_labels.clone();
        labels[NAMESPACE_NAME] = namespace.into();
        let in_namespace = json!({"metadata": {"name": namespace, "labels": labels}}).to_string();
        facts.namespaces.insert(namespace.to_owned(), Some(in_namespace));
        let kind = ParamKind {
            api_version: "admissionregistration.k8s.io/v1".to_owned(),
            kind: "ValidatingWebhookConfiguration".to_owned(),
        };
        facts.param_kinds.insert(kind.clone(), Some(false));
        let query = ParamQuery { kind, namespace: String::new(), name: Some("durward".to_owned()) };
        let param = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "durward"}});
        let params = self.is_registered.then(|| param.to_string()).into_iter().collect();
        facts.params.insert(query, params);
        // The verb is asked for only if the annotation is there.
        loop {
            let asked = facts.clone();
            let decisions = set.evaluate(&request, &asked, &arena, &|| true);
            if let Some(missing) = decisions.missing.first() {
                let Lookup::Check(check) = &missing.lookup else { panic!("{missing:?}") };
                let decision = Authorization { allowed: self.has_verb, ..Authorization::default() };
                facts.decisions.insert(check.clone(), decision);
                continue;
            }
            let denials = decisions.denials.into_iter().map(|denial| {
                assert!(!denial.error, "{}: {}", denial.policy, denial.message);
                denial.message
            });
            let warnings =
                decisions.warnings.into_iter().map(|warning| format!("warning: {}", warning.message));
            return denials.chain(warnings).collect();
        }
    }
}

/// Loads the policies with their bindings as an API server does, which checks and compiles each expression.
fn load(server: u8, policies: &[NativePolicy]) -> PolicySet {
    let mut builder = PolicySetBuilder::new(Release::for_new(server));
    for policy in policies {
        for object in [policy.policy(), policy.binding()] {
            let arena = Arena::new();
            let text = object.to_string();
            builder.add(policy.purpose, read_json(&text, &arena).unwrap());
            for message in policy.spec.validations.iter().flatten().filter_map(|one| one.message.as_ref()) {
                assert!(!message.contains('\n'), "{message}");
            }
        }
    }
    builder.finish().unwrap_or_else(|errors| panic!("{errors:?}"))
}
