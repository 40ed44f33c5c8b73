//! The checks of policies and bindings when they are created, with the API server's texts.

use std::collections::HashSet;

use super::compiled::{BOOL, PolicyCompiler, STRING_OR_NULL};
use super::decision::json;
use super::model::{Binding, MatchResources, Named, ParamKind, ParamRef, Policy, ResourceRule, Validation};
use crate::cel::escape::RESERVED;
use crate::cel::library::formats;
use crate::cel::program::CompileError;
use crate::field::{FieldError, Path};
use crate::meta::path_segment;
use crate::release::Release;
use crate::value::format::lowercase;

/// Most match conditions.
const MAX_MATCH_CONDITIONS: u16 = 64;
/// Most audit annotations.
const MAX_AUDIT_ANNOTATIONS: usize = 20;
/// Longest value expression of an audit annotation, in bytes.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

type Errors = Vec<FieldError>;

/// Checks a new policy on a server.
pub(crate) fn policy(policy: &Policy, release: Release, errors: &mut Errors) {
    name(&policy.name, errors);
    let spec = Path::new("spec");
    let supported = ["Fail", "Ignore"];
    if !supported.contains(&policy.failure_policy.as_str()) {
        errors.push(FieldError::not_supported(
            &spec.child("failurePolicy"),
            &policy.failure_policy,
            &supported,
        ));
    }
    if let Some(kind) = &policy.param_kind {
        param_kind(kind, &spec.child("paramKind"), errors);
    }
    let constraints = spec.child("matchConstraints");
    match &policy.match_constraints {
        None => errors.push(FieldError::required(&constraints, "")),
        Some(resources) => {
            match_resources(resources, release, &constraints, errors);
            if resources.resource_rules.is_empty() {
                errors.push(FieldError::required(&constraints.child("resourceRules"), ""));
            }
        }
    }
    let params = policy.param_kind.is_some();
    match_conditions(&policy.match_conditions, release, params, &spec.child("matchConditions"), errors);
    let mut compiler = PolicyCompiler::new(release, params, !policy.variables.is_empty());
    for (index, entry) in policy.variables.iter().enumerate() {
        variable(&mut compiler, entry, &spec.child("variables").index(index), errors);
    }
    if policy.validations.is_empty() && policy.audit_annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required(&spec.child("validations"), detail));
        errors.push(FieldError::required(&spec.child("auditAnnotations"), detail));
        return;
    }
    for (index, entry) in policy.validations.iter().enumerate() {
        validation(&compiler, entry, &spec.child("validations").index(index), errors);
    }
    audit_annotations(&compiler, policy, release, &spec.child("auditAnnotations"), errors);
}

/// Checks a new binding.
pub(crate) fn binding(binding: &Binding, release: Release, errors: &mut Errors) {
    name(&binding.name, errors);
    let spec = Path::new("spec");
    if binding.policy_name.is_empty() {
        errors.push(FieldError::required(&spec.child("policyName"), ""));
    } else {
        for problem in formats::subdomain(&binding.policy_name) {
            errors.push(FieldError::invalid(&spec.child("policyName"), &binding.policy_name, &problem));
        }
    }
    if let Some(reference) = &binding.param_ref {
        param_ref(reference, release, &spec.child("paramRef"), errors);
    }
    if let Some(resources) = &binding.match_resources {
        match_resources(resources, release, &spec.child("matchResources"), errors);
    }
    validation_actions(&binding.validation_actions, &spec.child("validationActions"), errors);
}

fn name(name: &str, errors: &mut Errors) {
    let path = Path::new("metadata").child("name");
    if name.is_empty() {
        errors.push(FieldError::required(&path, "name or generateName is required"));
        return;
    }
    for problem in formats::subdomain(name) {
        errors.push(FieldError::invalid(&path, name, &problem));
    }
}

