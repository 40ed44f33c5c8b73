//! The parser: recursive descent with the error recovery of cel-go's ANTLR parser, so that errors have the same texts and places.
//!
//! As ANTLR does, each rule that fails reports one error, skips to a token that can follow one of the rules that are open, and
//! goes on. Errors that follow from the first one are suppressed until a token matches.

use super::ast::{Entry, Expr, Field, Kind, Literal};
use super::error::Problems;
use super::macros::{Macros, Outcome};
use super::token::{self, Lexeme, Token, Tokens};
use super::unescape::unescape;

/// Nesting that cel-go accepts, of each kind of rule.
const MAX_DEPTH: usize = 250;
/// Longest expression in code points.
const MAX_LENGTH: usize = 100_000;
/// Errors after which cel-go gives up.
const MAX_REPORTS: usize = 100;
/// Recoveries after which cel-go gives up.
const MAX_RECOVERIES: usize = 30;

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
const UNARY_FIRST: Tokens = PRIMARY_FIRST.and(Tokens::of(&[Token::Not]));
const OPTIONAL_FIRST: Tokens = UNARY_FIRST.and(Tokens::of(&[Token::Question]));
const FIELD_FIRST: Tokens = Tokens::of(&[Token::Question, Token::Identifier, Token::EscapedIdentifier]);
const FIELD_NAME: Tokens = Tokens::of(&[Token::Identifier, Token::EscapedIdentifier]);
const OPERATORS: Tokens = Tokens::of(&[
    Token::Equals,
    Token::NotEquals,
    Token::In,
    Token::Less,
    Token::LessEquals,
    Token::GreaterEquals,
    Token::Greater,
    Token::And,
    Token::Or,
    Token::Question,
    Token::Plus,
    Token::Minus,
    Token::Star,
    Token::Slash,
    Token::Percent,
]);
const MEMBER: Tokens = Tokens::of(&[Token::Dot, Token::LeftBracket]);

/// What the environment accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syntax {
    /// Fields in backticks.
    pub(crate) escaped_fields: bool,
    /// Macros with two variables.
    pub(crate) two_variables: bool,
    /// `sortBy` of the list library.
    pub(crate) sort_by: bool,
}

/// A parsed expression. If there are problems, parts of it are unspecified.
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    /// Number of ids that were given.
    pub(crate) ids: usize,
    pub(crate) problems: Problems,
}

/// Parses an expression.
pub(crate) fn parse(source: &str, syntax: Syntax) -> Parsed {
    let mut problems = Problems::default();
    let length = crate::value::number::chars(source);
    if length > MAX_LENGTH {
        problems.report_internal(format!("expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}"));
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
        macros: Macros::new(syntax),
        syntax,
    };
    let expr = match parser.expr() {
        Ok(expr) => {
            let end = Tokens::of(&[Token::End]);
            if parser.expect(Token::End, end, Tokens::default()).is_err() {
                parser.mismatch(end);
            }
            expr
        }
        Err(Abort) => Expr { id: 0, offset: 0, kind: Kind::Unspecified },
    };
    Parsed { expr, ids: parser.macros.next_id, problems: parser.problems }
}

/// Parsing ends here; the error is recorded.
struct Abort;

type Parse<T> = Result<T, Abort>;

#[derive(Default)]
struct Depth {
    expr: usize,
    relation: usize,
    calc: usize,
    member: usize,
}

struct Parser<'s> {
    source: &'s str,
    lexemes: Vec<Lexeme<'s>>,
    at: usize,
    problems: Problems,
    recovering: bool,
    reports: usize,
    recoveries: usize,
    last_recovery: Option<usize>,
    /// For each open rule, the tokens that can follow the expression within it.
    open: Vec<Tokens>,
    depth: Depth,
    macros: Macros,
    syntax: Syntax,
}

