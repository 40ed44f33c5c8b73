//! Selects the webhook entries that the API server calls: by their rules, then by the labels of the namespace.
//!
//! It follows `apiserver/pkg/admission/plugin/webhook/predicates/namespace/matcher.go`. A cluster-scoped object matches every
//! namespaceSelector. A Namespace that is created or changed is selected by its new labels. matchConditions are CEL, which the
//! API server evaluates; they are only named here, and the guards check the same conditions again.

use std::collections::BTreeMap;
use std::time::Instant;

use ::config::SelectorExt as _;
use admission::{Cause, Operation, Request};
use cluster::{Address, Reader, Resource, cause};
use guards::{NAMESPACE_NAME, WebhookEntry, label_keys};

use super::rules::{fits, is_namespace, is_namespaced};

/// Whether the API server calls a guard.
#[derive(Debug)]
pub(crate) enum Selection<'e> {
    /// It calls these entries.
    Asked(Vec<&'e WebhookEntry>),
    /// No rule matches.
    NoRule,
    /// Rules match, but the namespace is not selected.
    NotSelected,
    /// Rules match, and the labels of the namespace could not be read.
    Unknown(Vec<&'e WebhookEntry>, Cause),
}

/// Selects entries. The namespace is read only if a selector needs it.
pub(crate) async fn selection<'e>(
    entries: &'e [WebhookEntry],
    request: &Request<'_>,
    reader: &dyn Reader,
    deadline: Instant,
) -> Selection<'e> {
    let fitting: Vec<&WebhookEntry> = entries.iter().filter(|entry| fits(entry, request)).collect();
    if fitting.is_empty() {
        return Selection::NoRule;
    }
    let by_namespace = is_namespaced(request) || is_namespace(request);
    if !by_namespace || fitting.iter().all(|entry| entry.namespace_selector.selects_all()) {
        return Selection::Asked(fitting);
    }
    match labels(request, needs_labels(&fitting), reader, deadline).await {
        Ok(labels) => {
            let selects = |entry: &&WebhookEntry| entry.namespace_selector.matches(&labels);
            let selecting: Vec<_> = fitting.into_iter().filter(selects).collect();
            if selecting.is_empty() { Selection::NotSelected } else { Selection::Asked(selecting) }
        }
        Err(cause) => {
            let (certain, open): (Vec<_>, Vec<_>) =
                fitting.into_iter().partition(|entry| entry.namespace_selector.selects_all());
            if certain.is_empty() { Selection::Unknown(open, cause) } else { Selection::Asked(certain) }
        }
    }
}

/// Whether an entry selects by another label than the one with the name, which the API server sets on every namespace.
fn needs_labels(entries: &[&WebhookEntry]) -> bool {
    let mut keys = entries.iter().flat_map(|entry| label_keys(&entry.namespace_selector));
    keys.any(|key| key != NAMESPACE_NAME)
}

/// Returns the labels that the API server compares with a namespaceSelector.
async fn labels(
    request: &Request<'_>,
    needs_labels: bool,
    reader: &dyn Reader,
    deadline: Instant,
) -> Result<BTreeMap<String, String>, Cause> {
    let name = if is_namespace(request) { request.name.as_ref() } else { request.namespace.as_ref() };
    let brings = is_namespace(request)
        && request.subresource.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update);
    let mut labels = if !needs_labels {
        BTreeMap::new()
    } else if brings {
        own_labels(request)
    } else {
        let address = Address { resource: &Resource::NAMESPACES, namespace: "", name };
        match reader.get(address, deadline).await? {
            Some(namespace) => namespace.labels.clone(),
            None => {
                return Err(Cause::new(cause::REFUSED, format!("namespace {name:?} does not exist")));
            }
        }
    };
    labels.insert(NAMESPACE_NAME.to_owned(), name.to_owned());
    Ok(labels)
}

