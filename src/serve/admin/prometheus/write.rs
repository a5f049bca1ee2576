//! Writes results as Prometheus does: times are numbers, values are texts.

use crate::record::promql::labels::Labels;
use crate::record::promql::{QueryResult, SampledSeries, number};

/// The result of an instant query, with its type.
pub fn instant(result: &QueryResult, at: i64) -> String {
    let time = number::seconds(at);
    let typed = |kind: &str, result: &str| typed(kind, result);
    match result {
        QueryResult::Scalar(value) => {
            // Prometheus writes these times without trailing zeros.
            let time = at as f64 / 1_000.0;
            typed("scalar", &format!("[{time},\"{}\"]", number::plain(*value)))
        }
        QueryResult::Text(text) => {
            let time = at as f64 / 1_000.0;
            typed("string", &format!("[{time},{}]", quoted(text)))
        }
        QueryResult::Vector(points) => {
            let each = points.iter().map(|(own, value)| {
                let (own, value) = (labels(own), number::sample(*value));
                format!(r#"{{"metric":{own},"value":[{time},"{value}"]}}"#)
            });
            typed("vector", &list(each))
        }
        QueryResult::Matrix(all) => matrix(all),
    }
}

/// Series with their samples.
pub fn matrix(all: &[SampledSeries]) -> String {
    let each = all.iter().map(|(own, samples)| {
        let samples = samples.iter().map(|(at, value)| {
            let (time, value) = (number::seconds(*at), number::sample(*value));
            format!("[{time},\"{value}\"]")
        });
        let (own, samples) = (labels(own), list(samples));
        format!(r#"{{"metric":{own},"values":{samples}}}"#)
    });
    typed("matrix", &list(each))
}

/// A series as names and values.
pub fn labels(labels: &Labels) -> String {
    let pairs = labels.iter();
    let pairs = pairs.map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
    format!("{{{}}}", joined(pairs))
}

fn typed(kind: &str, result: &str) -> String {
    format!(r#"{{"resultType":"{kind}","result":{result}}}"#)
}

fn list(parts: impl Iterator<Item = String>) -> String {
    format!("[{}]", joined(parts))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&part);
    }
    text
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_prometheus_writes() {
        let check =
            |found: QueryResult, at, expected: &str| assert_eq!(instant(&found, at), expected);
        check(
            QueryResult::Scalar(2.0),
            4_000,
            r#"{"resultType":"scalar","result":[4,"2"]}"#,
        );
        check(
            QueryResult::Text("a\"".into()),
            1_500,
            r#"{"resultType":"string","result":[1.5,"a\""]}"#,
        );
        let own = Labels::new([("__name__", "a"), ("b", "c\\")]);
        check(
            QueryResult::Vector(vec![
                (own.clone(), f64::INFINITY),
                (Labels::default(), 1e21),
            ]),
            1_500,
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"a","b":"c\\"},"value":[1.500,"+Inf"]},{"metric":{},"value":[1.500,"1e+21"]}]}"#,
        );
        check(
            QueryResult::Matrix(vec![(own, vec![(0, 0.5), (1_000, f64::NAN)])]),
            0,
            r#"{"resultType":"matrix","result":[{"metric":{"__name__":"a","b":"c\\"},"values":[[0,"0.5"],[1,"NaN"]]}]}"#,
        );
        check(
            QueryResult::Matrix(Vec::new()),
            0,
            r#"{"resultType":"matrix","result":[]}"#,
        );
    }
}
