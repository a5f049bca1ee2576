//! Tests of samples that are read from a record in memory.

use super::super::catalog::expose_series;
use super::*;
use crate::record::promql::parse_selector;
use crate::record::{Second, Settings};

/// The first recorded second, in seconds since 1970.
const START: u64 = 1_700_000_000;

/// A record of seconds from [`START`] on, without the seconds 4 and 5. In second `i` a counter grows by `i`, and a gauge is
/// `i` tenths.
fn record(second_count: u64) -> Record {
    let settings = Settings {
        folder: None,
        max_bytes: 0,
    };
    let record = Record::open(&settings).unwrap();
    let number = |name: &str, labels: &[(&str, &str)], kind, decimals| {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let series = crate::record::Series {
            name: name.to_owned(),
            labels: labels.iter().map(own).collect(),
            kind,
            decimals,
        };
        record.number_of(&series).unwrap()
    };
    let counter = number("a_total", &[], SeriesKind::Counter, 0);
    let gauge = number("open", &[], SeriesKind::Gauge, 1);
    let bucket_1 = number("t_bucket", &[("le", "1")], SeriesKind::Counter, 0);
    let bucket_infinite = number("t_bucket", &[("le", "+Inf")], SeriesKind::Counter, 0);
    for index in (0..second_count).filter(|index| !(4..6).contains(index)) {
        let values = vec![
            (counter, index),
            (gauge, index),
            (bucket_1, 1),
            (bucket_infinite, 2),
        ];
        let at = START + index;
        record.add(Second { at, values });
    }
    record
}

/// Checks the samples of a query. Times are in milliseconds since [`START`].
fn check(
    record: &Record,
    query: &str,
    range_ms: (i64, i64),
    max_samples: usize,
    expected: &[Sample],
) {
    let exposed = expose_series(&record.series());
    let recorded = RecordSamples {
        record,
        exposed: &exposed,
        now: START + 100_000,
        is_wanted: &|| true,
    };
    let start_ms = START as i64 * 1_000;
    let range_ms = (start_ms + range_ms.0, start_ms + range_ms.1);
    let selected = recorded
        .select(&parse_selector(query).unwrap(), range_ms, max_samples)
        .unwrap();
    let samples = selected.series.iter().flat_map(|(_, samples)| samples);
    let samples: Vec<_> = samples
        .map(|(at_ms, value)| (at_ms - start_ms, *value))
        .collect();
    assert_eq!(samples, expected, "{query} {range_ms:?}");
}

#[test]
fn a_sample_for_each_second() {
    let record = record(10);
    let check = |query, span, expected: &[Sample]| check(&record, query, span, 4_000, expected);
    check(
        "a_total",
        (0, 3_000),
        &[(1_000, 0.0), (2_000, 1.0), (3_000, 3.0)],
    );
    // Earlier seconds count, and two seconds were not recorded.
    check("a_total", (3_500, 7_000), &[(4_000, 6.0), (7_000, 12.0)]);
    check("open", (2_001, 3_999), &[(3_000, 0.2)]);
    check("t_bucket{le='1'}", (10_000, 99_000), &[(10_000, 8.0)]);
    check("t_bucket{le='+Inf'}", (10_000, 10_000), &[(10_000, 24.0)]);
    check("t_count", (10_000, 10_000), &[(10_000, 24.0)]);
    check("a_total", (-9_000, 0), &[]);
    check("a_total", (5_000, 4_000), &[]);
    check("nothing", (0, 9_000), &[]);
}

#[test]
fn a_sample_for_each_longer_step() {
    let record = record(1_000);
    // 500 buckets of two seconds: the first begins at a multiple of two.
    let last = (1_000_000, 499_500.0 - 9.0);
    let last_but_one = (998_000, 499_500.0 - 9.0 - 999.0 - 998.0);
    let check_end = |query, expected: &[Sample]| {
        let exposed = expose_series(&record.series());
        let recorded = RecordSamples {
            record: &record,
            exposed: &exposed,
            now: START + 100_000,
            is_wanted: &|| true,
        };
        let base = START as i64 * 1_000;
        let span = (base + 1, base + 1_000_000);
        let selected = recorded
            .select(&parse_selector(query).unwrap(), span, 500)
            .unwrap();
        assert_eq!(selected.step_ms, 2_000);
        let samples = &selected.series[0].1;
        let last_two = samples[samples.len() - 2..].iter();
        let last_two: Vec<_> = last_two.map(|(at, value)| (at - base, *value)).collect();
        assert_eq!(last_two, expected, "{query}");
    };
    check_end("a_total", &[last_but_one, last]);
    check_end("open", &[(998_000, 99.65), (1_000_000, 99.85)]);
}

#[test]
fn too_many_series() {
    let record = record(10);
    let exposed = expose_series(&record.series());
    let recorded = RecordSamples {
        record: &record,
        exposed: &exposed,
        now: START + 10,
        is_wanted: &|| true,
    };
    let all = parse_selector("{__name__=~'.+'}").unwrap();
    let error = recorded.select(&all, (0, 1), 1_000).unwrap_err();
    let expected = "a selector has 5 series, of 4 at most: name more labels";
    assert_eq!(error.to_string(), expected);
}
