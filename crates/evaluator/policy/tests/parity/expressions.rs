//! Generates expressions from the functions that the API server declares.
//!
//! Most expressions have the right types. Some have an argument of another type, directly or behind `dyn`, and some have a
//! token too many or too few.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use crate::literals::{constants, paths, pick, texts};
use crate::types::{Bindings, Overload, Type};

/// Longest expression.
const MAX_LENGTH: usize = 600;
/// Times that each overload is the root of an expression.
const PER_OVERLOAD: usize = 8;

/// Generates expressions.
pub(crate) struct Generator {
    rng: Rng,
    functions: BTreeMap<String, Vec<Overload>>,
    /// Variables of the loops around the expression.
    scope: Vec<(String, Type)>,
    /// Chances in percent that an argument has another type, and that this type is hidden behind `dyn`.
    wrong: u32,
    hidden: u32,
    /// Functions that the expression calls.
    calls: BTreeSet<String>,
}

/// An expression and the functions that it calls.
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) functions: BTreeSet<String>,
}

impl Generator {
    pub(crate) fn new(rng: Rng, overloads: &[Overload]) -> Self {
        let mut functions: BTreeMap<String, Vec<Overload>> = BTreeMap::new();
        for overload in overloads {
            if template(overload).is_some() {
                functions.entry(overload.function.clone()).or_default().push(overload.clone());
            }
        }
        Self { rng, functions, scope: Vec::new(), wrong: 0, hidden: 0, calls: BTreeSet::new() }
    }

    /// Names of the functions that expressions can call.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// Some expressions. Every overload is the root of a few of them.
    pub(crate) fn sources(&mut self, count: usize) -> Vec<Source> {
        let overloads: Vec<Overload> = self.functions.values().flatten().cloned().collect();
        let mut roots: Vec<Option<&Overload>> = Vec::new();
        for overload in &overloads {
            roots.extend([Some(overload); PER_OVERLOAD]);
        }
        roots.resize(count, None);
        roots.into_iter().map(|root| self.source(root)).collect()
    }

    fn source(&mut self, root: Option<&Overload>) -> Source {
        loop {
            (self.wrong, self.hidden) = match self.rng.u32(..100) {
                0..55 => (0, 0),
                55..72 => (25, 0),
                72..90 => (5, 35),
                _ => (0, 5),
            };
            self.scope.clear();
            self.calls.clear();
            let depth = self.rng.u32(1..5);
            let text = if let Some(overload) = root {
                self.call(overload, &mut Bindings::new(), depth.min(2))
            } else {
                let of = self.any_type(2);
                self.value(&of, depth)
            };
            let text = if self.rng.u32(..100) < 9 { crate::spoil::spoil(&mut self.rng, &text) } else { text };
            if text.len() <= MAX_LENGTH {
                return Source { text, functions: std::mem::take(&mut self.calls) };
            }
        }
    }

    /// An expression of a type, with a few arguments that fail at run time.
    pub(crate) fn of_type(&mut self, of: &str) -> String {
        loop {
            (self.wrong, self.hidden) = (0, 7);
            self.scope.clear();
            let depth = self.rng.u32(1..4);
            let text = self.value(&Type::simple(of), depth);
            if text.len() <= MAX_LENGTH / 2 {
                return text;
            }
        }
    }

    fn any_type(&mut self, depth: u32) -> Type {
        const SIMPLE: [&str; 9] =
            ["bool", "int", "string", "double", "bool", "int", "string", "uint", "bytes"];
        match self.rng.u32(..20) {
            0 | 1 if depth > 0 => Type::of("list", vec![self.any_type(depth - 1)]),
            2 if depth > 0 => Type::of("map", vec![Type::simple("string"), self.any_type(depth - 1)]),
            3 if depth > 0 => Type::of("optional_type", vec![self.any_type(depth - 1)]),
            4 => Type::simple("dyn"),
            5 => {
                let opaque: Vec<Type> =
                    self.functions.values().flatten().map(|overload| overload.result.clone()).collect();
                let simple: Vec<&Type> = opaque.iter().filter(|of| !constants(&of.name).is_empty()).collect();
                (pick(&mut self.rng, &simple)).clone()
            }
            _ => Type::simple(pick(&mut self.rng, &SIMPLE)),
        }
    }

