//! Splits a batch into requests that are not too large. A request is split again when a destination refuses its size or
//! some of its seconds. A range holds no samples; it refers to the rows of its batch.

use std::ops::Range;

use super::batch::MAX_BATCH_SAMPLES;
use super::row::{Row, RowSlice};

/// The most estimated bytes of a request before compression, unless a single series has more.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Estimated bytes that an encoding adds to a label.
const LABEL_OVERHEAD_BYTES: usize = 8;
/// Estimated bytes of a sample, beside the name that Graphite repeats with it.
const SAMPLE_BYTES: usize = 32;

/// The rows and the seconds of a batch that one request carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRange {
    /// The indexes of the rows in the batch.
    rows: Range<usize>,
    /// The first second whose samples the request carries, since 1970.
    from: u64,
    /// The last second whose samples the request carries.
    to: u64,
    /// Whether the request was sent before, so that the destination may have its samples already.
    pub was_attempted: bool,
}

impl RequestRange {
    /// Returns the samples of the range. `rows` are all rows of the batch.
    pub fn slice<'a>(&self, rows: &'a [Row]) -> RowSlice<'a> {
        RowSlice {
            rows: rows.get(self.rows.clone()).unwrap_or_default(),
            from: self.from,
            to: self.to,
        }
    }

    /// Splits the range into its earlier and its later seconds. `slice` has the samples of this range. Returns `None`
    /// if all of them are of one second, or if there are none.
    pub fn split_by_time(&self, slice: RowSlice<'_>) -> Option<(RequestRange, RequestRange)> {
        let middle_second = slice.middle_second()?;
        let (mut earlier, mut later) = (self.clone(), self.clone());
        (earlier.to, later.from) = (middle_second, middle_second + 1);
        Some((earlier, later))
    }

    /// Splits the range by time, or by rows if time does not split it. `slice` has the samples of this range. Returns
    /// `None` for a single row of one second.
    pub fn split(&self, slice: RowSlice<'_>) -> Option<(RequestRange, RequestRange)> {
        self.split_by_time(slice).or_else(|| {
            let middle_row = self.rows.start + self.rows.len() / 2;
            let (mut first_half, mut second_half) = (self.clone(), self.clone());
            (first_half.rows.end, second_half.rows.start) = (middle_row, middle_row);
            (self.rows.len() > 1).then_some((first_half, second_half))
        })
    }
}

/// Splits the rows of a whole batch into requests within [`MAX_BATCH_SAMPLES`] and [`MAX_REQUEST_BYTES`]; a single row
/// may exceed them. The last of the list is to be sent first. The encoder adds `extra_labels` to every series.
pub fn split_into_requests(
    batch_slice: RowSlice<'_>,
    extra_labels: &[(String, String)],
    was_attempted: bool,
) -> Vec<RequestRange> {
    let sum_label_bytes = |labels: &[(String, String)]| -> usize {
        let label_bytes = labels
            .iter()
            .map(|(label, value)| label.len() + value.len() + LABEL_OVERHEAD_BYTES);
        label_bytes.sum()
    };
    let extra_bytes = sum_label_bytes(extra_labels);
    let mut requests: Vec<RequestRange> = Vec::new();
    let (mut request_sample_count, mut request_bytes) = (0, 0);
    for (index, row) in batch_slice.rows.iter().enumerate() {
        let name_bytes = row.series.name.len() + sum_label_bytes(&row.series.labels) + extra_bytes;
        // The other encodings write a name once, and Graphite with each sample. The sum is enough for all.
        let row_bytes = name_bytes + (name_bytes + SAMPLE_BYTES) * row.samples.len();
        request_sample_count += row.samples.len();
        request_bytes += row_bytes;
        match requests.last_mut() {
            Some(last)
                if request_sample_count <= MAX_BATCH_SAMPLES
                    && request_bytes <= MAX_REQUEST_BYTES =>
            {
                last.rows.end = index + 1
            }
            _ => {
                (request_sample_count, request_bytes) = (row.samples.len(), row_bytes);
                requests.push(RequestRange {
                    rows: index..index + 1,
                    from: batch_slice.from,
                    to: batch_slice.to,
                    was_attempted,
                });
            }
        }
    }
    requests.reverse();
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::push::row::TimedValue;
    use crate::record::{Series, SeriesKind};

    fn rows(count: usize, seconds: u64) -> Vec<Row> {
        let row = |index: usize| Row {
            series: Series {
                name: format!("n_{index}"),
                labels: Vec::new(),
                kind: SeriesKind::Gauge,
                decimals: 0,
            },
            samples: (1..=seconds)
                .map(|second| TimedValue { second, value: 0 })
                .collect(),
        };
        (0..count).map(row).collect()
    }

    fn whole(rows: &[Row]) -> RowSlice<'_> {
        RowSlice {
            rows,
            from: 0,
            to: u64::MAX,
        }
    }

    #[test]
    fn labels_of_the_destination_count_as_bytes() {
        let rows = rows(100, 40);
        assert_eq!(split_into_requests(whole(&rows), &[], false).len(), 1);
        let label = ("site".to_owned(), "x".repeat(1_000));
        let requests = split_into_requests(whole(&rows), &[label], false);
        assert!(requests.len() >= 4, "{requests:?}");
    }

    /// Time comes first, because a destination may have some seconds and not others.
    #[test]
    fn requests_are_split_down_to_the_last_sample() {
        let rows = rows(3, 2);
        let mut remaining = split_into_requests(whole(&rows), &[], true);
        let mut counts = Vec::new();
        while let Some(request) = remaining.pop() {
            let slice = request.slice(&rows);
            counts.push(slice.sample_count());
            assert!(request.was_attempted);
            remaining.extend(
                request
                    .split(slice)
                    .map(<[RequestRange; 2]>::from)
                    .into_iter()
                    .flatten(),
            );
        }
        assert_eq!(counts, [6, 3, 2, 1, 1, 1, 3, 2, 1, 1, 1]);
    }
}
