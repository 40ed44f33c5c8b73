//! Single expressions in the environment of admission policies.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cel::environment::{Environment, OLD_OBJECT, Optional};
use crate::cel::eval::{Activation, EvalInput};
use crate::cel::library::Library;
use crate::cel::outcome::{
    Authorization, Cancel, EvalContext, EvalResult, FactSource, Limit, NoValue, Query, Unknown,
};
use crate::cel::program::{CompileError, Program};
use crate::release::Release;
use crate::value::{Arena, Authorizer, GroupCheck, Opaque, ResourceCheck, Value};

/// Cost that one expression can have.
pub const EXPRESSION_LIMIT: u64 = 1_000_000;

/// The functions of a release. They are built once.
pub(crate) fn library(release: Release) -> Arc<Library> {
    static LIBRARIES: Mutex<Option<HashMap<Release, Arc<Library>>>> = Mutex::new(None);
    let mut libraries = LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = libraries.get_or_insert_with(HashMap::new);
    Arc::clone(known.entry(release).or_insert_with(|| Arc::new(Library::new(release))))
}

/// A compiled expression.
pub struct Expression {
    program: Program,
}

/// An expression that the API server refuses.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The API server's text.
    pub message: String,
    /// Line, column (from 1) and text of each error.
    pub places: Vec<(usize, usize, String)>,
}

impl From<CompileError> for Refused {
    fn from(error: CompileError) -> Self {
        Self { message: error.message(), places: error.places() }
    }
}

/// Values of the variables of policies. Absent ones are unknown, except `old_object`, which is null.
#[derive(Clone, Copy, Default)]
pub struct Variables<'a> {
    /// `object`
    pub object: Value<'a>,
    /// `oldObject`
    pub old_object: Value<'a>,
    /// Whether `oldObject` is unknown.
    pub old_object_is_unknown: bool,
    /// `params`
    pub params: Option<Value<'a>>,
    /// `request`
    pub request: Value<'a>,
    /// Whether `request.userInfo` is unknown.
    pub user_is_unknown: bool,
    /// `namespaceObject`
    pub namespace_object: Option<Value<'a>>,
}

/// An authorization check that an expression asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessCheck {
    /// Namespace and name of the service account; the user of the request if absent.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// The accessed thing.
    pub target: AccessTarget,
}

/// The object of an authorization check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessTarget {
    /// A URL path.
    Path(String),
    /// A resource.
    Resource {
        /// API group.
        group: String,
        /// Resource.
        resource: String,
        /// Subresource, or empty.
        subresource: String,
        /// Namespace, or empty.
        namespace: String,
        /// Name, or empty.
        name: String,
        /// Field selector, or empty.
        field_selector: String,
        /// Label selector, or empty.
        label_selector: String,
    },
}

/// A fact that an expression needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant)] // there are few of them
pub enum Need {
    /// An authorization check.
    Check(AccessCheck),
    /// A variable, such as `namespaceObject`.
    Variable(String),
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpressionError {
    /// An error with the API server's text.
    Error(String),
    /// Facts are unknown.
    Unknown(Vec<Need>),
    /// The expression costs too much.
    TooExpensive,
    /// A limit of this evaluator.
    Limit(Limit),
}

impl Expression {
    /// Compiles an expression with all optional variables.
    pub fn compile(source: &str, release: Release) -> Result<Self, Refused> {
        let optional = Optional { params: true, authorizer: true, variables: false };
        let environment = Environment::admission(&library(release), release, optional);
        Ok(Self { program: Program::compile(source, &environment, &[])? })
    }

    /// The type of the expression, as cel-go prints it.
    pub fn output_type(&self) -> String {
        self.program.output.to_string()
    }

    /// Evaluates the expression. Returns the result and its cost.
    pub fn evaluate<'a>(
        &'a self,
        variables: &Variables<'a>,
        decide: &'a dyn Fn(&AccessCheck) -> Option<Authorization>,
        arena: &'a Arena,
    ) -> (Result<Value<'a>, ExpressionError>, u64) {
        let answers: &'a Decide<'a> = arena.store(Decide(decide));
        let context = EvalContext { arena, answers, keep_going: &|| true };
        let roots = Roots { variables: *variables, arena };
        let shared = EvalInput { context, activation: &roots };
        let (outcome, cost) = self.program.evaluate(EXPRESSION_LIMIT, shared);
        (outcome.map_err(failure), cost)
    }
}