    /// An expression whose value has a type.
    fn value(&mut self, of: &Type, depth: u32) -> String {
        if depth == 0 || self.rng.u32(..100) < 10 {
            return self.leaf(of, depth.min(1));
        }
        match self.rng.u32(..100) {
            0..6 => {
                let condition = self.value(&Type::simple("bool"), depth - 1);
                format!("({condition} ? {} : {})", self.value(of, depth - 1), self.value(of, depth - 1))
            }
            6..26 => self.macro_of(of, depth - 1),
            26..34 => self.element(of, depth - 1),
            _ => self.function(of, depth - 1),
        }
    }

    /// A call of a random function with this result.
    fn function(&mut self, of: &Type, depth: u32) -> String {
        let fits = |overload: &&Overload| {
            // A function that returns whatever is asked for, such as `dyn`, would be chosen for everything.
            overload.result.unify(of, &mut Bindings::new())
                && (overload.result.name.len() > 1 || of.name == "dyn")
        };
        let found: Vec<Vec<Overload>> = self
            .functions
            .values()
            .map(|overloads| overloads.iter().filter(fits).cloned().collect())
            .filter(|overloads: &Vec<Overload>| !overloads.is_empty())
            .collect();
        if found.is_empty() {
            return self.leaf(of, depth);
        }
        let overloads = &found[self.rng.usize(..found.len())];
        let overload = &overloads[self.rng.usize(..overloads.len())];
        let mut bindings = Bindings::new();
        overload.result.unify(of, &mut bindings);
        self.call(overload, &mut bindings, depth)
    }

    fn call(&mut self, overload: &Overload, bindings: &mut Bindings, depth: u32) -> String {
        let mut args = Vec::new();
        for arg in &overload.args {
            let rng = &mut self.rng;
            let simple = ["int", "string", "bool", "double"];
            let of = arg.bind(bindings, &mut || Type::simple(pick(rng, &simple)));
            args.push(self.argument(&overload.function, &of, depth));
        }
        self.calls.insert(overload.function.clone());
        template(overload).map(|template| fill(&template, &args)).unwrap_or_default()
    }

    fn argument(&mut self, function: &str, of: &Type, depth: u32) -> String {
        if function == "lists.range" {
            // The API server builds the list at once, and ends if it is large.
            return self.rng.i32(-1..20).to_string();
        }
        let roll = self.rng.u32(..100);
        if roll < self.wrong {
            let other = self.any_type(1);
            return self.value(&other, depth.min(1));
        }
        if roll < self.wrong + self.hidden {
            let other = self.any_type(1);
            return format!("dyn({})", self.value(&other, depth.min(1)));
        }
        if of.name == "string" && self.rng.u32(..100) < 60 {
            return quoted(pick(&mut self.rng, texts(function)));
        }
        self.value(of, depth)
    }

    /// An element of a list or map, or the value of an optional.
    fn element(&mut self, of: &Type, depth: u32) -> String {
        let text = Type::simple("string");
        match self.rng.u32(..6) {
            0 => {
                format!("{}[{}]", self.value(&Type::of("list", vec![of.clone()]), depth), self.rng.i32(-1..3))
            }
            1 => {
                let map = self.value(&Type::of("map", vec![text.clone(), of.clone()]), depth);
                format!("{map}[{}]", self.leaf(&text, 0))
            }
            2 => {
                let list = self.value(&Type::of("list", vec![of.clone()]), depth);
                format!("{list}[?{}].orValue({})", self.rng.i32(0..3), self.leaf(of, 0))
            }
            3 => {
                let map = self.value(&Type::of("map", vec![text, of.clone()]), depth);
                format!("{map}.?{}.orValue({})", pick(&mut self.rng, &["a", "app", "x"]), self.leaf(of, 0))
            }
            4 => format!(
                "object.?spec.?{}.orValue({})",
                pick(&mut self.rng, &["replicas", "nope", "image"]),
                self.leaf(of, 0)
            ),
            _ => format!("{}.value()", self.value(&Type::of("optional_type", vec![of.clone()]), depth)),
        }
    }

