//! The parser's rules of lists, maps and messages.

use super::ast::{Expr, ExprKind, MapEntry};
use super::parse::{Parse, Parser};
use super::token::CelToken;

impl Parser<'_> {
    pub(super) fn list(&mut self) -> Parse<Expr> {
        let element = |parser: &mut Self| {
            let optional = parser.accept(CelToken::Question);
            Ok((parser.expr()?, optional))
        };
        self.sequence((CelToken::RightBracket, "',' or ']'"), element, |items| {
            let (elements, optional) = items.into_iter().unzip();
            ExprKind::List { elements, optional }
        })
    }

    pub(super) fn map(&mut self) -> Parse<Expr> {
        let entry = |parser: &mut Self| {
            let optional = parser.accept(CelToken::Question);
            let key = parser.expr()?;
            let value = parser.after_colon()?;
            Ok(MapEntry { key, value, optional })
        };
        self.sequence((CelToken::RightBrace, "',' or '}'"), entry, ExprKind::Map)
    }

    /// `Name{field: value}`. No type of the Kubernetes environments can be built; the checker reports the name.
    pub(super) fn message(&mut self, leading: bool) -> Parse<Expr> {
        let mut name = if leading { ".".to_owned() } else { String::new() };
        while self.current() != CelToken::LeftBrace {
            name.push_str(self.take().text);
        }
        let field = |parser: &mut Self| {
            parser.accept(CelToken::Question);
            parser.field_name()?;
            parser.after_colon()
        };
        self.sequence((CelToken::RightBrace, "',' or '}'"), field, |fields| ExprKind::Struct { name, fields })
    }

    /// An opening bracket, items between commas, perhaps a last comma, and the closing bracket with its name in errors.
    fn sequence<T>(
        &mut self,
        (close, name): (CelToken, &str),
        item: impl Fn(&mut Self) -> Parse<T>,
        build: impl FnOnce(Vec<T>) -> ExprKind,
    ) -> Parse<Expr> {
        let open = self.take();
        let (mut items, mut height) = (Vec::new(), 0);
        let mut is_open = !matches!(self.current(), CelToken::Comma) && self.current() != close;
        while is_open {
            items.push(item(self)?);
            height = height.max(self.height);
            is_open = self.lexeme(1).token != close && self.accept(CelToken::Comma);
        }
        self.accept(CelToken::Comma);
        self.expect(close, name)?;
        self.height = height;
        Ok(Expr { id: self.macros.id(), offset: open.offset, kind: build(items) })
    }

    /// A colon and a value. The height becomes that of the higher one of the value and the key before it.
    fn after_colon(&mut self) -> Parse<Expr> {
        let height = self.height;
        self.expect(CelToken::Colon, "':'")?;
        let value = self.expr()?;
        self.height = self.height.max(height);
        Ok(value)
    }
}
