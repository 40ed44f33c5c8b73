//! The parser: recursive descent with the error recovery of cel-go's ANTLR parser, so that errors have the same texts and places.
//!
//! As ANTLR does, each rule that fails reports one error, skips to a token that can follow one of the rules that are open, and
//! goes on. Errors that follow from the first one are suppressed until a token matches.

use super::ast::{Expr, Kind, Literal};
use super::error::Problems;
use super::macros::{Macros, Outcome};
use super::operators;
use super::recover::{Abort, Depth, MEMBER, Parse, Parser};
use super::token::{self, Lexeme, Token, Tokens};
use super::unescape::literal;
use crate::release::Release;

/// Longest expression in code points.
const MAX_LENGTH: usize = 100_000;
const PRIMARY_FIRST: Tokens = Tokens::of(&[
    Token::LeftBracket,
    Token::LeftBrace,
    Token::LeftParen,
    Token::Dot,
    Token::Minus,
    Token::True,
    Token::False,
    Token::Null,
    Token::Float,
    Token::Int,
    Token::Uint,
    Token::String,
    Token::Bytes,
    Token::Identifier,
]);
pub(super) const UNARY_FIRST: Tokens = PRIMARY_FIRST.and(Tokens::of(&[Token::Not]));
pub(super) const OPTIONAL_FIRST: Tokens = UNARY_FIRST.and(Tokens::of(&[Token::Question]));
pub(super) const FIELD_FIRST: Tokens =
    Tokens::of(&[Token::Question, Token::Identifier, Token::EscapedIdentifier]);
pub(super) const FIELD_NAME: Tokens = Tokens::of(&[Token::Identifier, Token::EscapedIdentifier]);

/// A parsed expression. If there are problems, parts of it are unspecified.
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    /// Number of ids that were given.
    pub(crate) ids: usize,
    pub(crate) problems: Problems,
}

