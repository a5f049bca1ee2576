//! Rolls segments of one tier up into segments of the next coarser one. The finer segments stay until they are deleted
//! for their age or for room (`folder.rs`).

use std::collections::BTreeSet;
use std::io;

use super::column::{BucketRun, Column};
use super::folder::{Folder, SegmentError, retry_without_damaged};
use super::segment::{RecordSegment, SegmentWriter};
use super::tier::{DAY, Tier};

impl Folder {
    /// Extends the segments of all tiers as far as the finer ones reach.
    pub fn roll_up(&self) -> io::Result<()> {
        for tier in Tier::ALL {
            if let Some(finer) = tier.finer() {
                retry_without_damaged(|| self.roll_up_tier(tier, finer))?;
            }
        }
        Ok(())
    }

    fn roll_up_tier(&self, tier: Tier, finer: Tier) -> Result<(), SegmentError> {
        let Some(end) = self.tier_end(finer)? else {
            return Ok(());
        };
        // Minutes are made hour by hour, and everything coarser once a day, for each time the whole segment is written.
        let interval = match tier {
            Tier::Minute => finer.file_span(),
            _ => DAY,
        };
        let end = end - end % interval;
        let finer_starts = self.segment_starts(finer)?.into_iter();
        let starts = finer_starts.map(|start| start - start % tier.file_span());
        for start in starts.collect::<BTreeSet<u64>>() {
            let current_end = self
                .open_segment(tier, start)?
                .map_or(start, |segment| segment.end());
            let end = end.min(start + tier.file_span());
            if current_end < end {
                self.extend_segment(tier, finer, start, end)?;
            }
        }
        Ok(())
    }

    /// Replaces the segment that begins at `start` by one that reaches to `end`.
    fn extend_segment(
        &self,
        tier: Tier,
        finer: Tier,
        start: u64,
        end: u64,
    ) -> Result<(), SegmentError> {
        let current = self.open_segment(tier, start)?;
        let from = current.as_ref().map_or(start, RecordSegment::end);
        let ratio = (tier.step() / finer.step()) as usize;
        let added_len = ((end - from) / finer.step()) as usize;
        let mut sources = Vec::new();
        for source in self.segment_starts(finer)? {
            if source < end && source + finer.file_span() > from {
                sources.extend(self.open_segment(finer, source)?);
            }
        }
        // Which buckets of a source are added, and where.
        let run_of = |segment: &RecordSegment| {
            let skipped = (from.saturating_sub(segment.start()) / finer.step()) as usize;
            let source = skipped.min(segment.covered().len());
            let target = (segment.start().saturating_sub(from) / finer.step()) as usize;
            BucketRun {
                source,
                target,
                count: (segment.covered().len() - source).min(added_len - target),
            }
        };
        let mut added_covered = vec![0; added_len];
        for segment in &sources {
            let run = run_of(segment);
            added_covered[run.target..run.target + run.count]
                .copy_from_slice(&segment.covered()[run.source..run.source + run.count]);
        }
        let current_covered = current.iter().flat_map(|current| current.covered());
        let mut covered: Vec<u32> = current_covered.copied().collect();
        let current_len = covered.len();
        let added = added_covered.chunks(ratio);
        covered.extend(added.map(|covered| covered.iter().sum::<u32>()));
        let series = current.iter().chain(&sources);
        let series: BTreeSet<u32> = series.flat_map(RecordSegment::series).collect();
        self.write_segment(tier, start, |path| {
            let mut writer = SegmentWriter::new(path, tier, start, &covered)?;
            for series in series {
                let mut column = match &current {
                    Some(current) => self.read_column(current, series)?.unwrap_or_default(),
                    None => Column::default(),
                };
                column.resize(current_len);
                let mut added = Column::default();
                added.resize(added_len);
                for source in &sources {
                    if let Some(source_column) = self.read_column(source, series)? {
                        added.copy_run(run_of(source), &source_column);
                    }
                }
                column.roll_up(&added, &added_covered, ratio);
                if !column.is_zero() {
                    writer.add(series, &column)?;
                }
            }
            Ok(writer.finish()?)
        })
    }
}
