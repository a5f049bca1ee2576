//! Tokens to a tree whose types are right.

mod selector;

use std::sync::Arc;

use super::error::Error;
use super::functions::{self, Function};
use super::labels::{Matcher, is_label_name};
use super::lexer::{self, QueryToken, TokenKind};
use super::syntax::{Aggregate, Aggregator, Binary, Expr, Matching, Operator, Selector, Side};
use super::types::Type;

/// Most bytes of a query.
const LONGEST: usize = 16 * 1024;
/// Most operands, calls, brackets and matchers of a query, and so how deep it can be.
const PARTS: usize = 256;
/// How close the sign of a number binds.
const SIGN: u8 = 6;

/// A whole query.
pub fn query(text: &str) -> Result<Expr, Error> {
    let mut parser = Parser::new(text)?;
    if parser.is_over() {
        return Err(parser.wrong(0, "no expression found in input"));
    }
    let (expr, _) = parser.binary(0)?;
    if !parser.is_over() {
        return Err(parser.unexpected(""));
    }
    Ok(expr)
}

/// A selector alone, as `match[]` has it.
pub fn selector(text: &str) -> Result<Vec<Matcher>, Error> {
    let mut parser = Parser::new(text)?;
    let name = match &parser.token().kind {
        TokenKind::Word(name) => Some(name.clone()),
        TokenKind::Sign("{") => None,
        _ => return Err(parser.unexpected("")),
    };
    parser.next += usize::from(name.is_some());
    let matchers = parser.braces(name.as_deref(), 0)?;
    if !parser.is_over() {
        let sign = match parser.token().kind {
            TokenKind::Sign(sign) => sign,
            _ => return Err(parser.unexpected("")),
        };
        return Err(parser.wrong(parser.at(), &format!("unexpected {sign:?}")));
    }
    if matchers.iter().all(|matcher| matcher.takes("")) {
        let why = "match[] must contain at least one non-empty matcher";
        return Err(Error::Invalid(why.into()));
    }
    Ok(matchers)
}

/// An expression, and where it begins.
type ParsedExpr = (Expr, usize);

/// Labels of groups, and whether groups are without them.
type Clause = (bool, Vec<Arc<str>>);

struct Parser<'a> {
    query: &'a str,
    tokens: Vec<QueryToken>,
    next: usize,
    parts: usize,
    selectors: usize,
}

