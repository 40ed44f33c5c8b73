//! The parser's rules of lists, maps and messages.

use super::ast::{Entry, Expr, Field, Kind};
use super::parse::{FIELD_FIRST, FIELD_NAME, MEMBER, OPTIONAL_FIRST, UNARY_FIRST};
use super::recover::{Parse, Parser};
use super::token::{Token, Tokens};

impl Parser<'_> {
    pub(super) fn list(&mut self) -> Parse<Expr> {
        let open = self.take();
        let mut height = 0;
        let end = Tokens::of(&[Token::RightBracket, Token::Comma]);
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        if !self.sync(OPTIONAL_FIRST.and(end))? {
            return self.fail(OPTIONAL_FIRST.and(end), MEMBER);
        }
        while OPTIONAL_FIRST.contains(self.current()) {
            optional.push(self.question());
            elements.push(self.within(&[Token::Comma, Token::RightBracket], Self::expr)?);
            height = height.max(self.height);
            if self.current() != Token::Comma || !OPTIONAL_FIRST.contains(self.lexeme(1).token) {
                break;
            }
            self.take();
        }
        if !self.trailing_comma(end)? {
            return Ok(self.macros.unspecified(open.offset));
        }
        self.close(Token::RightBracket, Tokens::of(&[Token::RightBracket]))?;
        self.height = height;
        Ok(Expr { id: self.macros.id(), offset: open.offset, kind: Kind::List { elements, optional } })
    }

    pub(super) fn question(&mut self) -> bool {
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

    pub(super) fn map(&mut self) -> Parse<Expr> {
        let open = self.take();
        let mut height = 0;
        let end = Tokens::of(&[Token::RightBrace, Token::Comma]);
        if !self.sync(OPTIONAL_FIRST.and(end))? {
            return self.fail(OPTIONAL_FIRST.and(end), MEMBER);
        }
        let mut entries = Vec::new();
        while OPTIONAL_FIRST.contains(self.current()) {
            let optional = self.question();
            let key = self.within(&[Token::Colon], Self::expr)?;
            height = height.max(self.height);
            let Some(value) = self.after_colon()? else { break };
            height = height.max(self.height);
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
        self.height = height;
        Ok(Expr { id: self.macros.id(), offset: open.offset, kind: Kind::Map(entries) })
    }

    fn after_colon(&mut self) -> Parse<Option<Expr>> {
        let colon = Tokens::of(&[Token::Colon]);
        match self.expect(Token::Colon, colon, UNARY_FIRST) {
            Ok(_) => self.within(&[Token::Comma, Token::RightBrace], Self::expr).map(Some),
            Err(Some(abort)) => Err(abort),
            Err(None) => {
                self.within(&[Token::Comma, Token::RightBrace], |parser| {
                    parser.fail(colon, Tokens::default())
                })?;
                Ok(None)
            }
        }
    }

    /// `Name{field: value}`. No type of the Kubernetes environments can be built; the checker reports the name.
    pub(super) fn message(&mut self, leading: bool) -> Parse<Expr> {
        let mut name = if leading { ".".to_owned() } else { String::new() };
        while self.current() != Token::LeftBrace {
            name.push_str(self.take().text);
        }
        let open = self.take();
        let mut height = 0;
        let end = Tokens::of(&[Token::RightBrace, Token::Comma]);
        if !self.sync(FIELD_FIRST.and(end))? {
            return self.fail(FIELD_FIRST.and(end), MEMBER);
        }
        let mut fields = Vec::new();
        while FIELD_FIRST.contains(self.current()) {
            self.question();
            if self.sync(FIELD_NAME)? {
                let field = self.take();
                self.field_name(field);
            } else {
                self.within(&[Token::Colon], |parser| parser.fail(FIELD_NAME, Tokens::default()))?;
            }
            height = height.max(self.height);
            let Some(value) = self.after_colon()? else { break };
            height = height.max(self.height);
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
        self.height = height;
        Ok(Expr { id: self.macros.id(), offset: open.offset, kind: Kind::Struct { name, fields } })
    }
}