fn param_kind(kind: &ParamKind, path: &Path, errors: &mut Errors) {
    let version_path = path.child("apiVersion");
    let api_version = kind.api_version.as_str();
    let parts: Vec<&str> = api_version.split('/').collect();
    match parts.as_slice() {
        [""] => errors.push(FieldError::required(&version_path, "")),
        ["" | _, ""] => {
            errors.push(FieldError::invalid(&version_path, api_version, "version must be specified"));
        }
        [version] | ["", version] => label_1035(version, &version_path, errors),
        [group, version] => {
            let problems = formats::subdomain(group);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(&version_path, group, &problems.join(",")));
            }
            label_1035(version, &version_path, errors);
        }
        _ => {
            let detail = format!("unexpected GroupVersion string: {api_version}");
            errors.push(FieldError::invalid(&version_path, api_version, &detail));
        }
    }
    let kind_path = path.child("kind");
    if kind.kind.is_empty() {
        errors.push(FieldError::required(&kind_path, ""));
        return;
    }
    let problems = formats::label_1035(&lowercase(&kind.kind));
    if !problems.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
        errors.push(FieldError::invalid(&kind_path, &kind.kind, &detail));
    }
}

fn label_1035(text: &str, path: &Path, errors: &mut Errors) {
    let problems = formats::label_1035(text);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(path, text, &problems.join(",")));
    }
}

fn match_resources(resources: &MatchResources, release: Release, path: &Path, errors: &mut Errors) {
    let supported = ["Equivalent", "Exact"];
    if !supported.contains(&resources.match_policy.as_str()) {
        errors.push(FieldError::not_supported(
            &path.child("matchPolicy"),
            &resources.match_policy,
            &supported,
        ));
    }
    resources.namespace_selector.validate(&path.child("namespaceSelector"), release, errors);
    resources.object_selector.validate(&path.child("objectSelector"), release, errors);
    for (field, rules) in [
        ("resourceRules", &resources.resource_rules),
        ("excludeResourceRules", &resources.exclude_resource_rules),
    ] {
        for (index, entry) in rules.iter().enumerate() {
            rule(entry, &path.child(field).index(index), errors);
        }
    }
}

fn rule(rule: &ResourceRule, path: &Path, errors: &mut Errors) {
    let mut names = HashSet::new();
    for (index, name) in rule.resource_names.iter().enumerate() {
        let path = path.child("resourceNames").index(index);
        for problem in path_segment(name, false) {
            errors.push(FieldError::invalid(&path, name, &problem));
        }
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
    let wildcard = |values: &[String]| values.len() > 1 && values.iter().any(|value| value == "*");
    let operations = path.child("operations");
    if rule.operations.is_empty() {
        errors.push(FieldError::required(&operations, ""));
    }
    if wildcard(&rule.operations) {
        let detail = "if '*' is present, must not specify other operations";
        errors.push(FieldError::invalid_list(&operations, &rule.operations, detail));
    }
    let supported = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (index, operation) in rule.operations.iter().enumerate() {
        if !supported.contains(&operation.as_str()) {
            errors.push(FieldError::not_supported(&operations.index(index), operation, &supported));
        }
    }
    for (field, values, what) in
        [("apiGroups", &rule.api_groups, "API groups"), ("apiVersions", &rule.api_versions, "API versions")]
    {
        if values.is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        }
        if wildcard(values) {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid_list(&path.child(field), values, &detail));
        }
    }
    for (index, version) in rule.api_versions.iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(&path.child("apiVersions").index(index), ""));
        }
    }
    resources(&rule.resources, &path.child("resources"), errors);
    let scopes = ["*", "Cluster", "Namespaced"];
    if !scopes.contains(&rule.scope.as_str()) {
        errors.push(FieldError::not_supported(&path.child("scope"), &rule.scope, &scopes));
    }
}

