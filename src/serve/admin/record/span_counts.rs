//! Counts the requests and refusals of a span from series of the record, for `explain`.

use std::collections::BTreeMap;
use std::io;

use crate::record::{Grid, Record, Series};

/// Maximum number of buckets that a span is divided into, as for the range queries in `range.rs`.
const MAX_BUCKETS: usize = 11_000;

/// The series of all requests.
const ALL_REQUESTS: &str = "all:tollgate_requests_total";

/// The series of requests by `outcome`.
const REQUESTS_BY_OUTCOME: &str = "outcome:tollgate_requests_total";

/// The series of requests by `route` and `outcome`.
const REQUESTS_BY_ROUTE: &str = "tollgate_requests_total";

/// The series of responses by `status` and `origin`.
const RESPONSES_BY_STATUS: &str = "status:tollgate_responses_total";

/// The series of decisions by `limit` and `outcome`.
const LIMIT_DECISIONS: &str = "tollgate_limit_decisions_total";

/// The numbers of requests, responses and refusals in a span.
#[derive(Default)]
pub(super) struct SpanCounts {
    /// The number of seconds that were recorded.
    pub(super) seconds: u64,
    /// The number of requests.
    pub(super) requests: u64,
    /// The number of requests that a limit refused.
    pub(super) refused: u64,
    /// Refusals by limit; only limits with refusals.
    pub(super) limits: BTreeMap<String, LimitRefusals>,
    /// The number of refused requests by route.
    pub(super) refused_by_route: BTreeMap<String, u64>,
    /// The number of responses with 429 by the gateway.
    pub(super) gateway_429: u64,
    /// The number of responses with 429 by upstreams.
    pub(super) upstream_429: u64,
}

/// The refusals of one limit. Several limits may refuse one request.
pub(super) struct LimitRefusals {
    pub(super) count: u64,
    /// The last second of the first bucket with a refusal, in seconds since 1970.
    pub(super) first_refusal_at: u64,
}

/// Counts the requests, responses and refusals of a span, which is in seconds since 1970. Whole buckets are counted, so
/// the counts of a long span may begin a little earlier and end a little later. `recorded_series` are all series of the
/// record, each with its number.
///
/// # Errors
///
/// The record cannot be read.
pub(super) fn count_span(
    record: &Record,
    recorded_series: &[(Series, u32)],
    (from, to): (u64, u64),
) -> io::Result<SpanCounts> {
    let grid = record.finest_grid(from, to, MAX_BUCKETS)?;
    let names = [
        ALL_REQUESTS,
        REQUESTS_BY_OUTCOME,
        REQUESTS_BY_ROUTE,
        RESPONSES_BY_STATUS,
        LIMIT_DECISIONS,
    ];
    let counted_series: Vec<_> = recorded_series
        .iter()
        .filter(|(series, _)| names.contains(&series.name.as_str()))
        .collect();
    let series_numbers: Vec<u32> = counted_series.iter().map(|(_, number)| *number).collect();
    let range = record.read(&grid, &series_numbers)?;
    let mut counts = SpanCounts {
        seconds: range
            .covered_seconds
            .iter()
            .map(|seconds| u64::from(*seconds))
            .sum(),
        ..SpanCounts::default()
    };
    for (series, number) in counted_series {
        let sums = range.columns.get(number).map(|column| &column.sums[..]);
        counts.add(series, sums.unwrap_or_default(), &grid);
    }
    counts.limits.retain(|_, refusals| refusals.count > 0);
    Ok(counts)
}

impl SpanCounts {
    /// Adds the sums of one series, one for each bucket of `grid`.
    fn add(&mut self, series: &Series, sums: &[u64], grid: &Grid) {
        let sum: u64 = sums.iter().sum();
        let label = |name: &str| {
            let mut labels = series.labels.iter();
            let label = labels.find(|(label, _)| label == name);
            label.map_or("", |(_, value)| value.as_str())
        };
        let is_refused = label("outcome") == "refused";
        match series.name.as_str() {
            ALL_REQUESTS => self.requests = sum,
            REQUESTS_BY_OUTCOME if is_refused => self.refused = sum,
            REQUESTS_BY_ROUTE if is_refused => {
                self.refused_by_route.insert(label("route").to_owned(), sum);
            }
            LIMIT_DECISIONS if is_refused => {
                let first_bucket = sums.iter().position(|sum| *sum > 0);
                let first_refusal_at = first_bucket.map_or(u64::MAX, |bucket| {
                    grid.from + (bucket as u64 + 1) * grid.step_seconds - 1
                });
                let limit = self.limits.entry(label("limit").to_owned());
                let refusals = limit.or_insert(LimitRefusals {
                    count: 0,
                    first_refusal_at: u64::MAX,
                });
                refusals.count += sum;
                refusals.first_refusal_at = refusals.first_refusal_at.min(first_refusal_at);
            }
            RESPONSES_BY_STATUS if label("status") == "429" => match label("origin") {
                "upstream" => self.upstream_429 += sum,
                _ => self.gateway_429 += sum,
            },
            _ => {}
        }
    }
}
