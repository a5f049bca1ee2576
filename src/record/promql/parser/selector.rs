//! Parses selectors: the name of a metric, matchers in braces, and the range and the offset after them.

use super::{Error, Parser, Selector, TokenKind};
use crate::record::promql::labels::{
    LabelTest, METRIC_NAME_LABEL, Matcher, compile_pattern, is_label_name,
};

impl Parser<'_> {
    /// Parses the matchers of a selector that begins at the byte `offset`. `name` is the name before the braces, which
    /// was read before; `None` if the selector begins with the braces. Fails also if no matcher excludes series without
    /// labels.
    pub(crate) fn parse_selector(
        &mut self,
        name: Option<&str>,
        offset: usize,
    ) -> Result<Selector, Error> {
        let matchers = self.parse_matchers(name, offset)?;
        if matchers.iter().all(|matcher| matcher.accepts("")) {
            let why = "vector selector must contain at least one non-empty matcher";
            return Err(self.error_at(offset, why));
        }
        let index = self.selector_count;
        self.selector_count += 1;
        Ok(Selector {
            index,
            matchers,
            range_ms: None,
            offset_ms: 0,
        })
    }

    /// Parses matchers in braces, if there are any, and adds one for the name before them, if there is one. `offset` is
    /// that of the selector, for errors. Fails also if both give the name of the metric.
    pub(crate) fn parse_matchers(
        &mut self,
        name: Option<&str>,
        offset: usize,
    ) -> Result<Vec<Matcher>, Error> {
        let mut matchers = Vec::new();
        if self.skip_sign("{") {
            self.parse_braces(&mut matchers)?;
        }
        if let Some(name) = name {
            let name_matcher = matchers
                .iter()
                .find(|matcher| &*matcher.name == METRIC_NAME_LABEL);
            if let Some(LabelTest::Equal(other_name)) = name_matcher.map(|matcher| &matcher.test) {
                let why = format!("metric name must not be set twice: {name:?} or {other_name:?}");
                return Err(self.error_at(offset, &why));
            }
            let matcher = Matcher {
                name: METRIC_NAME_LABEL.into(),
                test: LabelTest::Equal(name.to_owned()),
            };
            matchers.push(matcher);
        }
        Ok(matchers)
    }

    /// Parses matchers after the opening brace, up to and including the closing one.
    fn parse_braces(&mut self, matchers: &mut Vec<Matcher>) -> Result<(), Error> {
        while !self.skip_sign("}") {
            if self.is_at_end() {
                return Err(self.unexpected_token(" inside braces"));
            }
            self.count_part()?;
            let offset = self.offset();
            let name = match self.token().kind.clone() {
                TokenKind::Word(name) if is_label_name(&name) => name,
                _ => {
                    let context = " in label matching, expected identifier or \"}\"";
                    return Err(self.unexpected_token(context));
                }
            };
            self.advance();
            let TokenKind::Sign(sign @ ("=" | "!=" | "=~" | "!~")) = self.token().kind else {
                let context = match self.token().kind {
                    TokenKind::End => " inside braces",
                    _ => " in label matching, expected label matching operator",
                };
                return Err(self.unexpected_token(context));
            };
            self.advance();
            let TokenKind::Text(value, _) = self.token().kind.clone() else {
                let context = match self.token().kind {
                    TokenKind::End => " inside braces",
                    _ => " in label matching, expected string",
                };
                return Err(self.unexpected_token(context));
            };
            self.advance();
            let compile = || compile_pattern(&value).map_err(|why| self.error_at(offset, &why));
            let test = match sign {
                "=" => LabelTest::Equal(value),
                "!=" => LabelTest::NotEqual(value),
                "=~" => LabelTest::Matching(compile()?),
                _ => LabelTest::NotMatching(compile()?),
            };
            let name = name.as_str().into();
            matchers.push(Matcher { name, test });
            if !self.skip_sign(",") && !matches!(self.token().kind, TokenKind::Sign("}")) {
                let context = match self.token().kind {
                    TokenKind::End => " inside braces",
                    _ => " in label matching, expected \",\" or \"}\"",
                };
                return Err(self.unexpected_token(context));
            }
        }
        Ok(())
    }

    /// Parses the modifiers after an operand that begins at `start`: a range in brackets, and `offset`. Without a
    /// `selector`, as after a call or parentheses, any modifier is an error. The modifier `@` always is.
    pub(crate) fn parse_modifiers(
        &mut self,
        mut selector: Option<&mut Selector>,
        start: usize,
    ) -> Result<(), Error> {
        loop {
            let modifier_offset = self.offset();
            if self.skip_sign("[") {
                self.parse_range(selector.as_deref_mut(), modifier_offset)?;
            } else if self.skip_keyword(&["offset"]).is_some() {
                self.parse_offset(selector.as_deref_mut(), start)?;
            } else if matches!(self.token().kind, TokenKind::Sign("@")) {
                let why = "the modifier @ is not supported; `offset` is";
                return Err(self.error_at(modifier_offset, why));
            } else {
                return Ok(());
            }
        }
    }

    /// Parses a range after its opening bracket, which is at the byte `bracket_offset`.
    fn parse_range(
        &mut self,
        selector: Option<&mut Selector>,
        bracket_offset: usize,
    ) -> Result<(), Error> {
        let duration_offset = self.offset();
        let range_ms = self.parse_range_duration()?;
        if matches!(self.token().kind, TokenKind::Sign(":")) {
            let why = "subqueries are not supported; ranges such as a[5m] are";
            return Err(self.error_at(bracket_offset, why));
        }
        if !self.skip_sign("]") {
            return Err(match self.is_at_end() {
                true => self.error_at(self.offset(), "unclosed left bracket"),
                false => self.unexpected_token(" in matrix selector, expected \"]\""),
            });
        }
        let Some(selector) = selector.filter(|selector| selector.range_ms.is_none()) else {
            let why = "ranges only allowed for vector selectors";
            return Err(self.error_at(bracket_offset, why));
        };
        if range_ms <= 0 {
            return Err(self.error_at(duration_offset, "duration must be greater than 0"));
        }
        if selector.offset_ms != 0 {
            let why = "no offset modifiers allowed before range";
            return Err(self.error_at(bracket_offset, why));
        }
        selector.range_ms = Some(range_ms);
        Ok(())
    }

    /// Parses the duration after `offset`, for an operand that begins at `start`.
    fn parse_offset(&mut self, selector: Option<&mut Selector>, start: usize) -> Result<(), Error> {
        let is_negative = self.skip_sign("-");
        let TokenKind::Duration(offset_ms, _) = self.token().kind else {
            return Err(self.unexpected_token(" in offset, expected duration"));
        };
        self.advance();
        let why = match selector {
            Some(selector) if selector.offset_ms == 0 => {
                selector.offset_ms = if is_negative { -offset_ms } else { offset_ms };
                return Ok(());
            }
            Some(_) => "offset may not be set multiple times",
            None => {
                "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery"
            }
        };
        Err(self.error_at(start, why))
    }

    /// Parses the duration of a range, and returns its milliseconds. A number, and the end of the query, are reported
    /// as a duration without a unit.
    fn parse_range_duration(&mut self) -> Result<i64, Error> {
        match self.token().kind {
            TokenKind::Duration(duration_ms, _) => {
                self.advance();
                Ok(duration_ms)
            }
            TokenKind::Number(..) | TokenKind::End => {
                Err(self.error_at(self.offset(), "missing unit character in duration"))
            }
            _ => Err(self.unexpected_token(" in brackets, expected duration")),
        }
    }
}
