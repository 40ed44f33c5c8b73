//! Policies and bindings from documents. Fields of other types are errors; defaults are set as the API server sets them.

use super::model::{Binding, MatchResources, Named, ParamKind, ParamRef, Policy, ResourceRule, Validation};
use super::selector::{LabelSelector, Requirement};
use crate::field::{FieldError, Path};
use crate::value::Value;

/// An object that is read, with its path.
struct ObjectReader<'v, 'e> {
    value: Value<'v>,
    path: Path,
    errors: &'e mut Vec<FieldError>,
}

/// Reads a policy.
pub(crate) fn policy(document: Value<'_>, errors: &mut Vec<FieldError>) -> Policy {
    let name = metadata_name(document, errors);
    let mut spec = ObjectReader::top(document, "spec", errors);
    let failure_policy = spec.text("failurePolicy").unwrap_or_else(|| "Fail".to_owned());
    let param_kind = spec.object("paramKind", |reader| ParamKind {
        api_version: reader.text("apiVersion").unwrap_or_default(),
        kind: reader.text("kind").unwrap_or_default(),
    });
    Policy {
        name,
        failure_policy,
        param_kind,
        match_constraints: spec.object("matchConstraints", match_resources),
        match_conditions: spec.list("matchConditions", |reader| named(reader, "name", "expression")),
        variables: spec.list("variables", |reader| named(reader, "name", "expression")),
        validations: spec.list("validations", |reader| Validation {
            expression: reader.text("expression").unwrap_or_default(),
            message: reader.text("message").unwrap_or_default(),
            message_expression: reader.text("messageExpression").unwrap_or_default(),
            reason: reader.text("reason"),
        }),
        audit_annotations: spec.list("auditAnnotations", |reader| named(reader, "key", "valueExpression")),
    }
}

/// Reads a binding.
pub(crate) fn binding(document: Value<'_>, errors: &mut Vec<FieldError>) -> Binding {
    let name = metadata_name(document, errors);
    let mut spec = ObjectReader::top(document, "spec", errors);
    Binding {
        name,
        policy_name: spec.text("policyName").unwrap_or_default(),
        param_ref: spec.object("paramRef", |reader| ParamRef {
            name: reader.text("name").unwrap_or_default(),
            namespace: reader.text("namespace").unwrap_or_default(),
            selector: reader.object("selector", selector),
            parameter_not_found_action: reader.text("parameterNotFoundAction").unwrap_or_default(),
        }),
        match_resources: spec.object("matchResources", match_resources),
        validation_actions: spec.texts("validationActions"),
    }
}

fn metadata_name(document: Value<'_>, errors: &mut Vec<FieldError>) -> String {
    ObjectReader::top(document, "metadata", errors).text("name").unwrap_or_default()
}

fn named(reader: &mut ObjectReader<'_, '_>, name: &str, expression: &str) -> Named {
    Named {
        name: reader.text(name).unwrap_or_default(),
        expression: reader.text(expression).unwrap_or_default(),
    }
}

fn selector(reader: &mut ObjectReader<'_, '_>) -> LabelSelector {
    LabelSelector {
        match_labels: reader.texts_by_key("matchLabels"),
        match_expressions: reader.list("matchExpressions", |reader| Requirement {
            key: reader.text("key").unwrap_or_default(),
            operator: reader.text("operator").unwrap_or_default(),
            values: reader.texts("values"),
        }),
    }
}

fn match_resources(reader: &mut ObjectReader<'_, '_>) -> MatchResources {
    MatchResources {
        match_policy: reader.text("matchPolicy").unwrap_or_else(|| "Equivalent".to_owned()),
        namespace_selector: reader.object("namespaceSelector", selector).unwrap_or_default(),
        object_selector: reader.object("objectSelector", selector).unwrap_or_default(),
        resource_rules: reader.list("resourceRules", rule),
        exclude_resource_rules: reader.list("excludeResourceRules", rule),
    }
}

fn rule(reader: &mut ObjectReader<'_, '_>) -> ResourceRule {
    ResourceRule {
        resource_names: reader.texts("resourceNames"),
        operations: reader.texts("operations"),
        api_groups: reader.texts("apiGroups"),
        api_versions: reader.texts("apiVersions"),
        resources: reader.texts("resources"),
        scope: reader.text("scope").unwrap_or_else(|| "*".to_owned()),
    }
}

impl<'v, 'e> ObjectReader<'v, 'e> {
    fn top(document: Value<'v>, field: &str, errors: &'e mut Vec<FieldError>) -> Self {
        let value = document.field(field).unwrap_or_default();
        let path = Path::new(field);
        if !matches!(value, Value::Object(_) | Value::Null) {
            errors.push(FieldError::wrong_type(&path, "an object"));
        }
        Self { value, path, errors }
    }

    /// A field that is present and not null.
    fn get(&self, field: &str) -> Option<Value<'v>> {
        self.value.field(field).filter(|value| !matches!(value, Value::Null))
    }

    fn text(&mut self, field: &str) -> Option<String> {
        let value = self.get(field)?;
        let text = value.as_str().map(str::to_owned);
        if text.is_none() {
            self.errors.push(FieldError::wrong_type(&self.path.child(field), "a string"));
        }
        text
    }

    fn texts(&mut self, field: &str) -> Vec<String> {
        let Some(value) = self.get(field) else { return Vec::new() };
        let path = self.path.child(field);
        if !value.is_list() {
            self.errors.push(FieldError::wrong_type(&path, "a list of strings"));
        }
        let mut texts = Vec::new();
        for (index, element) in value.elements().enumerate() {
            match element.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => self.errors.push(FieldError::wrong_type(&path.index(index), "a string")),
            }
        }
        texts
    }

    fn texts_by_key(&mut self, field: &str) -> Vec<(String, String)> {
        let Some(value) = self.get(field) else { return Vec::new() };
        let path = self.path.child(field);
        let Value::Object(entries) = value else {
            self.errors.push(FieldError::wrong_type(&path, "an object of strings"));
            return Vec::new();
        };
        let mut texts = Vec::new();
        for (key, value) in entries {
            match value.as_str() {
                Some(text) => texts.push(((*key).to_owned(), text.to_owned())),
                None => self.errors.push(FieldError::wrong_type(&path.child(key), "a string")),
            }
        }
        texts
    }

    fn object<T>(&mut self, field: &str, read: impl FnOnce(&mut ObjectReader<'v, '_>) -> T) -> Option<T> {
        let value = self.get(field)?;
        let path = self.path.child(field);
        if !matches!(value, Value::Object(_)) {
            self.errors.push(FieldError::wrong_type(&path, "an object"));
        }
        Some(read(&mut ObjectReader { value, path, errors: self.errors }))
    }

    fn list<T>(&mut self, field: &str, read: impl Fn(&mut ObjectReader<'v, '_>) -> T) -> Vec<T> {
        let Some(value) = self.get(field) else { return Vec::new() };
        let path = self.path.child(field);
        if !value.is_list() {
            self.errors.push(FieldError::wrong_type(&path, "a list"));
        }
        let mut items = Vec::new();
        for (index, element) in value.elements().enumerate() {
            let path = path.index(index);
            if !matches!(element, Value::Object(_)) {
                self.errors.push(FieldError::wrong_type(&path, "an object"));
            }
            items.push(read(&mut ObjectReader { value: element, path, errors: self.errors }));
        }
        items
    }
}