fn resources(resources: &[String], path: &Path, errors: &mut Errors) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut all_subresources, mut all_resources) = (HashSet::new(), HashSet::new());
    let (mut double, mut single, mut plain) = (false, false, false);
    for (index, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            errors.push(FieldError::required(&path.index(index), ""));
            continue;
        }
        double |= resource == "*/*";
        single |= resource == "*";
        let Some((name, subresource)) = resource.split_once('/') else {
            plain = resource != "*";
            continue;
        };
        if all_subresources.contains(name) {
            let detail = format!("if '{name}/*' is present, must not specify {resource}");
            errors.push(FieldError::invalid(&path.index(index), resource, &detail));
        }
        if all_resources.contains(subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {resource}");
            errors.push(FieldError::invalid(&path.index(index), resource, &detail));
        }
        if subresource == "*" {
            all_subresources.insert(name);
        }
        if name == "*" {
            all_resources.insert(subresource);
        }
    }
    if resources.len() > 1 && double {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid_list(path, resources, detail));
    }
    if single && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid_list(path, resources, detail));
    }
}

fn cel_error(error: &CompileError, source: &str, path: &Path) -> FieldError {
    let mut field = match error {
        CompileError::Instantiation(_) => FieldError::internal(path, &error.message()),
        _ => FieldError::invalid(path, source, &error.message()),
    };
    field.places = error.places();
    field
}

fn match_conditions(conditions: &[Named], release: Release, params: bool, path: &Path, errors: &mut Errors) {
    if conditions.len() > usize::from(MAX_MATCH_CONDITIONS) {
        errors.push(FieldError::too_many(path, conditions.len(), i64::from(MAX_MATCH_CONDITIONS), release));
    }
    // Match conditions know no variables.
    let compiler = PolicyCompiler::new(release, params, false);
    let mut names = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let trimmed = condition.expression.trim();
        let expression = path.child("expression");
        if trimmed.is_empty() {
            errors.push(FieldError::required(&expression, ""));
        } else if let Err(error) = compiler.compile(trimmed, BOOL) {
            errors.push(cel_error(&error, trimmed, &expression));
        }
        let name = path.child("name");
        if condition.name.is_empty() {
            errors.push(FieldError::required(&name, ""));
            continue;
        }
        for problem in formats::qualified_name(&condition.name, release.has_new_label_texts()) {
            errors.push(FieldError::invalid(&name, &condition.name, &problem));
        }
        if !names.insert(&condition.name) {
            errors.push(FieldError::duplicate(&name, &condition.name));
        }
    }
}

fn variable(compiler: &mut PolicyCompiler, variable: &Named, path: &Path, errors: &mut Errors) {
    let name = path.child("name");
    if variable.name.trim().is_empty() {
        errors.push(FieldError::required(&name, "name is not specified"));
    } else if !is_identifier(&variable.name) {
        errors.push(FieldError::invalid(&name, &variable.name, "must be a valid CEL identifier"));
    }
    let expression = path.child("expression");
    if variable.expression.trim().is_empty() {
        errors.push(FieldError::required(&expression, "expression is not specified"));
    } else if let Err(error) = compiler.variable(&variable.name, &variable.expression) {
        errors.push(cel_error(&error, &variable.expression, &expression));
    }
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first == '_' || first.is_ascii_alphabetic())
        && chars.all(|next| next == '_' || next.is_ascii_alphanumeric())
        && !RESERVED.contains(&name)
}

