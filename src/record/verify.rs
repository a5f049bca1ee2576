//! Verifies a record on the disk: every checksum, and every coarse segment against the finer ones that it was rolled up
//! from, as far as these are still kept.
//!
//! Nothing is changed or repaired. The gateway may run meanwhile: a segment gets its name only once it is complete, and
//! an unfinished frame at the end of another file is no fault.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::column::Column;
use super::folder::RecordFolder;
use super::journal::Journal;
use super::notes;
use super::segment::{Damage, RecordSegment};
use super::series::NamesFile;
use super::tier::Tier;
use super::topic::Topic;

/// The result of [`verify`].
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// The number of sound segments and of all files of notes. Journals and the names of series are not counted.
    pub file_count: usize,
    /// The bytes of those files.
    pub total_bytes: u64,
    /// The number of buckets that were compared with the finer ones of which they were made.
    pub compared_buckets: u64,
    /// The faults, of any file; empty for a sound record.
    pub faults: Vec<Fault>,
}

/// A file that is not as it should be.
#[derive(Debug)]
pub struct Fault {
    /// The path of the file.
    pub path: PathBuf,
    /// A description for operators, which continues a sentence about the file.
    pub description: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.description)
    }
}

/// Reads and compares all files of the record in a folder.
///
/// # Errors
///
/// Fails if the folder, or a file in it other than one of notes, cannot be read now. Damage is no error: it is among
/// the faults, and so is a file of notes that cannot be read.
pub fn verify(path: &Path) -> io::Result<VerifyReport> {
    let folder = RecordFolder::for_reading(path);
    let mut report = VerifyReport::default();
    let named_numbers = report.check_names(&folder)?;
    let mut nameless_numbers = BTreeSet::new();
    for tier in Tier::ALL {
        for start in folder.segment_starts(tier)? {
            let path = folder.segment_path(tier, start);
            let Some(segment) = report.check_segment(&path, tier, start)? else {
                continue;
            };
            report.file_count += 1;
            report.total_bytes += fs::metadata(&path)?.len();
            let numbers = segment.series_numbers();
            nameless_numbers.extend(numbers.filter(|number| !named_numbers.contains(number)));
            if let Some(coarser) = tier.coarser() {
                report.compare_with_coarser(&folder, &segment, coarser);
            }
        }
    }
    report.check_journals(&folder, |number| {
        if !named_numbers.contains(&number) {
            nameless_numbers.insert(number);
        }
    })?;
    if !nameless_numbers.is_empty() {
        let description = format!(
            "it has no names of {} series that there is something of",
            nameless_numbers.len()
        );
        report.add_fault(&folder.names_path(), description);
    }
    report.check_notes(&folder)?;
    Ok(report)
}

impl VerifyReport {
    /// Adds a fault of the file at `path`.
    fn add_fault(&mut self, path: &Path, description: String) {
        let path = path.to_owned();
        self.faults.push(Fault { path, description });
    }

    /// Reads the file of names, and returns the numbers of the series that have names. A missing file has none.
    fn check_names(&mut self, folder: &RecordFolder) -> io::Result<BTreeSet<u32>> {
        let path = folder.names_path();
        match NamesFile::open(&path) {
            Ok((names, dictionary)) => {
                if let Some(bytes) = names.damaged_bytes() {
                    let description =
                        format!("its last {bytes} bytes are damaged: the names in them are lost");
                    self.add_fault(&path, description);
                }
                Ok(dictionary.all().map(|(_, number)| number).collect())
            }
            Err(Damage::Read(error)) => Err(error),
            Err(damage) => {
                self.add_fault(&path, damage.to_string());
                Ok(BTreeSet::new())
            }
        }
    }

    /// Reads the journals, and passes the number of each series with a value to `visit`.
    fn check_journals(
        &mut self,
        folder: &RecordFolder,
        mut visit: impl FnMut(u32),
    ) -> io::Result<()> {
        for hour_start in folder.journal_starts()? {
            let path = folder.journal_path(hour_start);
            let journal = Journal::open(&path, hour_start, |second| {
                second
                    .values
                    .iter()
                    .for_each(|(series_number, _)| visit(*series_number));
            });
            match journal.map(|journal| journal.damaged_bytes()) {
                Ok(Some(bytes)) => {
                    let description = format!(
                        "its last {bytes} bytes are damaged: the seconds in them are lost when the gateway starts anew"
                    );
                    self.add_fault(&path, description);
                }
                Ok(None) => {}
                // The gateway has sealed the hour meanwhile.
                Err(Damage::Read(error)) if error.kind() == ErrorKind::NotFound => {}
                Err(Damage::Read(error)) => return Err(error),
                Err(damage) => self.add_fault(&path, damage.to_string()),
            }
        }
        Ok(())
    }

