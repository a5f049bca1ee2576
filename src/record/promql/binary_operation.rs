//! Applies binary operators, and matches the series of their two sides as the syntax tree says. The parser has checked
//! the types of the sides.

use std::collections::{HashMap, HashSet};

use super::error::Error;
use super::labels::{Labels, METRIC_NAME_LABEL};
use super::syntax::{BinaryOperation, MatchBy, Matching, Operator, Side};
use super::value::{Value, VectorElement};

/// Applies an operator to the values of its two sides.
///
/// # Errors
///
/// Fails if a series of one side matches several of the other, unless `group_left` or `group_right` allows it. Even
/// then it fails if two results of one series would have the same labels. Fails also for texts, which the parser does
/// not allow.
pub fn apply_operator(
    operation: &BinaryOperation,
    left: Value,
    right: Value,
) -> Result<Value, Error> {
    match (left, right) {
        (Value::Scalar(left), Value::Scalar(right)) => {
            let result = operation.operator.apply(left, right);
            let value = if operation.operator.is_comparison() {
                f64::from(result.is_some())
            } else {
                result.unwrap_or(f64::NAN)
            };
            Ok(Value::Scalar(value))
        }
        (Value::Vector(left), Value::Scalar(right)) => {
            let elements = apply_to_scalar(operation, left, right, Side::Right);
            Ok(Value::Vector(elements))
        }
        (Value::Scalar(left), Value::Vector(right)) => {
            let elements = apply_to_scalar(operation, right, left, Side::Left);
            Ok(Value::Vector(elements))
        }
        (Value::Vector(left), Value::Vector(right)) => {
            let elements = if operation.operator.is_set_operator() {
                combine_sets(operation, left, right)
            } else {
                apply_to_pairs(operation, left, right)?
            };
            Ok(Value::Vector(elements))
        }
        _ => Err(Error::execution("an operator between texts")),
    }
}

/// Applies an operator to each series and a scalar, which is on `scalar_side`.
fn apply_to_scalar(
    operation: &BinaryOperation,
    elements: Vec<VectorElement>,
    scalar: f64,
    scalar_side: Side,
) -> Vec<VectorElement> {
    let mut results = Vec::with_capacity(elements.len());
    for element in elements {
        let (left, right) = match scalar_side {
            Side::Left => (scalar, element.value),
            Side::Right => (element.value, scalar),
        };
        let result = operation.operator.apply(left, right);
        let value = match (operation.operator.is_comparison(), result) {
            (true, result) if operation.returns_bool => f64::from(result.is_some()),
            // A comparison keeps the value of the series, on whichever side it is.
            (true, Some(_)) => element.value,
            (false, Some(value)) => value,
            (_, None) => continue,
        };
        let labels = match drops_metric_name(operation) {
            true => element.labels.nameless(),
            false => element.labels,
        };
        results.push(VectorElement { labels, value });
    }
    results
}

/// Whether results have no metric name, because their values are not those of the metric any more.
fn drops_metric_name(operation: &BinaryOperation) -> bool {
    !operation.operator.is_comparison() || operation.returns_bool
}

/// Returns the labels of a series that a matching series of the other side must have too.
fn match_key(matching: &Matching, labels: &Labels) -> Labels {
    let is_listed = |name: &str| matching.labels.iter().any(|label| &**label == name);
    match matching.by {
        MatchBy::On => labels.filtered(is_listed),
        MatchBy::Ignoring => labels.filtered(|name| name != METRIC_NAME_LABEL && !is_listed(name)),
    }
}

/// Applies `and`, `or` or `unless`.
fn combine_sets(
    operation: &BinaryOperation,
    left: Vec<VectorElement>,
    right: Vec<VectorElement>,
) -> Vec<VectorElement> {
    let match_key = |element: &VectorElement| match_key(&operation.matching, &element.labels);
    let mut combined = left;
    match operation.operator {
        Operator::Or => {
            let left_keys: HashSet<_> = combined.iter().map(match_key).collect();
            let is_new = |element: &VectorElement| !left_keys.contains(&match_key(element));
            combined.extend(right.into_iter().filter(is_new));
        }
        set_operator => {
            let right_keys: HashSet<_> = right.iter().map(match_key).collect();
            let keeps_matched = set_operator == Operator::And;
            combined.retain(|element| right_keys.contains(&match_key(element)) == keeps_matched);
        }
    }
    combined
}

