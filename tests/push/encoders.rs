//! What is sent, byte by byte, and read by a decoder that knows nothing of the encoder.

use proptest::prelude::*;
use tollgate::base::otlp::rejected_items;
use tollgate::record::push::row::{
    Row, RowSlice, TimedValue, accumulate_buckets, find_histograms, to_f64,
};
use tollgate::record::push::{graphite, otlp, remote_write};
use tollgate::record::{Series, SeriesKind};

use crate::wire::{Field, all, fields, one, write_request};

fn series(name: &str, labels: &[(&str, &str)], kind: SeriesKind, decimals: u8) -> Series {
    let labels = labels
        .iter()
        .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
    Series {
        name: name.to_owned(),
        labels: labels.collect(),
        kind,
        decimals,
    }
}

fn row(series: Series, samples: &[(u64, u64)]) -> Row {
    let samples = samples.iter().map(|(at, value)| TimedValue {
        second: *at,
        value: *value,
    });
    Row {
        series,
        samples: samples.collect(),
    }
}

fn whole(rows: &[Row]) -> RowSlice<'_> {
    RowSlice {
        rows,
        from: 0,
        to: u64::MAX,
    }
}

fn added() -> Vec<(String, String)> {
    vec![
        ("instance".into(), "a".into()),
        ("route".into(), "not this".into()),
    ]
}

#[test]
fn remote_write_byte_by_byte() {
    let rows = [row(
        series("up", &[("a", "b")], SeriesKind::Counter, 0),
        &[(1, 3)],
    )];
    let packed = remote_write::encode(whole(&rows), &[]).unwrap();
    let message = snap::raw::Decoder::new().decompress_vec(&packed).unwrap();
    let expected = [
        &b"\x0a\x26"[..],                                // timeseries
        b"\x0a\x0e\x0a\x08__name__\x12\x02up",           // label
        b"\x0a\x06\x0a\x01a\x12\x01b",                   // label
        b"\x12\x0c\x09\x00\x00\x00\x00\x00\x00\x08\x40", // sample: 3.0
        b"\x10\xe8\x07",                                 // 1000 ms
    ]
    .concat();
    assert_eq!(message, expected);
}

#[test]
fn labels_are_in_order_and_said_once() {
    let labels = [("route", "x"), ("Zone", "z"), ("empty", "")];
    let rows = [row(
        series("n_total", &labels, SeriesKind::Counter, 0),
        &[(1, 1)],
    )];
    let written = write_request(&remote_write::encode(whole(&rows), &added()).unwrap());
    let labels: Vec<_> = written[0]
        .0
        .iter()
        .map(|(label, value)| format!("{label}={value}"))
        .collect();
    assert_eq!(
        labels,
        ["Zone=z", "__name__=n_total", "instance=a", "route=x"]
    );
}

#[test]
fn graphite_line_by_line() {
    let rows = [
        row(
            series(
                "n_total",
                &[("route", "a b;c"), ("le", "+Inf")],
                SeriesKind::Counter,
                0,
            ),
            &[(60, 7), (75, 9)],
        ),
        row(series("load", &[], SeriesKind::Gauge, 3), &[(60, 1_050)]),
        row(series("gone", &[], SeriesKind::Gauge, 3), &[]),
    ];
    let text = String::from_utf8(graphite::encode(whole(&rows), &added())).unwrap();
    let expected = "n_total;route=a_b_c;le=+Inf;instance=a 7 60\nn_total;route=a_b_c;le=+Inf;instance=a 9 75\nload;instance=a;route=not_this 1.050 60\n";
    assert_eq!(text, expected);
}

#[test]
fn otlp_field_by_field() {
    let rows = [
        row(series("load", &[], SeriesKind::Gauge, 3), &[(60, 1_500)]),
        row(
            series("n_total", &[("route", "a")], SeriesKind::Counter, 0),
            &[(60, 7), (75, 9)],
        ),
        row(
            series("n_total", &[("route", "b")], SeriesKind::Counter, 0),
            &[(75, 1)],
        ),
    ];
    let body = otlp::encode(whole(&rows), &added(), 50);
    let resource = one(&body, 1).unwrap();
    let attributes = all(one(resource.bytes(), 1).unwrap().bytes(), 1);
    let pair = |pair: &Field<'_>| {
        let value = one(pair.bytes(), 2).unwrap();
        let value = one(value.bytes(), 1).unwrap().text();
        format!("{}={value}", one(pair.bytes(), 1).unwrap().text())
    };
    let attributes: Vec<_> = attributes.iter().map(pair).collect();
    assert_eq!(
        attributes,
        ["service.name=tollgate", "instance=a", "route=not this"]
    );
    let scope = one(resource.bytes(), 2).unwrap();
    let metrics = all(scope.bytes(), 2);
    assert_eq!(metrics.len(), 2);
    let gauge = one(metrics[0].bytes(), 5).unwrap();
    let point = one(gauge.bytes(), 1).unwrap();
    let double = Field::Fixed(1.5_f64.to_bits());
    assert_eq!(
        fields(point.bytes()),
        [(3, Field::Fixed(60_000_000_000)), (4, double)]
    );
    let sum = one(metrics[1].bytes(), 7).unwrap();
    assert_eq!(one(sum.bytes(), 2), Some(Field::Number(2)));
    assert_eq!(one(sum.bytes(), 3), Some(Field::Number(1)));
    let points = all(sum.bytes(), 1).into_iter().map(|point| {
        let number = |field| one(point.bytes(), field).unwrap().number();
        let labels: Vec<_> = all(point.bytes(), 7).iter().map(pair).collect();
        (
            number(2) / 1_000_000_000,
            number(3) / 1_000_000_000,
            number(6),
            labels.join(","),
        )
    });
    let label = |text: &str| text.to_owned();
    let expected = [
        (50, 60, 7, label("route=a")),
        (50, 75, 9, label("route=a")),
        (50, 75, 1, label("route=b")),
    ];
    assert_eq!(points.collect::<Vec<_>>(), expected);
}

