//! Finds the policies that can match a resource, so that a request does not cost time for the others.

use std::collections::{BTreeSet, HashMap};

use super::matching::MOVED;
use super::model::MatchResources;

/// All groups or all resources.
const ANY: &str = "*";

/// Positions of policies by group and resource. Both can be `*`.
#[derive(Default)]
pub(crate) struct PolicyIndex {
    groups: HashMap<String, HashMap<String, Vec<usize>>>,
}

impl PolicyIndex {
    /// Adds a policy. Constraints without rules match all resources.
    pub(crate) fn insert(&mut self, position: usize, constraints: Option<&MatchResources>) {
        let rules = constraints.map(|constraints| constraints.resource_rules.as_slice()).unwrap_or_default();
        let mut keys = BTreeSet::new();
        for rule in rules {
            let resources = rule.resources.iter().map(|name| name.split('/').next().unwrap_or_default());
            for resource in resources {
                keys.extend(rule.api_groups.iter().map(|group| (group.as_str(), resource)));
                // Events are served in two groups, and rules of either group match.
                let moved = MOVED.iter().filter(|(name, _, to)| {
                    (resource == ANY || resource == *name) && rule.api_groups.iter().any(|group| group == to)
                });
                keys.extend(moved.map(|(name, from, _)| (*from, *name)));
            }
        }
        if rules.is_empty() {
            keys.insert((ANY, ANY));
        }
        for (group, resource) in keys {
            let resources = self.groups.entry(group.to_owned()).or_default();
            resources.entry(resource.to_owned()).or_default().push(position);
        }
    }

    /// Returns the policies that can match, in their order.
    pub(crate) fn positions(&self, group: &str, resource: &str) -> Vec<usize> {
        let groups = [group, ANY].into_iter().filter_map(|group| self.groups.get(group));
        let resources = groups.flat_map(|group| [resource, ANY].map(|resource| group.get(resource)));
        let mut positions: Vec<usize> = resources.flatten().flatten().copied().collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vap::model::ResourceRule;

    fn index(rules: &[(&str, &str)]) -> PolicyIndex {
        let mut index = PolicyIndex::default();
        for (position, (group, resource)) in rules.iter().enumerate() {
            let rule = ResourceRule {
                api_groups: vec![(*group).to_owned()],
                resources: vec![(*resource).to_owned()],
                ..ResourceRule::default()
            };
            index.insert(
                position,
                Some(&MatchResources { resource_rules: vec![rule], ..MatchResources::default() }),
            );
        }
        index
    }

    #[test]
    fn finds_the_policies_that_name_the_group_and_the_resource() {
        let rules =
            [("apps", "deployments"), ("batch", "*"), ("*", "deployments/scale"), ("*", "*"), ("", "pods")];
        let index = index(&rules);
        assert_eq!(index.positions("apps", "deployments"), [0, 2, 3]);
        assert_eq!(index.positions("batch", "jobs"), [1, 3]);
        assert_eq!(index.positions("", "pods"), [3, 4]);
        assert_eq!(index.positions("apps", "pods"), [3]);
    }

    #[test]
    fn finds_policies_without_rules_for_all_resources() {
        let mut index = PolicyIndex::default();
        index.insert(0, None);
        index.insert(1, Some(&MatchResources::default()));
        assert_eq!(index.positions("apps", "deployments"), [0, 1]);
    }

    #[test]
    fn finds_policies_of_both_groups_of_events() {
        let index = index(&[("", "events"), ("events.k8s.io", "*"), ("apps", "*")]);
        assert_eq!(index.positions("", "events"), [0, 1]);
        assert_eq!(index.positions("events.k8s.io", "events"), [0, 1]);
    }

    #[test]
    fn returns_a_policy_once() {
        let mut index = PolicyIndex::default();
        let rule = |group: &str| ResourceRule {
            api_groups: vec![group.to_owned(), "*".to_owned()],
            resources: vec!["pods".to_owned(), "*".to_owned()],
            ..ResourceRule::default()
        };
        let constraints =
            MatchResources { resource_rules: vec![rule(""), rule("*")], ..MatchResources::default() };
        index.insert(0, Some(&constraints));
        assert_eq!(index.positions("", "pods"), [0]);
    }
}
