//! The expressions of a policy, compiled as the API server compiles them.

use std::collections::HashMap;
use std::sync::Arc;

use super::model::{Policy, Validation};
use crate::cel::environment::{Environment, Optional, VARIABLES_TYPE};
use crate::cel::program::{Accepted, CompileError, Program};
use crate::cel::reads::Reads;
use crate::cel::types::CelType;
use crate::expression::library;
use crate::field::Path;
use crate::release::Release;

/// Type of validations and match conditions.
pub(crate) const BOOL: Accepted = &[CelType::Bool];
/// Type of message expressions.
pub(crate) const STRING: Accepted = &[CelType::String];
/// Types of values of audit annotations.
pub(crate) const STRING_OR_NULL: Accepted = &[CelType::String, CelType::Null];

/// Compiles the expressions of one policy. Variables are known from their declaration on.
pub(crate) struct PolicyCompiler {
    with_authorizer: Environment,
    without_authorizer: Environment,
}

impl PolicyCompiler {
    pub(crate) fn new(release: Release, params: bool, variables: bool) -> Self {
        let library = library(release);
        let environment = |authorizer| {
            Environment::admission(&library, release, Optional { params, authorizer, variables })
        };
        Self { with_authorizer: environment(true), without_authorizer: environment(false) }
    }

    pub(crate) fn compile(&self, source: &str, accepted: Accepted) -> Result<Program, CompileError> {
        Program::compile(source, &self.with_authorizer, accepted)
    }

    /// Compiles a message expression, which has no authorizer.
    pub(crate) fn compile_message(&self, source: &str) -> Result<Program, CompileError> {
        Program::compile(source, &self.without_authorizer, STRING)
    }

    /// Compiles a variable and declares it for the expressions after it.
    pub(crate) fn variable(&mut self, name: &str, source: &str) -> Result<Program, CompileError> {
        let program = self.compile(source, &[]);
        let of = program.as_ref().map_or(CelType::Dyn, |program| program.output.of_variable());
        for environment in [&mut self.with_authorizer, &mut self.without_authorizer] {
            if let Some(fields) = Arc::make_mut(&mut environment.structs).get_mut(VARIABLES_TYPE) {
                fields.insert(name.to_owned(), of.clone());
            }
        }
        program
    }
}

/// A compiled expression. One that does not compile is an error of each evaluation.
pub(crate) struct CompiledExpression {
    /// The expression as errors quote it.
    pub(crate) source: String,
    pub(crate) program: Result<Program, String>,
}

impl CompiledExpression {
    fn new(source: &str, program: Result<Program, CompileError>) -> Self {
        Self { source: source.to_owned(), program: program.map_err(|error| error.message()) }
    }
}

/// The fields of the object that variables read.
#[derive(Default)]
struct Subjects {
    by_variable: HashMap<String, Path>,
}

impl Subjects {
    fn add(&mut self, variable: &str, program: &Result<Program, CompileError>) {
        if let Some(path) = self.of(program) {
            self.by_variable.insert(variable.to_owned(), path);
        }
    }

    /// The part of the object that an expression reads, with the variables before it.
    fn of(&self, program: &Result<Program, CompileError>) -> Option<Path> {
        let mut reads: Reads = program.as_ref().ok()?.reads.clone();
        for path in std::mem::take(&mut reads.variables).iter().filter_map(|name| self.by_variable.get(name))
        {
            reads.add(path);
        }
        reads.object
    }
}

/// A policy with its programs.
pub(crate) struct CompiledPolicy {
    pub(crate) policy: Policy,
    pub(crate) match_conditions: Vec<CompiledExpression>,
    pub(crate) variables: Vec<(String, CompiledExpression)>,
    pub(crate) validations: Vec<CompiledValidation>,
    pub(crate) audit_annotations: Vec<(String, CompiledExpression)>,
}

/// A validation with its programs.
pub(crate) struct CompiledValidation {
    pub(crate) validation: Validation,
    pub(crate) expression: CompiledExpression,
    pub(crate) message: Option<CompiledExpression>,
    /// The part of the object that all read fields are in.
    pub(crate) subject: Option<Path>,
}

impl CompiledPolicy {
    /// Compiles a stored policy for evaluation on the server of a release.
    pub(crate) fn new(policy: Policy, release: Release) -> Arc<Self> {
        let mut compiler = PolicyCompiler::new(release, policy.param_kind.is_some(), true);
        let mut subjects = Subjects::default();
        let variables = policy
            .variables
            .iter()
            .map(|variable| {
                let program = compiler.variable(&variable.name, &variable.expression);
                subjects.add(&variable.name, &program);
                (variable.name.clone(), CompiledExpression::new(&variable.expression, program))
            })
            .collect();
        let compile =
            |source: &str, accepted| CompiledExpression::new(source, compiler.compile(source, accepted));
        let match_conditions =
            policy.match_conditions.iter().map(|condition| compile(&condition.expression, BOOL)).collect();
        let validations = policy
            .validations
            .iter()
            .map(|validation| {
                let program = compiler.compile(&validation.expression, BOOL);
                CompiledValidation {
                    validation: validation.clone(),
                    subject: subjects.of(&program).filter(|path| !path.is_empty()),
                    expression: CompiledExpression::new(&validation.expression, program),
                    message: (!validation.message_expression.is_empty()).then(|| {
                        let source = &validation.message_expression;
                        CompiledExpression::new(source, compiler.compile_message(source))
                    }),
                }
            })
            .collect();
        let audit_annotations = policy
            .audit_annotations
            .iter()
            .map(|annotation| (annotation.name.clone(), compile(&annotation.expression, STRING_OR_NULL)))
            .collect();
        Arc::new(Self { policy, match_conditions, variables, validations, audit_annotations })
    }

    /// Returns the field of the first expression that reads something.
    pub(crate) fn field_of(&self, is_read: impl Fn(&Reads) -> bool) -> Option<Path> {
        let is_reader = |compiled: &CompiledExpression| {
            compiled.program.as_ref().is_ok_and(|program| is_read(&program.reads))
        };
        let values: Vec<_> = self.audit_annotations.iter().map(|(_, value)| Some(value)).collect();
        let validations = || self.validations.iter();
        let lists = [
            ("matchConditions", "expression", self.match_conditions.iter().map(Some).collect::<Vec<_>>()),
            ("variables", "expression", self.variables.iter().map(|(_, variable)| Some(variable)).collect()),
            ("validations", "expression", validations().map(|one| Some(&one.expression)).collect()),
            ("validations", "messageExpression", validations().map(|one| one.message.as_ref()).collect()),
            ("auditAnnotations", "valueExpression", values),
        ];
        lists.into_iter().find_map(|(list, field, expressions)| {
            let index = expressions.into_iter().position(|one| one.is_some_and(is_reader))?;
            Some(Path::new("spec").child(list).index(index).child(field))
        })
    }

    /// Returns the programs of all expressions that compile.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Program> {
        let named = self.variables.iter().chain(&self.audit_annotations).map(|(_, compiled)| compiled);
        let validations = self.validations.iter();
        let of_validations = validations
            .flat_map(|validation| std::iter::once(&validation.expression).chain(&validation.message));
        let all = self.match_conditions.iter().chain(named).chain(of_validations);
        all.filter_map(|compiled| compiled.program.as_ref().ok())
    }
}
