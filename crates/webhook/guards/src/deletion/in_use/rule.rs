//! A rule, and the Lists that it needs for an object.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ::config::{Selector, SelectorExt as _};
use admission::Cause;
use cluster::fleet::{Object, Part};
use cluster::{Resource, cause};
use policy::relation::{Relation, Side};
use policy::schema::Schema;

use super::super::queries::{self, InUseRule, ListScope, Noun, ResourceQuery};
use super::expression::{UsedObject, needs_whole_by, needs_whole_object};
use crate::common::FailurePolicy;

/// A rule: objects that it selects aren't deleted while others use them.
#[derive(Debug)]
pub(in crate::deletion) struct Rule {
    /// The name, which metrics have.
    pub(in crate::deletion) name: Arc<str>,
    /// The labels of the objects that it protects.
    pub(in crate::deletion) selector: Selector,
    /// Their namespaces; all if there are none.
    pub(in crate::deletion) namespaces: Vec<String>,
    /// The kinds that can use them.
    pub(in crate::deletion) used_by: Vec<UsedBy>,
    /// The result of a deletion while Durward does not answer.
    pub(in crate::deletion) failure_policy: FailurePolicy,
}

/// A kind that can use a protected object.
#[derive(Debug)]
pub(in crate::deletion) struct UsedBy {
    pub(in crate::deletion) resource: Resource,
    /// Whether only the cluster that sends the review counts.
    pub(in crate::deletion) is_local: bool,
    /// The namespaces whose objects count.
    pub(super) scope: ListScope,
    pub(super) label_selector: Option<Arc<Relation>>,
    pub(super) field_selector: Option<Arc<Relation>>,
    pub(super) condition: Option<Arc<Relation>>,
}

impl Rule {
    /// Whether the rule protects an object.
    pub(in crate::deletion) fn selects(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|name| name == namespace))
    }

    /// Whether an expression reads more of the object than its name and labels.
    pub(super) fn needs_whole(&self) -> bool {
        self.used_by.iter().flat_map(UsedBy::expressions).any(needs_whole_object)
    }

    /// Returns the Lists that show whether an object is in use.
    pub(in crate::deletion) fn queries(&self, object: &UsedObject) -> Result<Vec<ResourceQuery>, Cause> {
        self.used_by.iter().map(|using| using.query(&self.name, object)).collect()
    }

    /// Returns the fields that expressions read and that a kind does not have by its schema.
    pub(in crate::deletion) fn unknown_fields(
        &self,
        protected: &Resource,
        of: &Resource,
        schema: &Schema,
    ) -> Vec<String> {
        let mut fields = Vec::new();
        for using in &self.used_by {
            for expression in using.expressions() {
                if of.is(&protected.group, &protected.plural) {
                    fields.extend(expression.unknown_fields(Side::Object, schema));
                }
                if of.is(&using.resource.group, &using.resource.plural) {
                    fields.extend(expression.unknown_fields(Side::By, schema));
                }
            }
        }
        fields
    }

    /// Returns what the rule covers, for `config check`.
    pub(in crate::deletion) fn describe(&self, kind: &Resource) -> String {
        let mut protected = kind.to_string();
        if !self.namespaces.is_empty() {
            protected = format!("{protected} in namespaces {}", self.namespaces.join(", "));
        }
        if !self.selector.selects_all() {
            protected = format!("{protected} labeled {}", self.selector);
        }
        let uses: Vec<_> = self.used_by.iter().map(UsedBy::describe).collect();
        let policy = self.failure_policy.as_str();
        format!("rule {}: {protected}, used by {}; failurePolicy: {policy}", self.name, uses.join(", "))
    }
}

impl UsedBy {
    fn expressions(&self) -> impl Iterator<Item = &Relation> {
        [&self.label_selector, &self.field_selector, &self.condition].into_iter().flatten().map(Arc::as_ref)
    }

    fn part(&self) -> Part {
        if self.condition.as_deref().is_some_and(needs_whole_by) { Part::Whole } else { Part::Metadata }
    }

    fn query(&self, rule: &Arc<str>, object: &UsedObject) -> Result<ResourceQuery, Cause> {
        let selector = |key: &str, expression: &Option<Arc<Relation>>| {
            let Some(expression) = expression else { return Ok(String::new()) };
            let failed = |why| {
                let text = format!("rule {rule}: {key} of {}: {why}", self.resource);
                Cause::new(cause::POLICY_LIMIT, text)
            };
            object.selector(expression).map_err(failed)
        };
        let own = selector("fieldSelector", &self.field_selector)?;
        // Pods that have ended use nothing.
        let not_ended = if queries::is_pods(&self.resource) { queries::NOT_ENDED } else { "" };
        let parts: Vec<_> = [not_ended, &own].into_iter().filter(|part| !part.is_empty()).collect();
        Ok(ResourceQuery {
            resource: self.resource.clone(),
            field_selector: parts.join(",").into(),
            label_selector: selector("labelSelector", &self.label_selector)?.into(),
            part: self.part(),
            noun: self.noun(),
            scope: self.scope,
            is_local: self.is_local,
            rule: InUseRule::Uses(Arc::new(UsePredicate {
                rule: Arc::clone(rule),
                condition: self.condition.clone(),
                object: object.clone(),
                counts_deleting: !policy::kinds::is_of_kubernetes(&self.resource.group),
            })),
        })
    }

    fn noun(&self) -> Noun {
        if let Some((one, many)) = queries::known_noun(&self.resource) {
            return Noun { one: one.into(), many: many.into() };
        }
        let one = self.resource.singular().into_owned();
        Noun { one: one.into(), many: Cow::Owned(self.resource.plural.to_string()) }
    }

    fn describe(&self) -> String {
        let part = match self.part() {
            Part::Metadata => "metadata",
            Part::Whole => "whole objects",
        };
        let clusters = if self.is_local { "this cluster" } else { "the fleet" };
        let space = match self.scope {
            ListScope::All => "all namespaces",
            ListScope::OfTarget => "same namespace",
            ListScope::OfTargetOrNone => "same namespace or none",
        };
        let resource = &self.resource;
        let name = if resource.version.is_empty() { resource.to_string() } else { resource.argument() };
        format!("{name} ({part}, {space}, {clusters})")
    }
}

/// How an object of a List uses the object of a review.
#[derive(Debug)]
pub(in crate::deletion) struct UsePredicate {
    /// The name of the rule.
    pub(in crate::deletion) rule: Arc<str>,
    condition: Option<Arc<Relation>>,
    object: UsedObject,
    /// Whether objects count that are being deleted: a custom object waits for a controller that must clean up.
    counts_deleting: bool,
}

impl UsePredicate {
    /// Calls `each` for every object that can count, with whether it uses the object of the review.
    pub(in crate::deletion) fn apply(
        &self,
        objects: &[Object],
        deadline: Instant,
        mut each: impl FnMut(&Object, Result<bool, String>),
    ) {
        let counts = |object: &&Object| self.counts_deleting || !object.metadata.deleting;
        let objects: Vec<&Object> = objects.iter().filter(counts).collect();
        match &self.condition {
            None => objects.into_iter().for_each(|object| each(object, Ok(true))),
            Some(condition) => self.object.each_use(condition, &objects, deadline, |object, found| {
                let name = &object.name;
                let explain = |why| format!("rule {}: `where` of {name} has no result: {why}", self.rule);
                each(object, found.map_err(explain));
            }),
        }
    }
}
