//! Defects of policies and bindings, for which the API server refuses them.

use serde_json::Value as Json;

/// The document of a defect, the field, and its value as JSON.
pub(crate) type Defect = (Document, &'static str, &'static str);

/// The kind of a document.
#[derive(Clone, Copy)]
pub(crate) enum Document {
    Policy,
    Binding,
}

const POLICY: Document = Document::Policy;
const BINDING: Document = Document::Binding;

/// Adds a defect to a policy or binding, unless another defect removed the object around the field.
pub(crate) fn apply((document, field, value): Defect, policy: &mut Json, binding: &mut Json) {
    let document = match document {
        Document::Policy => policy,
        Document::Binding => binding,
    };
    let (parent, name) = field.rsplit_once('/').expect("a path");
    if let Some(Json::Object(parent)) = document.pointer_mut(parent) {
        parent.insert(name.to_owned(), serde_json::from_str(value).expect("JSON"));
    }
}

/// All defects.
#[rustfmt::skip] // one per line
pub(crate) const DEFECTS: [Defect; 70] = [
    (POLICY, "/spec/validations/0/expression", r#""object.spec.""#),
    (POLICY, "/spec/validations/0/expression", r#""'text'""#),
    (POLICY, "/spec/validations/0/expression", r#""object.spec.replicas + 1""#),
    (POLICY, "/spec/validations/0/expression", r#""1 + 'a' == 2""#),
    (POLICY, "/spec/validations/0/expression", r#""nope == 1""#),
    (POLICY, "/spec/validations/0/expression", r#""request.nope == 'a'""#),
    (POLICY, "/spec/validations/0/expression", r#""variables.nope""#),
    (POLICY, "/spec/validations/0/expression", r#""int('x') == 1""#),
    (POLICY, "/spec/validations/0/expression", r#""object.metadata.name.matches('(')""#),
    (POLICY, "/spec/validations/0/expression", r#""duration('x') == duration('1h')""#),
    (POLICY, "/spec/validations/0/expression", r#""[1, 'a'].size() == 2""#),
    (POLICY, "/spec/validations/0/expression", r#""""#),
    (POLICY, "/spec/validations/0/expression", r#"" ""#),
    (POLICY, "/spec/validations/0/expression", r#""object.metadata.name.nope()""#),
    (POLICY, "/spec/validations/0/expression", r#""has(object)""#),
    (POLICY, "/spec/validations/0/expression", r#""[1].all(1, true)""#),
    (POLICY, "/spec/validations/0/expression", r#""'é' == \n  object.spec.x &&""#),
    (POLICY, "/spec/validations/0/messageExpression", r#""1""#),
    (POLICY, "/spec/validations/0/messageExpression", r#"" ""#),
    (POLICY, "/spec/validations/0/messageExpression", r#""authorizer.path('/x').check('get').reason()""#),
    (POLICY, "/spec/validations/0/message", r#"" ""#),
    (POLICY, "/spec/validations/0/message", r#""two\nlines""#),
    (POLICY, "/spec/validations/0/reason", r#""NotFound""#),
    (POLICY, "/spec/validations/0/reason", r#""""#),
    (POLICY, "/spec/validations", "[]"),
    (POLICY, "/spec/failurePolicy", r#""Sometimes""#),
    (POLICY, "/spec/failurePolicy", r#""""#),
    (POLICY, "/spec/matchConstraints", "null"),
    (POLICY, "/spec/matchConstraints/resourceRules", "[]"),
    (POLICY, "/spec/matchConstraints/matchPolicy", r#""Similar""#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/apiGroups", "[]"),
    (POLICY, "/spec/matchConstraints/resourceRules/0/apiGroups", r#"["*", "apps"]"#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/apiVersions", r#"["v1", ""]"#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/operations", r#"["*", "CREATE"]"#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/operations", r#"["PATCH"]"#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/operations", "[]"),
    (POLICY, "/spec/matchConstraints/resourceRules/0/resources", r#"["*", "pods"]"#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/resources", r#"["pods/*", "pods/status"]"#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/resources", r#"["*/status", "pods/status"]"#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/resources", r#"["*/*", "pods", ""]"#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/scope", r#""Everywhere""#),
    (POLICY, "/spec/matchConstraints/resourceRules/0/resourceNames", r#"["a", "a", "b/c", ".."]"#),
    (POLICY, "/spec/matchConstraints/objectSelector", r#"{"matchExpressions": [{"key": "a b", "operator": "Exists"}]}"#),
    (POLICY, "/spec/matchConstraints/objectSelector", r#"{"matchExpressions": [{"key": "a", "operator": "In"}]}"#),
    (POLICY, "/spec/matchConstraints/objectSelector", r#"{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}"#),
    (POLICY, "/spec/matchConstraints/objectSelector", r#"{"matchExpressions": [{"key": "a", "operator": "Near", "values": ["-x"]}]}"#),
    (POLICY, "/spec/paramKind", "{}"),
    (POLICY, "/spec/paramKind", r#"{"apiVersion": "a/b/c", "kind": "X"}"#),
    (POLICY, "/spec/paramKind", r#"{"apiVersion": "A_/V1", "kind": "Bad Kind"}"#),
    (POLICY, "/spec/matchConditions", r#"[{"name": "", "expression": ""}]"#),
    (POLICY, "/spec/matchConditions", r#"[{"name": "a", "expression": "1"}, {"name": "a", "expression": " true"}]"#),
    (POLICY, "/spec/matchConditions", r#"[{"name": "a b", "expression": "variables.v"}]"#),
    (POLICY, "/spec/variables", r#"[{"name": "", "expression": ""}, {"name": "1a", "expression": "1"}]"#),
    (POLICY, "/spec/variables", r#"[{"name": "v", "expression": "nope"}, {"name": "if", "expression": "1"}]"#),
    (POLICY, "/spec/auditAnnotations", r#"[{"key": "", "valueExpression": ""}]"#),
    (POLICY, "/spec/auditAnnotations", r#"[{"key": "a", "valueExpression": "1"}, {"key": "a", "valueExpression": "'x'"}]"#),
    (POLICY, "/spec/auditAnnotations", r#"[{"key": "a/b", "valueExpression": "'x' + nope"}]"#),
    (POLICY, "/metadata/name", r#""Bad_Name""#),
    (BINDING, "/metadata/name", r#""-b""#),
    (BINDING, "/spec/policyName", r#""""#),
    (BINDING, "/spec/validationActions", "[]"),
    (BINDING, "/spec/validationActions", r#"["Deny", "Warn"]"#),
    (BINDING, "/spec/validationActions", r#"["Deny", "Deny", "Shout"]"#),
    (BINDING, "/spec/paramRef", "{}"),
    (BINDING, "/spec/paramRef", r#"{"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}"#),
    (BINDING, "/spec/paramRef", r#"{"name": "a/b", "parameterNotFoundAction": "Maybe"}"#),
    (BINDING, "/spec/paramRef", r#"{"selector": {"matchLabels": {"a b": "-"}}, "parameterNotFoundAction": "Deny"}"#),
    (BINDING, "/spec/matchResources", r#"{"matchPolicy": "Similar"}"#),
    (BINDING, "/spec/matchResources", r#"{"resourceRules": [{}]}"#),
    (BINDING, "/spec/matchResources", r#"{"namespaceSelector": {"matchExpressions": [{"key": "", "operator": ""}]}}"#),
];