    /// Reads the files of notes, and adds a fault for each that is damaged or cannot be read.
    fn check_notes(&mut self, folder: &RecordFolder) -> io::Result<()> {
        for topic in Topic::ALL {
            for (day_start, path) in folder.note_files(topic)? {
                self.file_count += 1;
                self.total_bytes += fs::metadata(&path).map_or(0, |file| file.len());
                let description = match notes::count_damaged_bytes(&path, day_start) {
                    Ok(0) => continue,
                    Ok(bytes) => format!(
                        "its last {bytes} bytes are damaged, and the notes in them are lost; those before are still read. \
                         Of today's file the gateway keeps a copy in `damaged` when it starts; an older one may be deleted"
                    ),
                    Err(damage) => damage.to_string(),
                };
                self.add_fault(&path, description);
            }
        }
        Ok(())
    }

    /// Reads all of a segment. Returns `None` if the segment is damaged, or if the gateway has deleted it meanwhile.
    fn check_segment(
        &mut self,
        path: &Path,
        tier: Tier,
        start: u64,
    ) -> io::Result<Option<RecordSegment>> {
        let segment = RecordSegment::open(path, tier, start).and_then(|segment| {
            for series_number in segment.series_numbers() {
                segment.read_column(series_number)?;
            }
            Ok(segment)
        });
        match segment {
            Ok(segment) => Ok(Some(segment)),
            Err(Damage::Read(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(Damage::Read(error)) => Err(error),
            Err(damage) => {
                self.add_fault(path, damage.to_string());
                Ok(None)
            }
        }
    }

    /// Compares a segment with the buckets of the next coarser tier that were rolled up from it. Nothing is compared if
    /// the coarser segment is missing or damaged.
    fn compare_with_coarser(
        &mut self,
        folder: &RecordFolder,
        finer: &RecordSegment,
        coarser_tier: Tier,
    ) {
        let start = finer.start() - finer.start() % coarser_tier.file_seconds();
        let path = folder.segment_path(coarser_tier, start);
        let Ok(coarser) = RecordSegment::open(&path, coarser_tier, start) else {
            // The coarser segment is not written yet, or `check_segment` reports its damage.
            return;
        };
        let ratio = (coarser_tier.step_seconds() / finer.tier().step_seconds()) as usize;
        // The buckets of the coarser segment that the finer one covers.
        let first_bucket = ((finer.start() - start) / coarser_tier.step_seconds()) as usize;
        let finer_bucket_count = finer.covered_seconds().len();
        let end_bucket =
            (first_bucket + finer_bucket_count / ratio).min(coarser.covered_seconds().len());
        if first_bucket >= end_bucket {
            return;
        }
        let compared_count = end_bucket - first_bucket;
        self.compared_buckets += compared_count as u64;
        let finer_path = folder.segment_path(finer.tier(), finer.start());
        let rolled_up_seconds = finer
            .covered_seconds()
            .chunks(ratio)
            .map(|covered| covered.iter().sum::<u32>());
        let coarser_seconds = &coarser.covered_seconds()[first_bucket..end_bucket];
        if !rolled_up_seconds
            .take(compared_count)
            .eq(coarser_seconds.iter().copied())
        {
            let description = format!("it does not cover what {} covers", finer_path.display());
            self.add_fault(&path, description);
        }
        let series_numbers: BTreeSet<u32> = finer
            .series_numbers()
            .chain(coarser.series_numbers())
            .collect();
        for series_number in series_numbers {
            let columns = (
                finer.read_column(series_number),
                coarser.read_column(series_number),
            );
            // `check_segment` reports a damaged column.
            let (Ok(finer_column), Ok(coarser_column)) = columns else {
                continue;
            };
            let mut finer_column = finer_column.unwrap_or_default();
            let mut coarser_column = coarser_column.unwrap_or_default();
            finer_column.resize(finer_bucket_count);
            coarser_column.resize(coarser.covered_seconds().len());
            let mut rolled_up = Column::default();
            rolled_up.roll_up(&finer_column, finer.covered_seconds(), ratio);
            let are_equal = |expected: &[u64], actual: &[u64]| {
                expected[..compared_count] == actual[first_bucket..end_bucket]
            };
            if !(are_equal(&rolled_up.sums, &coarser_column.sums)
                && are_equal(&rolled_up.minima, &coarser_column.minima)
                && are_equal(&rolled_up.maxima, &coarser_column.maxima))
            {
                let finer_path = finer_path.display();
                let description =
                    format!("series {series_number} is not what {finer_path} makes of it");
                self.add_fault(&path, description);
            }
        }
    }
}
