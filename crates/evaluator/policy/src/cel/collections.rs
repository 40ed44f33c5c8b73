//! The parser's rules of lists, maps and messages.

use super::ast::{Entry, Expr, Field, Kind};
use super::parse::{FIELD_FIRST, FIELD_NAME, OPTIONAL_FIRST, UNARY_FIRST};
use super::recover::{MEMBER, Parse, Parser};
use super::token::{Token, Tokens};

impl Parser<'_> {
    pub(super) fn list(&mut self) -> Parse<Expr> {
        let element = |parser: &mut Self| {
            let optional = parser.question();
            let element = parser.within(&[Token::Comma, Token::RightBracket], Self::expr)?;
            Ok(Some((element, optional)))
        };
        self.sequence(OPTIONAL_FIRST, Token::RightBracket, element, |items| {
            let (elements, optional) = items.into_iter().unzip();
            Kind::List { elements, optional }
        })
    }

    pub(super) fn map(&mut self) -> Parse<Expr> {
        let entry = |parser: &mut Self| {
            let optional = parser.question();
            let key = parser.within(&[Token::Colon], Self::expr)?;
            let value = parser.after_colon()?;
            Ok(value.map(|value| Entry { key, value, optional }))
        };
        self.sequence(OPTIONAL_FIRST, Token::RightBrace, entry, Kind::Map)
    }

    /// `Name{field: value}`. No type of the Kubernetes environments can be built; the checker reports the name.
    pub(super) fn message(&mut self, leading: bool) -> Parse<Expr> {
        let mut name = if leading { ".".to_owned() } else { String::new() };
        while self.current() != Token::LeftBrace {
            name.push_str(self.take().text);
        }
        let field = |parser: &mut Self| {
            parser.question();
            if parser.sync(FIELD_NAME)? {
                let field = parser.take();
                parser.field_name(field);
            } else {
                parser.within(&[Token::Colon], |parser| parser.fail(FIELD_NAME, Tokens::default()))?;
            }
            Ok(parser.after_colon()?.map(|value| Field { value }))
        };
        self.sequence(FIELD_FIRST, Token::RightBrace, field, |fields| Kind::Struct { name, fields })
    }

    /// An opening bracket, items between commas, perhaps a last comma, and the closing bracket. The loop ends at an item
    /// that is absent. `first` has the tokens that an item starts with.
    fn sequence<T>(
        &mut self,
        first: Tokens,
        close: Token,
        item: impl Fn(&mut Self) -> Parse<Option<T>>,
        build: impl FnOnce(Vec<T>) -> Kind,
    ) -> Parse<Expr> {
        let open = self.take();
        let end = Tokens::of(&[close, Token::Comma]);
        if !self.sync(first.and(end))? {
            return self.fail(first.and(end), MEMBER);
        }
        let (mut items, mut height) = (Vec::new(), 0);
        while first.contains(self.current()) {
            let found = item(self)?;
            height = height.max(self.height);
            let Some(found) = found else { break };
            items.push(found);
            if self.current() != Token::Comma || !first.contains(self.lexeme(1).token) {
                break;
            }
            self.take();
        }
        if !self.sync(end)? {
            self.fail(end, MEMBER)?;
            return Ok(self.macros.unspecified(open.offset));
        }
        if self.current() == Token::Comma {
            self.take();
        }
        self.close(close, Tokens::of(&[close]))?;
        self.height = height;
        Ok(Expr { id: self.macros.id(), offset: open.offset, kind: build(items) })
    }

    pub(super) fn question(&mut self) -> bool {
        let optional = self.current() == Token::Question;
        if optional {
            self.take();
        }
        optional
    }

    /// A colon and a value. The height becomes that of the higher one of the value and the key before it.
    fn after_colon(&mut self) -> Parse<Option<Expr>> {
        let height = self.height;
        let colon = Tokens::of(&[Token::Colon]);
        let value = match self.expect(Token::Colon, colon, UNARY_FIRST) {
            Ok(_) => Some(self.within(&[Token::Comma, Token::RightBrace], Self::expr)?),
            Err(Some(abort)) => return Err(abort),
            Err(None) => {
                self.within(&[Token::Comma, Token::RightBrace], |parser| {
                    parser.fail(colon, Tokens::default())
                })?;
                None
            }
        };
        self.height = self.height.max(height);
        Ok(value)
    }
}
