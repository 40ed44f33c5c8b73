//! Signatures of overloads as text: `size(list(A)): int`, and `(string).contains(string): bool` for calls on a receiver.

use crate::cel::types::Type;

/// A parsed signature.
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) parameters: usize,
}

/// Parses a signature of this crate. Single capital letters are type parameters.
pub(crate) fn parse(text: &'static str) -> Signature {
    let mut reader = Reader { rest: text, parameters: Vec::new() };
    let mut args = Vec::new();
    let member = reader.rest.starts_with('(');
    if member {
        reader.skip("(");
        args.push(reader.read());
        reader.skip(").");
    }
    let name = reader.rest.split('(').next().unwrap_or_default();
    reader.skip(name);
    reader.skip("(");
    while !reader.rest.starts_with(')') && !reader.rest.is_empty() {
        args.push(reader.read());
        reader.skip(", ");
    }
    reader.skip("): ");
    let result = reader.read();
    Signature { name, member, args, result, parameters: reader.parameters.len() }
}

struct Reader {
    rest: &'static str,
    parameters: Vec<&'static str>,
}

impl Reader {
    fn skip(&mut self, text: &str) {
        self.rest = self.rest.strip_prefix(text).unwrap_or(self.rest);
    }

    fn read(&mut self) -> Type {
        let end = self.rest.find(['(', ')', ',']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let mut inner = Vec::new();
        if self.rest.starts_with('(') {
            self.skip("(");
            while !self.rest.starts_with(')') && !self.rest.is_empty() {
                inner.push(self.read());
                self.skip(", ");
            }
            self.skip(")");
        }
        let mut inner = inner.into_iter();
        let mut next = || inner.next().unwrap_or(Type::Dyn);
        match name {
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "type" => Type::Type(Some(std::sync::Arc::new(next()))),
            "list" => Type::list(next()),
            "map" => {
                let key = next();
                Type::map(key, next())
            }
            "optional" => Type::optional(next()),
            "IP" => Type::Opaque("net.IP", std::sync::Arc::new([])),
            "CIDR" => Type::Opaque("net.CIDR", std::sync::Arc::new([])),
            "URL" => Type::structure("kubernetes.URL"),
            "Quantity" => Type::structure("kubernetes.Quantity"),
            "Semver" => Type::structure("kubernetes.Semver"),
            "Format" => Type::structure("kubernetes.NamedFormat"),
            "Authorizer" => Type::structure("kubernetes.authorization.Authorizer"),
            "PathCheck" => Type::structure("kubernetes.authorization.PathCheck"),
            "GroupCheck" => Type::structure("kubernetes.authorization.GroupCheck"),
            "ResourceCheck" => Type::structure("kubernetes.authorization.ResourceCheck"),
            "Decision" => Type::structure("kubernetes.authorization.Decision"),
            parameter if parameter.len() == 1 => {
                let index =
                    self.parameters.iter().position(|known| *known == parameter).unwrap_or_else(|| {
                        self.parameters.push(parameter);
                        self.parameters.len() - 1
                    });
                Type::Parameter(index)
            }
            _ => Type::Dyn,
        }
    }
}
