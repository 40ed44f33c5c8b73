//! Matches webhook rules against a request.
//!
//! It follows `apiserver/pkg/admission/plugin/webhook/predicates/rules`. Everything after the rules is in
//! [`selection`](mod@super::selection).

use admission::Request;
use guards::{WebhookEntry, rule_names};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

/// Returns whether one of the entry's rules matches the request.
pub(crate) fn fits(entry: &WebhookEntry, request: &Request<'_>) -> bool {
    entry.rules.iter().any(|rule| rule_fits(rule, request))
}

fn rule_fits(rule: &RuleWithOperations, request: &Request<'_>) -> bool {
    let version = request.resource.version.as_ref();
    rule_names(rule, request)
        && rule.api_versions.iter().flatten().any(|entry| entry == "*" || entry == version)
        && match rule.scope.as_deref() {
            Some("Namespaced") => is_namespaced(request),
            Some("Cluster") => !is_namespaced(request),
            _ => true,
        }
}

/// Returns the namespace of the object. A request for a Namespace contains its own name as namespace, but a Namespace has none.
pub(crate) fn is_namespaced(request: &Request<'_>) -> bool {
    !request.namespace.is_empty() && !is_namespace(request)
}

/// Returns whether the object is a Namespace.
pub(crate) fn is_namespace(request: &Request<'_>) -> bool {
    request.resource.group.is_empty() && request.resource.resource == "namespaces"
}

#[cfg(test)]
mod tests {
    use admission::{Fields, decode};

    use super::*;

    fn is_asked(rule: (&str, &str, &str, &str), resource: &str, subresource: &str, namespace: &str) -> bool {
        let (operations, group, resources, scope) = rule;
        let rule = RuleWithOperations {
            operations: Some(vec![operations.into()]),
            api_groups: Some(vec![group.into()]),
            api_versions: Some(vec!["v1".into()]),
            resources: Some(vec![resources.into()]),
            scope: Some(scope.into()),
        };
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE",
            "resource":{{"group":"","version":"v1","resource":"{resource}"}},"subResource":"{subresource}","name":"n","namespace":"{namespace}"}}}}"#
        );
        rule_fits(&rule, &decode(body.as_bytes(), &Fields::none()).unwrap().request)
    }

    #[test]
    fn matches_rules_as_the_api_server_does() {
        let all = "*";
        assert!(is_asked(("CREATE", "", "pods", all), "pods", "", "shop"));
        assert!(is_asked(("*", "*", "*", all), "pods", "", "shop"));
        assert!(is_asked(("*", "*", "*/*", all), "pods", "eviction", "shop"));
        assert!(is_asked(("*", "*", "*/*", all), "pods", "", "shop"));
        assert!(is_asked(("*", "", "pods/*", all), "pods", "", "shop"));
        assert!(is_asked(("CREATE", "", "pods/eviction", all), "pods", "eviction", "shop"));
        assert!(!is_asked(("CREATE", "", "pods", all), "pods", "eviction", "shop"));
        assert!(!is_asked(("*", "*", "*", all), "pods", "eviction", "shop"));
        assert!(!is_asked(("UPDATE", "", "pods", all), "pods", "", "shop"));
        assert!(!is_asked(("CREATE", "apps", "pods", all), "pods", "", "shop"));
        assert!(!is_asked(("CREATE", "", "namespaces", "Namespaced"), "namespaces", "", ""));
        assert!(is_asked(("CREATE", "", "namespaces", "Cluster"), "namespaces", "", ""));
        assert!(!is_asked(("CREATE", "", "pods", "Cluster"), "pods", "", "shop"));
    }
}
