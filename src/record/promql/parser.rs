//! Parses a query into a syntax tree whose types are checked: recursive descent, with precedence climbing for
//! operators.
//!
//! Errors that Prometheus' parser has too have its texts. Selectors are parsed in `parser/selector.rs`, and
//! aggregations in `parser/aggregation.rs`.

mod aggregation;
mod selector;

use std::sync::Arc;

use super::error::Error;
use super::functions::{self, Function};
use super::labels::{Matcher, is_label_name};
use super::lexer::{self, QueryToken, TokenKind};
use super::syntax::{
    Aggregator, BinaryOperation, Expr, MatchBy, Matching, Operator, Selector, Side,
};
use super::value_type::ValueType;

/// The most bytes of a query.
const MAX_QUERY_BYTES: usize = 16 * 1024;
/// The most parts of a query: operands (calls and aggregations among them), signs before them, parentheses and
/// matchers. It also bounds the depth of the recursion.
const MAX_PARTS: usize = 256;
/// The precedence of a sign before an operand, which is that of `^`.
const SIGN_PRECEDENCE: u8 = 6;

/// Parses a whole query, of any type.
///
/// # Errors
///
/// Fails if the query is too long or too complex, or if its syntax or its types are wrong.
pub fn parse_query(text: &str) -> Result<Expr, Error> {
    let mut parser = Parser::new(text)?;
    if parser.is_at_end() {
        return Err(parser.error_at(0, "no expression found in input"));
    }
    let (expr, _) = parser.parse_binary(0)?;
    if !parser.is_at_end() {
        return Err(parser.unexpected_token(""));
    }
    Ok(expr)
}

/// Parses the selector of a `match[]` parameter into its matchers; the name of the metric is one of them.
///
/// # Errors
///
/// Fails if the text is too long or too complex, is not a selector, or also selects series without labels.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, Error> {
    let mut parser = Parser::new(text)?;
    let name = match &parser.token().kind {
        TokenKind::Word(name) => Some(name.clone()),
        TokenKind::Sign("{") => None,
        _ => return Err(parser.unexpected_token("")),
    };
    parser.next_index += usize::from(name.is_some());
    let matchers = parser.parse_matchers(name.as_deref(), 0)?;
    if !parser.is_at_end() {
        let sign = match parser.token().kind {
            TokenKind::Sign(sign) => sign,
            _ => return Err(parser.unexpected_token("")),
        };
        return Err(parser.error_at(parser.offset(), &format!("unexpected {sign:?}")));
    }
    if matchers.iter().all(|matcher| matcher.accepts("")) {
        let why = "match[] must contain at least one non-empty matcher";
        return Err(Error::Invalid(why.into()));
    }
    Ok(matchers)
}

/// An expression, and the offset in bytes at which it begins in the query.
type ParsedExpr = (Expr, usize);

/// The state of parsing one query.
struct Parser<'a> {
    query: &'a str,
    tokens: Vec<QueryToken>,
    /// The index of the next token.
    next_index: usize,
    /// The number of parts so far, see [`MAX_PARTS`].
    part_count: usize,
    /// The number of selectors so far, which is the index of the next one.
    selector_count: usize,
}

impl<'a> Parser<'a> {
    /// Splits a query into tokens, of which none is parsed yet. Fails if the query is too long or cannot be split.
    fn new(query: &'a str) -> Result<Parser<'a>, Error> {
        if query.len() > MAX_QUERY_BYTES {
            let bytes = query.len();
            let why = format!("the query has {bytes} bytes; {MAX_QUERY_BYTES} is the most");
            return Err(Error::parse(query, 0, &why));
        }
        Ok(Parser {
            query,
            tokens: lexer::tokenize(query)?,
            next_index: 0,
            part_count: 0,
            selector_count: 0,
        })
    }

    /// The next token. After the last one it is the end again.
    fn token(&self) -> &QueryToken {
        &self.tokens[self.next_index.min(self.tokens.len() - 1)]
    }

    /// The offset of the next token.
    fn offset(&self) -> usize {
        self.token().offset
    }

    fn is_at_end(&self) -> bool {
        self.token().kind == TokenKind::End
    }

    fn advance(&mut self) {
        self.next_index += 1;
    }

    fn error_at(&self, offset: usize, why: &str) -> Error {
        Error::parse(self.query, offset, why)
    }

    /// Makes an error about the next token. `context` is empty or continues the sentence: where the token is, and what
    /// was expected there. At the end of a query, an unclosed parenthesis is the error instead, as in Prometheus.
    fn unexpected_token(&self, context: &str) -> Error {
        let token = self.token();
        let sign_count = |sign: &str| {
            let is_sign = |token: &&QueryToken| matches!(token.kind, TokenKind::Sign(token_sign) if token_sign == sign);
            self.tokens.iter().filter(is_sign).count()
        };
        if self.is_at_end() && !context.contains("braces") && sign_count("(") > sign_count(")") {
            return self.error_at(token.offset, "unclosed left parenthesis");
        }
        let token_name = match token.kind {
            TokenKind::Sign(sign) if context.contains("label matching") => format!("{sign:?}"),
            _ => token.kind.describe(),
        };
        self.error_at(token.offset, &format!("unexpected {token_name}{context}"))
    }

    /// Advances past a sign if it is the next token. Returns whether it was.
    fn skip_sign(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.token().kind, TokenKind::Sign(next_sign) if next_sign == sign);
        self.next_index += usize::from(is_next);
        is_next
    }

