//! Queries and their results, on samples in memory.

use proptest::prelude::*;

use super::labels::{Labels, Matcher, match_all};
use super::*;

mod bounds;

/// A source with some series in memory, of 20 samples each, one every ten seconds.
struct MemorySource(Vec<SampledSeries>);

impl MemorySource {
    fn new() -> MemorySource {
        let series = |pairs: &[(&str, &str)], value: fn(i64) -> f64| {
            let samples = (0..20).map(|index| (index * 10_000, value(index)));
            (Labels::new(pairs.iter().copied()), samples.collect())
        };
        let mut series_list = vec![
            series(
                &[("__name__", "a_total"), ("route", "x"), ("code", "200")],
                |n| n as f64 * 10.0,
            ),
            series(
                &[("__name__", "a_total"), ("route", "x"), ("code", "500")],
                |n| n as f64,
            ),
            series(
                &[("__name__", "a_total"), ("route", "y"), ("code", "200")],
                |n| n as f64 * 5.0,
            ),
            series(&[("__name__", "open"), ("route", "x")], |n| (n % 4) as f64),
            series(&[("__name__", "open"), ("route", "y")], |_| -2.5),
            series(&[("__name__", "shut"), ("route", "y")], |_| 1.0),
            series(&[("__name__", "t_bucket"), ("le", "0.1")], |n| n as f64),
            series(&[("__name__", "t_bucket"), ("le", "1")], |n| n as f64 * 3.0),
            series(&[("__name__", "t_bucket"), ("le", "+Inf")], |n| {
                n as f64 * 4.0
            }),
        ];
        series_list.sort_by(|a, b| a.0.cmp(&b.0));
        MemorySource(series_list)
    }
}

impl SampleSource for MemorySource {
    fn select(
        &self,
        matchers: &[Matcher],
        range_ms: (i64, i64),
        _: usize,
    ) -> Result<SelectedSeries, Error> {
        let matching = self
            .0
            .iter()
            .filter(|(labels, _)| match_all(matchers, labels));
        let cut = |(labels, samples): &SampledSeries| {
            let is_in_range = |(at_ms, _): &&Sample| (range_ms.0..=range_ms.1).contains(at_ms);
            (
                labels.clone(),
                samples.iter().filter(is_in_range).copied().collect(),
            )
        };
        Ok(SelectedSeries {
            series: matching.map(cut).collect(),
            step_ms: 10_000,
        })
    }
}

