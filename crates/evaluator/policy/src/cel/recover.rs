//! Errors of the parser and what it does after one.

use super::ast::Expr;
use super::error::Problems;
use super::macros::Macros;
use super::token::{Lexeme, Token, Tokens};
use crate::release::Release;

/// Nesting that cel-go accepts, of each kind of rule.
pub(super) const MAX_DEPTH: usize = 250;
/// Errors after which cel-go gives up.
const MAX_REPORTS: usize = 100;
/// Recoveries after which cel-go gives up.
const MAX_RECOVERIES: usize = 30;
/// Tokens that are skipped before cel-go gives up.
const MAX_SKIPPED: usize = 256;

pub(super) const OPERATORS: Tokens = Tokens::of(&[
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

pub(super) const MEMBER: Tokens = Tokens::of(&[Token::Dot, Token::LeftBracket]);

/// Parsing ends here; the error is recorded.
pub(super) struct Abort;

pub(super) type Parse<T> = Result<T, Abort>;

#[derive(Default)]
pub(super) struct Depth {
    pub(super) expr: usize,
    pub(super) relation: usize,
    pub(super) calc: usize,
    pub(super) member: usize,
}

pub(super) struct Parser<'s> {
    pub(super) source: &'s str,
    pub(super) lexemes: Vec<Lexeme<'s>>,
    pub(super) at: usize,
    pub(super) problems: Problems,
    pub(super) recovering: bool,
    pub(super) reports: usize,
    pub(super) recoveries: usize,
    pub(super) last_recovery: Option<usize>,
    /// For each open rule, the tokens that can follow the expression within it.
    pub(super) open: Vec<Tokens>,
    pub(super) depth: Depth,
    /// Operators, selections and calls within each other in the expression that was parsed last.
    pub(super) height: usize,
    pub(super) too_high: bool,
    pub(super) macros: Macros,
    pub(super) release: Release,
}

impl<'s> Parser<'s> {
    pub(super) fn lexeme(&self, ahead: usize) -> Lexeme<'s> {
        let last = Lexeme { token: Token::End, offset: 0, text: "<EOF>" };
        self.lexemes.get(self.at + ahead).or(self.lexemes.last()).copied().unwrap_or(last)
    }

    pub(super) fn current(&self) -> Token {
        self.lexeme(0).token
    }

    /// Consumes the current token, which matched.
    pub(super) fn take(&mut self) -> Lexeme<'s> {
        let lexeme = self.lexeme(0);
        self.recovering = false;
        self.skip();
        lexeme
    }

    pub(super) fn skip(&mut self) {
        if self.current() != Token::End {
            self.at += 1;
        }
    }

    pub(super) fn report(&mut self, message: &str) -> Parse<()> {
        self.report_at(self.lexeme(0).offset, message)
    }

    fn report_at(&mut self, offset: usize, message: &str) -> Parse<()> {
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

    pub(super) fn display(&self) -> String {
        format!("'{}'", escape_space(self.lexeme(0).text))
    }

    pub(super) fn mismatch(&mut self, expecting: Tokens) {
        let message = format!("mismatched input {} expecting {}", self.display(), expecting.display());
        let _ = self.report(&message);
    }

    pub(super) fn attempt(&mut self) -> Parse<()> {
        if self.recoveries == MAX_RECOVERIES {
            let offset = self.lexeme(0).offset;
            self.problems.report(
                offset,
                format!("Syntax error: error recovery attempt limit exceeded: {MAX_RECOVERIES}"),
            );
            return Err(Abort);
        }
        self.recoveries += 1;
        Ok(())
    }

    /// Reports a mismatch and skips to a token that can follow an open rule.
    pub(super) fn fail(&mut self, expecting: Tokens, also: Tokens) -> Parse<Expr> {
        let message = format!("mismatched input {} expecting {}", self.display(), expecting.display());
        self.fail_with(&message, also)
    }

    pub(super) fn fail_with(&mut self, message: &str, also: Tokens) -> Parse<Expr> {
        let offset = self.lexeme(0).offset;
        self.report(message)?;
        self.recover(offset, also)
    }

    fn recover(&mut self, offset: usize, also: Tokens) -> Parse<Expr> {
        self.attempt()?;
        if self.last_recovery == Some(self.at) {
            self.skip();
        }
        self.last_recovery = Some(self.at);
        self.height = 0;
        self.skip_to(also)?;
        Ok(self.macros.unspecified(offset))
    }

    /// Skips to the end of the source.
    pub(super) fn skip_all(&mut self) -> Parse<()> {
        self.skip_until(Tokens::of(&[Token::End]))
    }

    fn skip_to(&mut self, also: Tokens) -> Parse<()> {
        let follow = self.open.iter().fold(OPERATORS.and(also), |all, tokens| all.and(*tokens));
        self.skip_until(follow)
    }

    fn skip_until(&mut self, follow: Tokens) -> Parse<()> {
        let start = self.at;
        while !follow.contains(self.current()) && self.current() != Token::End {
            if self.at - start == MAX_SKIPPED {
                let message = format!("error recovery token lookahead limit exceeded: {MAX_SKIPPED}");
                self.problems.report_internal(message);
                return Err(Abort);
            }
            self.skip();
        }
        Ok(())
    }

    /// Checks that a rule can start here; skips one token if the next one can start it.
    pub(super) fn sync(&mut self, expecting: Tokens) -> Parse<bool> {
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
    pub(super) fn expect(
        &mut self,
        token: Token,
        expecting: Tokens,
        following: Tokens,
    ) -> Result<Lexeme<'s>, Option<Abort>> {
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
    pub(super) fn close(&mut self, token: Token, expecting: Tokens) -> Parse<()> {
        let following = OPERATORS.and(MEMBER).and(self.open.last().copied().unwrap_or_default());
        match self.expect(token, expecting, following) {
            Ok(_) => Ok(()),
            Err(Some(abort)) => Err(abort),
            Err(None) => self.fail(expecting, MEMBER).map(|_| ()),
        }
    }

    pub(super) fn enter(&mut self, depth: fn(&mut Depth) -> &mut usize) -> Parse<()> {
        let depth = depth(&mut self.depth);
        *depth += 1;
        if *depth > MAX_DEPTH {
            self.problems.report_internal(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            return Err(Abort);
        }
        Ok(())
    }

    /// Counts an expression around others of a height. One that is too high is cut.
    pub(super) fn nested(&mut self, expr: Expr, height: usize) -> Expr {
        self.height = height + 1;
        if self.height <= MAX_DEPTH {
            return expr;
        }
        self.too_high = true;
        self.height = 0;
        self.macros.unspecified(expr.offset)
    }

    pub(super) fn within<T>(
        &mut self,
        follow: &[Token],
        rule: impl FnOnce(&mut Self) -> Parse<T>,
    ) -> Parse<T> {
        self.open.push(Tokens::of(follow));
        let result = rule(self);
        self.open.pop();
        result
    }

    /// Reports that no rule starts with this token and the next one.
    pub(super) fn no_viable(&mut self, also: Tokens) -> Parse<Expr> {
        let (first, next) = (self.lexeme(0), self.lexeme(1));
        let text = match next.token {
            Token::End => first.text.to_owned(),
            _ => escape_space(&self.between(first, next)),
        };
        let message = match next.token {
            Token::True | Token::False | Token::Null if text.chars().count() == next.text.len() + 1 => {
                format!("mismatched input '{}' expecting IDENTIFIER", next.text)
            }
            _ => format!("no viable alternative at input '{text}'"),
        };
        self.report_at(next.offset, &message)?;
        self.recover(first.offset, also)
    }

    /// Checks what follows a round of a loop; skips to a token that can, or that can follow an open rule.
    pub(super) fn sync_loop(&mut self, expecting: Tokens) -> Parse<()> {
        if self.recovering || expecting.contains(self.current()) {
            return Ok(());
        }
        let message = format!("extraneous input {} expecting {}", self.display(), expecting.display());
        self.report(&message)?;
        self.skip_to(expecting)
    }

    /// The text of two tokens with the space between them; characters that are no tokens are left out.
    fn between(&self, first: Lexeme<'_>, next: Lexeme<'_>) -> String {
        let start = first.offset + first.text.chars().count();
        let gap = self.source.chars().skip(start).take(next.offset.saturating_sub(start));
        let space: String = gap.filter(|character| character.is_whitespace()).collect();
        format!("{}{space}{}", first.text, next.text)
    }
}

fn escape_space(text: &str) -> String {
    text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}