fn own_labels(request: &Request<'_>) -> BTreeMap<String, String> {
    let object = request.object.as_ref().and_then(|object| serde_json::from_str(object.raw().get()).ok());
    let object: serde_json::Value = object.unwrap_or_default();
    let labels = object.pointer("/metadata/labels").and_then(serde_json::Value::as_object);
    let texts = labels.into_iter().flatten();
    texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ::config::{Expression, Selector};
    use admission::{Fields, decode};
    use cluster::Offline;
    use guards::{FailurePolicy, WebhookType};
    use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

    use super::*;
    use crate::clients::connect::StaticLabels;

    fn entry(name: &str, resource: &str, selector: Selector) -> WebhookEntry {
        WebhookEntry {
            webhook_type: WebhookType::Mutating,
            guard: None,
            name: name.to_owned(),
            rules: vec![RuleWithOperations {
                operations: Some(vec!["*".into()]),
                api_groups: Some(vec![String::new()]),
                api_versions: Some(vec!["v1".into()]),
                resources: Some(vec![resource.into()]),
                scope: Some("*".into()),
            }],
            namespace_selector: selector,
            object_selector: Selector::default(),
            limited_to: None,
            match_conditions: vec![],
            failure_policy: FailurePolicy::Fail,
            has_side_effects: false,
            timeout_seconds: 5,
        }
    }

    fn one_of(label: &str, values: &[&str]) -> Selector {
        Expression::In(label.to_owned(), values.iter().map(|value| (*value).to_owned()).collect()).into()
    }

    fn team(values: &[&str]) -> Selector {
        one_of("team", values)
    }

    fn given(pairs: &[(&str, &str)]) -> Arc<dyn Reader> {
        let labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Arc::new(StaticLabels::new(labels.collect()))
    }

    fn selected(
        entries: &[WebhookEntry],
        (operation, resource, namespace): (&str, &str, &str),
        reader: &dyn Reader,
    ) -> String {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"{operation}",
            "resource":{{"group":"","version":"v1","resource":"{resource}"}},"name":"n","namespace":"{namespace}",
            "object":{{"metadata":{{"name":"n","labels":{{"team":"own"}}}}}}}}}}"#
        );
        let review = decode(body.as_bytes(), &Fields::none()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let deadline = Instant::now() + Duration::from_secs(1);
        let names = |entries: &[&WebhookEntry]| {
            entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join("+")
        };
        match runtime.block_on(selection(entries, &review.request, reader, deadline)) {
            Selection::Asked(entries) => names(&entries),
            Selection::NoRule => "no rule".to_owned(),
            Selection::NotSelected => "not selected".to_owned(),
            Selection::Unknown(entries, cause) => format!("{} unknown {}", names(&entries), cause.code),
        }
    }

    const POD: (&str, &str, &str) = ("CREATE", "pods", "shop");

    #[test]
    fn selects_namespaces_by_their_labels_and_by_name() {
        let entries = [entry("a", "pods", team(&["x"])), entry("b", "pods", team(&["x", "y"]))];
        assert_eq!(selected(&entries, POD, given(&[("team", "x")]).as_ref()), "a+b");
        assert_eq!(selected(&entries, POD, given(&[("team", "y")]).as_ref()), "b");
        assert_eq!(selected(&entries, POD, given(&[]).as_ref()), "not selected");
        assert_eq!(selected(&entries, ("CREATE", "services", "shop"), given(&[]).as_ref()), "no rule");
        let named = |name: &str| [entry("a", "pods", one_of(NAMESPACE_NAME, &[name]))];
        assert_eq!(selected(&named("shop"), POD, given(&[]).as_ref()), "a");
        assert_eq!(selected(&named("bank"), POD, given(&[]).as_ref()), "not selected");
    }

    #[test]
    fn reports_unknown_labels_only_if_a_selector_needs_them() {
        let needy = entry("a", "pods", team(&["x"]));
        let any = entry("b", "pods", Selector::default());
        assert_eq!(selected(std::slice::from_ref(&needy), POD, &Offline), "a unknown no-cluster");
        assert_eq!(selected(&[needy, any.clone()], POD, &Offline), "b");
        assert_eq!(selected(&[any], POD, &Offline), "b");
        let named = |name: &str| [entry("c", "pods", one_of(NAMESPACE_NAME, &[name]))];
        assert_eq!(selected(&named("shop"), POD, &Offline), "c");
        assert_eq!(selected(&named("bank"), POD, &Offline), "not selected");
    }

    #[test]
    fn selects_cluster_scoped_objects_and_reads_labels_of_a_namespace_from_itself() {
        let of = |resource: &str, value: &str| [entry("a", resource, team(&[value]))];
        assert_eq!(selected(&of("nodes", "x"), ("CREATE", "nodes", ""), &Offline), "a");
        let reader = given(&[("team", "stored")]);
        for operation in ["CREATE", "UPDATE"] {
            let request = (operation, "namespaces", "n");
            assert_eq!(selected(&of("namespaces", "own"), request, reader.as_ref()), "a");
            assert_eq!(selected(&of("namespaces", "stored"), request, reader.as_ref()), "not selected");
        }
        let request = ("DELETE", "namespaces", "n");
        assert_eq!(selected(&of("namespaces", "stored"), request, reader.as_ref()), "a");
        assert_eq!(selected(&of("namespaces", "own"), request, reader.as_ref()), "not selected");
    }
}
