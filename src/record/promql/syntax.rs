//! The syntax tree of a query. The parser builds the tree and checks its types. The evaluator only reads it. The
//! parser's bound on the parts of a query (`MAX_PARTS`) also bounds the tree.

use std::sync::Arc;

use super::functions::Function;
use super::labels::Matcher;
use super::value_type::ValueType;

/// A selector of series.
#[derive(Clone, Debug)]
pub struct Selector {
    /// The index of the selector among those of the query, in the order of the text.
    pub index: usize,
    /// The conditions on the labels of the series, which must all hold. The name of the metric is one of them.
    pub matchers: Vec<Matcher>,
    /// The milliseconds of samples that each step reads; `None` for only the newest sample.
    pub range_ms: Option<i64>,
    /// The milliseconds by which `offset` moves the end of the samples before the step; negative to move it after the
    /// step.
    pub offset_ms: i64,
}

/// A node of the syntax tree, with the nodes below it.
#[derive(Debug)]
pub enum Expr {
    /// A literal number, such as `1.5`.
    Number(f64),
    /// A literal text, such as `'x'`.
    Text(String),
    /// `a{b="c"}` or `a[5m]`: series, with their newest samples or those of a range.
    Selector(Selector),
    /// `-a`: the negative of each value.
    Negative(Box<Expr>),
    /// `a + b`: an operator between two expressions.
    Binary(Box<BinaryOperation>),
    /// `sum by (a) (b)`: a value for each group of series.
    Aggregate(Box<Aggregation>),
    /// `rate(a[5m])`: a function and its arguments.
    Call(&'static Function, Vec<Expr>),
}

impl Expr {
    /// The type of the expression's value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Expr::Number(_) => ValueType::Scalar,
            Expr::Text(_) => ValueType::Text,
            Expr::Selector(selector) if selector.range_ms.is_some() => ValueType::Matrix,
            Expr::Selector(_) | Expr::Aggregate(_) => ValueType::Vector,
            Expr::Negative(inner) => inner.value_type(),
            Expr::Binary(operation) => {
                match (operation.left.value_type(), operation.right.value_type()) {
                    (ValueType::Scalar, ValueType::Scalar) => ValueType::Scalar,
                    _ => ValueType::Vector,
                }
            }
            Expr::Call(function, _) => function.result_type,
        }
    }

    /// Passes all selectors in the tree to `visit`.
    pub fn visit_selectors<'a>(&'a self, visit: &mut dyn FnMut(&'a Selector)) {
        match self {
            Expr::Number(_) | Expr::Text(_) => {}
            Expr::Selector(selector) => visit(selector),
            Expr::Negative(inner) => inner.visit_selectors(visit),
            Expr::Binary(operation) => {
                operation.left.visit_selectors(visit);
                operation.right.visit_selectors(visit);
            }
            Expr::Aggregate(aggregate) => {
                if let Some(parameter) = &aggregate.parameter {
                    parameter.visit_selectors(visit);
                }
                aggregate.operand.visit_selectors(visit);
            }
            Expr::Call(_, arguments) => {
                arguments
                    .iter()
                    .for_each(|argument| argument.visit_selectors(visit));
            }
        }
    }
}

/// An operator between two expressions.
#[derive(Debug)]
pub struct BinaryOperation {
    /// The operator between the two sides.
    pub operator: Operator,
    /// Whether a comparison returns 0 or 1 (`bool`), instead of dropping series for which it is false.
    pub returns_bool: bool,
    /// The rules by which series are matched. They have no effect if a side is a scalar.
    pub matching: Matching,
    /// The expression before the operator.
    pub left: Expr,
    /// The expression after the operator.
    pub right: Expr,
}

/// How series of the two sides are matched.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    /// Which labels two series must have in common.
    pub by: MatchBy,
    /// The labels of the `on` or `ignoring` clause; empty without a clause.
    pub labels: Vec<Arc<str>>,
    /// The side of which several series may match one series of the other side. `None` for one-to-one matching, and for
    /// set operators, which match any number of series.
    pub many_side: Option<Side>,
    /// The labels in the list of `group_left` or `group_right`. Results get them from the side with one series.
    pub included_labels: Vec<Arc<str>>,
}

/// Which labels two matched series must have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchBy {
    /// `on`: the listed labels.
    On,
    /// `ignoring`: all labels but the name of the metric and the listed ones. Without a clause none is listed.
    #[default]
    Ignoring,
}

/// A side of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side before the operator, which `group_left` names.
    Left,
    /// The side after the operator, which `group_right` names.
    Right,
}

