//! The functions of an environment: signatures, since when they exist, and their implementations.
//!
//! A signature has two minors: that of the environment that declares it and that of the first server that contains it. An API
//! server of minor N compiles new expressions with environment N-1 and evaluates stored ones with all its functions.

pub(crate) mod authorizer;
pub(crate) mod cidr;
pub(crate) mod conversions;
pub(crate) mod format;
pub(crate) mod formats;
pub(crate) mod ip;
pub(crate) mod lists;
pub(crate) mod operators;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod signature;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use std::collections::HashMap;

use super::outcome::{Context, Outcome};
use super::types::Type;
use crate::release::Release;
use crate::value::Value;

/// An implementation.
pub(crate) type Call = for<'a> fn(&Context<'a>, &[Value<'a>]) -> Outcome<'a>;

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
    pub(crate) call: Call,
    /// The requirement on the first argument.
    pub(crate) accepts: fn(&Value<'_>) -> bool,
}

/// An overload.
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// Number of type parameters.
    pub(crate) parameters: usize,
    pub(crate) call: Option<Call>,
    /// Whether cel-go binds it as a function of an argument list, which stops at the first failed argument.
    pub(crate) variadic: bool,
}

/// The functions of an environment.
pub(crate) struct Library {
    functions: HashMap<&'static str, Function>,
    release: Release,
}

impl Library {
    /// The functions of an environment and server.
    pub(crate) fn new(release: Release) -> Self {
        let mut library = Self { functions: HashMap::new(), release };
        operators::declare(&mut library);
        conversions::declare(&mut library);
        strings::declare_base(&mut library);
        time::declare(&mut library);
        url::declare(&mut library);
        regex::declare(&mut library);
        // The checker takes the first one of several overloads for a value of any type, so the order matters.
        let lists_are_last = library.has(37, 37);
        if !lists_are_last {
            lists::declare(&mut library);
        }
        authorizer::declare(&mut library);
        optional::declare(&mut library);
        quantity::declare(&mut library);
        strings::declare(&mut library);
        sets::declare(&mut library);
        ip::declare(&mut library);
        cidr::declare(&mut library);
        if library.has(31, 31) {
            formats::declare(&mut library);
        }
        // Up to 1.36 a feature gate, on by default from 1.32 on, decides alone, whatever the environment is.
        let selectors = if release.server >= 37 { release.environment >= 31 } else { release.server >= 32 };
        if selectors {
            authorizer::declare_selectors(&mut library);
        }
        if library.has(32, 32) {
            optional::declare_map_insert(&mut library);
        }
        if library.has(33, 33) {
            semver::declare(&mut library);
        }
        if library.has(34, 34) {
            lists::declare_extension(&mut library);
        }
        if lists_are_last {
            lists::declare(&mut library);
            lists::declare_includes(&mut library);
        }
        library
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Function> {
        self.functions.get(name.strip_prefix('.').unwrap_or(name))
    }

    /// Whether the environment and the server are new enough.
    pub(crate) fn has(&self, environment: u8, server: u8) -> bool {
        self.release.environment >= environment && self.release.server >= server
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
    pub(crate) fn add(&mut self, id: &'static str, text: &'static str, call: Call) {
        self.declare(id, text, Some(call), false);
    }

    /// Declares an overload that cel-go binds as a function of an argument list.
    pub(crate) fn add_variadic(&mut self, id: &'static str, text: &'static str, call: Call) {
        self.declare(id, text, Some(call), true);
    }

    /// Declares overloads that share one implementation.
    pub(crate) fn add_singleton(
        &mut self,
        name: &'static str,
        overloads: &[(&'static str, &'static str)],
        call: Call,
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

    fn declare(&mut self, id: &'static str, text: &'static str, call: Option<Call>, variadic: bool) {
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
