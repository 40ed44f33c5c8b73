//! The policies that the API server does not enforce, because their webhook entry is missing or narrower than they are. An administrator
//! can have narrowed the entry by hand, or a reload can need more rules than an entry has that Durward does not write.

use config::Problem;
use guards::WebhookType;
use guards::resources::PolicyRules;
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use serde_json::Value;

use super::compare;
use super::object::WebhookObject;
use crate::file::Manage;
use crate::registration::api::Configuration;

/// Fields of an entry by which the API server leaves out requests, or ignores failures.
const NARROWING: [&str; 6] = [
    "clientConfig",
    "failurePolicy",
    "matchConditions",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
];

/// Policies that a message names.
const MAX_NAMED: usize = 5;

impl WebhookObject<'_> {
    /// Returns the policies that the API server does not enforce with this configuration.
    pub(super) fn unenforced(&self, found: Option<&Configuration>) -> Vec<&str> {
        if self.webhook_type != WebhookType::Validating {
            return Vec::new();
        }
        let existing = found.map_or(&[][..], |found| found.webhooks.as_slice());
        let is_enforced = |policy: &&PolicyRules| {
            let of = |all: &[Value]| all.iter().find(|one| compare::is_named(one, policy.entry)).cloned();
            let (Some(existing), Some(needed)) = (of(existing), of(self.entries)) else { return false };
            let is_narrowed =
                compare::differing_fields(&existing, &needed).iter().any(|field| NARROWING.contains(field));
            let rules = serde_json::from_value::<Vec<RuleWithOperations>>(existing["rules"].clone());
            !is_narrowed && policy.are_covered_by(&rules.unwrap_or_default())
        };
        let unenforced = self.target.policies.iter().filter(|policy| !is_enforced(policy));
        unenforced.map(|policy| policy.policy.as_str()).collect()
    }

    /// Returns the problem of policies that are not enforced.
    pub(super) fn unenforced_problem(&self, policies: &[&str], exists: bool) -> Option<Problem> {
        let named = policies.get(..policies.len().min(MAX_NAMED)).unwrap_or_default().join(", ");
        let more = match policies.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = format!("policies are not enforced: {named}{more}");
        let why = "the API server calls Durward for fewer requests than they match";
        let problem = Problem::new(what).why(why);
        let otherwise = if exists { self.replace() } else { self.reapply() };
        (!policies.is_empty())
            .then(|| problem.next(self.restore(self.needs.manage == Manage::All, &otherwise)))
    }
}