impl<'a> Parser<'a> {
    fn new(query: &'a str) -> Result<Parser<'a>, Error> {
        if query.len() > LONGEST {
            let why = format!("the query has {} bytes; {LONGEST} is the most", query.len());
            return Err(Error::parse(query, 0, &why));
        }
        Ok(Parser {
            query,
            tokens: lexer::tokens(query)?,
            next: 0,
            parts: 0,
            selectors: 0,
        })
    }

    fn token(&self) -> &QueryToken {
        // The last one is the end, which is never passed.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn at(&self) -> usize {
        self.token().at
    }

    fn is_over(&self) -> bool {
        self.token().kind == TokenKind::End
    }

    fn pass(&mut self) -> TokenKind {
        let kind = self.token().kind.clone();
        self.next += 1;
        kind
    }

    fn wrong(&self, at: usize, why: &str) -> Error {
        Error::parse(self.query, at, why)
    }

    /// An error about the next token. `context` says where, and may say what was expected.
    fn unexpected(&self, context: &str) -> Error {
        let token = self.token();
        let signs = |sign: &str| {
            let same =
                |token: &&QueryToken| matches!(token.kind, TokenKind::Sign(own) if own == sign);
            self.tokens.iter().filter(same).count()
        };
        if self.is_over() && !context.contains("braces") && signs("(") > signs(")") {
            return self.wrong(token.at, "unclosed left parenthesis");
        }
        let what = match token.kind {
            TokenKind::Sign(sign) if context.contains("label matching") => format!("{sign:?}"),
            _ => token.kind.describe(),
        };
        self.wrong(token.at, &format!("unexpected {what}{context}"))
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = matches!(self.token().kind, TokenKind::Sign(own) if own == sign);
        self.next += usize::from(found);
        found
    }

    /// Passes a keyword, however it is spelled.
    fn keyword(&mut self, keywords: &[&'static str]) -> Option<&'static str> {
        let TokenKind::Word(word) = &self.token().kind else {
            return None;
        };
        let mut all = keywords.iter().copied();
        let found = all.find(|keyword| word.eq_ignore_ascii_case(keyword))?;
        self.next += 1;
        Some(found)
    }

    fn part(&mut self) -> Result<(), Error> {
        self.parts += 1;
        if self.parts > PARTS {
            let why = format!("the query has more than {PARTS} parts");
            return Err(self.wrong(self.at(), &why));
        }
        Ok(())
    }

    fn operator(&mut self) -> Option<Operator> {
        let operator = match &self.token().kind {
            TokenKind::Sign(sign) => Operator::named(sign),
            TokenKind::Word(word) => Operator::named(&word.to_ascii_lowercase()),
            _ => None,
        };
        operator.filter(|operator| {
            // A metric may have an operator's name, but not here.
            !matches!(self.token().kind, TokenKind::Word(_)) || operator.is_set_operator()
        })
    }

    /// An operand, and what is bound to it as close as `level` or closer.
    fn binary(&mut self, level: u8) -> Result<ParsedExpr, Error> {
        let mut left = self.unary()?;
        while let Some(operator) = self.operator().filter(|other| other.level() >= level) {
            let at = self.at();
            self.pass();
            let as_bool = self.keyword(&["bool"]).is_some();
            let matching = self.matching(operator, left.1)?;
            let level = operator.level();
            let power = operator == Operator::Power;
            let right = self.binary(if power { level } else { level + 1 })?;
            let begin = left.1;
            let expr = self.joined(operator, as_bool, matching, at, left, right)?;
            left = (expr, begin);
        }
        Ok(left)
    }

    fn matching(&mut self, operator: Operator, begin: usize) -> Result<Option<Matching>, Error> {
        let Some(keyword) = self.keyword(&["on", "ignoring"]) else {
            return Ok(None);
        };
        let mut matching = Matching {
            on: keyword == "on",
            labels: self.grouping()?,
            ..Matching::default()
        };
        let at = self.at();
        if let Some(side) = self.keyword(&["group_left", "group_right"]) {
            let left = side == "group_left";
            matching.many = Some(if left { Side::Left } else { Side::Right });
            if matches!(self.token().kind, TokenKind::Sign("(")) {
                matching.include = self.grouping()?;
            }
            if operator.is_set_operator() {
                let name = format!("{operator:?}").to_ascii_lowercase();
                let why = format!("no grouping allowed for {name:?} operation");
                return Err(self.wrong(begin, &why));
            }
            let twice = |label: &&Arc<str>| matching.on && matching.labels.contains(label);
            if let Some(label) = matching.include.iter().find(twice) {
                let why = format!("label {label:?} must not occur in ON and GROUP clause at once");
                return Err(self.wrong(at, &why));
            }
        }
        Ok(Some(matching))
    }

    fn joined(
        &self,
        operator: Operator,
        as_bool: bool,
        matching: Option<Matching>,
        at: usize,
        (left, begin): ParsedExpr,
        (right, right_begin): ParsedExpr,
    ) -> Result<Expr, Error> {
        if as_bool && !operator.is_comparison() {
            let why = "bool modifier can only be used on comparison operators";
            return Err(self.wrong(at, why));
        }
        for (side, at) in [(&left, begin), (&right, right_begin)] {
            if !matches!(side.kind(), Type::Scalar | Type::Vector) {
                let why = "binary expression must contain only scalar and instant vector types";
                return Err(self.wrong(at, why));
            }
        }
        let scalars = [&left, &right].map(|side| side.kind() == Type::Scalar);
        if scalars == [true, true] && operator.is_comparison() && !as_bool {
            let why = "comparisons between scalars must use BOOL modifier";
            return Err(self.wrong(at, why));
        }
        if scalars.contains(&true) && operator.is_set_operator() {
            let name = format!("{operator:?}").to_ascii_lowercase();
            let why = format!("set operator {name:?} not allowed in binary scalar expression");
            return Err(self.wrong(begin, &why));
        }
        let labels = matching
            .as_ref()
            .map_or(&[][..], |matching| &matching.labels);
        if scalars.contains(&true) && !labels.is_empty() {
            let why = "vector matching only allowed between instant vectors";
            return Err(self.wrong(begin, why));
        }
        Ok(Expr::Binary(Box::new(Binary {
            operator,
            as_bool,
            matching: matching.unwrap_or_default(),
            left,
            right,
        })))
    }

    fn unary(&mut self) -> Result<ParsedExpr, Error> {
        let at = self.at();
        let negative = matches!(self.token().kind, TokenKind::Sign("-"));
        if !negative && !matches!(self.token().kind, TokenKind::Sign("+")) {
            return self.operand();
        }
        self.part()?;
        self.pass();
        let (inner, _) = self.binary(SIGN)?;
        if !matches!(inner.kind(), Type::Scalar | Type::Vector) {
            let why = format!(
                "unary expression only allowed on expressions of type scalar or instant vector, got {:?}",
                inner.kind().name()
            );
            return Err(self.wrong(at, &why));
        }
        let expr = match inner {
            inner if !negative => inner,
            Expr::Number(value) => Expr::Number(-value),
            inner => Expr::Negative(Box::new(inner)),
        };
        Ok((expr, at))
    }

    fn operand(&mut self) -> Result<ParsedExpr, Error> {
        self.part()?;
        let at = self.at();
        let expr = match self.token().kind.clone() {
            TokenKind::Number(value, _) => {
                self.pass();
                Expr::Number(value)
            }
            TokenKind::Text(text, _) => {
                self.pass();
                Expr::Text(text)
            }
            TokenKind::Sign("(") => {
                self.pass();
                let (inner, _) = self.binary(0)?;
                self.close(")")?;
                return self.behind(inner, at, true);
            }
            TokenKind::Sign("{") => self.series(None, at)?,
            TokenKind::Word(word) => self.named(&word)?,
            _ => return Err(self.unexpected("")),
        };
        self.behind(expr, at, false)
    }

    /// Passes a closing bracket.
    fn close(&mut self, sign: &str) -> Result<(), Error> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(self.unexpected("")),
        }
    }

    fn named(&mut self, word: &str) -> Result<Expr, Error> {
        let at = self.at();
        self.pass();
        let called = matches!(self.token().kind, TokenKind::Sign("("));
        if let Some(by) = Aggregator::named(word) {
            let grouped = matches!(&self.token().kind, TokenKind::Word(next)
                if ["by", "without"].iter().any(|word| next.eq_ignore_ascii_case(word)));
            if called || grouped {
                return self.aggregate(by, at);
            }
        }
        if called {
            let Some(function) = functions::named(word) else {
                let supported = functions::names();
                let why = format!("unknown function with name {word:?}; supported are {supported}");
                return Err(self.wrong(at, &why));
            };
            return self.call(function, at);
        }
        self.series(Some(word), at)
    }

    fn arguments(&mut self) -> Result<Vec<ParsedExpr>, Error> {
        let mut arguments = Vec::new();
        if !self.takes("(") {
            return Err(self.unexpected(" in aggregation"));
        }
        if self.takes(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.binary(0)?);
            if !self.takes(",") {
                self.close(")")?;
                return Ok(arguments);
            }
        }
    }

