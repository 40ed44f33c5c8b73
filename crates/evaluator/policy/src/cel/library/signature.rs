//! Signatures of overloads as text: `size(list(A)): int`, and `(string).contains(string): bool` for calls on a receiver.

use crate::cel::types::CelType;

/// A parsed signature.
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<CelType>,
    pub(crate) result: CelType,
    pub(crate) parameters: usize,
}

/// Parses a signature of this crate. Single capital letters are type parameters.
pub(crate) fn parse(text: &'static str) -> Signature {
    let mut reader = SignatureReader { rest: text, parameters: Vec::new() };
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

struct SignatureReader {
    rest: &'static str,
    parameters: Vec<&'static str>,
}

impl SignatureReader {
    fn skip(&mut self, text: &str) {
        self.rest = self.rest.strip_prefix(text).unwrap_or(self.rest);
    }

    fn read(&mut self) -> CelType {
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
        let mut next = || inner.next().unwrap_or(CelType::Dyn);
        match name {
            "null" => CelType::Null,
            "bool" => CelType::Bool,
            "int" => CelType::Int,
            "uint" => CelType::Uint,
            "double" => CelType::Double,
            "string" => CelType::String,
            "bytes" => CelType::Bytes,
            "duration" => CelType::Duration,
            "timestamp" => CelType::Timestamp,
            "type" => CelType::Type(Some(std::sync::Arc::new(next()))),
            "list" => CelType::list(next()),
            "map" => {
                let key = next();
                CelType::map(key, next())
            }
            "optional" => CelType::optional(next()),
            "IP" => CelType::Opaque("net.IP", std::sync::Arc::new([])),
            "CIDR" => CelType::Opaque("net.CIDR", std::sync::Arc::new([])),
            "URL" => CelType::structure("kubernetes.URL"),
            "Quantity" => CelType::structure("kubernetes.Quantity"),
            "Semver" => CelType::structure("kubernetes.Semver"),
            "Format" => CelType::structure("kubernetes.NamedFormat"),
            "Authorizer" => CelType::structure("kubernetes.authorization.Authorizer"),
            "PathCheck" => CelType::structure("kubernetes.authorization.PathCheck"),
            "GroupCheck" => CelType::structure("kubernetes.authorization.GroupCheck"),
            "ResourceCheck" => CelType::structure("kubernetes.authorization.ResourceCheck"),
            "Decision" => CelType::structure("kubernetes.authorization.Decision"),
            parameter if parameter.len() == 1 => {
                let index =
                    self.parameters.iter().position(|known| *known == parameter).unwrap_or_else(|| {
                        self.parameters.push(parameter);
                        self.parameters.len() - 1
                    });
                CelType::Parameter(index)
            }
            _ => CelType::Dyn,
        }
    }
}
