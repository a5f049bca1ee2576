//! Queries whose results or whose labels are too large.

use super::*;

#[test]
fn labels_that_grow_and_grow() {
    let check = |query: &str, expected: &str| {
        let text = result_text(query_instant(query, 190_000, &MemorySource::new()));
        assert!(text.contains(expected), "{query}: {text}");
    };
    let nested = |part: fn(String) -> String| (0..40).fold("open".into(), |of, _| part(of));
    let many = "the query writes labels of more than 2097152 bytes";
    check(
        &nested(|of| format!("label_replace({of}, 'route', '$1$1', 'route', '(.*)')")),
        many,
    );
    check(
        &nested(|of| format!("label_join({of}, 'route', '-', 'route', 'route')")),
        many,
    );
    // A compiled pattern may take little more memory than its text does.
    check("open{route=~'(?:.{9}){9}'}", "");
    check("open{route=~'(?:.{99}){99}'}", "error parsing regexp");
    check(
        &format!("open{{route=~'{}'}}", "()".repeat(17)),
        "more than 16 groups",
    );
    check(
        &format!("open{{route=~'{}'}}", "a-route|".repeat(1_000)),
        "",
    );
}

/// Another series in each step, of which each has few labels.
#[test]
fn labels_of_all_steps_together() {
    let series = (0..20).map(|winner| {
        let long = format!("{winner}{}", "x".repeat(80_000));
        let samples = (0..20).map(|index| (index * 10_000, f64::from(u8::from(index == winner))));
        (
            Labels::new([("__name__", "m"), ("own", &*long)]),
            samples.collect(),
        )
    });
    let source = MemorySource(series.collect());
    let times = StepTimes {
        start_ms: 0,
        end_ms: 190_000,
        step_ms: 10_000,
    };
    let query_copies = |copies: usize| {
        let own = vec!["\"own\""; copies].join(", ");
        query_range(
            &format!("label_join(topk(1, m), \"all\", \"\", {own})"),
            times,
            &source,
        )
    };
    assert_eq!(query_copies(5).unwrap().len(), 20);
    let error = query_copies(12).unwrap_err().to_string();
    assert!(
        error.starts_with("the labels of the answer have more than"),
        "{error}"
    );
}

#[test]
fn samples_themselves() {
    struct LongSource;
    impl SampleSource for LongSource {
        fn select(&self, _: &[Matcher], _: (i64, i64), _: usize) -> Result<SelectedSeries, Error> {
            let samples = (0..=MAX_RESULT_SAMPLES as i64)
                .map(|at| (at, 1.0))
                .collect();
            let series = vec![(Labels::default(), samples)];
            Ok(SelectedSeries { series, step_ms: 1 })
        }
    }
    let error = query_instant("a[1h]", MAX_RESULT_SAMPLES as i64, &LongSource).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the answer has more than 500000 points")
    );
    assert!(query_instant("a[1h]", MAX_RESULT_SAMPLES as i64 - 1, &LongSource).is_ok());
}

/// The newest sample was missed until its bucket of an hour was over for all but five minutes.
#[test]
fn samples_an_hour_apart_count_for_an_hour() {
    const HOUR_MS: i64 = 3_600_000;
    struct HourlySource;
    impl SampleSource for HourlySource {
        fn select(
            &self,
            _: &[Matcher],
            (from_ms, to_ms): (i64, i64),
            _: usize,
        ) -> Result<SelectedSeries, Error> {
            let times = (0..10).map(|hour| hour * HOUR_MS);
            let in_range = times.filter(|at_ms| (from_ms..=to_ms).contains(at_ms));
            let samples = in_range.map(|at_ms| (at_ms, at_ms as f64)).collect();
            let series = vec![(Labels::default(), samples)];
            Ok(SelectedSeries {
                series,
                step_ms: HOUR_MS,
            })
        }
    }
    let value_at = |time_ms| result_text(query_instant("a", time_ms, &HourlySource));
    assert_eq!(value_at(3 * HOUR_MS + 1_800_000), "{} 10800000");
    assert_eq!(value_at(10 * HOUR_MS + 1), "");
}