    /// Advances past one of some keywords, in any case, if it is the next token. Returns that keyword; `None` if the
    /// next token is none of them.
    fn skip_keyword(&mut self, keywords: &[&'static str]) -> Option<&'static str> {
        let TokenKind::Word(word) = &self.token().kind else {
            return None;
        };
        let mut keywords = keywords.iter().copied();
        let keyword = keywords.find(|keyword| word.eq_ignore_ascii_case(keyword))?;
        self.next_index += 1;
        Some(keyword)
    }

    /// Counts a part of the query. Fails if there are more than [`MAX_PARTS`].
    fn count_part(&mut self) -> Result<(), Error> {
        self.part_count += 1;
        if self.part_count > MAX_PARTS {
            let why = format!("the query has more than {MAX_PARTS} parts");
            return Err(self.error_at(self.offset(), &why));
        }
        Ok(())
    }

    /// The binary operator that is the next token; `None` if the next token is no operator.
    fn next_operator(&self) -> Option<Operator> {
        match &self.token().kind {
            TokenKind::Sign(sign) => Operator::from_text(sign),
            TokenKind::Word(word) => Operator::from_text(&word.to_ascii_lowercase()),
            _ => None,
        }
    }

    /// Parses an operand and all operators after it whose precedence is at least `min_precedence`, with their operands.
    fn parse_binary(&mut self, min_precedence: u8) -> Result<ParsedExpr, Error> {
        let mut left = self.parse_unary()?;
        while let Some(operator) = self
            .next_operator()
            .filter(|operator| operator.precedence() >= min_precedence)
        {
            let (_, start) = left;
            let operator_offset = self.offset();
            self.advance();
            let returns_bool = self.skip_keyword(&["bool"]).is_some();
            let matching = self.parse_matching(operator, start)?;
            let right_precedence = match operator {
                // Powers are right-associative: a^b^c is a^(b^c).
                Operator::Power => operator.precedence(),
                _ => operator.precedence() + 1,
            };
            let right = self.parse_binary(right_precedence)?;
            let expr = self.build_binary(
                operator,
                returns_bool,
                matching,
                operator_offset,
                left,
                right,
            )?;
            left = (expr, start);
        }
        Ok(left)
    }

    /// Parses the matching clause after an operator; `None` if there is none. `left_start` is the offset of the left
    /// side, for errors.
    fn parse_matching(
        &mut self,
        operator: Operator,
        left_start: usize,
    ) -> Result<Option<Matching>, Error> {
        let by = match self.skip_keyword(&["on", "ignoring"]) {
            Some("on") => MatchBy::On,
            Some(_) => MatchBy::Ignoring,
            None => return Ok(None),
        };
        let mut matching = Matching {
            by,
            labels: self.parse_label_list()?,
            ..Matching::default()
        };
        let group_offset = self.offset();
        if let Some(keyword) = self.skip_keyword(&["group_left", "group_right"]) {
            let is_left = keyword == "group_left";
            matching.many_side = Some(if is_left { Side::Left } else { Side::Right });
            if matches!(self.token().kind, TokenKind::Sign("(")) {
                matching.included_labels = self.parse_label_list()?;
            }
            if operator.is_set_operator() {
                let name = format!("{operator:?}").to_ascii_lowercase();
                let why = format!("no grouping allowed for {name:?} operation");
                return Err(self.error_at(left_start, &why));
            }
            let is_listed_twice =
                |label: &&Arc<str>| by == MatchBy::On && matching.labels.contains(label);
            if let Some(label) = matching.included_labels.iter().find(is_listed_twice) {
                let why = format!("label {label:?} must not occur in ON and GROUP clause at once");
                return Err(self.error_at(group_offset, &why));
            }
        }
        Ok(Some(matching))
    }

    /// Checks the types of both sides, and builds the operation.
    fn build_binary(
        &self,
        operator: Operator,
        returns_bool: bool,
        matching: Option<Matching>,
        operator_offset: usize,
        (left, left_start): ParsedExpr,
        (right, right_start): ParsedExpr,
    ) -> Result<Expr, Error> {
        if returns_bool && !operator.is_comparison() {
            let why = "bool modifier can only be used on comparison operators";
            return Err(self.error_at(operator_offset, why));
        }
        for (side, start) in [(&left, left_start), (&right, right_start)] {
            if !matches!(side.value_type(), ValueType::Scalar | ValueType::Vector) {
                let why = "binary expression must contain only scalar and instant vector types";
                return Err(self.error_at(start, why));
            }
        }
        let are_scalar = [&left, &right].map(|side| side.value_type() == ValueType::Scalar);
        if are_scalar == [true, true] && operator.is_comparison() && !returns_bool {
            let why = "comparisons between scalars must use BOOL modifier";
            return Err(self.error_at(operator_offset, why));
        }
        if are_scalar.contains(&true) && operator.is_set_operator() {
            let name = format!("{operator:?}").to_ascii_lowercase();
            let why = format!("set operator {name:?} not allowed in binary scalar expression");
            return Err(self.error_at(left_start, &why));
        }
        let labels = matching
            .as_ref()
            .map_or(&[][..], |matching| &matching.labels);
        if are_scalar.contains(&true) && !labels.is_empty() {
            let why = "vector matching only allowed between instant vectors";
            return Err(self.error_at(left_start, why));
        }
        Ok(Expr::Binary(Box::new(BinaryOperation {
            operator,
            returns_bool,
            matching: matching.unwrap_or_default(),
            left,
            right,
        })))
    }

    /// Parses an operand with signs before it.
    fn parse_unary(&mut self) -> Result<ParsedExpr, Error> {
        let start = self.offset();
        let is_negative = matches!(self.token().kind, TokenKind::Sign("-"));
        if !is_negative && !matches!(self.token().kind, TokenKind::Sign("+")) {
            return self.parse_operand();
        }
        self.count_part()?;
        self.advance();
        let (inner, _) = self.parse_binary(SIGN_PRECEDENCE)?;
        if !matches!(inner.value_type(), ValueType::Scalar | ValueType::Vector) {
            let why = format!(
                "unary expression only allowed on expressions of type scalar or instant vector, got {:?}",
                inner.value_type().name()
            );
            return Err(self.error_at(start, &why));
        }
        let expr = match inner {
            inner if !is_negative => inner,
            Expr::Number(value) => Expr::Number(-value),
            inner => Expr::Negative(Box::new(inner)),
        };
        Ok((expr, start))
    }

    /// Parses a number, a text, a selector, a call, an aggregation, or an expression in parentheses.
    fn parse_operand(&mut self) -> Result<ParsedExpr, Error> {
        self.count_part()?;
        let start = self.offset();
        let mut expr = match self.token().kind.clone() {
            TokenKind::Number(value, _) => {
                self.advance();
                Expr::Number(value)
            }
            TokenKind::Text(text, _) => {
                self.advance();
                Expr::Text(text)
            }
            TokenKind::Sign("(") => {
                self.advance();
                let (inner, _) = self.parse_binary(0)?;
                self.expect_sign(")")?;
                // Modifiers are not allowed after parentheses, even around a selector.
                self.parse_modifiers(None, start)?;
                return Ok((inner, start));
            }
            TokenKind::Sign("{") => Expr::Selector(self.parse_selector(None, start)?),
            TokenKind::Word(word) => self.parse_named(&word)?,
            _ => return Err(self.unexpected_token("")),
        };
        let selector = match &mut expr {
            Expr::Selector(selector) => Some(selector),
            _ => None,
        };
        self.parse_modifiers(selector, start)?;
        Ok((expr, start))
    }

    /// Advances past a sign; fails if the next token is another one.
    fn expect_sign(&mut self, sign: &str) -> Result<(), Error> {
        match self.skip_sign(sign) {
            true => Ok(()),
            false => Err(self.unexpected_token("")),
        }
    }

    /// Parses an aggregation, a call or a selector that begins with this word, which is the next token.
    fn parse_named(&mut self, word: &str) -> Result<Expr, Error> {
        let start = self.offset();
        self.advance();
        let is_called = matches!(self.token().kind, TokenKind::Sign("("));
        if let Some(aggregator) = Aggregator::from_text(word) {
            let is_grouped = matches!(&self.token().kind, TokenKind::Word(next_word)
                if ["by", "without"].iter().any(|word| next_word.eq_ignore_ascii_case(word)));
            if is_called || is_grouped {
                return self.parse_aggregate(aggregator, start);
            }
        }
        if is_called {
            let Some(function) = functions::find_function(word) else {
                let supported = functions::list_function_names();
                let why = format!("unknown function with name {word:?}; supported are {supported}");
                return Err(self.error_at(start, &why));
            };
            return self.parse_call(function, start);
        }
        self.parse_selector(Some(word), start).map(Expr::Selector)
    }

    /// Parses arguments in parentheses, with commas between them. There may be none.
    fn parse_arguments(&mut self) -> Result<Vec<ParsedExpr>, Error> {
        let mut arguments = Vec::new();
        if !self.skip_sign("(") {
            return Err(self.unexpected_token(" in aggregation"));
        }
        if self.skip_sign(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.parse_binary(0)?);
            if !self.skip_sign(",") {
                self.expect_sign(")")?;
                return Ok(arguments);
            }
        }
    }

    /// Returns an argument if it is there and has `wanted_type`. `context` names the operation in the error.
    fn require_type(
        &self,
        argument: Option<ParsedExpr>,
        wanted_type: ValueType,
        context: &str,
    ) -> Result<Expr, Error> {
        let missing = || self.error_at(self.offset(), "an argument is missing");
        let (expr, start) = argument.ok_or_else(missing)?;
        if expr.value_type() == wanted_type {
            return Ok(expr);
        }
        let (wanted, given) = (wanted_type.name(), expr.value_type().name());
        let why = format!("expected type {wanted} in {context}, got {given}");
        Err(self.error_at(start, &why))
    }

    /// Parses the arguments of a call that begins at `start`, and checks their number and types.
    fn parse_call(&mut self, function: &'static Function, start: usize) -> Result<Expr, Error> {
        let arguments = self.parse_arguments()?;
        let name = function.name;
        let given_count = arguments.len();
        let max_count = function.arguments.len();
        let min_count = max_count - function.optional_count;
        let has_optional = function.optional_count > 0;
        let broken_bound = match given_count {
            given if given < min_count && has_optional => Some((min_count, "at least ")),
            given if given > max_count && has_optional => Some((max_count, "at most ")),
            given if given < min_count || given > max_count => Some((max_count, "")),
            _ => None,
        };
        if let Some((count, bound)) = broken_bound {
            let why = format!(
                "expected {bound}{count} argument(s) in call to {name:?}, got {given_count}"
            );
            return Err(self.error_at(start, &why));
        }
        let context = format!("call to function {name:?}");
        let typed_arguments = arguments.into_iter().zip(function.arguments);
        let checked_arguments = typed_arguments
            .map(|(argument, wanted)| self.require_type(Some(argument), *wanted, &context))
            .collect::<Result<_, _>>()?;
        Ok(Expr::Call(function, checked_arguments))
    }

    /// Parses names of labels in parentheses, with commas between them. There may be none.
    fn parse_label_list(&mut self) -> Result<Vec<Arc<str>>, Error> {
        if !self.skip_sign("(") {
            return Err(self.unexpected_token(" in grouping opts, expected \"(\""));
        }
        let mut labels = Vec::new();
        while !self.skip_sign(")") {
            match self.token().kind.clone() {
                TokenKind::Word(word) if is_label_name(&word) => labels.push(word.as_str().into()),
                _ => return Err(self.unexpected_token(" in grouping opts, expected label")),
            }
            self.advance();
            if !self.skip_sign(",") && !matches!(self.token().kind, TokenKind::Sign(")")) {
                let context = " in grouping opts, expected \",\" or \")\"";
                return Err(self.unexpected_token(context));
            }
        }
        Ok(labels)
    }
}