    /// A macro with this result, or a leaf if there is none.
    fn macro_of(&mut self, of: &Type, depth: u32) -> String {
        match (of.name.as_str(), of.args.as_slice()) {
            ("bool", _) if self.rng.u32(..4) == 0 => {
                let paths = [
                    "object.spec.absent",
                    "object.absent.name",
                    "object.spec.image",
                    "request.name",
                    "oldObject.spec",
                    "params.data.x",
                ];
                format!("has({})", pick(&mut self.rng, &paths))
            }
            ("bool", _) => {
                let (range, element) = self.range(depth);
                let bool = Type::simple("bool");
                if self.rng.u32(..3) == 0 {
                    let name = pick(&mut self.rng, &["all", "exists", "existsOne", "exists_one"]);
                    let body = self.within(&[("i", &Type::simple("int")), ("v", &element)], &bool, depth);
                    format!("{range}.{name}(i, v, {body})")
                } else {
                    let name = pick(&mut self.rng, &["all", "exists", "exists_one", "existsOne"]);
                    let variable = pick(&mut self.rng, &["x", "y", "x"]);
                    let body = self.within(&[(variable, &element)], &bool, depth);
                    format!("{range}.{name}({variable}, {body})")
                }
            }
            ("list", [item]) => self.list_macro(item, depth),
            ("map", [_, item]) => {
                let (range, element) = self.range(depth);
                let variables = [("i", &Type::simple("int")), ("v", &element)];
                let body = self.within(&variables, item, depth);
                match self.rng.u32(..3) {
                    0 => format!("{range}.transformMap(i, v, {body})"),
                    1 => {
                        let condition = self.within(&variables, &Type::simple("bool"), depth);
                        format!("{range}.transformMap(i, v, {condition}, {body})")
                    }
                    _ => format!("{range}.transformMapEntry(i, v, {{string(i): {body}}})"),
                }
            }
            ("optional_type", [item]) => {
                let inner = self.any_type(0);
                let optional = self.value(&Type::of("optional_type", vec![inner.clone()]), depth);
                let flat = self.rng.bool();
                let body = self.within(&[("o", &inner)], if flat { of } else { item }, depth);
                format!("{optional}.{}(o, {body})", if flat { "optFlatMap" } else { "optMap" })
            }
            _ => self.element(of, depth),
        }
    }

    fn list_macro(&mut self, item: &Type, depth: u32) -> String {
        let bool = Type::simple("bool");
        let (range, element) = self.range(depth);
        let single = [("x", &element)];
        let pair = [("i", &Type::simple("int")), ("v", &element)];
        match self.rng.u32(..6) {
            0 => {
                let list = self.value(&Type::of("list", vec![item.clone()]), depth);
                format!("{list}.filter(x, {})", self.within(&[("x", item)], &bool, depth))
            }
            1 => {
                let condition = self.within(&single, &bool, depth);
                format!("{range}.map(x, {condition}, {})", self.within(&single, item, depth))
            }
            2 => format!("{range}.transformList(i, v, {})", self.within(&pair, item, depth)),
            3 => {
                let condition = self.within(&pair, &bool, depth);
                format!("{range}.transformList(i, v, {condition}, {})", self.within(&pair, item, depth))
            }
            4 => {
                let list = self.value(&Type::of("list", vec![item.clone()]), depth);
                format!("{list}.sortBy(x, {})", self.within(&[("x", item)], &Type::simple("int"), depth))
            }
            _ => format!("{range}.map(x, {})", self.within(&single, item, depth)),
        }
    }

    /// A list or map for a loop, and the type of its variable.
    fn range(&mut self, depth: u32) -> (String, Type) {
        if self.rng.u32(..8) == 0 {
            let maps = ["object.metadata.labels", "{'a': 'b'}", "request.userInfo.extra", "{'k': [1, 2]}"];
            return ((pick(&mut self.rng, &maps)).to_owned(), Type::simple("string"));
        }
        let element = self.any_type(1);
        (self.value(&Type::of("list", vec![element.clone()]), depth), element)
    }

