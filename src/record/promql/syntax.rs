//! The tree of a query.

use std::sync::Arc;

use super::functions::Function;
use super::labels::Matcher;
use super::types::Type;

/// A selector of series.
#[derive(Clone, Debug)]
pub struct Selector {
    /// Its position among the query's selectors.
    pub place: usize,
    /// What the labels of the series must match.
    pub matchers: Vec<Matcher>,
    /// Milliseconds of samples that each step looks at; without a range, the newest sample.
    pub range: Option<i64>,
    /// Milliseconds before each step; negative offsets are after it.
    pub offset: i64,
}

/// An expression.
#[derive(Debug)]
pub enum Expr {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// Series, now or over a span.
    Selector(Selector),
    /// `-a`
    Negative(Box<Expr>),
    /// `a + b`
    Binary(Box<Binary>),
    /// `sum by (a) (b)`
    Aggregate(Box<Aggregate>),
    /// `rate(a[5m])`
    Call(&'static Function, Vec<Expr>),
}

impl Expr {
    /// The type of its value.
    pub fn kind(&self) -> Type {
        match self {
            Expr::Number(_) => Type::Scalar,
            Expr::Text(_) => Type::Text,
            Expr::Selector(selector) if selector.range.is_some() => Type::Matrix,
            Expr::Selector(_) | Expr::Aggregate(_) => Type::Vector,
            Expr::Negative(inner) => inner.kind(),
            Expr::Binary(binary) => match (binary.left.kind(), binary.right.kind()) {
                (Type::Scalar, Type::Scalar) => Type::Scalar,
                _ => Type::Vector,
            },
            Expr::Call(function, _) => function.returns,
        }
    }

    /// Visits all selectors.
    pub fn selectors<'a>(&'a self, seen: &mut dyn FnMut(&'a Selector)) {
        match self {
            Expr::Number(_) | Expr::Text(_) => {}
            Expr::Selector(selector) => seen(selector),
            Expr::Negative(inner) => inner.selectors(seen),
            Expr::Binary(binary) => {
                binary.left.selectors(seen);
                binary.right.selectors(seen);
            }
            Expr::Aggregate(aggregate) => {
                if let Some(parameter) = &aggregate.parameter {
                    parameter.selectors(seen);
                }
                aggregate.of.selectors(seen);
            }
            Expr::Call(_, arguments) => arguments.iter().for_each(|a| a.selectors(seen)),
        }
    }
}

/// A binary operation.
#[derive(Debug)]
pub struct Binary {
    /// The operator.
    pub operator: Operator,
    /// Whether a comparison returns 0 or 1 (`bool`), instead of dropping series for which it is false.
    pub as_bool: bool,
    /// Which series of the two sides are matched.
    pub matching: Matching,
    /// The left side.
    pub left: Expr,
    /// The right side.
    pub right: Expr,
}

/// Which series of the two sides are matched.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    /// Whether only `labels` must be the same (`on`), and not all others (`ignoring`).
    pub on: bool,
    /// See `on`.
    pub labels: Vec<Arc<str>>,
    /// The side that may have several series for one of the other.
    pub many: Option<Side>,
    /// Labels that the series of that side take from the other one.
    pub include: Vec<Arc<str>>,
}

/// A side of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `group_left`
    Left,
    /// `group_right`
    Right,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
    /// `^`
    Power,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `and`
    And,
    /// `or`
    Or,
    /// `unless`
    Unless,
}

impl Operator {
    /// The operator that is written so.
    pub fn named(text: &str) -> Option<Operator> {
        Some(match text {
            "+" => Operator::Add,
            "-" => Operator::Subtract,
            "*" => Operator::Multiply,
            "/" => Operator::Divide,
            "%" => Operator::Modulo,
            "^" => Operator::Power,
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::AtMost,
            ">" => Operator::Greater,
            ">=" => Operator::AtLeast,
            "and" => Operator::And,
            "or" => Operator::Or,
            "unless" => Operator::Unless,
            _ => return None,
        })
    }

    /// The precedence; higher binds closer.
    pub fn level(self) -> u8 {
        match self {
            Operator::Or => 1,
            Operator::And | Operator::Unless => 2,
            Operator::Add | Operator::Subtract => 4,
            Operator::Multiply | Operator::Divide | Operator::Modulo => 5,
            Operator::Power => 6,
            _ => 3,
        }
    }

    /// Whether it is a comparison.
    pub fn is_comparison(self) -> bool {
        self.level() == 3
    }

    /// Whether it is an operator of sets, which does not look at values.
    pub fn is_set_operator(self) -> bool {
        self.level() < 3
    }

    /// Applies it to two numbers; none when a comparison is false.
    pub fn apply(self, left: f64, right: f64) -> Option<f64> {
        let left_if = |so: bool| so.then_some(left);
        match self {
            Operator::Add => Some(left + right),
            Operator::Subtract => Some(left - right),
            Operator::Multiply => Some(left * right),
            Operator::Divide => Some(left / right),
            Operator::Modulo => Some(left % right),
            Operator::Power => Some(left.powf(right)),
            Operator::Equal => left_if(left == right),
            Operator::NotEqual => left_if(left != right),
            Operator::Less => left_if(left < right),
            Operator::AtMost => left_if(left <= right),
            Operator::Greater => left_if(left > right),
            Operator::AtLeast => left_if(left >= right),
            Operator::And | Operator::Or | Operator::Unless => None,
        }
    }
}

/// An aggregation.
#[derive(Debug)]
pub struct Aggregate {
    /// The aggregation operator.
    pub by: Aggregator,
    /// Whether `labels` are those that groups do not have (`without`).
    pub without: bool,
    /// See `without`.
    pub labels: Vec<Arc<str>>,
    /// How many, or which quantile.
    pub parameter: Option<Expr>,
    /// The series.
    pub of: Expr,
}

/// What is made of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregator {
    /// `sum`
    Sum,
    /// `avg`
    Average,
    /// `min`
    Least,
    /// `max`
    Most,
    /// `count`
    Count,
    /// `group`
    Group,
    /// `stddev`
    Deviation,
    /// `stdvar`
    Variance,
    /// `topk`
    Top,
    /// `bottomk`
    Bottom,
    /// `quantile`
    Quantile,
}

impl Aggregator {
    /// All of them by name.
    pub const ALL: [(&'static str, Aggregator); 11] = [
        ("sum", Aggregator::Sum),
        ("avg", Aggregator::Average),
        ("min", Aggregator::Least),
        ("max", Aggregator::Most),
        ("count", Aggregator::Count),
        ("group", Aggregator::Group),
        ("stddev", Aggregator::Deviation),
        ("stdvar", Aggregator::Variance),
        ("topk", Aggregator::Top),
        ("bottomk", Aggregator::Bottom),
        ("quantile", Aggregator::Quantile),
    ];

    /// The operator that is written so.
    pub fn named(text: &str) -> Option<Aggregator> {
        let mut all = Aggregator::ALL.into_iter();
        all.find(|(name, _)| text.eq_ignore_ascii_case(name))
            .map(|(_, aggregator)| aggregator)
    }

    /// Whether it has a parameter.
    pub fn has_parameter(self) -> bool {
        matches!(
            self,
            Aggregator::Top | Aggregator::Bottom | Aggregator::Quantile
        )
    }
}
