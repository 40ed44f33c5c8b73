//! Types of CEL as cel-go prints them, and the functions that an environment declares.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// A type such as `list(int)`. A name of one capital letter is a type parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Type {
    pub(crate) name: String,
    pub(crate) args: Vec<Type>,
}

/// Types by the name of their parameter.
pub(crate) type Bindings = BTreeMap<String, Type>;

impl Type {
    pub(crate) fn simple(name: &str) -> Self {
        Self { name: name.to_owned(), args: Vec::new() }
    }

    pub(crate) fn of(name: &str, args: Vec<Type>) -> Self {
        Self { name: name.to_owned(), args }
    }

    /// Reads the text of a type.
    pub(crate) fn parse(text: &str) -> Self {
        let Some((name, args)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else {
            return Self::simple(text);
        };
        let (mut parsed, mut depth, mut start) = (Vec::new(), 0, 0);
        for (index, character) in args.char_indices() {
            match character {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0 => {
                    parsed.push(Self::parse(args[start..index].trim()));
                    start = index + 1;
                }
                _ => {}
            }
        }
        parsed.push(Self::parse(args[start..].trim()));
        Self { name: name.to_owned(), args: parsed }
    }

    fn is_parameter(&self) -> bool {
        self.args.is_empty() && self.name.len() == 1 && self.name.chars().all(char::is_uppercase)
    }

    /// Whether a value of this declared type can be used for `wanted`; binds type parameters.
    pub(crate) fn unify(&self, wanted: &Type, bindings: &mut Bindings) -> bool {
        if self.is_parameter() {
            return bindings.entry(self.name.clone()).or_insert_with(|| wanted.clone()) == wanted;
        }
        self.name == wanted.name
            && self.args.len() == wanted.args.len()
            && self.args.iter().zip(&wanted.args).all(|(arg, wanted)| arg.unify(wanted, bindings))
    }

    /// The type with bound parameters. `choose` is asked for the others.
    pub(crate) fn bind(&self, bindings: &mut Bindings, choose: &mut dyn FnMut() -> Type) -> Type {
        if self.is_parameter() {
            return bindings.entry(self.name.clone()).or_insert_with(choose).clone();
        }
        let args = self.args.iter().map(|arg| arg.bind(bindings, choose)).collect();
        Self { name: self.name.clone(), args }
    }
}

/// An overload of a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Overload {
    pub(crate) function: String,
    pub(crate) id: String,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
}

/// Reads the functions that the API server's environment declares.
pub(crate) fn overloads(functions: &Json) -> Vec<Overload> {
    let mut found = Vec::new();
    for (function, declared) in functions.as_object().expect("functions") {
        for overload in declared.as_array().expect("overloads") {
            let text = |field: &str| overload[field].as_str().unwrap_or_default().to_owned();
            let args = overload["args"].as_array().expect("arguments").iter();
            found.push(Overload {
                function: function.clone(),
                id: text("id"),
                member: overload["member"] == true,
                args: args.map(|arg| Type::parse(arg.as_str().unwrap_or_default())).collect(),
                result: Type::parse(&text("result")),
            });
        }
    }
    found.sort();
    found
}
