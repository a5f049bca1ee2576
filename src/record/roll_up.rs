//! Files of longer steps, made of files of shorter ones.

use std::collections::BTreeSet;
use std::io;

use super::column::Column;
use super::folder::{Folder, Trouble, anew};
use super::segment::{RecordSegment, Writing};
use super::tier::{DAY, Tier};

impl Folder {
    /// Rolls up what is over, into all tiers.
    pub fn roll_up(&self) -> io::Result<()> {
        for tier in Tier::ALL {
            if let Some(beneath) = tier.beneath() {
                anew(|| self.extend(tier, beneath))?;
            }
        }
        Ok(())
    }

    fn extend(&self, tier: Tier, beneath: Tier) -> Result<(), Trouble> {
        let Some(over) = self.end(beneath)? else {
            return Ok(());
        };
        let granule = match tier {
            Tier::Minute => beneath.span(),
            // Roll-ups above minutes are made when a day is over.
            _ => DAY,
        };
        let over = over - over % granule;
        let spans = self.starts(beneath)?.into_iter();
        let spans: BTreeSet<u64> = spans.map(|start| start - start % tier.span()).collect();
        for start in spans {
            let reached = self
                .open(tier, start)?
                .map_or(start, |segment| segment.end());
            let end = over.min(start + tier.span());
            if reached < end {
                self.lengthen(tier, beneath, start, end)?;
            }
        }
        Ok(())
    }

    /// Has a span's file reach to `end`.
    fn lengthen(&self, tier: Tier, beneath: Tier, start: u64, end: u64) -> Result<(), Trouble> {
        let before = self.open(tier, start)?;
        let from = before.as_ref().map_or(start, RecordSegment::end);
        let ratio = (tier.step() / beneath.step()) as usize;
        let length = ((end - from) / beneath.step()) as usize;
        let mut sources = Vec::new();
        for source in self.starts(beneath)? {
            if source < end && source + beneath.span() > from {
                sources.extend(self.open(beneath, source)?);
            }
        }
        // Where a source's buckets are among those that are added.
        let place = |source: &RecordSegment| {
            let skip = (from.saturating_sub(source.start()) / beneath.step()) as usize;
            let skip = skip.min(source.covered().len());
            let at = (source.start().saturating_sub(from) / beneath.step()) as usize;
            let count = (source.covered().len() - skip).min(length - at);
            (skip, at, count)
        };
        let mut finer = vec![0; length];
        for source in &sources {
            let (skip, at, count) = place(source);
            finer[at..at + count].copy_from_slice(&source.covered()[skip..skip + count]);
        }
        let mut covered: Vec<u32> = before
            .iter()
            .flat_map(|before| before.covered())
            .copied()
            .collect();
        let old = covered.len();
        covered.extend(
            finer
                .chunks(ratio)
                .map(|seconds| seconds.iter().sum::<u32>()),
        );
        let known = before
            .iter()
            .chain(&sources)
            .flat_map(RecordSegment::series);
        let known: BTreeSet<u32> = known.collect();
        self.make(tier, start, |path| {
            let mut out = Writing::new(path, tier, start, &covered)?;
            for series in known {
                let mut column = match &before {
                    Some(before) => self.column(before, series)?.unwrap_or_default(),
                    None => Column::default(),
                };
                column.fill(old);
                let mut added = Column::default();
                added.fill(length);
                for source in &sources {
                    if let Some(found) = self.column(source, series)? {
                        added.copy(place(source), &found);
                    }
                }
                column.roll_up(&added, &finer, ratio);
                if !column.quiet() {
                    out.add(series, &column)?;
                }
            }
            Ok(out.finish()?)
        })
    }
}
