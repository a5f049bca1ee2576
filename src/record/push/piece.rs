//! What of a batch makes one request.

use std::ops::Range;

use super::batch::MOST_SAMPLES;
use super::row::{Part, Row};

/// Most bytes of a request, before it is packed, unless a single series has more.
const MOST_BYTES: usize = 1 << 20;

/// Some rows, of some seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRange {
    rows: Range<usize>,
    from: u64,
    to: u64,
    /// It was sent before, and may be there already.
    pub tried: bool,
}

impl SampleRange {
    /// What it is of the rows of its batch.
    pub fn of<'a>(&self, rows: &'a [Row]) -> Part<'a> {
        Part {
            rows: rows.get(self.rows.clone()).unwrap_or_default(),
            from: self.from,
            to: self.to,
        }
    }

    /// Its earlier seconds and its later ones, unless it is of one second.
    pub fn by_time(&self, part: Part<'_>) -> Option<(SampleRange, SampleRange)> {
        let middle = part.middle()?;
        let (mut earlier, mut later) = (self.clone(), self.clone());
        (earlier.to, later.from) = (middle, middle + 1);
        Some((earlier, later))
    }

    /// Its earlier seconds and its later ones, else one half of its series and the other, unless it is of one sample.
    pub fn halves(&self, part: Part<'_>) -> Option<(SampleRange, SampleRange)> {
        self.by_time(part).or_else(|| {
            let middle = self.rows.start + self.rows.len() / 2;
            let (mut first, mut second) = (self.clone(), self.clone());
            (first.rows.end, second.rows.start) = (middle, middle);
            (self.rows.len() > 1).then_some((first, second))
        })
    }
}

/// Requests for all of it of which none is too large, the first one last. `labels` are added to every series.
pub fn pieces(whole: Part<'_>, labels: &[(String, String)], tried: bool) -> Vec<SampleRange> {
    let length = |labels: &[(String, String)]| -> usize {
        let each = labels.iter();
        each.map(|(label, value)| label.len() + value.len() + 8)
            .sum()
    };
    let added = length(labels);
    let mut pieces: Vec<SampleRange> = Vec::new();
    let (mut samples, mut bytes) = (0, 0);
    for (place, row) in whole.rows.iter().enumerate() {
        let name = row.series.name.len() + length(&row.series.labels) + added;
        let own = name + (name + 32) * row.samples.len();
        samples += row.samples.len();
        bytes += own;
        match pieces.last_mut() {
            Some(last) if samples <= MOST_SAMPLES && bytes <= MOST_BYTES => {
                last.rows.end = place + 1
            }
            _ => {
                (samples, bytes) = (row.samples.len(), own);
                pieces.push(SampleRange {
                    rows: place..place + 1,
                    from: whole.from,
                    to: whole.to,
                    tried,
                });
            }
        }
    }
    pieces.reverse();
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::push::row::TimedValue;
    use crate::record::{Kind, Series};

    fn rows(count: usize, seconds: u64) -> Vec<Row> {
        let row = |place: usize| Row {
            series: Series {
                name: format!("n_{place}"),
                labels: Vec::new(),
                kind: Kind::Gauge,
                decimals: 0,
            },
            samples: (1..=seconds)
                .map(|at| TimedValue { at, value: 0 })
                .collect(),
        };
        (0..count).map(row).collect()
    }

    fn whole(rows: &[Row]) -> Part<'_> {
        Part {
            rows,
            from: 0,
            to: u64::MAX,
        }
    }

    #[test]
    fn labels_of_the_destination_take_room_too() {
        let rows = rows(100, 40);
        assert_eq!(pieces(whole(&rows), &[], false).len(), 1);
        let label = ("site".to_owned(), "x".repeat(1_000));
        let pieces = pieces(whole(&rows), &[label], false);
        assert!(pieces.len() >= 4, "{pieces:?}");
    }

    /// By time, for that tells what is known from what is not, then by series, down to a sample.
    #[test]
    fn pieces_are_halved_to_the_last_sample() {
        let rows = rows(3, 2);
        let mut left = pieces(whole(&rows), &[], true);
        let mut counts = Vec::new();
        while let Some(piece) = left.pop() {
            let part = piece.of(&rows);
            counts.push(part.count());
            assert!(piece.tried);
            left.extend(
                piece
                    .halves(part)
                    .map(<[SampleRange; 2]>::from)
                    .into_iter()
                    .flatten(),
            );
        }
        assert_eq!(counts, [6, 3, 2, 1, 1, 1, 3, 2, 1, 1, 1]);
    }
}