fn validation(compiler: &PolicyCompiler, validation: &Validation, path: &Path, errors: &mut Errors) {
    let expression = path.child("expression");
    if validation.expression.trim().is_empty() {
        errors.push(FieldError::required(&expression, "expression is not specified"));
    } else if let Err(error) = compiler.compile(&validation.expression, BOOL) {
        errors.push(cel_error(&error, &validation.expression, &expression));
    }
    let source = &validation.message_expression;
    let message_expression = path.child("messageExpression");
    if !source.is_empty() && source.trim().is_empty() {
        errors.push(FieldError::invalid(&message_expression, source, "must be non-empty if specified"));
    } else if !source.is_empty()
        && let Err(error) = compiler.compile_message(source)
    {
        errors.push(cel_error(&error, source, &message_expression));
    }
    let message = path.child("message");
    if !validation.message.is_empty() && validation.message.trim().is_empty() {
        errors.push(FieldError::invalid(&message, &validation.message, "must be non-empty if specified"));
    } else if validation.message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(&message, &validation.message, "must not contain line breaks"));
    }
    let supported = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    if let Some(reason) = &validation.reason
        && !supported.contains(&reason.as_str())
    {
        errors.push(FieldError::not_supported(&path.child("reason"), reason, &supported));
    }
}

fn audit_annotations(
    compiler: &PolicyCompiler,
    policy: &Policy,
    release: Release,
    path: &Path,
    errors: &mut Errors,
) {
    let annotations = &policy.audit_annotations;
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        let values: Vec<String> = annotations
            .iter()
            .map(|entry| {
                format!("{{\"Key\":{},\"ValueExpression\":{}}}", json(&entry.name), json(&entry.expression))
            })
            .collect();
        errors.push(FieldError::invalid_json(path, &format!("[{}]", values.join(",")), &detail));
    }
    let mut keys = HashSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let path = path.index(index);
        let key = path.child("key");
        if policy.name.is_empty() {
            errors.push(FieldError::invalid(&key, &annotation.name, "requires metadata.name be non-empty"));
        } else {
            let name = format!("{}/{}", policy.name, annotation.name);
            for problem in formats::qualified_name(&name, release.has_new_label_texts()) {
                errors.push(FieldError::invalid(&key, &name, &problem));
            }
        }
        let expression = path.child("valueExpression");
        let trimmed = annotation.expression.trim();
        if trimmed.is_empty() {
            errors.push(FieldError::required(&expression, "valueExpression is not specified"));
        } else if trimmed.len() > MAX_VALUE_EXPRESSION {
            let detail = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
            errors.push(FieldError::required(&expression, &detail));
        } else if let Err(error) = compiler.compile(trimmed, STRING_OR_NULL) {
            errors.push(cel_error(&error, &annotation.expression, &expression));
        }
        if !keys.insert(&annotation.name) {
            errors.push(FieldError::duplicate(&key, &annotation.name));
        }
    }
}

fn param_ref(reference: &ParamRef, release: Release, path: &Path, errors: &mut Errors) {
    let exclusive = "name and selector are mutually exclusive";
    if !reference.name.is_empty() {
        for problem in path_segment(&reference.name, false) {
            errors.push(FieldError::invalid(&path.child("name"), &reference.name, &problem));
        }
        if reference.selector.is_some() {
            errors.push(FieldError::forbidden(&path.child("name"), exclusive));
        }
    }
    if let Some(selector) = &reference.selector {
        selector.validate(&path.child("selector"), release, errors);
        if !reference.name.is_empty() {
            errors.push(FieldError::forbidden(&path.child("selector"), exclusive));
        }
    }
    if reference.name.is_empty() && reference.selector.is_none() {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    let action = path.child("parameterNotFoundAction");
    match reference.parameter_not_found_action.as_str() {
        "" => errors.push(FieldError::required(&action, "")),
        "Allow" | "Deny" => {}
        other => errors.push(FieldError::not_supported(&action, other, &["Deny", "Allow"])),
    }
}

fn validation_actions(actions: &[String], path: &Path, errors: &mut Errors) {
    let supported = ["Audit", "Deny", "Warn"];
    let mut seen = HashSet::new();
    for (index, action) in actions.iter().enumerate() {
        if !supported.contains(&action.as_str()) {
            errors.push(FieldError::not_supported(&path.index(index), action, &supported));
        }
        if !seen.insert(action.as_str()) {
            errors.push(FieldError::duplicate(&path.index(index), action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid_list(path, actions, detail));
    }
    if seen.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
}
