//! Selectors and what may stand behind them.

use super::{Error, Expr, ParsedExpr, Parser, Selector, TokenKind};
use crate::record::promql::labels::{Matcher, NAME, Test, is_label_name, pattern};

impl Parser<'_> {
    /// A selector whose name, if it has one before the braces, was passed.
    pub(crate) fn series(&mut self, name: Option<&str>, at: usize) -> Result<Expr, Error> {
        let matchers = self.braces(name, at)?;
        if matchers.iter().all(|matcher| matcher.takes("")) {
            let why = "vector selector must contain at least one non-empty matcher";
            return Err(self.wrong(at, why));
        }
        let place = self.selectors;
        self.selectors += 1;
        Ok(Expr::Selector(Selector {
            place,
            matchers,
            range: None,
            offset: 0,
        }))
    }

    /// What a name that was passed and the braces behind it say.
    pub(crate) fn braces(&mut self, name: Option<&str>, at: usize) -> Result<Vec<Matcher>, Error> {
        let mut matchers = Vec::new();
        if self.takes("{") {
            self.matchers(&mut matchers)?;
        }
        if let Some(name) = name {
            if let Some(twin) = matchers.iter().find(|matcher| &*matcher.name == NAME)
                && let Test::Is(twin) = &twin.test
            {
                let why = format!("metric name must not be set twice: {name:?} or {twin:?}");
                return Err(self.wrong(at, &why));
            }
            let matcher = Matcher {
                name: NAME.into(),
                test: Test::Is(name.to_owned()),
            };
            matchers.push(matcher);
        }
        Ok(matchers)
    }

    /// Up to the closing brace.
    fn matchers(&mut self, matchers: &mut Vec<Matcher>) -> Result<(), Error> {
        while !self.takes("}") {
            if self.is_over() {
                return Err(self.unexpected(" inside braces"));
            }
            self.part()?;
            let at = self.at();
            let name = match self.token().kind.clone() {
                TokenKind::Word(name) if is_label_name(&name) => name,
                _ => {
                    let context = " in label matching, expected identifier or \"}\"";
                    return Err(self.unexpected(context));
                }
            };
            self.pass();
            let TokenKind::Sign(sign @ ("=" | "!=" | "=~" | "!~")) = self.token().kind else {
                let context = match self.token().kind {
                    TokenKind::End => " inside braces",
                    _ => " in label matching, expected label matching operator",
                };
                return Err(self.unexpected(context));
            };
            self.pass();
            let TokenKind::Text(value, _) = self.token().kind.clone() else {
                let context = match self.token().kind {
                    TokenKind::End => " inside braces",
                    _ => " in label matching, expected string",
                };
                return Err(self.unexpected(context));
            };
            self.pass();
            let compiled = || pattern(&value).map_err(|why| self.wrong(at, &why));
            let test = match sign {
                "=" => Test::Is(value),
                "!=" => Test::IsNot(value),
                "=~" => Test::Like(compiled()?),
                _ => Test::Unlike(compiled()?),
            };
            let name = name.as_str().into();
            matchers.push(Matcher { name, test });
            if !self.takes(",") && !matches!(self.token().kind, TokenKind::Sign("}")) {
                let context = match self.token().kind {
                    TokenKind::End => " inside braces",
                    _ => " in label matching, expected \",\" or \"}\"",
                };
                return Err(self.unexpected(context));
            }
        }
        Ok(())
    }

    /// A span in brackets, and `offset`: neither may stand behind parentheses.
    pub(crate) fn behind(
        &mut self,
        mut expr: Expr,
        at: usize,
        closed: bool,
    ) -> Result<ParsedExpr, Error> {
        loop {
            let here = self.at();
            if self.takes("[") {
                let (span_at, range) = (self.at(), self.span(true)?);
                if matches!(self.token().kind, TokenKind::Sign(":")) {
                    let why = "subqueries are not supported; ranges such as a[5m] are";
                    return Err(self.wrong(here, why));
                }
                if !self.takes("]") {
                    return Err(match self.is_over() {
                        true => self.wrong(self.at(), "unclosed left bracket"),
                        false => self.unexpected(" in matrix selector, expected \"]\""),
                    });
                }
                match &mut expr {
                    Expr::Selector(selector)
                        if !closed && selector.range.is_none() && range > 0 =>
                    {
                        if selector.offset != 0 {
                            let why = "no offset modifiers allowed before range";
                            return Err(self.wrong(here, why));
                        }
                        selector.range = Some(range);
                    }
                    Expr::Selector(selector) if !closed && selector.range.is_none() => {
                        return Err(self.wrong(span_at, "duration must be greater than 0"));
                    }
                    _ => {
                        let why = "ranges only allowed for vector selectors";
                        return Err(self.wrong(here, why));
                    }
                }
            } else if self.keyword(&["offset"]).is_some() {
                let later = self.takes("-");
                let offset = self.span(false)?;
                match &mut expr {
                    Expr::Selector(selector) if !closed && selector.offset == 0 => {
                        selector.offset = if later { -offset } else { offset };
                    }
                    Expr::Selector(_) if !closed => {
                        let why = "offset may not be set multiple times";
                        return Err(self.wrong(at, why));
                    }
                    _ => {
                        let why = "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery";
                        return Err(self.wrong(at, why));
                    }
                }
            } else if matches!(self.token().kind, TokenKind::Sign("@")) {
                let why = "the modifier @ is not supported; `offset` is";
                return Err(self.wrong(here, why));
            } else {
                return Ok((expr, at));
            }
        }
    }

    /// A span; one in brackets without a unit is no token of its own.
    fn span(&mut self, bracket: bool) -> Result<i64, Error> {
        match self.token().kind {
            TokenKind::Duration(span, _) => {
                self.pass();
                Ok(span)
            }
            TokenKind::Number(..) | TokenKind::End if bracket => {
                Err(self.wrong(self.at(), "missing unit character in duration"))
            }
            _ if bracket => Err(self.unexpected(" in brackets, expected duration")),
            _ => Err(self.unexpected(" in offset, expected duration")),
        }
    }
}
