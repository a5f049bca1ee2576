//! Rolls segments of one tier up into segments of the next coarser one. The finer segments stay until they are deleted
//! for their age or for room (`folder.rs`).
//!
//! A segment that proves to be damaged is set aside, and the roll-up of the tier begins again without it. Where a finer
//! segment is missing, no seconds count as recorded.

use std::collections::BTreeSet;
use std::io;

use super::column::{BucketRun, Column};
use super::folder::{RecordFolder, SegmentError, retry_without_damaged};
use super::segment::{RecordSegment, SegmentWriter};
use super::tier::{DAY_SECONDS, Tier};

impl RecordFolder {
    /// Extends the segments of each tier as far as the next finer tier reaches, in whole hours or days.
    ///
    /// # Errors
    ///
    /// Fails if the disk does, or if a segment has a format of another version.
    pub fn roll_up(&self) -> io::Result<()> {
        for tier in Tier::ALL {
            if let Some(finer) = tier.finer() {
                retry_without_damaged(|| self.roll_up_tier(tier, finer))?;
            }
        }
        Ok(())
    }

    /// Extends the segments of one tier as far as the segments of `finer` reach, in whole hours or days.
    fn roll_up_tier(&self, tier: Tier, finer: Tier) -> Result<(), SegmentError> {
        let Some(finer_end) = self.tier_end(finer)? else {
            return Ok(());
        };
        // An extension writes the whole segment anew, so extensions are rare: once an hour for minutes, when a file of
        // seconds is complete, and once a day for coarser tiers.
        let interval_seconds = match tier {
            Tier::Minute => finer.file_seconds(),
            _ => DAY_SECONDS,
        };
        let end = finer_end - finer_end % interval_seconds;
        let finer_starts = self.segment_starts(finer)?.into_iter();
        let starts = finer_starts.map(|start| start - start % tier.file_seconds());
        for start in starts.collect::<BTreeSet<u64>>() {
            let current_end = self
                .open_segment(tier, start)?
                .map_or(start, |segment| segment.end());
            let segment_end = end.min(start + tier.file_seconds());
            if current_end < segment_end {
                self.extend_segment(tier, finer, start, segment_end)?;
            }
        }
        Ok(())
    }

    /// Writes the segment that begins at `start` up to `end`. It replaces a shorter one, if there is one.
    fn extend_segment(
        &self,
        tier: Tier,
        finer: Tier,
        start: u64,
        end: u64,
    ) -> Result<(), SegmentError> {
        let current = self.open_segment(tier, start)?;
        let from = current.as_ref().map_or(start, RecordSegment::end);
        // The number of finer buckets that make one bucket.
        let ratio = (tier.step_seconds() / finer.step_seconds()) as usize;
        // The number of finer buckets that are added.
        let added_count = ((end - from) / finer.step_seconds()) as usize;
        let mut finer_segments = Vec::new();
        for finer_start in self.segment_starts(finer)? {
            if finer_start < end && finer_start + finer.file_seconds() > from {
                finer_segments.extend(self.open_segment(finer, finer_start)?);
            }
        }
        // The buckets of a finer segment that are added, and their index among all added finer buckets. A segment that
        // begins before `from` skips its first buckets, and is added at index 0. One that begins later skips none. So
        // at least one of the two differences saturates at zero.
        let added_run = |segment: &RecordSegment| {
            let skipped_count =
                (from.saturating_sub(segment.start()) / finer.step_seconds()) as usize;
            let source_index = skipped_count.min(segment.covered_seconds().len());
            let target_index =
                (segment.start().saturating_sub(from) / finer.step_seconds()) as usize;
            BucketRun {
                source_index,
                target_index,
                count: (segment.covered_seconds().len() - source_index)
                    .min(added_count - target_index),
            }
        };
        // The recorded seconds of each added finer bucket.
        let mut added_coverage = vec![0; added_count];
        for segment in &finer_segments {
            let run = added_run(segment);
            added_coverage[run.target_index..run.target_index + run.count].copy_from_slice(
                &segment.covered_seconds()[run.source_index..run.source_index + run.count],
            );
        }
        let current_coverage = current.iter().flat_map(|current| current.covered_seconds());
        let mut covered_seconds: Vec<u32> = current_coverage.copied().collect();
        let current_bucket_count = covered_seconds.len();
        let added_buckets = added_coverage.chunks(ratio);
        covered_seconds.extend(added_buckets.map(|seconds| seconds.iter().sum::<u32>()));
        let segments = current.iter().chain(&finer_segments);
        let series_numbers: BTreeSet<u32> =
            segments.flat_map(RecordSegment::series_numbers).collect();
        self.write_segment(tier, start, |path| {
            let mut writer = SegmentWriter::new(path, tier, start, &covered_seconds)?;
            for series_number in series_numbers {
                let mut column = match &current {
                    Some(current) => self
                        .read_column(current, series_number)?
                        .unwrap_or_default(),
                    None => Column::default(),
                };
                column.resize(current_bucket_count);
                let mut added_column = Column::default();
                added_column.resize(added_count);
                for segment in &finer_segments {
                    if let Some(finer_column) = self.read_column(segment, series_number)? {
                        added_column.copy_run(added_run(segment), &finer_column);
                    }
                }
                column.roll_up(&added_column, &added_coverage, ratio);
                if !column.is_zero() {
                    writer.add(series_number, &column)?;
                }
            }
            Ok(writer.finish()?)
        })
    }
}