/// Parses an expression.
pub(crate) fn parse(source: &str, release: Release) -> Parsed {
    let mut problems = Problems::default();
    let length = crate::value::number::chars(source);
    if length > MAX_LENGTH {
        problems.report_internal(format!(
            "expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}"
        ));
        return Parsed { expr: Expr { id: 0, offset: 0, kind: Kind::Unspecified }, ids: 1, problems };
    }
    let lexemes = token::tokens(source, &mut token::into_problems(&mut problems));
    let mut parser = Parser {
        source,
        lexemes,
        at: 0,
        problems,
        recovering: false,
        reports: 0,
        recoveries: 0,
        last_recovery: None,
        open: vec![Tokens::of(&[Token::End])],
        depth: Depth::default(),
        height: 0,
        too_high: false,
        macros: Macros::new(release),
        release,
    };
    let expr = match parser.expr() {
        Ok(expr) => {
            let end = Tokens::of(&[Token::End]);
            if parser.expect(Token::End, end, Tokens::default()).is_err() {
                parser.mismatch(end);
                let _ = parser.skip_all();
            }
            expr
        }
        Err(Abort) => Expr { id: 0, offset: 0, kind: Kind::Unspecified },
    };
    if parser.too_high {
        parser.problems.report_internal("max recursion depth exceeded".to_owned());
    }
    Parsed { expr, ids: parser.macros.next_id, problems: parser.problems }
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Parse<Expr> {
        self.enter(|depth| &mut depth.expr)?;
        let condition = self.chain(Token::Or, operators::LOGICAL_OR, |parser| {
            parser.chain(Token::And, operators::LOGICAL_AND, Self::relation)
        })?;
        let mut result = condition;
        if self.current() == Token::Question {
            let operator = self.take();
            let id = self.macros.id();
            let or = |parser: &mut Self| {
                parser.chain(Token::Or, operators::LOGICAL_OR, |parser| {
                    parser.chain(Token::And, operators::LOGICAL_AND, Self::relation)
                })
            };
            let mut height = self.height;
            let yes = self.within(&[Token::Colon], or)?;
            height = height.max(self.height);
            let colon = Tokens::of(&[Token::Colon]);
            match self.expect(Token::Colon, colon, UNARY_FIRST) {
                Ok(_) => {
                    let no = self.expr()?;
                    height = height.max(self.height);
                    result = Expr {
                        id,
                        offset: operator.offset,
                        kind: Kind::Call {
                            function: operators::CONDITIONAL.to_owned(),
                            target: None,
                            args: vec![result, yes, no],
                        },
                    };
                    result = self.nested(result, height);
                }
                Err(Some(abort)) => return Err(abort),
                Err(None) => result = self.fail(colon, Tokens::default())?,
            }
        }
        self.depth.expr -= 1;
        Ok(result)
    }

    /// `a || b || c`, as one call with all terms.
    fn chain(
        &mut self,
        token: Token,
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
        Ok(Expr { id, offset, kind: Kind::Call { function: function.to_owned(), target: None, args } })
    }

    fn relation(&mut self) -> Parse<Expr> {
        let before = self.depth.relation;
        self.enter(|depth| &mut depth.relation)?;
        let mut left = self.calc()?;
        let mut links = 0;
        loop {
            let function = match self.current() {
                Token::Less => operators::LESS,
                Token::LessEquals => operators::LESS_EQUALS,
                Token::GreaterEquals => operators::GREATER_EQUALS,
                Token::Greater => operators::GREATER,
                Token::Equals => operators::EQUALS,
                Token::NotEquals => operators::NOT_EQUALS,
                Token::In => operators::IN,
                _ => break,
            };
            let operator = self.take();
            let height = self.height;
            self.enter(|depth| &mut depth.relation)?;
            let right = self.calc()?;
            self.depth.relation = before + 1;
            left = self.binary(function, operator, left, right);
            left = self.nested(left, height.max(self.height));
            links += 1;
        }
        self.depth.relation = before.saturating_sub(links);
        Ok(left)
    }

    fn binary(&mut self, function: &str, operator: Lexeme<'_>, left: Expr, right: Expr) -> Expr {
        let kind = Kind::Call { function: function.to_owned(), target: None, args: vec![left, right] };
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
                Token::Plus => operators::ADD,
                Token::Minus => operators::SUBTRACT,
                _ => break,
            };
            let operator = self.take();
            let height = self.height;
            self.enter(|depth| &mut depth.calc)?;
            let mut inner = 0;
            let right = self.product(&mut inner)?;
            self.depth.calc = (before + 1).saturating_sub(inner);
            left = self.binary(function, operator, left, right);
            left = self.nested(left, height.max(self.height));
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
                Token::Star => operators::MULTIPLY,
                Token::Slash => operators::DIVIDE,
                Token::Percent => operators::MODULO,
                _ => break,
            };
            let operator = self.take();
            let height = self.height;
            self.enter(|depth| &mut depth.calc)?;
            let right = self.unary()?;
            self.depth.calc = self.depth.calc.saturating_sub(1);
            left = self.binary(function, operator, left, right);
            left = self.nested(left, height.max(self.height));
            *links += 1;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parse<Expr> {
        if !self.sync(UNARY_FIRST)? {
            return self.fail(UNARY_FIRST, Tokens::default());
        }
        let operator = self.current();
        let literal = operator == Token::Minus && matches!(self.lexeme(1).token, Token::Int | Token::Float);
        if literal || !matches!(operator, Token::Minus | Token::Not) {
            return self.member();
        }
        let first = self.lexeme(0);
        let mut count = 0;
        while self.current() == operator {
            if operator == Token::Minus && !PRIMARY_FIRST.contains(self.lexeme(1).token) {
                return self.no_viable(Tokens::default());
            }
            self.take();
            count += 1;
        }
        if operator == Token::Not {
            self.sync_loop(UNARY_FIRST)?;
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let function = if operator == Token::Minus { operators::NEGATE } else { operators::LOGICAL_NOT };
        let kind = Kind::Call { function: function.to_owned(), target: None, args: vec![operand] };
        Ok(Expr { id: self.macros.id(), offset: first.offset, kind })
    }

    fn member(&mut self) -> Parse<Expr> {
        let before = self.depth.member;
        self.enter(|depth| &mut depth.member)?;
        let mut operand = self.primary()?;
        let mut links = 0;
        loop {
            let height = self.height;
            operand = match self.current() {
                Token::Dot => match self.selection(operand)? {
                    Ok(expr) => expr,
                    Err(expr) => {
                        operand = expr;
                        break;
                    }
                },
                Token::LeftBracket => self.index(operand)?,
                _ => break,
            };
            operand = self.nested(operand, height.max(self.height));
            links += 1;
        }
        self.depth.member = before.saturating_sub(links);
        Ok(operand)
    }

    /// `.field`, `.?field` or `.method(…)`. A failed rule is the inner error.
    fn selection(&mut self, operand: Expr) -> Parse<Result<Expr, Expr>> {
        let dot = self.lexeme(0);
        let next = self.lexeme(1);
        match next.token {
            Token::Identifier if self.lexeme(2).token == Token::LeftParen => {
                self.take();
                self.take();
                let open = self.take();
                let args = self.arguments()?;
                return Ok(Ok(self.call(next.text, Some(operand), args, open)));
            }
            Token::Identifier | Token::EscapedIdentifier | Token::Question => {}
            _ => {
                self.no_viable(Tokens::default())?;
                return Ok(Err(operand));
            }
        }
        self.take();
        let optional = self.current() == Token::Question;
        if optional {
            self.take();
            if !self.sync(FIELD_NAME)? {
                let offset = self.lexeme(0).offset;
                let failed = self.fail(FIELD_NAME, MEMBER)?;
                self.problems.report(offset, "unsupported ident kind".to_owned());
                return Ok(Ok(failed));
            }
        }
        let name = self.take();
        let field = self.field_name(name);
        let id = self.macros.id();
        let kind = if optional {
            let literal = Kind::Literal(Literal::String(field));
            let field = Expr { id: self.macros.id(), offset: name.offset, kind: literal };
            Kind::Call {
                function: operators::OPT_SELECT.to_owned(),
                target: None,
                args: vec![operand, field],
            }
        } else {
            Kind::Select { operand: Box::new(operand), field, test_only: false }
        };
        Ok(Ok(Expr { id, offset: dot.offset, kind }))
    }

    /// The name of a field without backticks.
    pub(super) fn field_name(&mut self, name: Lexeme<'_>) -> String {
        if name.token == Token::EscapedIdentifier && !self.release.accepts_escaped_fields() {
            self.problems.report(name.offset, "unsupported syntax: '`'".to_owned());
        }
        name.text.trim_matches('`').to_owned()
    }

    fn index(&mut self, operand: Expr) -> Parse<Expr> {
        let open = self.take();
        if !self.sync(OPTIONAL_FIRST)? {
            return self.fail(OPTIONAL_FIRST, MEMBER);
        }
        let optional = self.question();
        let index = self.within(&[Token::RightBracket], Self::expr)?;
        self.close(Token::RightBracket, Tokens::of(&[Token::RightBracket]))?;
        let function = if optional { operators::OPT_INDEX } else { operators::INDEX };
        Ok(self.binary(function, open, operand, index))
    }

    fn call(&mut self, name: &str, target: Option<Expr>, args: Vec<Expr>, open: Lexeme<'_>) -> Expr {
        match self.macros.expand(name, target, args, open.offset) {
            Outcome::Expr(expr) => expr,
            Outcome::Error { offset, message } => {
                self.problems.report(offset, message);
                self.macros.unspecified(offset)
            }
        }
    }

    /// The arguments of a call and its closing parenthesis.
    fn arguments(&mut self) -> Parse<Vec<Expr>> {
        let close = Tokens::of(&[Token::RightParen]);
        let mut args = Vec::new();
        let mut height = 0;
        self.height = 0;
        if !self.sync(UNARY_FIRST.and(close))? {
            self.fail(UNARY_FIRST.and(close), MEMBER)?;
            return Ok(args);
        }
        if self.current() != Token::RightParen {
            args.push(self.within(&[Token::Comma, Token::RightParen], Self::expr)?);
            height = height.max(self.height);
            while self.current() == Token::Comma {
                self.take();
                args.push(self.within(&[Token::Comma, Token::RightParen], Self::expr)?);
                height = height.max(self.height);
            }
        }
        self.height = height;
        self.close(Token::RightParen, close)?;
        Ok(args)
    }

    fn primary(&mut self) -> Parse<Expr> {
        if !self.sync(PRIMARY_FIRST)? {
            return self.fail(PRIMARY_FIRST, MEMBER);
        }
        let start = self.lexeme(0);
        match start.token {
            Token::LeftParen => {
                self.take();
                let expr = self.within(&[Token::RightParen], Self::expr)?;
                self.close(Token::RightParen, Tokens::of(&[Token::RightParen]))?;
                Ok(expr)
            }
            Token::LeftBracket => self.list(),
            Token::LeftBrace => self.map(),
            Token::Dot | Token::Identifier => self.identifier(),
            _ => self.literal(),
        }
    }

    fn identifier(&mut self) -> Parse<Expr> {
        let start = self.lexeme(0);
        let leading = start.token == Token::Dot;
        if leading {
            if self.lexeme(1).token != Token::Identifier {
                return self.no_viable(MEMBER);
            }
            self.take();
        }
        let mut ahead = 1;
        while self.lexeme(ahead).token == Token::Dot && self.lexeme(ahead + 1).token == Token::Identifier {
            ahead += 2;
        }
        if self.lexeme(ahead).token == Token::LeftBrace {
            return self.message(leading);
        }
        let name = self.take();
        let text = if leading { format!(".{}", name.text) } else { name.text.to_owned() };
        let reserved = is_reserved(name.text);
        if reserved {
            self.problems.report(start.offset, format!("reserved identifier: {}", name.text));
        }
        if self.current() == Token::LeftParen {
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
        Ok(Expr { id: self.macros.id(), offset: name.offset, kind: Kind::Ident(text) })
    }

    fn literal(&mut self) -> Parse<Expr> {
        let start = self.lexeme(0);
        let negative = start.token == Token::Minus;
        if negative {
            if !matches!(self.lexeme(1).token, Token::Int | Token::Float) {
                return self.no_viable(MEMBER);
            }
            self.take();
        }
        let lexeme = self.take();
        self.height = 0;
        let literal = literal(lexeme, negative);
        let kind = match literal {
            Ok(literal) => Kind::Literal(literal),
            Err(message) => {
                self.problems.report(start.offset, message);
                Kind::Unspecified
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