#[test]
fn a_collector_may_reject_some() {
    assert_eq!(rejected_items(b""), None);
    assert_eq!(rejected_items(b"\x0a\x00"), None);
    assert_eq!(
        rejected_items(b"\x0a\x02\x08\x02"),
        Some((2, String::new()))
    );
    assert_eq!(
        rejected_items(b"\x0a\x06\x08\x03\x12\x02no"),
        Some((3, "no".into()))
    );
    assert_eq!(rejected_items(b"\x0a\x7f\x08"), None);
}

/// In the record a bucket has its own counts only.
#[test]
fn buckets_are_stacked() {
    let bucket = |name: &str, route: &str, le: &str| {
        series(
            name,
            &[("route", route), ("le", le)],
            SeriesKind::Counter,
            0,
        )
    };
    let all = [
        bucket("s_bucket", "a", "+Inf"),
        bucket("s_bucket", "a", "0.1"),
        bucket("s_bucket", "b", "0.1"),
        bucket("s_bucket", "a", "10"),
        bucket("s_other", "a", "0.1"),
        bucket("s_bucket", "a", "2"),
        bucket("s_bucket", "a", "odd"),
    ];
    let mut values: Vec<Vec<u64>> = (1..=7).map(|value| vec![value, 10 * value]).collect();
    for family in find_histograms(all.iter()) {
        accumulate_buckets(&family, &mut values);
    }
    // 0.1: 2, 2: 2 + 6, 10: 8 + 4, +Inf: 12 + 1.
    let expected = [13, 2, 3, 12, 5, 8, 7].map(|value| vec![value, 10 * value]);
    assert_eq!(values, expected);
}

#[test]
fn parts_are_halved_by_time() {
    let rows = [
        row(
            series("a", &[], SeriesKind::Gauge, 0),
            &[(1, 0), (2, 0), (3, 0)],
        ),
        row(series("b", &[], SeriesKind::Gauge, 0), &[(3, 0), (4, 0)]),
    ];
    let check = |from, to, middle, count| {
        let part = RowSlice {
            rows: &rows,
            from,
            to,
        };
        assert_eq!(
            (part.middle_second(), part.sample_count()),
            (middle, count),
            "{from} to {to}"
        );
    };
    check(0, 9, Some(2), 5);
    check(0, 3, Some(1), 4);
    check(3, 9, Some(3), 3);
    check(3, 3, None, 2);
    check(9, 9, None, 0);
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let labels = proptest::collection::btree_map("[a-z]{1,3}", "\\PC{1,12}", 0..4);
    let samples = proptest::collection::btree_map(0..4_000_000_000_u64, any::<u64>(), 0..5);
    let kind = prop_oneof![Just(SeriesKind::Counter), Just(SeriesKind::Gauge)];
    let row = ("[a-z_]{1,9}", labels, kind, 0..7_u8, samples);
    let row = row.prop_map(|(name, labels, kind, decimals, samples)| Row {
        series: Series {
            name,
            labels: labels.into_iter().collect(),
            kind,
            decimals,
        },
        samples: samples
            .into_iter()
            .map(|(second, value)| TimedValue { second, value })
            .collect(),
    });
    proptest::collection::vec(row, 0..8)
}

proptest! {
    #[test]
    fn what_is_written_is_read(rows in rows()) {
        let body = remote_write::encode(whole(&rows), &[]).unwrap();
        let expected: Vec<_> = rows.iter().filter(|row| !row.samples.is_empty()).map(|row| {
            let mut labels = row.series.labels.clone();
            labels.push(("__name__".into(), row.series.name.clone()));
            labels.sort();
            let samples = row.samples.iter();
            (labels, samples.map(|sample| (sample.second * 1000, to_f64(&row.series, sample))).collect::<Vec<_>>())
        }).collect();
        prop_assert_eq!(write_request(&body), expected);
    }

    #[test]
    fn collectors_read_every_point(rows in rows()) {
        let body = otlp::encode(whole(&rows), &[], 5);
        let mut points = Vec::new();
        for metric in all(one(one(&body, 1).unwrap().bytes(), 2).unwrap().bytes(), 2) {
            let name = one(metric.bytes(), 1).unwrap().text();
            let data = one(metric.bytes(), 7).or_else(|| one(metric.bytes(), 5)).unwrap();
            for point in all(data.bytes(), 1) {
                let value = one(point.bytes(), 6).or_else(|| one(point.bytes(), 4)).unwrap();
                points.push((name.clone(), one(point.bytes(), 3).unwrap().number(), value.number()));
            }
        }
        let expected: Vec<_> = rows.iter().flat_map(|row| row.samples.iter().map(move |sample| {
            let value = match row.series.decimals {
                0 => sample.value,
                _ => to_f64(&row.series, sample).to_bits(),
            };
            (row.series.name.clone(), sample.second * 1_000_000_000, value)
        })).collect();
        prop_assert_eq!(points, expected);
    }
}