pub(crate) fn failure(fault: NoValue<'_>) -> ExpressionError {
    match fault {
        NoValue::Error(message) => ExpressionError::Error(message.to_owned()),
        NoValue::Cancelled(Cancel::Cost) => ExpressionError::TooExpensive,
        NoValue::Cancelled(Cancel::Limit(limit)) => ExpressionError::Limit(limit),
        NoValue::Cancelled(internal @ Cancel::Internal) => {
            ExpressionError::Error(internal.message().to_owned())
        }
        NoValue::Unknown(unknown) => ExpressionError::Unknown(needs(unknown)),
    }
}

/// The facts of an unknown result.
pub(crate) fn needs(unknown: &Unknown<'_>) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut next = Some(unknown);
    while let Some(unknown) = next {
        needs.push(match &unknown.query {
            Query::Variable(name) => Need::Variable((*name).to_owned()),
            query => match check_of(query) {
                Some(check) => Need::Check(check),
                None => Need::Variable(String::new()),
            },
        });
        next = unknown.next;
    }
    needs.reverse();
    needs
}

/// The check of a query.
pub(crate) fn check_of(query: &Query<'_>) -> Option<AccessCheck> {
    let account = |authorizer: &Authorizer<'_>| {
        authorizer.service_account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
    };
    match query {
        Query::Resource(check, verb) => Some(AccessCheck {
            service_account: account(&check.group.authorizer),
            verb: (*verb).to_owned(),
            target: AccessTarget::Resource {
                group: check.group.group.to_owned(),
                resource: check.resource.to_owned(),
                subresource: check.subresource.to_owned(),
                namespace: check.namespace.to_owned(),
                name: check.name.to_owned(),
                field_selector: check.field_selector.to_owned(),
                label_selector: check.label_selector.to_owned(),
            },
        }),
        Query::Path(check, verb) => Some(AccessCheck {
            service_account: account(&check.authorizer),
            verb: (*verb).to_owned(),
            target: AccessTarget::Path(check.path.to_owned()),
        }),
        Query::Variable(_) => None,
    }
}

#[derive(Clone, Copy)]
struct Decide<'d>(&'d dyn Fn(&AccessCheck) -> Option<Authorization>);

impl FactSource for Decide<'_> {
    fn decision(&self, query: &Query<'_>) -> Option<Authorization> {
        check_of(query).and_then(|check| (self.0)(&check))
    }
}

/// The variables of an evaluation.
pub(crate) struct Roots<'a> {
    pub(crate) variables: Variables<'a>,
    pub(crate) arena: &'a Arena,
}

impl<'a> Roots<'a> {
    fn unknown(&self, name: &'static str) -> EvalResult<'a> {
        Err(NoValue::Unknown(self.arena.store(Unknown { query: Query::Variable(name), next: None })))
    }

    /// The check of the resource that the request is about.
    fn request_resource(&self) -> Value<'a> {
        let request = self.variables.request;
        let text = |value: Option<Value<'a>>| value.and_then(|value| value.as_str()).unwrap_or("");
        let resource = request.field("resource").unwrap_or_default();
        let group = GroupCheck { authorizer: Authorizer::default(), group: text(resource.field("group")) };
        let check = ResourceCheck {
            group,
            resource: text(resource.field("resource")),
            subresource: text(request.field("subResource")),
            namespace: text(request.field("namespace")),
            name: text(request.field("name")),
            field_selector: "",
            label_selector: "",
        };
        Value::Opaque(self.arena.store(Opaque::ResourceCheck(check)))
    }
}

impl<'a> Activation<'a> for Roots<'a> {
    fn root(&self, name: &str) -> Option<EvalResult<'a>> {
        Some(match name {
            "object" => Ok(self.variables.object),
            OLD_OBJECT if self.variables.old_object_is_unknown => self.unknown(OLD_OBJECT),
            OLD_OBJECT => Ok(self.variables.old_object),
            "request" => Ok(self.variables.request),
            "params" => self.variables.params.map_or_else(|| self.unknown("params"), Ok),
            "namespaceObject" => {
                self.variables.namespace_object.map_or_else(|| self.unknown("namespaceObject"), Ok)
            }
            "authorizer" => Ok(Value::Opaque(self.arena.store(Opaque::Authorizer(Authorizer::default())))),
            "authorizer.requestResource" => Ok(self.request_resource()),
            "variables" => Ok(Value::Variables),
            _ => return None,
        })
    }

    fn variable(&self, _: &str) -> Option<EvalResult<'a>> {
        None
    }
}