/// Applies an operator to each pair of matched series. Series without a partner are dropped, and so are pairs for which
/// a comparison is false, unless it returns a bool. Fails if several series match where one may.
fn apply_to_pairs(
    operation: &BinaryOperation,
    left: Vec<VectorElement>,
    right: Vec<VectorElement>,
) -> Result<Vec<VectorElement>, Error> {
    let matching = &operation.matching;
    // Nothing can match, so Prometheus does not report duplicates on the other side.
    if left.is_empty() || right.is_empty() {
        return Ok(Vec::new());
    }
    let is_many_right = matching.many_side == Some(Side::Right);
    let (many_elements, one_elements) = if is_many_right {
        (right, left)
    } else {
        (left, right)
    };
    let one_side_name = if is_many_right { "left" } else { "right" };
    let partners = index_by_match_key(matching, one_elements, one_side_name)?;
    let mut results = Vec::new();
    let mut matched_keys = HashSet::new();
    for element in many_elements {
        let match_key = match_key(matching, &element.labels);
        let Some(partner) = partners.get(&match_key) else {
            continue;
        };
        let (left, right) = match is_many_right {
            false => (element.value, partner.value),
            true => (partner.value, element.value),
        };
        let value = match operation.operator.apply(left, right) {
            result if operation.returns_bool => f64::from(result.is_some()),
            Some(value) => value,
            None => continue,
        };
        let labels = joined_labels(operation, &element.labels, &partner.labels);
        // A partner has one match, or several whose results differ in their labels.
        let (key, why) = match matching.many_side {
            None => (
                (match_key, Labels::default()),
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
            ),
            Some(_) => (
                (match_key, labels.clone()),
                "multiple matches for labels: grouping labels must ensure unique matches",
            ),
        };
        if !matched_keys.insert(key) {
            return Err(Error::execution(why));
        }
        results.push(VectorElement { labels, value });
    }
    Ok(results)
}

/// Maps match keys to the series of the side that has one for each match. Fails if two of them have one key.
/// `side_name` is for the error.
fn index_by_match_key(
    matching: &Matching,
    elements: Vec<VectorElement>,
    side_name: &str,
) -> Result<HashMap<Labels, VectorElement>, Error> {
    let mut elements_by_key: HashMap<Labels, VectorElement> =
        HashMap::with_capacity(elements.len());
    for element in elements {
        let match_key = match_key(matching, &element.labels);
        if let Some(duplicate) = elements_by_key.get(&match_key) {
            return Err(Error::execution(format!(
                "found duplicate series for the match group {match_key} on the {side_name} hand-side of the operation: [{}, {}];many-to-many matching not allowed: matching labels must be unique on one side",
                element.labels, duplicate.labels
            )));
        }
        elements_by_key.insert(match_key, element);
    }
    Ok(elements_by_key)
}

/// Returns the labels of the result of two matched series: those of the side that may have many series for a match,
/// with the labels that the query includes from the other side. Without such a side, they are only the labels by which
/// the series match.
fn joined_labels(operation: &BinaryOperation, many_labels: &Labels, one_labels: &Labels) -> Labels {
    let matching = &operation.matching;
    let mut labels = many_labels.clone();
    if drops_metric_name(operation) {
        labels = labels.nameless();
    }
    if matching.many_side.is_none() {
        let is_listed = |name: &str| matching.labels.iter().any(|label| &**label == name);
        let keeps_listed = matching.by == MatchBy::On;
        labels = labels.filtered(|name| is_listed(name) == keeps_listed);
    }
    for name in &matching.included_labels {
        if labels.get(name) != one_labels.get(name) {
            labels = labels.with(name, one_labels.get(name));
        }
    }
    labels
}
