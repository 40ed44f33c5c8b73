//! Functions and their overloads, and how a library declares them.

use std::collections::HashMap;

use super::signature;
use crate::cel::outcome::{EvalContext, EvalResult};
use crate::cel::types::CelType;
use crate::release::Release;
use crate::value::Value;

/// An implementation.
pub(crate) type Implementation = for<'a> fn(&EvalContext<'a>, &[Value<'a>]) -> EvalResult<'a>;

/// A function with its overloads.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    /// One implementation for all overloads, which looks at its arguments itself.
    pub(crate) singleton: Option<Singleton>,
    /// Whether arguments are compared with the signature before a call.
    pub(crate) guarded: bool,
}

/// One implementation for all overloads.
#[derive(Clone, Copy)]
pub(crate) struct Singleton {
    pub(crate) call: Implementation,
    /// The requirement on the first argument.
    pub(crate) accepts: fn(&Value<'_>) -> bool,
}

/// An overload.
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<CelType>,
    pub(crate) result: CelType,
    /// Number of type parameters.
    pub(crate) parameters: usize,
    pub(crate) call: Option<Implementation>,
    /// Whether cel-go binds it as a function of an argument list, which stops at the first failed argument.
    pub(crate) variadic: bool,
}

/// The functions of an environment.
pub(crate) struct Library {
    pub(super) functions: HashMap<&'static str, Function>,
    pub(super) release: Release,
}

impl Library {
    /// A library without functions.
    pub(super) fn empty(release: Release) -> Self {
        Self { functions: HashMap::new(), release }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Function> {
        self.functions.get(name.strip_prefix('.').unwrap_or(name))
    }

    fn entry(&mut self, name: &'static str) -> &mut Function {
        self.functions.entry(name).or_insert_with(|| Function {
            name,
            overloads: Vec::new(),
            singleton: None,
            guarded: true,
        })
    }

    /// Declares an overload with its implementation.
    pub(crate) fn add(&mut self, id: &'static str, text: &'static str, call: Implementation) {
        self.declare(id, text, Some(call), false);
    }

    /// Declares an overload that cel-go binds as a function of an argument list.
    pub(crate) fn add_variadic(&mut self, id: &'static str, text: &'static str, call: Implementation) {
        self.declare(id, text, Some(call), true);
    }

    /// Declares overloads that share one implementation.
    pub(crate) fn add_singleton(
        &mut self,
        name: &'static str,
        overloads: &[(&'static str, &'static str)],
        call: Implementation,
        accepts: fn(&Value<'_>) -> bool,
    ) {
        for (id, text) in overloads {
            self.declare(id, text, None, false);
        }
        self.entry(name).singleton = Some(Singleton { call, accepts });
    }

    /// Declares an overload that the planner implements.
    pub(crate) fn add_special(&mut self, id: &'static str, text: &'static str) {
        self.declare(id, text, None, false);
    }

    fn declare(
        &mut self,
        id: &'static str,
        text: &'static str,
        call: Option<Implementation>,
        variadic: bool,
    ) {
        let signature = signature::parse(text);
        let overload = Overload {
            id,
            member: signature.member,
            args: signature.args,
            result: signature.result,
            parameters: signature.parameters,
            call,
            variadic,
        };
        self.entry(signature.name).overloads.push(overload);
    }

    /// Turns off the comparison of arguments with the signature.
    pub(crate) fn unguarded(&mut self, name: &'static str) {
        self.entry(name).guarded = false;
    }
}

/// Every value is accepted.
pub(crate) fn any(_: &Value<'_>) -> bool {
    true
}
