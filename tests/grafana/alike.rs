//! Whether two answers say the same.

use serde_json::Value;

/// Largest difference of two numbers, as a part of them.
const NEAR: f64 = 1e-9;

/// Where two answers differ first.
pub fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(at, (a, b))| Some(format!("[{at}]{}", difference(a, b)?)))
        }
        (Value::Array(a), Value::Array(b)) => {
            let more = |longer: &[Value], shorter: &[Value]| {
                let missing = |one: &&Value| !shorter.contains(one);
                longer.iter().find(missing).map(Value::to_string)
            };
            let (ours, theirs) = (more(a, b), more(b, a));
            Some(format!(
                ": {} and {} long, ours {ours:?}, theirs {theirs:?}",
                a.len(),
                b.len()
            ))
        }
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys());
            let null = Value::Null;
            let of = |map: &serde_json::Map<String, Value>, name: &str| {
                map.get(name).unwrap_or(&null).clone()
            };
            let mut names = names.map(|name| (name, of(a, name), of(b, name)));
            names.find_map(|(name, a, b)| Some(format!(".{name}{}", difference(&a, &b)?)))
        }
        (Value::String(a), Value::String(b)) if a == b || near(a, b) => None,
        (a, b) if a == b || near(&a.to_string(), &b.to_string()) => None,
        (a, b) => Some(format!(": ours {a}, theirs {b}")),
    }
}

fn near(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= NEAR * a.abs().max(b.abs()),
        _ => false,
    }
}

/// Sorts the series of an answer by their labels.
pub fn sort(answer: &mut Value) {
    if let Some(Value::Array(series)) = answer.pointer_mut("/data/result") {
        series.sort_by_key(|one| {
            let mut labels: Vec<_> = match one.get("metric") {
                Some(Value::Object(labels)) => labels
                    .iter()
                    .map(|(n, v)| (n.clone(), v.to_string()))
                    .collect(),
                _ => Vec::new(),
            };
            labels.sort();
            labels
        });
    }
}

#[test]
fn differences() {
    let check = |ours: Value, theirs: Value, expected: Option<&str>| {
        assert_eq!(difference(&ours, &theirs).as_deref(), expected);
    };
    use serde_json::json;
    check(json!([1, "0.1"]), json!([1.0, "0.10000000000000001"]), None);
    check(json!(["NaN"]), json!(["NaN"]), None);
    check(
        json!({"a": "x"}),
        json!({"a": "y"}),
        Some(".a: ours \"x\", theirs \"y\""),
    );
    check(json!({"a": 1}), json!({}), Some(".a: ours 1, theirs null"));
    check(
        json!([1.000_001]),
        json!([1]),
        Some("[0]: ours 1.000001, theirs 1"),
    );
    check(
        json!([]),
        json!([1]),
        Some(": 0 and 1 long, ours None, theirs Some(\"1\")"),
    );
}