    fn aggregate(&mut self, by: Aggregator, at: usize) -> Result<Expr, Error> {
        let mut clause = self.clause()?;
        let mut arguments = self.arguments()?;
        if clause.is_none() {
            clause = self.clause()?;
        }
        let (without, labels) = clause.unwrap_or_default();
        let expected = 1 + usize::from(by.has_parameter());
        if arguments.is_empty() {
            let why = "no arguments for aggregate expression provided";
            return Err(self.wrong(at, why));
        }
        if arguments.len() != expected {
            let given = arguments.len();
            let why = format!(
                "wrong number of arguments for aggregate expression provided, expected {expected}, got {given}"
            );
            return Err(self.wrong(at, &why));
        }
        let of = arguments.pop();
        let of = self.of_type(of, Type::Vector, "aggregation expression")?;
        let parameter = match arguments.pop() {
            Some(given) => {
                Some(self.of_type(Some(given), Type::Scalar, "aggregation parameter")?)
            }
            None => None,
        };
        Ok(Expr::Aggregate(Box::new(Aggregate {
            by,
            without,
            labels,
            parameter,
            of,
        })))
    }

    fn clause(&mut self) -> Result<Option<Clause>, Error> {
        match self.keyword(&["by", "without"]) {
            Some(keyword) => Ok(Some((keyword == "without", self.grouping()?))),
            None => Ok(None),
        }
    }

    fn of_type(&self, found: Option<ParsedExpr>, wanted: Type, place: &str) -> Result<Expr, Error> {
        let (expr, at) = found.ok_or_else(|| self.wrong(self.at(), "an argument is missing"))?;
        if expr.kind() == wanted {
            return Ok(expr);
        }
        let (wanted, given) = (wanted.name(), expr.kind().name());
        let why = format!("expected type {wanted} in {place}, got {given}");
        Err(self.wrong(at, &why))
    }

    fn call(&mut self, function: &'static Function, at: usize) -> Result<Expr, Error> {
        let arguments = self.arguments()?;
        let (given, most) = (arguments.len(), function.arguments.len());
        let (name, least) = (function.name, most - function.optional);
        let bound = match () {
            () if given < least && function.optional > 0 => Some((least, "at least ")),
            () if given < least || given > most && function.optional == 0 => Some((most, "")),
            () if given > most => Some((most, "at most ")),
            () => None,
        };
        if let Some((count, bound)) = bound {
            let why =
                format!("expected {bound}{count} argument(s) in call to {name:?}, got {given}");
            return Err(self.wrong(at, &why));
        }
        let place = format!("call to function {name:?}");
        let typed = arguments.into_iter().zip(function.arguments);
        let checked = typed.map(|(argument, wanted)| self.of_type(Some(argument), *wanted, &place));
        Ok(Expr::Call(function, checked.collect::<Result<_, _>>()?))
    }

    /// Labels in parentheses.
    fn grouping(&mut self) -> Result<Vec<Arc<str>>, Error> {
        if !self.takes("(") {
            return Err(self.unexpected(" in grouping opts, expected \"(\""));
        }
        let mut labels = Vec::new();
        while !self.takes(")") {
            match self.token().kind.clone() {
                TokenKind::Word(word) if is_label_name(&word) => labels.push(word.as_str().into()),
                _ => return Err(self.unexpected(" in grouping opts, expected label")),
            }
            self.pass();
            if !self.takes(",") && !matches!(self.token().kind, TokenKind::Sign(")")) {
                return Err(self.unexpected(" in grouping opts, expected \",\" or \")\""));
            }
        }
        Ok(labels)
    }
}