/// Writes the result of a query in one line.
fn result_text(result: Result<QueryResult, Error>) -> String {
    match result {
        Ok(QueryResult::Scalar(value)) => number::format_plain(value),
        Ok(QueryResult::Text(text)) => format!("{text:?}"),
        Ok(QueryResult::Vector(points)) => {
            let points = points.iter();
            let texts =
                points.map(|(labels, value)| format!("{labels} {}", number::format_sample(*value)));
            texts.collect::<Vec<_>>().join("; ")
        }
        Ok(QueryResult::Matrix(series)) => {
            let texts = series.iter();
            let texts = texts.map(|(labels, samples)| format!("{labels} {samples:?}"));
            texts.collect::<Vec<_>>().join("; ")
        }
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(query: &str, expected: &str) {
    assert_eq!(
        result_text(query_instant(query, 190_000, &MemorySource::new())),
        expected,
        "{query}"
    );
}

#[test]
fn numbers_and_operators() {
    check("1 + 2 * 3", "7");
    check("2 ^ 3 ^ 2", "512");
    check("-2 ^ 2", "-4");
    check("-1 - -1", "0");
    check("7 % 4 / 2", "1.5");
    check("1 > bool 2", "0");
    check("(1 + 2) * 3 # that is nine", "9");
    check("0x10 + 1e1 + .5", "26.5");
    check("1 / 0", "+Inf");
    check("time()", "190");
    check("'it''s'", "1:5: parse error: unexpected string \"'s'\"");
    check(r#""a\tb\x41\u00e9""#, "\"a\\tbAé\"");
    check("`a\\b`", "\"a\\\\b\"");
}

#[test]
fn selectors() {
    check(
        "open",
        r#"{__name__="open", route="x"} 3; {__name__="open", route="y"} -2.5"#,
    );
    check("open{route!='x'}", r#"{__name__="open", route="y"} -2.5"#);
    check(
        "{__name__=~'op.*',route=~'x|z'}",
        r#"{__name__="open", route="x"} 3"#,
    );
    check("open{route!~'.'}", "");
    check(
        "open{code=''} offset 20s > 0",
        r#"{__name__="open", route="x"} 1"#,
    );
    check(
        "open{route='x'}[20s]",
        r#"{__name__="open", route="x"} [(170000, 1.0), (180000, 2.0), (190000, 3.0)]"#,
    );
    check("open offset 8m", "");
    check("nothing", "");
}

#[test]
fn functions() {
    check(
        "rate(a_total{route='x'}[1m])",
        r#"{code="200", route="x"} 1; {code="500", route="x"} 0.1"#,
    );
    check("sum(increase(a_total[1m]))", "{} 96");
    check("max_over_time(open{route='x'}[1m])", r#"{route="x"} 3"#);
    check("abs(open{route='y'})", r#"{route="y"} 2.5"#);
    check("round(open{route='y'}, 2)", r#"{route="y"} -2"#);
    check("clamp(open, 0, 2)", r#"{route="x"} 2; {route="y"} 0"#);
    check("clamp_min(open, 0)", r#"{route="x"} 3; {route="y"} 0"#);
    check(
        "sort(open)",
        r#"{__name__="open", route="y"} -2.5; {__name__="open", route="x"} 3"#,
    );
    check("scalar(open{route='y'}) + scalar(open)", "NaN");
    check("vector(1)", "{} 1");
    check("absent(nothing{a='b', c=~'d'})", r#"{a="b"} 1"#);
    check("absent(open)", "");
    check("histogram_quantile(0.5, t_bucket)", "{} 0.55");
    check(
        "label_replace(open, 'to', '$1-$1', 'route', '(x)')",
        r#"{__name__="open", route="x", to="x-x"} 3; {__name__="open", route="y"} -2.5"#,
    );
    check(
        "label_join(open{route='x'}, 'to', '/', 'route', 'route')",
        r#"{__name__="open", route="x", to="x/x"} 3"#,
    );
    check(
        "quantile_over_time(0.5, open{route='x'}[30s])",
        r#"{route="x"} 1.5"#,
    );
    check(
        "abs({__name__=~'open|shut'})",
        "vector cannot contain metrics with the same labelset",
    );
}

#[test]
fn aggregations() {
    check(
        "sum by (route) (a_total)",
        r#"{route="x"} 209; {route="y"} 95"#,
    );
    check(
        "SUM(a_total) BY (route,)",
        r#"{route="x"} 209; {route="y"} 95"#,
    );
    check(
        "sum without (code) (a_total)",
        r#"{route="x"} 209; {route="y"} 95"#,
    );
    check("avg(open)", "{} 0.25");
    check("count(a_total)", "{} 3");
    check("min(open)", "{} -2.5");
    check("stddev(open)", "{} 2.75");
    check("quantile(0.5, a_total)", "{} 95");
    check(
        "topk(1, a_total)",
        r#"{__name__="a_total", code="200", route="x"} 190"#,
    );
    check("bottomk(1, open)", r#"{__name__="open", route="y"} -2.5"#);
    check("topk(0, open)", "");
    check("topk(0 / 0, open)", "Scalar value NaN overflows int64");
    check("sum(nothing)", "");
    // A metric may have the name of an aggregation.
    check("sum", "");
}

#[test]
fn which_series_belong_together() {
    check("open * 2", r#"{route="x"} 6; {route="y"} -5"#);
    check("2 < open", r#"{__name__="open", route="x"} 3"#);
    check("open > bool 2", r#"{route="x"} 1; {route="y"} 0"#);
    check(
        "a_total{code='500'} / ignoring(code) a_total{code='200'}",
        r#"{route="x"} 0.1"#,
    );
    check(
        "a_total{code='200'} / on(route) open",
        r#"{route="x"} 63.333333333333336; {route="y"} -38"#,
    );
    check(
        "a_total / on(route) group_left open{route='x'}",
        r#"{code="200", route="x"} 63.333333333333336; {code="500", route="x"} 6.333333333333333"#,
    );
    check(
        "open{route='x'} / on(route) group_right a_total{code='500'}",
        r#"{code="500", route="x"} 0.15789473684210525"#,
    );
    check(
        "open and on(route) a_total{route='y'}",
        r#"{__name__="open", route="y"} -2.5"#,
    );
    check(
        "open unless open{route='x'}",
        r#"{__name__="open", route="y"} -2.5"#,
    );
    check(
        "open{route='x'} or on() open{route='y'}",
        r#"{__name__="open", route="x"} 3"#,
    );
    check(
        "a_total / on(route) open",
        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
    );
    check(
        "open / on(route) a_total{code=~'.*'}",
        r#"found duplicate series for the match group {route="x"} on the right hand-side of the operation: [{__name__="a_total", code="500", route="x"}, {__name__="a_total", code="200", route="x"}];many-to-many matching not allowed: matching labels must be unique on one side"#,
    );
}

#[test]
fn mistakes() {
    let check = |query, expected: &str| {
        let text = result_text(query_instant(query, 0, &MemorySource::new()));
        let (position, why) = expected.split_once(' ').unwrap();
        assert_eq!(text, format!("{position}: parse error: {why}"), "{query}");
    };
    check("", "1:1 no expression found in input");
    check("sum(a", "1:6 unclosed left parenthesis");
    check("a{", "1:3 unexpected end of input inside braces");
    check(
        "a{b=c}",
        "1:5 unexpected identifier \"c\" in label matching, expected string",
    );
    check("1 +\n *", "2:2 unexpected <op:*>");
    check("a[5]", "1:3 missing unit character in duration");
    check("a[5m", "1:5 unclosed left bracket");
    check(
        "a[5m:1m]",
        "1:2 subqueries are not supported; ranges such as a[5m] are",
    );
    check("a @ 5", "1:3 the modifier @ is not supported; `offset` is");
    check(
        "{a=''}",
        "1:1 vector selector must contain at least one non-empty matcher",
    );
    check(
        "1 == 1",
        "1:3 comparisons between scalars must use BOOL modifier",
    );
    check(
        "a and 1",
        "1:1 set operator \"and\" not allowed in binary scalar expression",
    );
    check(
        "rate(a)",
        "1:6 expected type range vector in call to function \"rate\", got instant vector",
    );
    check("a?", "1:2 unexpected character: '?'");
    check("a{b=\"c", "1:5 unterminated quoted string");
    check("5x", "1:1 bad number or duration syntax: \"5x\"");
    let unknown = result_text(query_instant("deriv(a[5m])", 0, &MemorySource::new()));
    assert!(
        unknown.contains("unknown function with name \"deriv\"; supported are avg_over_time, ")
    );
    let long = "a".repeat(17_000);
    assert!(
        result_text(query_instant(&long, 0, &MemorySource::new())).contains("16384 is the most")
    );
    let deep = format!("{}1{}", "(".repeat(300), ")".repeat(300));
    assert!(
        result_text(query_instant(&deep, 0, &MemorySource::new())).contains("more than 256 parts")
    );
}

#[test]
fn ranges() {
    let times = StepTimes {
        start_ms: 0,
        end_ms: 60_000,
        step_ms: 20_000,
    };
    let series = query_range(
        "sum by (route) (rate(a_total[20s]))",
        times,
        &MemorySource::new(),
    )
    .unwrap();
    let first = (
        Labels::new([("route", "x")]),
        vec![(20_000, 1.1), (40_000, 1.1), (60_000, 1.1)],
    );
    assert_eq!(series.len(), 2);
    assert_eq!(series[0].0, first.0);
    let near = |a: &Sample, b: &Sample| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9;
    assert!(
        series[0].1.iter().zip(&first.1).all(|(a, b)| near(a, b)),
        "{series:?}"
    );
    let wrong = |query, times| {
        query_range(query, times, &MemorySource::new())
            .unwrap_err()
            .to_string()
    };
    assert!(wrong("a[5m]", times).starts_with("invalid expression type \"range vector\""));
    let many = StepTimes {
        end_ms: 11_001,
        step_ms: 1,
        ..times
    };
    assert!(wrong("1", many).starts_with("exceeded maximum resolution of 11,000 points"));
    let far = StepTimes {
        end_ms: i64::MAX,
        ..times
    };
    assert!(wrong("1", far).starts_with("times must be"));
}

/// A source whose deadline passes at a check of it.
struct ImpatientSource {
    source: MemorySource,
    /// Checks before the deadline passes.
    remaining_checks: std::cell::Cell<usize>,
}

impl SampleSource for ImpatientSource {
    fn select(
        &self,
        matchers: &[Matcher],
        range_ms: (i64, i64),
        max_samples: usize,
    ) -> Result<SelectedSeries, Error> {
        self.source.select(matchers, range_ms, max_samples)
    }

    fn check_deadline(&self) -> Result<(), Error> {
        let remaining = self.remaining_checks.get().checked_sub(1);
        self.remaining_checks.set(remaining.ok_or(Error::TimedOut)?);
        Ok(())
    }
}

#[test]
fn a_result_that_no_client_waits_for() {
    let check = |query: &str, steps: i64, check_count: usize| {
        let times = StepTimes {
            start_ms: 1,
            end_ms: steps,
            step_ms: 1,
        };
        let impatient_after = |check_count| ImpatientSource {
            source: MemorySource::new(),
            remaining_checks: std::cell::Cell::new(check_count),
        };
        assert!(
            query_range(query, times, &impatient_after(check_count)).is_ok(),
            "{query}"
        );
        let late = query_range(query, times, &impatient_after(check_count - 1));
        let expected = "query timed out in expression evaluation";
        assert!(
            late.is_err_and(|late| late.to_string() == expected),
            "{query}"
        );
    };
    // Once in each step.
    check("open + 1", 5, 5);
    // Labels of nine series are compared with 5,000 names: a million times in 22 steps.
    let names = "a,".repeat(5_000);
    check(
        &format!("sum by ({names}) ({{__name__=~'.+'}})"),
        50,
        50 + 2,
    );
    check(
        &format!("a_total * on ({names}) group_left vector(1)"),
        50,
        50 + 1,
    );
    // 2,000 letters are looked for in 600, of two series.
    let long = "x".repeat(600);
    let with = format!("label_replace(open, 'a', '{long}', 'route', '.*')");
    let pattern = "x|".repeat(1_000);
    check(
        &format!("label_replace({with}, 'b', 'y', 'a', '{pattern}')"),
        1,
        1 + 2,
    );
}

/// Parts of queries in any order.
fn scrambled() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "a_total",
        "open",
        "sum",
        "by",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "5m",
        "1",
        "+",
        "-",
        "^",
        "==",
        "bool",
        "and",
        "on",
        "group_left",
        "rate",
        "topk",
        "offset",
        ",",
        "'x'",
        "=~",
        "=",
        "route",
        "label_replace",
        "histogram_quantile",
        "absent",
        "é",
        "\\",
        "1e",
        "@",
        ":",
        "!",
    ]);
    let spaced = |parts: Vec<&str>| parts.join(" ");
    prop::collection::vec(parts, 0..30).prop_map(spaced)
}

proptest! {
    #[test]
    fn no_text_panics(text in prop_oneof![any::<String>(), scrambled(), "[a-z0-9(){}\\[\\]=~!\"',. +^-]{0,60}"]) {
        let _ = parse_selector(&text);
        if let Err(Error::Invalid(why)) = query_instant(&text, 190_000, &MemorySource::new()) {
            let prefix = why.split(": parse error").next();
            let position = prefix.and_then(|prefix| prefix.split_once(':'));
            let (line, column) = position.expect("a position");
            let (line, column): (usize, usize) = (line.parse().unwrap(), column.parse().unwrap());
            let of_query = text.split('\n').nth(line - 1).expect("a line of the query");
            prop_assert!((1..=of_query.len() + 1).contains(&column), "{}", why);
        }
        let _ = number::parse_duration_ms(&text);
        let _ = number::parse_literal(&text);
    }
}
