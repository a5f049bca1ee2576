//! Counts the requests and refusals of a span from series of the record, for `explain`.

use std::collections::BTreeMap;
use std::io;

use crate::record::{Grid, Record, Series};

/// Maximum number of buckets that are added up.
const MAX_POINTS: usize = 11_000;

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

/// Counts of a span.
#[derive(Default)]
pub(super) struct SpanCounts {
    /// Recorded seconds.
    pub(super) seconds: u64,
    pub(super) requests: u64,
    /// Refused requests.
    pub(super) refused: u64,
    /// Refusals by limit; only limits with refusals.
    pub(super) limits: BTreeMap<String, LimitRefusals>,
    /// Refused requests by route.
    pub(super) routes: BTreeMap<String, u64>,
    /// Responses with 429 of the gateway.
    pub(super) by_gateway: u64,
    /// Responses with 429 of upstreams.
    pub(super) by_upstream: u64,
}

/// The refusals of one limit. Several limits may refuse one request.
pub(super) struct LimitRefusals {
    pub(super) count: u64,
    /// The last second of the first bucket with a refusal.
    pub(super) began: u64,
}

/// Counts the requests, responses and refusals of a span.
pub(super) fn count_span(
    record: &Record,
    all: &[(Series, u32)],
    (from, to): (u64, u64),
) -> io::Result<SpanCounts> {
    let grid = record.grid(from, to, MAX_POINTS)?;
    let names = [
        ALL_REQUESTS,
        REQUESTS_BY_OUTCOME,
        REQUESTS_BY_ROUTE,
        RESPONSES_BY_STATUS,
        LIMIT_DECISIONS,
    ];
    let selected: Vec<_> = all
        .iter()
        .filter(|(series, _)| names.contains(&series.name.as_str()))
        .collect();
    let numbers: Vec<u32> = selected.iter().map(|(_, number)| *number).collect();
    let read = record.read(&grid, &numbers)?;
    let mut counts = SpanCounts {
        seconds: read.covered.iter().map(|seconds| u64::from(*seconds)).sum(),
        ..SpanCounts::default()
    };
    for (series, number) in selected {
        let sums = read.columns.get(number).map(|column| &column.sums[..]);
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
                self.routes.insert(label("route").to_owned(), sum);
            }
            LIMIT_DECISIONS if is_refused => {
                let first = sums.iter().position(|sum| *sum > 0);
                let began = first.map_or(u64::MAX, |bucket| {
                    grid.from + (bucket as u64 + 1) * grid.step - 1
                });
                let limit = self.limits.entry(label("limit").to_owned());
                let refusals = limit.or_insert(LimitRefusals {
                    count: 0,
                    began: u64::MAX,
                });
                refusals.count += sum;
                refusals.began = refusals.began.min(began);
            }
            RESPONSES_BY_STATUS if label("status") == "429" => match label("origin") {
                "upstream" => self.by_upstream += sum,
                _ => self.by_gateway += sum,
            },
            _ => {}
        }
    }
}