    /// An expression within a loop with these variables.
    fn within(&mut self, variables: &[(&str, &Type)], of: &Type, depth: u32) -> String {
        let outer = self.scope.len();
        for (name, of) in variables {
            self.scope.push(((*name).to_owned(), (*of).clone()));
        }
        let body = self.value(of, depth);
        self.scope.truncate(outer);
        body
    }

    fn leaf(&mut self, of: &Type, depth: u32) -> String {
        let dynamic = of.name == "dyn";
        let known: Vec<&str> = self
            .scope
            .iter()
            .filter(|(_, known)| known == of || dynamic)
            .map(|(name, _)| name.as_str())
            .collect();
        if !known.is_empty() && self.rng.u32(..3) > 0 {
            return pick(&mut self.rng, &known).to_owned();
        }
        let paths = paths(of);
        if !paths.is_empty() && self.rng.u32(..100) < 45 {
            return (pick(&mut self.rng, &paths)).to_owned();
        }
        let below = depth.saturating_sub(1);
        match (of.name.as_str(), of.args.as_slice()) {
            ("string", _) => quoted(pick(&mut self.rng, texts(""))),
            ("list", [item]) => {
                let items: Vec<String> = (0..self.rng.usize(..4)).map(|_| self.leaf(item, below)).collect();
                format!("[{}]", items.join(", "))
            }
            ("map", [key, value]) => {
                if self.rng.u32(..6) == 0 {
                    return "{}".to_owned();
                }
                format!("{{{}: {}}}", self.leaf(key, 0), self.leaf(value, below))
            }
            ("optional_type", [item]) => match self.rng.u32(..4) {
                0 => "optional.none()".to_owned(),
                1 => format!("optional.ofNonZeroValue({})", self.leaf(item, below)),
                _ => format!("optional.of({})", self.leaf(item, below)),
            },
            ("type", _) => {
                (pick(&mut self.rng, &["int", "string", "type(1)", "type([])", "list"])).to_owned()
            }
            ("dyn", _) => {
                let other = loop {
                    let other = self.any_type(1);
                    if other.name != "dyn" {
                        break other;
                    }
                };
                format!("dyn({})", self.leaf(&other, below))
            }
            (name, _) => match constants(name) {
                [] => "object".to_owned(),
                constants => (pick(&mut self.rng, constants)).to_owned(),
            },
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "\\'"))
}

/// The text of a call with `$0` to `$3` for its arguments; nothing if the function is internal to cel-go.
fn template(overload: &Overload) -> Option<String> {
    let name = overload.function.as_str();
    let operator = match name {
        "_?_:_" => "($0 ? $1 : $2)",
        "_[_]" => "$0[$1]",
        "_[?_]" => "$0[?$1]",
        "_?._" => "$0.?a",
        "!_" => "!$0",
        "-_" => "(-$0)",
        "@in" => "($0 in $1)",
        _ => "",
    };
    if !operator.is_empty() {
        return Some(operator.to_owned());
    }
    if name.contains('@') || name.starts_with("__") || name == "in" {
        return None;
    }
    if let Some(operator) = name.strip_prefix('_').and_then(|name| name.strip_suffix('_')) {
        return Some(format!("($0 {operator} $1)"));
    }
    let places: Vec<String> = (0..overload.args.len()).map(|index| format!("${index}")).collect();
    Some(match (overload.member, places.split_first()) {
        (true, Some((target, rest))) => format!("{target}.{name}({})", rest.join(", ")),
        _ => format!("{name}({})", places.join(", ")),
    })
}

fn fill(template: &str, args: &[String]) -> String {
    let mut text = String::new();
    let mut characters = template.chars();
    while let Some(character) = characters.next() {
        match (character, characters.clone().next().and_then(|next| next.to_digit(10))) {
            ('$', Some(index)) => {
                characters.next();
                text.push_str(&args[index as usize]);
            }
            _ => text.push(character),
        }
    }
    text
}
