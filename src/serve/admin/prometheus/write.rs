//! Writes results of queries as JSON in the form of Prometheus: times are numbers, and values are texts.
//!
//! Only texts go through a serializer, because Prometheus has a form of its own for numbers.

use crate::record::promql::labels::Labels;
use crate::record::promql::{QueryResult, SampledSeries, number};

/// Writes the result of an instant query, with the result's type. `time_ms` is the time of the query, in milliseconds since
/// 1970.
pub fn write_instant(result: &QueryResult, time_ms: i64) -> String {
    // Prometheus writes the times of scalars and strings without trailing zeros.
    let short_time = time_ms as f64 / 1_000.0;
    match result {
        QueryResult::Scalar(value) => {
            let value = number::format_plain(*value);
            write_typed("scalar", &format!("[{short_time},\"{value}\"]"))
        }
        QueryResult::Text(text) => {
            write_typed("string", &format!("[{short_time},{}]", quote(text)))
        }
        QueryResult::Vector(elements) => {
            let time = number::format_ms_as_seconds(time_ms);
            let elements = elements.iter().map(|(labels, value)| {
                let (metric, value) = (write_labels(labels), number::format_sample(*value));
                format!(r#"{{"metric":{metric},"value":[{time},"{value}"]}}"#)
            });
            write_typed("vector", &write_list(elements))
        }
        QueryResult::Matrix(series) => write_matrix(series),
    }
}

/// Writes series with their samples, with the type of such a result. The times of samples are in milliseconds since 1970.
pub fn write_matrix(series: &[SampledSeries]) -> String {
    let series = series.iter().map(|(labels, samples)| {
        let samples = samples.iter().map(|(time_ms, value)| {
            let time = number::format_ms_as_seconds(*time_ms);
            let value = number::format_sample(*value);
            format!("[{time},\"{value}\"]")
        });
        let (metric, values) = (write_labels(labels), write_list(samples));
        format!(r#"{{"metric":{metric},"values":{values}}}"#)
    });
    write_typed("matrix", &write_list(series))
}

/// Writes labels as an object of names and values.
pub fn write_labels(labels: &Labels) -> String {
    let pairs = labels.iter();
    let members = pairs.map(|(name, value)| format!("{}:{}", quote(name), quote(value)));
    format!("{{{}}}", join_by_commas(members))
}

/// Writes a result with its type.
fn write_typed(result_type: &str, result: &str) -> String {
    format!(r#"{{"resultType":"{result_type}","result":{result}}}"#)
}

/// Writes a list of elements that are JSON already.
fn write_list(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", join_by_commas(elements))
}

/// Joins the elements of a list or the members of an object, which are JSON already.
fn join_by_commas(pieces: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for piece in pieces {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&piece);
    }
    text
}

/// A text as a JSON string.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_prometheus_writes() {
        let check = |result: QueryResult, at, expected: &str| {
            assert_eq!(write_instant(&result, at), expected)
        };
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
