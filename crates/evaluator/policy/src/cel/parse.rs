//! The parser: recursive descent that ends at the first syntax error. It accepts what cel-go's grammar accepts, and has its limits of
//! nesting. A syntax error has the words of this crate, and every other error those of cel-go.

use super::ast::{Expr, ExprKind, Literal};
use super::error::Problems;
use super::macros::{Expanded, Macros};
use super::operators;
use super::token::{self, CelToken, Lexeme};
use super::unescape::literal;
use crate::release::Release;

/// Longest expression in code points.
const MAX_LENGTH: usize = 100_000;
/// Nesting that cel-go accepts, of each kind of rule.
const MAX_DEPTH: usize = 250;
/// Characters of a token that an error shows.
const MAX_SHOWN: usize = 40;

const VALUE: &str = "a value";
const FIELD_NAME: &str = "the name of a field";

/// A parsed expression. If there are problems, parts of it are unspecified.
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    /// Number of ids that were given.
    pub(crate) ids: usize,
    pub(crate) problems: Problems,
}

/// Parsing ends here; the error is recorded.
pub(super) struct Abort;

pub(super) type Parse<T> = Result<T, Abort>;

/// Open rules of each kind, as ANTLR counts them.
#[derive(Default)]
struct Depth {
    expr: usize,
    relation: usize,
    calc: usize,
    member: usize,
}

pub(super) struct Parser<'s> {
    lexemes: Vec<Lexeme<'s>>,
    at: usize,
    problems: Problems,
    depth: Depth,
    /// Operators, selections and calls within each other in the expression that was parsed last.
    pub(super) height: usize,
    pub(super) macros: Macros,
    release: Release,
}

/// Parses an expression.
pub(crate) fn parse(source: &str, release: Release) -> Parsed {
    let mut problems = Problems::default();
    let length = crate::value::number::chars(source);
    let lexemes = if length > MAX_LENGTH {
        problems.report_internal(format!(
            "expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}"
        ));
        Vec::new()
    } else {
        token::tokens(source).unwrap_or_else(|(offset, message)| {
            problems.report_syntax(offset, &message);
            Vec::new()
        })
    };
    let mut parser = Parser {
        lexemes,
        at: 0,
        problems,
        depth: Depth::default(),
        height: 0,
        macros: Macros::new(release),
        release,
    };
    let parsed = if parser.problems.is_empty() { parser.whole() } else { Err(Abort) };
    let expr = parsed.unwrap_or(Expr { id: 0, offset: 0, kind: ExprKind::Unspecified });
    Parsed { expr, ids: parser.macros.next_id, problems: parser.problems }
}