/// A binary operator, by its spelling in queries.
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
    /// `%`: the remainder, with the sign of the left number.
    Modulo,
    /// `^`: the left number to the power of the right one.
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
    /// `and`: the series of the left side that match one of the right side.
    And,
    /// `or`: the left side, and the series of the right side that match none of it.
    Or,
    /// `unless`: the series of the left side that match none of the right side.
    Unless,
}

/// The precedence of all comparisons. Set operators have a lower precedence, and arithmetic has a higher one.
const COMPARISON_PRECEDENCE: u8 = 3;

impl Operator {
    /// Returns the operator with this spelling; `None` for any other text. `and`, `or` and `unless` must be in lower
    /// case.
    pub fn from_text(text: &str) -> Option<Operator> {
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

    /// The precedence, from 1 to 6, as in Prometheus. Operators of a higher precedence bind closer.
    pub fn precedence(self) -> u8 {
        match self {
            Operator::Or => 1,
            Operator::And | Operator::Unless => 2,
            Operator::Add | Operator::Subtract => 4,
            Operator::Multiply | Operator::Divide | Operator::Modulo => 5,
            Operator::Power => 6,
            _ => COMPARISON_PRECEDENCE,
        }
    }

    /// Whether the operator compares two numbers.
    pub fn is_comparison(self) -> bool {
        self.precedence() == COMPARISON_PRECEDENCE
    }

    /// Whether the operator is `and`, `or` or `unless`, which ignore the values.
    pub fn is_set_operator(self) -> bool {
        self.precedence() < COMPARISON_PRECEDENCE
    }

    /// Applies the operator to two numbers. A comparison returns the left number if it is true, and otherwise `None`.
    /// Set operators return `None`.
    pub fn apply(self, left: f64, right: f64) -> Option<f64> {
        let left_if = |is_true: bool| is_true.then_some(left);
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

/// An operator such as `sum` over groups of series.
#[derive(Debug)]
pub struct Aggregation {
    /// The operator that is applied to each group.
    pub aggregator: Aggregator,
    /// The labels by which series are grouped.
    pub grouping: Grouping,
    /// The number of series of `topk` and `bottomk`, or the `q` of `quantile`; `None` for other operators.
    pub parameter: Option<Expr>,
    /// The series that are aggregated.
    pub operand: Expr,
}

/// The labels by which series are grouped.
#[derive(Debug)]
pub enum Grouping {
    /// `by`: the groups have these labels.
    By(Vec<Arc<str>>),
    /// `without`: the groups have all other labels, except the name of the metric.
    Without(Vec<Arc<str>>),
}

impl Grouping {
    /// The labels of the clause.
    pub fn labels(&self) -> &[Arc<str>] {
        match self {
            Grouping::By(labels) | Grouping::Without(labels) => labels,
        }
    }
}

/// The operator of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregator {
    /// `sum`
    Sum,
    /// `avg`
    Average,
    /// `min`
    Minimum,
    /// `max`
    Maximum,
    /// `count`
    Count,
    /// `group`: 1 for each group.
    Group,
    /// `stddev`: the population standard deviation.
    Deviation,
    /// `stdvar`: the population variance.
    Variance,
    /// `topk`: the series with the greatest values.
    Top,
    /// `bottomk`: the series with the least values.
    Bottom,
    /// `quantile`: a quantile of the values, interpolated.
    Quantile,
}

impl Aggregator {
    /// All aggregators with their names.
    pub const ALL: [(&'static str, Aggregator); 11] = [
        ("sum", Aggregator::Sum),
        ("avg", Aggregator::Average),
        ("min", Aggregator::Minimum),
        ("max", Aggregator::Maximum),
        ("count", Aggregator::Count),
        ("group", Aggregator::Group),
        ("stddev", Aggregator::Deviation),
        ("stdvar", Aggregator::Variance),
        ("topk", Aggregator::Top),
        ("bottomk", Aggregator::Bottom),
        ("quantile", Aggregator::Quantile),
    ];

    /// Returns the aggregator with this name, in upper or lower case; `None` if there is none.
    pub fn from_text(text: &str) -> Option<Aggregator> {
        let mut aggregators = Aggregator::ALL.into_iter();
        aggregators
            .find(|(name, _)| text.eq_ignore_ascii_case(name))
            .map(|(_, aggregator)| aggregator)
    }

    /// Whether the aggregator has a parameter.
    pub fn has_parameter(self) -> bool {
        matches!(
            self,
            Aggregator::Top | Aggregator::Bottom | Aggregator::Quantile
        )
    }
}
