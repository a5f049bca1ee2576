//! Binary operators, and the matching of series of their two sides.

use std::collections::{HashMap, HashSet};

use super::error::Error;
use super::labels::{Labels, NAME};
use super::syntax::{Binary, Matching, Operator, Side};
use super::value::{Point, Value};

/// Applies an operator to its two sides.
pub fn apply(binary: &Binary, left: Value, right: Value) -> Result<Value, Error> {
    match (left, right) {
        (Value::Scalar(left), Value::Scalar(right)) => {
            let kept = binary.operator.apply(left, right);
            let so = || f64::from(kept.is_some());
            let value = if binary.operator.is_comparison() {
                so()
            } else {
                kept.unwrap_or(f64::NAN)
            };
            Ok(Value::Scalar(value))
        }
        (Value::Vector(left), Value::Scalar(right)) => {
            Ok(Value::Vector(with_scalar(binary, left, right, false)))
        }
        (Value::Scalar(left), Value::Vector(right)) => {
            Ok(Value::Vector(with_scalar(binary, right, left, true)))
        }
        (Value::Vector(left), Value::Vector(right)) => {
            let found = if binary.operator.is_set_operator() {
                sets(binary, left, right)
            } else {
                pairs(binary, left, right)?
            };
            Ok(Value::Vector(found))
        }
        _ => Err(Error::execution("an operator between texts")),
    }
}

fn with_scalar(binary: &Binary, series: Vec<Point>, scalar: f64, swapped: bool) -> Vec<Point> {
    let nameless = !binary.operator.is_comparison() || binary.as_bool;
    let mut kept = Vec::with_capacity(series.len());
    for point in series {
        let (left, right) = match swapped {
            false => (point.value, scalar),
            true => (scalar, point.value),
        };
        let found = binary.operator.apply(left, right);
        let value = match (binary.operator.is_comparison(), found) {
            (true, found) if binary.as_bool => f64::from(found.is_some()),
            // A comparison keeps the value of the series, on whichever side it is.
            (true, Some(_)) => point.value,
            (false, Some(value)) => value,
            (_, None) => continue,
        };
        let labels = match nameless {
            true => point.labels.nameless(),
            false => point.labels,
        };
        kept.push(Point { labels, value });
    }
    kept
}

/// The labels that must be the same on both sides.
fn signature(matching: &Matching, labels: &Labels) -> Labels {
    let named = |name: &str| matching.labels.iter().any(|label| &**label == name);
    match matching.on {
        true => labels.filtered(named),
        false => labels.filtered(|name| name != NAME && !named(name)),
    }
}

fn sets(binary: &Binary, left: Vec<Point>, right: Vec<Point>) -> Vec<Point> {
    let signature = |point: &Point| signature(&binary.matching, &point.labels);
    let mut kept = left;
    match binary.operator {
        Operator::Or => {
            let known: HashSet<_> = kept.iter().map(signature).collect();
            let new = |point: &Point| !known.contains(&signature(point));
            kept.extend(right.into_iter().filter(new));
        }
        other => {
            let known: HashSet<_> = right.iter().map(signature).collect();
            let both = other == Operator::And;
            kept.retain(|point| known.contains(&signature(point)) == both);
        }
    }
    kept
}

fn pairs(binary: &Binary, left: Vec<Point>, right: Vec<Point>) -> Result<Vec<Point>, Error> {
    let matching = &binary.matching;
    if left.is_empty() || right.is_empty() {
        return Ok(Vec::new());
    }
    let swapped = matching.many == Some(Side::Right);
    let (many, one) = if swapped {
        (right, left)
    } else {
        (left, right)
    };
    let mut ones: HashMap<Labels, Point> = HashMap::with_capacity(one.len());
    for point in one {
        let signature = signature(matching, &point.labels);
        if let Some(twin) = ones.get(&signature) {
            let side = if swapped { "left" } else { "right" };
            return Err(Error::execution(format!(
                "found duplicate series for the match group {signature} on the {side} hand-side of the operation: [{}, {}];many-to-many matching not allowed: matching labels must be unique on one side",
                point.labels, twin.labels
            )));
        }
        ones.insert(signature, point);
    }
    let (mut found, mut used) = (Vec::new(), HashSet::new());
    for point in many {
        let signature = signature(matching, &point.labels);
        let Some(other) = ones.get(&signature) else {
            continue;
        };
        let (left, right) = match swapped {
            false => (point.value, other.value),
            true => (other.value, point.value),
        };
        let value = match binary.operator.apply(left, right) {
            kept if binary.as_bool => f64::from(kept.is_some()),
            Some(value) => value,
            None => continue,
        };
        let labels = joined(binary, &point.labels, &other.labels);
        let (key, why) = match matching.many {
            None => (
                (signature, Labels::default()),
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
            ),
            Some(_) => (
                (signature, labels.clone()),
                "multiple matches for labels: grouping labels must ensure unique matches",
            ),
        };
        if !used.insert(key) {
            return Err(Error::execution(why));
        }
        found.push(Point { labels, value });
    }
    Ok(found)
}

/// The labels of the result of two matched series.
fn joined(binary: &Binary, many: &Labels, one: &Labels) -> Labels {
    let matching = &binary.matching;
    let mut labels = many.clone();
    if !binary.operator.is_comparison() || binary.as_bool {
        labels = labels.nameless();
    }
    if matching.many.is_none() {
        let named = |name: &str| matching.labels.iter().any(|label| &**label == name);
        labels = labels.filtered(|name| named(name) == matching.on);
    }
    for name in &matching.include {
        if labels.get(name) != one.get(name) {
            labels = labels.with(name, one.get(name));
        }
    }
    labels
}