impl<'s> Parser<'s> {
    pub(super) fn lexeme(&self, ahead: usize) -> Lexeme<'s> {
        let last = Lexeme { token: CelToken::End, offset: 0, text: "" };
        self.lexemes.get(self.at + ahead).or(self.lexemes.last()).copied().unwrap_or(last)
    }

    pub(super) fn current(&self) -> CelToken {
        self.lexeme(0).token
    }

    pub(super) fn take(&mut self) -> Lexeme<'s> {
        let lexeme = self.lexeme(0);
        self.at += 1;
        lexeme
    }

    /// Consumes the current token if it is this one.
    pub(super) fn accept(&mut self, token: CelToken) -> bool {
        let is_accepted = self.current() == token;
        if is_accepted {
            self.take();
        }
        is_accepted
    }

    /// Consumes a token, which errors call by this name.
    pub(super) fn expect(&mut self, token: CelToken, name: &str) -> Parse<Lexeme<'s>> {
        if self.current() == token { Ok(self.take()) } else { self.fail(name) }
    }

    /// Reports that the current token is not the expected one.
    pub(super) fn fail<T>(&mut self, expected: &str) -> Parse<T> {
        let Lexeme { token, offset, text } = self.lexeme(0);
        let found = match text.char_indices().nth(MAX_SHOWN) {
            _ if token == CelToken::End => "the end of the expression".to_owned(),
            Some((end, _)) => format!("{:?}", format!("{}…", text.get(..end).unwrap_or_default())),
            None => format!("{text:?}"),
        };
        self.problems.report_syntax(offset, &format!("found {found}, expected {expected}"));
        Err(Abort)
    }

    fn enter(&mut self, depth: fn(&mut Depth) -> &mut usize) -> Parse<()> {
        let depth = depth(&mut self.depth);
        *depth += 1;
        if *depth <= MAX_DEPTH {
            return Ok(());
        }
        self.problems.report_internal(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        Err(Abort)
    }

    /// Counts an expression around others of a height.
    fn nested(&mut self, expr: Expr, height: usize) -> Parse<Expr> {
        self.height = height + 1;
        if self.height <= MAX_DEPTH {
            return Ok(expr);
        }
        self.problems.report_internal("max recursion depth exceeded".to_owned());
        Err(Abort)
    }

    fn whole(&mut self) -> Parse<Expr> {
        let expr = self.expr()?;
        self.expect(CelToken::End, "an operator or the end of the expression")?;
        Ok(expr)
    }

    pub(super) fn expr(&mut self) -> Parse<Expr> {
        self.enter(|depth| &mut depth.expr)?;
        let mut result = self.or()?;
        if self.current() == CelToken::Question {
            let offset = self.take().offset;
            let id = self.macros.id();
            let mut height = self.height;
            let yes = self.or()?;
            height = height.max(self.height);
            self.expect(CelToken::Colon, "':'")?;
            let no = self.expr()?;
            height = height.max(self.height);
            let args = vec![result, yes, no];
            let kind = ExprKind::Call { function: operators::CONDITIONAL.to_owned(), target: None, args };
            result = self.nested(Expr { id, offset, kind }, height)?;
        }
        self.depth.expr -= 1;
        Ok(result)
    }

    fn or(&mut self) -> Parse<Expr> {
        self.chain(CelToken::Or, operators::LOGICAL_OR, |parser| {
            parser.chain(CelToken::And, operators::LOGICAL_AND, Self::relation)
        })
    }

    /// `a || b || c`, as one call with all terms.
    fn chain(
        &mut self,
        token: CelToken,
        function: &str,
        term: impl Fn(&mut Self) -> Parse<Expr>,
    ) -> Parse<Expr> {
        let first = term(self)?;
        if self.current() != token {
            return Ok(first);
        }
        let offset = self.lexeme(0).offset;
        let mut args = vec![first];
        let mut height = self.height;
        while self.current() == token {
            self.take();
            args.push(term(self)?);
            height = height.max(self.height);
        }
        self.height = height;
        let id = self.macros.id();
        Ok(Expr { id, offset, kind: ExprKind::Call { function: function.to_owned(), target: None, args } })
    }

    fn relation(&mut self) -> Parse<Expr> {
        let before = self.depth.relation;
        self.enter(|depth| &mut depth.relation)?;
        let mut left = self.calc()?;
        let mut links = 0;
        loop {
            let function = match self.current() {
                CelToken::Less => operators::LESS,
                CelToken::LessEquals => operators::LESS_EQUALS,
                CelToken::GreaterEquals => operators::GREATER_EQUALS,
                CelToken::Greater => operators::GREATER,
                CelToken::Equals => operators::EQUALS,
                CelToken::NotEquals => operators::NOT_EQUALS,
                CelToken::In => operators::IN,
                _ => break,
            };
            let operator = self.take();
            let height = self.height;
            self.enter(|depth| &mut depth.relation)?;
            let right = self.calc()?;
            self.depth.relation = before + 1;
            left = self.binary(function, operator, left, right);
            left = self.nested(left, height.max(self.height))?;
            links += 1;
        }
        self.depth.relation = before.saturating_sub(links);
        Ok(left)
    }

    fn binary(&mut self, function: &str, operator: Lexeme<'_>, left: Expr, right: Expr) -> Expr {
        let kind = ExprKind::Call { function: function.to_owned(), target: None, args: vec![left, right] };
        Expr { id: self.macros.id(), offset: operator.offset, kind }
    }

    /// Sums.
    fn calc(&mut self) -> Parse<Expr> {
        let before = self.depth.calc;
        self.enter(|depth| &mut depth.calc)?;
        let mut links = 0;
        let mut left = self.product(&mut links)?;
        loop {
            let function = match self.current() {
                CelToken::Plus => operators::ADD,
                CelToken::Minus => operators::SUBTRACT,
                _ => break,
            };
            let operator = self.take();
            let height = self.height;
            self.enter(|depth| &mut depth.calc)?;
            let mut inner = 0;
            let right = self.product(&mut inner)?;
            self.depth.calc = (before + 1).saturating_sub(inner);
            left = self.binary(function, operator, left, right);
            left = self.nested(left, height.max(self.height))?;
            links += 1;
        }
        self.depth.calc = before.saturating_sub(links);
        Ok(left)
    }

    /// Products. They belong to the rule of sums; its links are counted together.
    fn product(&mut self, links: &mut usize) -> Parse<Expr> {
        let mut left = self.unary()?;
        loop {
            let function = match self.current() {
                CelToken::Star => operators::MULTIPLY,
                CelToken::Slash => operators::DIVIDE,
                CelToken::Percent => operators::MODULO,
                _ => break,
            };
            let operator = self.take();
            let height = self.height;
            self.enter(|depth| &mut depth.calc)?;
            let right = self.unary()?;
            self.depth.calc = self.depth.calc.saturating_sub(1);
            left = self.binary(function, operator, left, right);
            left = self.nested(left, height.max(self.height))?;
            *links += 1;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parse<Expr> {
        let operator = self.current();
        let literal =
            operator == CelToken::Minus && matches!(self.lexeme(1).token, CelToken::Int | CelToken::Float);
        if literal || !matches!(operator, CelToken::Minus | CelToken::Not) {
            return self.member();
        }
        let offset = self.lexeme(0).offset;
        let mut count = 0;
        while self.accept(operator) {
            count += 1;
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let function = if operator == CelToken::Minus { operators::NEGATE } else { operators::LOGICAL_NOT };
        let kind = ExprKind::Call { function: function.to_owned(), target: None, args: vec![operand] };
        Ok(Expr { id: self.macros.id(), offset, kind })
    }

    fn member(&mut self) -> Parse<Expr> {
        let before = self.depth.member;
        self.enter(|depth| &mut depth.member)?;
        let mut operand = self.primary()?;
        let mut links = 0;
        loop {
            let height = self.height;
            operand = match self.current() {
                CelToken::Dot => self.selection(operand)?,
                CelToken::LeftBracket => self.index(operand)?,
                _ => break,
            };
            operand = self.nested(operand, height.max(self.height))?;
            links += 1;
        }
        self.depth.member = before.saturating_sub(links);
        Ok(operand)
    }

    /// `.field`, `.?field` or `.method(…)`.
    fn selection(&mut self, operand: Expr) -> Parse<Expr> {
        let dot = self.take();
        if self.current() == CelToken::Identifier && self.lexeme(1).token == CelToken::LeftParen {
            let name = self.take();
            let open = self.take();
            let args = self.arguments()?;
            return Ok(self.call(name.text, Some(operand), args, open));
        }
        let optional = self.accept(CelToken::Question);
        let (field, offset) = self.field_name()?;
        let id = self.macros.id();
        let kind = if optional {
            let literal = ExprKind::Literal(Literal::String(field));
            let field = Expr { id: self.macros.id(), offset, kind: literal };
            ExprKind::Call {
                function: operators::OPT_SELECT.to_owned(),
                target: None,
                args: vec![operand, field],
            }
        } else {
            ExprKind::Select { operand: Box::new(operand), field, test_only: false }
        };
        Ok(Expr { id, offset: dot.offset, kind })
    }

    /// The name of a field without backticks, and its offset.
    pub(super) fn field_name(&mut self) -> Parse<(String, usize)> {
        if !matches!(self.current(), CelToken::Identifier | CelToken::EscapedIdentifier) {
            return self.fail(FIELD_NAME);
        }
        let name = self.take();
        if name.token == CelToken::EscapedIdentifier && !self.release.accepts_escaped_fields() {
            self.problems.report(name.offset, "unsupported syntax: '`'".to_owned());
        }
        Ok((name.text.trim_matches('`').to_owned(), name.offset))
    }

    fn index(&mut self, operand: Expr) -> Parse<Expr> {
        let open = self.take();
        let optional = self.accept(CelToken::Question);
        let index = self.expr()?;
        self.expect(CelToken::RightBracket, "']'")?;
        let function = if optional { operators::OPT_INDEX } else { operators::INDEX };
        Ok(self.binary(function, open, operand, index))
    }

    fn call(&mut self, name: &str, target: Option<Expr>, args: Vec<Expr>, open: Lexeme<'_>) -> Expr {
        match self.macros.expand(name, target, args, open.offset) {
            Expanded::Expr(expr) => expr,
            Expanded::Error { offset, message } => {
                self.problems.report(offset, message);
                self.macros.unspecified(offset)
            }
        }
    }

    /// The arguments of a call and its closing parenthesis.
    fn arguments(&mut self) -> Parse<Vec<Expr>> {
        let mut args = Vec::new();
        let mut height = 0;
        if !self.accept(CelToken::RightParen) {
            loop {
                args.push(self.expr()?);
                height = height.max(self.height);
                if !self.accept(CelToken::Comma) {
                    break;
                }
            }
            self.expect(CelToken::RightParen, "',' or ')'")?;
        }
        self.height = height;
        Ok(args)
    }

    fn primary(&mut self) -> Parse<Expr> {
        match self.current() {
            CelToken::LeftParen => {
                self.take();
                let expr = self.expr()?;
                self.expect(CelToken::RightParen, "')'")?;
                Ok(expr)
            }
            CelToken::LeftBracket => self.list(),
            CelToken::LeftBrace => self.map(),
            CelToken::Dot | CelToken::Identifier => self.identifier(),
            _ => self.literal(),
        }
    }

    fn identifier(&mut self) -> Parse<Expr> {
        let start = self.lexeme(0);
        let leading = self.accept(CelToken::Dot);
        let mut ahead = 1;
        while self.lexeme(ahead).token == CelToken::Dot
            && self.lexeme(ahead + 1).token == CelToken::Identifier
        {
            ahead += 2;
        }
        if self.lexeme(ahead).token == CelToken::LeftBrace {
            return self.message(leading);
        }
        let name = self.expect(CelToken::Identifier, "a name")?;
        let text = if leading { format!(".{}", name.text) } else { name.text.to_owned() };
        let reserved = is_reserved(name.text);
        if reserved {
            self.problems.report(start.offset, format!("reserved identifier: {}", name.text));
        }
        if self.current() == CelToken::LeftParen {
            let open = self.take();
            let args = self.arguments()?;
            return Ok(if reserved {
                self.macros.unspecified(start.offset)
            } else {
                self.call(&text, None, args, open)
            });
        }
        if reserved {
            return Ok(self.macros.unspecified(start.offset));
        }
        self.height = 0;
        Ok(Expr { id: self.macros.id(), offset: name.offset, kind: ExprKind::Ident(text) })
    }

    fn literal(&mut self) -> Parse<Expr> {
        let start = self.lexeme(0);
        let is_number = matches!(self.lexeme(1).token, CelToken::Int | CelToken::Float);
        let negative = is_number && self.accept(CelToken::Minus);
        if !self.current().is_literal() {
            return self.fail(VALUE);
        }
        let lexeme = self.take();
        self.height = 0;
        let literal = literal(lexeme, negative);
        let kind = match literal {
            Ok(literal) => ExprKind::Literal(literal),
            Err(message) => {
                self.problems.report(start.offset, message);
                ExprKind::Unspecified
            }
        };
        Ok(Expr { id: self.macros.id(), offset: start.offset, kind })
    }
}

/// Names that are no variables.
fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "as" | "break"
            | "const"
            | "continue"
            | "else"
            | "for"
            | "function"
            | "if"
            | "import"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "return"
            | "var"
            | "void"
            | "while"
    )
}