impl<'s> Parser<'s> {
    fn lexeme(&self, ahead: usize) -> Lexeme<'s> {
        let last = Lexeme { token: Token::End, offset: 0, text: "<EOF>" };
        self.lexemes.get(self.at + ahead).or(self.lexemes.last()).copied().unwrap_or(last)
    }

    fn current(&self) -> Token {
        self.lexeme(0).token
    }

    /// Consumes the current token, which matched.
    fn take(&mut self) -> Lexeme<'s> {
        let lexeme = self.lexeme(0);
        self.recovering = false;
        self.skip();
        lexeme
    }

    fn skip(&mut self) {
        if self.current() != Token::End {
            self.at += 1;
        }
    }

    fn report(&mut self, message: &str) -> Parse<()> {
        let offset = self.lexeme(0).offset;
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        if self.reports >= MAX_REPORTS {
            self.problems.report(offset, format!("Syntax error: More than {MAX_REPORTS} syntax errors"));
            return Err(Abort);
        }
        self.reports += 1;
        self.problems.report(offset, format!("Syntax error: {message}"));
        Ok(())
    }

    fn display(&self) -> String {
        format!("'{}'", escape_space(self.lexeme(0).text))
    }

    fn mismatch(&mut self, expecting: Tokens) {
        let message = format!("mismatched input {} expecting {}", self.display(), expecting.display());
        let _ = self.report(&message);
    }

    fn attempt(&mut self) -> Parse<()> {
        if self.recoveries == MAX_RECOVERIES {
            let offset = self.lexeme(0).offset;
            self.problems.report(offset, format!("Syntax error: error recovery attempt limit exceeded: {MAX_RECOVERIES}"));
            return Err(Abort);
        }
        self.recoveries += 1;
        Ok(())
    }

    /// Reports a mismatch and skips to a token that can follow an open rule.
    fn fail(&mut self, expecting: Tokens, also: Tokens) -> Parse<Expr> {
        let message = format!("mismatched input {} expecting {}", self.display(), expecting.display());
        self.fail_with(&message, also)
    }

    fn fail_with(&mut self, message: &str, also: Tokens) -> Parse<Expr> {
        let offset = self.lexeme(0).offset;
        self.report(message)?;
        self.attempt()?;
        if self.last_recovery == Some(self.at) {
            self.skip();
        }
        self.last_recovery = Some(self.at);
        let follow = self.open.iter().fold(OPERATORS.and(also), |all, tokens| all.and(*tokens));
        while !follow.contains(self.current()) && self.current() != Token::End {
            self.skip();
        }
        Ok(self.macros.unspecified(offset))
    }

    /// Checks that a rule can start here; skips one token if the next one can start it.
    fn sync(&mut self, expecting: Tokens) -> Parse<bool> {
        if expecting.contains(self.current()) {
            return Ok(true);
        }
        if !self.recovering && expecting.contains(self.lexeme(1).token) && self.current() != Token::End {
            let message = format!("extraneous input {} expecting {}", self.display(), expecting.display());
            self.report(&message)?;
            self.skip();
            self.recovering = false;
            return Ok(true);
        }
        Ok(false)
    }

    /// Consumes a token. An extra token before it or its absence is reported and repaired.
    fn expect(&mut self, token: Token, expecting: Tokens, following: Tokens) -> Result<Lexeme<'s>, Option<Abort>> {
        if self.current() == token {
            return Ok(self.take());
        }
        self.attempt().map_err(Some)?;
        if self.lexeme(1).token == token && self.current() != Token::End {
            let message = format!("extraneous input {} expecting {}", self.display(), expecting.display());
            self.report(&message).map_err(Some)?;
            self.skip();
            return Ok(self.take());
        }
        if following.contains(self.current()) {
            let message = format!("missing {} at {}", Tokens::of(&[token]).display(), self.display());
            self.report(&message).map_err(Some)?;
            return Ok(self.lexeme(0));
        }
        Err(None)
    }

    /// Consumes the token that ends a primary or member; then operators, members and the end of the rule around can follow.
    fn close(&mut self, token: Token, expecting: Tokens) -> Parse<()> {
        let following = OPERATORS.and(MEMBER).and(self.open.last().copied().unwrap_or_default());
        match self.expect(token, expecting, following) {
            Ok(_) => Ok(()),
            Err(Some(abort)) => Err(abort),
            Err(None) => self.fail(expecting, MEMBER).map(|_| ()),
        }
    }

    fn enter(&mut self, depth: fn(&mut Depth) -> &mut usize) -> Parse<()> {
        let depth = depth(&mut self.depth);
        *depth += 1;
        if *depth > MAX_DEPTH {
            self.problems.report_internal(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            return Err(Abort);
        }
        Ok(())
    }

    fn within<T>(&mut self, follow: &[Token], rule: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        self.open.push(Tokens::of(follow));
        let result = rule(self);
        self.open.pop();
        result
    }

    fn expr(&mut self) -> Parse<Expr> {
        self.enter(|depth| &mut depth.expr)?;
        let condition = self.chain(Token::Or, "_||_", |parser| parser.chain(Token::And, "_&&_", Self::relation))?;
        let mut result = condition;
        if self.current() == Token::Question {
            let operator = self.take();
            let id = self.macros.id();
            let or = |parser: &mut Self| {
                parser.chain(Token::Or, "_||_", |parser| parser.chain(Token::And, "_&&_", Self::relation))
            };
            let yes = self.within(&[Token::Colon], or)?;
            let colon = Tokens::of(&[Token::Colon]);
            match self.expect(Token::Colon, colon, UNARY_FIRST) {
                Ok(_) => {
                    let no = self.expr()?;
                    result = Expr {
                        id,
                        offset: operator.offset,
                        kind: Kind::Call { function: "_?_:_".to_owned(), target: None, args: vec![result, yes, no] },
                    };
                }
                Err(Some(abort)) => return Err(abort),
                Err(None) => result = self.fail(colon, Tokens::default())?,
            }
        }
        self.depth.expr -= 1;
        Ok(result)
    }

    /// `a || b || c`, as one call with all terms.
    fn chain(&mut self, token: Token, function: &str, term: impl Fn(&mut Self) -> Parse<Expr>) -> Parse<Expr> {
        let first = term(self)?;
        if self.current() != token {
            return Ok(first);
        }
        let offset = self.lexeme(0).offset;
        let mut args = vec![first];
        while self.current() == token {
            self.take();
            args.push(term(self)?);
        }
        let id = self.macros.id();
        Ok(Expr { id, offset, kind: Kind::Call { function: function.to_owned(), target: None, args } })
    }

    fn relation(&mut self) -> Parse<Expr> {
        let before = self.depth.relation;
        self.enter(|depth| &mut depth.relation)?;
        let mut left = self.calc(false)?;
        loop {
            let function = match self.current() {
                Token::Less => "_<_",
                Token::LessEquals => "_<=_",
                Token::GreaterEquals => "_>=_",
                Token::Greater => "_>_",
                Token::Equals => "_==_",
                Token::NotEquals => "_!=_",
                Token::In => "@in",
                _ => break,
            };
            let operator = self.take();
            self.enter(|depth| &mut depth.relation)?;
            let right = self.calc(false)?;
            left = self.binary(function, operator, left, right);
        }
        self.depth.relation = before;
        Ok(left)
    }

    fn binary(&mut self, function: &str, operator: Lexeme<'_>, left: Expr, right: Expr) -> Expr {
        let kind = Kind::Call { function: function.to_owned(), target: None, args: vec![left, right] };
        Expr { id: self.macros.id(), offset: operator.offset, kind }
    }

    /// Sums, and products if `product`.
    fn calc(&mut self, product: bool) -> Parse<Expr> {
        let before = self.depth.calc;
        self.enter(|depth| &mut depth.calc)?;
        let mut left = if product { self.unary()? } else { self.calc(true)? };
        loop {
            let function = match (self.current(), product) {
                (Token::Star, true) => "_*_",
                (Token::Slash, true) => "_/_",
                (Token::Percent, true) => "_%_",
                (Token::Plus, false) => "_+_",
                (Token::Minus, false) => "_-_",
                _ => break,
            };
            let operator = self.take();
            self.enter(|depth| &mut depth.calc)?;
            let right = if product { self.unary()? } else { self.calc(true)? };
            left = self.binary(function, operator, left, right);
        }
        self.depth.calc = before;
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
            self.take();
            count += 1;
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let function = if operator == Token::Minus { "-_" } else { "!_" };
        let kind = Kind::Call { function: function.to_owned(), target: None, args: vec![operand] };
        Ok(Expr { id: self.macros.id(), offset: first.offset, kind })
    }

    fn member(&mut self) -> Parse<Expr> {
        let before = self.depth.member;
        self.enter(|depth| &mut depth.member)?;
        let mut operand = self.primary()?;
        loop {
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
            self.enter(|depth| &mut depth.member)?;
        }
        self.depth.member = before;
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
                self.at += 1;
                let text = match next.token {
                    Token::End => dot.text.to_owned(),
                    _ => escape_space(&self.between(dot.offset, next)),
                };
                let message = match next.token {
                    Token::True | Token::False | Token::Null => format!("mismatched input '{}' expecting IDENTIFIER", next.text),
                    _ => format!("no viable alternative at input '{text}'"),
                };
                return self.fail_with(&message, Tokens::default()).map(Err);
            }
        }
        self.take();
        let optional = self.current() == Token::Question;
        if optional {
            self.take();
            if !self.sync(FIELD_NAME)? {
                return self.fail(FIELD_NAME, Tokens::default()).map(Ok);
            }
        }
        let name = self.take();
        let field = self.field_name(name);
        let id = self.macros.id();
        let kind = if optional {
            let literal = Kind::Literal(Literal::String(field));
            let field = Expr { id: self.macros.id(), offset: name.offset, kind: literal };
            Kind::Call { function: "_?._".to_owned(), target: None, args: vec![operand, field] }
        } else {
            Kind::Select { operand: Box::new(operand), field, test_only: false }
        };
        Ok(Ok(Expr { id, offset: dot.offset, kind }))
    }

    /// The source text from an offset in code points to the end of a token.
    fn between(&self, start: usize, end: Lexeme<'_>) -> String {
        let len = end.offset + end.text.chars().count() - start;
        self.source.chars().skip(start).take(len).collect()
    }

    /// The name of a field without backticks; cel-go accepts them from 0.29 on.
    fn field_name(&mut self, name: Lexeme<'_>) -> String {
        if name.token == Token::EscapedIdentifier && !self.syntax.escaped_fields {
            self.problems.report(name.offset, "unsupported syntax: '`'".to_owned());
        }
        name.text.trim_matches('`').to_owned()
    }

    fn index(&mut self, operand: Expr) -> Parse<Expr> {
        let open = self.take();
        let optional = self.current() == Token::Question;
        if optional {
            self.take();
        }
        let index = self.within(&[Token::RightBracket], Self::expr)?;
        self.close(Token::RightBracket, Tokens::of(&[Token::RightBracket]))?;
        let function = if optional { "_[?_]" } else { "_[_]" };
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
        if !self.sync(UNARY_FIRST.and(close))? {
            self.fail(UNARY_FIRST.and(close), MEMBER)?;
            return Ok(args);
        }
        if self.current() != Token::RightParen {
            args.push(self.within(&[Token::Comma, Token::RightParen], Self::expr)?);
            while self.current() == Token::Comma {
                self.take();
                args.push(self.within(&[Token::Comma, Token::RightParen], Self::expr)?);
            }
        }
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
            self.take();
            if self.current() != Token::Identifier {
                let next = self.lexeme(0);
                let text = if next.token == Token::End { ".".to_owned() } else { self.between(start.offset, next) };
                let message = format!("no viable alternative at input '{}'", escape_space(&text));
                return self.fail_with(&message, MEMBER);
            }
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
            return Ok(if reserved { self.macros.unspecified(start.offset) } else { self.call(&text, None, args, open) });
        }
        if reserved {
            return Ok(self.macros.unspecified(start.offset));
        }
        Ok(Expr { id: self.macros.id(), offset: name.offset, kind: Kind::Ident(text) })
    }

    fn list(&mut self) -> Parse<Expr> {
        let open = self.take();
        let end = Tokens::of(&[Token::RightBracket, Token::Comma]);
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        if !self.sync(OPTIONAL_FIRST.and(end))? {
            return self.fail(OPTIONAL_FIRST.and(end), MEMBER);
        }
        while OPTIONAL_FIRST.contains(self.current()) {
            optional.push(self.question());
            elements.push(self.within(&[Token::Comma, Token::RightBracket], Self::expr)?);
            if self.current() != Token::Comma || !OPTIONAL_FIRST.contains(self.lexeme(1).token) {
                break;
            }
            self.take();
        }
        if !self.trailing_comma(end)? {
            return Ok(self.macros.unspecified(open.offset));
        }
        self.close(Token::RightBracket, Tokens::of(&[Token::RightBracket]))?;
        Ok(Expr { id: self.macros.id(), offset: open.offset, kind: Kind::List { elements, optional } })
    }

    fn question(&mut self) -> bool {
        let optional = self.current() == Token::Question;
        if optional {
            self.take();
        }
        optional
    }

    /// Consumes a comma before the end of a list or map.
    fn trailing_comma(&mut self, end: Tokens) -> Parse<bool> {
        if !self.sync(end)? {
            self.fail(end, MEMBER)?;
            return Ok(false);
        }
        if self.current() == Token::Comma {
            self.take();
        }
        Ok(true)
    }

    fn map(&mut self) -> Parse<Expr> {
        let open = self.take();
        let end = Tokens::of(&[Token::RightBrace, Token::Comma]);
        if !self.sync(OPTIONAL_FIRST.and(end))? {
            return self.fail(OPTIONAL_FIRST.and(end), MEMBER);
        }
        let mut entries = Vec::new();
        while OPTIONAL_FIRST.contains(self.current()) {
            let optional = self.question();
            let key = self.within(&[Token::Colon], Self::expr)?;
            let Some(value) = self.after_colon()? else { return Ok(self.macros.unspecified(open.offset)) };
            entries.push(Entry { key, value, optional });
            if self.current() != Token::Comma || !OPTIONAL_FIRST.contains(self.lexeme(1).token) {
                break;
            }
            self.take();
        }
        if !self.trailing_comma(end)? {
            return Ok(self.macros.unspecified(open.offset));
        }
        self.close(Token::RightBrace, Tokens::of(&[Token::RightBrace]))?;
        Ok(Expr { id: self.macros.id(), offset: open.offset, kind: Kind::Map(entries) })
    }

    fn after_colon(&mut self) -> Parse<Option<Expr>> {
        let colon = Tokens::of(&[Token::Colon]);
        match self.expect(Token::Colon, colon, UNARY_FIRST) {
            Ok(_) => self.within(&[Token::Comma, Token::RightBrace], Self::expr).map(Some),
            Err(Some(abort)) => Err(abort),
            Err(None) => {
                self.within(&[Token::Comma, Token::RightBrace], |parser| parser.fail(colon, Tokens::default()))?;
                Ok(None)
            }
        }
    }

    /// `Name{field: value}`. No type of the Kubernetes environments can be built; the checker reports the name.
    fn message(&mut self, leading: bool) -> Parse<Expr> {
        let mut name = if leading { ".".to_owned() } else { String::new() };
        while self.current() != Token::LeftBrace {
            name.push_str(self.take().text);
        }
        let open = self.take();
        let end = Tokens::of(&[Token::RightBrace, Token::Comma]);
        if !self.sync(FIELD_FIRST.and(end))? {
            return self.fail(FIELD_FIRST.and(end), MEMBER);
        }
        let mut fields = Vec::new();
        while FIELD_FIRST.contains(self.current()) {
            self.question();
            if !self.sync(FIELD_NAME)? {
                return self.fail(FIELD_NAME, MEMBER);
            }
            let field = self.take();
            self.field_name(field);
            let Some(value) = self.after_colon()? else { return Ok(self.macros.unspecified(open.offset)) };
            fields.push(Field { value });
            if self.current() != Token::Comma || !FIELD_FIRST.contains(self.lexeme(1).token) {
                break;
            }
            self.take();
        }
        if !self.trailing_comma(end)? {
            return Ok(self.macros.unspecified(open.offset));
        }
        self.close(Token::RightBrace, Tokens::of(&[Token::RightBrace]))?;
        Ok(Expr { id: self.macros.id(), offset: open.offset, kind: Kind::Struct { name, fields } })
    }

    fn literal(&mut self) -> Parse<Expr> {
        let start = self.lexeme(0);
        let negative = start.token == Token::Minus;
        if negative {
            self.take();
            if !matches!(self.current(), Token::Int | Token::Float) {
                let text = self.between(start.offset, self.lexeme(0));
                return self.fail_with(&format!("no viable alternative at input '{}'", escape_space(&text)), MEMBER);
            }
        }
        let lexeme = self.take();
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

fn literal(lexeme: Lexeme<'_>, negative: bool) -> Result<Literal, String> {
    let text = lexeme.text;
    let sign = if negative { "-" } else { "" };
    let radix = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => (format!("{sign}{hex}"), 16),
        None => (format!("{sign}{text}"), 10),
    };
    match lexeme.token {
        Token::Int => {
            let (digits, radix) = radix(text);
            i64::from_str_radix(&digits, radix).map(Literal::Int).map_err(|_| "invalid int literal".to_owned())
        }
        Token::Uint => {
            let (digits, radix) = radix(text.trim_end_matches(['u', 'U']));
            u64::from_str_radix(&digits, radix).map(Literal::Uint).map_err(|_| "invalid uint literal".to_owned())
        }
        Token::Float => match format!("{sign}{text}").parse::<f64>() {
            Ok(double) if double.is_finite() => Ok(Literal::Double(double)),
            _ => Err("invalid double literal".to_owned()),
        },
        Token::String => {
            let bytes = unescape(text, false)?;
            String::from_utf8(bytes).map(Literal::String).map_err(|_| "unable to unescape string".to_owned())
        }
        Token::Bytes => unescape(text.get(1..).unwrap_or_default(), true).map(Literal::Bytes),
        Token::True => Ok(Literal::Bool(true)),
        Token::False => Ok(Literal::Bool(false)),
        _ => Ok(Literal::Null),
    }
}

fn escape_space(text: &str) -> String {
    text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
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
