//! Whether a webhook entry covers the policies. Pure. An administrator can write other rules than Durward's, so the rules are compared by
//! the requests that they match (`plugin/webhook/predicates/rules/rules.go`), and not by their texts.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

use super::ANY;

/// A policy and the rules that its webhook entry must have.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRules {
    /// The name of the policy.
    pub policy: String,
    /// The first part of the name of the entry.
    pub entry: &'static str,
    /// The rules.
    pub rules: Vec<RuleWithOperations>,
}

impl PolicyRules {
    /// Returns whether the rules of an entry match all requests that the policy can match.
    pub fn are_covered_by(&self, found: &[RuleWithOperations]) -> bool {
        self.rules.iter().all(|needed| {
            let mut all = requests(needed);
            all.all(|request| found.iter().any(|rule| covers(rule, needed, &request)))
        })
    }
}

/// An operation, a group, a version and a resource of a rule. Each can be `*`.
type RequestKey<'r> = [&'r str; 4];

fn requests(rule: &RuleWithOperations) -> impl Iterator<Item = RequestKey<'_>> {
    rule.operations.iter().flatten().flat_map(move |operation| {
        rule.api_groups.iter().flatten().flat_map(move |group| {
            rule.api_versions.iter().flatten().flat_map(move |version| {
                let resources = rule.resources.iter().flatten();
                resources.map(move |resource| [operation, group, version, resource].map(String::as_str))
            })
        })
    })
}

fn covers(
    rule: &RuleWithOperations,
    needed: &RuleWithOperations,
    [operation, group, version, resource]: &RequestKey<'_>,
) -> bool {
    let contains = |list: &Option<Vec<String>>, wanted: &str| {
        list.iter().flatten().any(|item| item == ANY || item == wanted)
    };
    let scope = rule.scope.as_deref().unwrap_or(ANY);
    contains(&rule.operations, operation)
        && contains(&rule.api_groups, group)
        && contains(&rule.api_versions, version)
        && rule.resources.iter().flatten().any(|found| covers_resource(found, resource))
        && (scope == ANY || Some(scope) == needed.scope.as_deref())
}

/// Returns whether a resource of a rule contains another one. `pods/*` contains `pods`, and `*` contains no subresource.
fn covers_resource(found: &str, needed: &str) -> bool {
    let (plural, subresource) = found.split_once('/').unwrap_or((found, ""));
    let (needed_plural, needed_subresource) = needed.split_once('/').unwrap_or((needed, ""));
    (plural == ANY || plural == needed_plural) && (subresource == ANY || subresource == needed_subresource)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `OPERATIONS GROUPS VERSIONS RESOURCES SCOPE`, with `core` for the core group.
    fn rule(text: &str) -> RuleWithOperations {
        let mut words = text.split(' ');
        let mut list = || {
            let items = words.next().unwrap().split(',').map(|item| item.replace("core", ""));
            Some(items.collect::<Vec<_>>())
        };
        let (operations, api_groups, api_versions, resources) = (list(), list(), list(), list());
        RuleWithOperations {
            operations,
            api_groups,
            api_versions,
            resources,
            scope: words.next().map(str::to_owned),
        }
    }

    fn is_covered(needed: &str, found: &[&str]) -> bool {
        let policy = PolicyRules { policy: "p".into(), entry: "resources-fail", rules: vec![rule(needed)] };
        policy.are_covered_by(&found.iter().map(|text| rule(text)).collect::<Vec<_>>())
    }

    #[test]
    fn an_entry_with_the_same_or_wider_rules_covers_a_policy() {
        let needed = "CREATE,UPDATE apps,batch v1 deployments,jobs Namespaced";
        for found in [
            &[needed][..],
            &["* * * * *"],
            &["CREATE,UPDATE apps * * Namespaced", "CREATE,UPDATE batch v1 jobs,deployments Namespaced"],
            &["CREATE * v1 deployments,jobs *", "UPDATE * v1 deployments/*,jobs *"],
        ] {
            assert!(is_covered(needed, found), "{found:?}");
        }
        assert!(is_covered("CREATE core v1 pods/exec *", &["* core v1 pods/* *"]));
        assert!(is_covered("* core v1 */* *", &["* core v1 */* *"]));
    }

    #[test]
    fn an_entry_that_lacks_a_request_does_not_cover_a_policy() {
        let needed = "CREATE,UPDATE apps v1 deployments *";
        for found in [
            &[][..],
            &["CREATE apps v1 deployments *"],
            &["CREATE,UPDATE core v1 deployments *"],
            &["CREATE,UPDATE apps v1beta1 deployments *"],
            &["CREATE,UPDATE apps v1 deployments/scale *"],
            &["CREATE,UPDATE apps v1 deployments Namespaced"],
        ] {
            assert!(!is_covered(needed, found), "{found:?}");
        }
        assert!(!is_covered("CREATE core v1 pods/exec *", &["* core v1 * *"]));
        assert!(!is_covered("* core v1 */* *", &["* core v1 pods/* *"]));
        assert!(!is_covered("CREATE * v1 pods *", &["CREATE core v1 pods *"]));
    }
}
