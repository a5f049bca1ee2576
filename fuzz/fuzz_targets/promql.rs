//! Whatever is asked ends without a panic, and an error about a place is about a place of the query.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::record::promql::labels::{Labels, Matcher, match_all};
use tollgate::record::promql::{
    Error, SampleSource, SelectedSeries, StepTimes, parse_selector, query_instant, query_range,
};

/// Three series with a sample in each of 100 seconds.
struct Three;

impl SampleSource for Three {
    fn select(
        &self,
        matchers: &[Matcher],
        _: (i64, i64),
        _: usize,
    ) -> Result<SelectedSeries, Error> {
        let all = ["a", "b", "c"].map(|route| {
            let labels = Labels::new([("__name__", "n"), ("route", route), ("le", "1")]);
            let samples = (0..100).map(|at| (at * 1_000, at as f64)).collect();
            (labels, samples)
        });
        let mut series = Vec::from(all);
        series.retain(|(labels, _)| match_all(matchers, labels));
        Ok(SelectedSeries {
            series,
            step_ms: 1_000,
        })
    }
}

fuzz_target!(|query: &str| {
    let times = StepTimes {
        start_ms: 0,
        end_ms: 90_000,
        step_ms: 30_000,
    };
    let _ = query_range(query, times, &Three);
    let _ = parse_selector(query);
    if let Err(Error::Invalid(why)) = query_instant(query, 60_000, &Three) {
        let place = why
            .split(": parse error")
            .next()
            .and_then(|place| place.split_once(':'));
        let (line, column) = place.expect("a place");
        let line: usize = line.parse().expect("a line");
        let text = query
            .split('\n')
            .nth(line - 1)
            .expect("a line of the query");
        assert!((1..=text.len() + 1).contains(&column.parse().expect("a column")));
    }
});
