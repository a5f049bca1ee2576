//! Verifies a record on the disk: every checksum, and every coarse segment against the finer one that it was rolled up
//! from.
//!
//! Nothing is changed or repaired. It may run beside the gateway, because files appear in their place only once they
//! are complete.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::column::Column;
use super::folder::Folder;
use super::journal::Journal;
use super::notes;
use super::segment::{Damage, RecordSegment};
use super::series::NamesFile;
use super::tier::Tier;
use super::topic::Topic;

/// The result of [`verify`].
#[derive(Debug, Default)]
pub struct Verified {
    /// The number of files that were read, without journals.
    pub files: usize,
    /// The bytes of those files.
    pub bytes: u64,
    /// The number of coarse buckets that were compared with finer ones.
    pub compared: u64,
    /// What is wrong; empty for a sound record.
    pub faults: Vec<Fault>,
}

/// A fault of a file.
#[derive(Debug)]
pub struct Fault {
    /// The file.
    pub path: PathBuf,
    /// A description for operators, which continues a sentence about the file.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// Reads and compares all files of the record in a folder.
///
/// # Errors
///
/// Fails if a file cannot be read now. Damage is no error: it is among the faults.
pub fn verify(path: &Path) -> io::Result<Verified> {
    let folder = Folder::at(path);
    let mut verified = Verified::default();
    let named = verified.check_names(&folder)?;
    let mut nameless = BTreeSet::new();
    for tier in Tier::ALL {
        for start in folder.segment_starts(tier)? {
            let path = folder.segment_path(tier, start);
            let Some(segment) = verified.check_segment(&path, tier, start)? else {
                continue;
            };
            verified.files += 1;
            verified.bytes += fs::metadata(&path)?.len();
            nameless.extend(segment.series().filter(|series| !named.contains(series)));
            if let Some(coarser) = tier.coarser() {
                verified.compare_with_coarser(&folder, &segment, coarser);
            }
        }
    }
    verified.check_journals(&folder, |series| {
        if !named.contains(&series) {
            nameless.insert(series);
        }
    })?;
    if !nameless.is_empty() {
        let what = format!(
            "it has no names of {} series that there is something of",
            nameless.len()
        );
        verified.add_fault(&folder.names_path(), what);
    }
    verified.check_notes(&folder)?;
    Ok(verified)
}

impl Verified {
    fn add_fault(&mut self, path: &Path, what: String) {
        let path = path.to_owned();
        self.faults.push(Fault { path, what });
    }

    /// Reads the file of names, and returns the numbers that have one.
    fn check_names(&mut self, folder: &Folder) -> io::Result<BTreeSet<u32>> {
        let path = folder.names_path();
        match NamesFile::open(&path) {
            Ok((names, dictionary)) => {
                if let Some(bytes) = names.damaged_bytes() {
                    let what =
                        format!("its last {bytes} bytes are damaged: the names in them are lost");
                    self.add_fault(&path, what);
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
    fn check_journals(&mut self, folder: &Folder, mut visit: impl FnMut(u32)) -> io::Result<()> {
        for hour in folder.journal_hours()? {
            let path = folder.journal_path(hour);
            let journal = Journal::open(&path, hour, |second| {
                second.values.iter().for_each(|(series, _)| visit(*series));
            });
            match journal.map(|journal| journal.damaged_bytes()) {
                Ok(Some(bytes)) => {
                    let what = format!(
                        "its last {bytes} bytes are damaged: the seconds in them are lost when the gateway starts anew"
                    );
                    self.add_fault(&path, what);
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

    /// Reads the files of notes.
    fn check_notes(&mut self, folder: &Folder) -> io::Result<()> {
        for topic in Topic::ALL {
            for (day, path) in folder.note_files(topic)? {
                self.files += 1;
                self.bytes += fs::metadata(&path).map_or(0, |file| file.len());
                let what = match notes::count_damaged_bytes(&path, day) {
                    Ok(0) => continue,
                    Ok(bytes) => format!(
                        "its last {bytes} bytes are damaged, and the notes in them are lost; those before are still read. \
                         Of today's file the gateway keeps a copy in `damaged` when it starts; an older one may be deleted"
                    ),
                    Err(damage) => damage.to_string(),
                };
                self.add_fault(&path, what);
            }
        }
        Ok(())
    }

    /// Reads all of a segment. Returns nothing if it is damaged, or if the gateway has deleted it meanwhile.
    fn check_segment(
        &mut self,
        path: &Path,
        tier: Tier,
        start: u64,
    ) -> io::Result<Option<RecordSegment>> {
        let segment = RecordSegment::open(path, tier, start).and_then(|segment| {
            for series in segment.series() {
                segment.read_column(series)?;
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

    /// Compares a segment with the buckets of `tier` that were rolled up from it.
    fn compare_with_coarser(&mut self, folder: &Folder, finer: &RecordSegment, tier: Tier) {
        let start = finer.start() - finer.start() % tier.file_span();
        let path = folder.segment_path(tier, start);
        let Ok(coarse) = RecordSegment::open(&path, tier, start) else {
            // It is not written yet, or `check_segment` reports its damage.
            return;
        };
        let ratio = (tier.step() / finer.tier().step()) as usize;
        let first = ((finer.start() - start) / tier.step()) as usize;
        let last = (first + finer.covered().len() / ratio).min(coarse.covered().len());
        if first >= last {
            return;
        }
        self.compared += (last - first) as u64;
        let finer_path = folder.segment_path(finer.tier(), finer.start());
        let rolled_up_covered = finer
            .covered()
            .chunks(ratio)
            .map(|covered| covered.iter().sum::<u32>());
        if !rolled_up_covered
            .take(last - first)
            .eq(coarse.covered()[first..last].iter().copied())
        {
            let what = format!("it does not cover what {} covers", finer_path.display());
            self.add_fault(&path, what);
        }
        let series: BTreeSet<u32> = finer.series().chain(coarse.series()).collect();
        for series in series {
            let columns = (finer.read_column(series), coarse.read_column(series));
            let (Ok(finer_column), Ok(coarse_column)) = columns else {
                continue;
            };
            let mut finer_column = finer_column.unwrap_or_default();
            let mut coarse_column = coarse_column.unwrap_or_default();
            finer_column.resize(finer.covered().len());
            coarse_column.resize(coarse.covered().len());
            let mut rolled_up = Column::default();
            rolled_up.roll_up(&finer_column, finer.covered(), ratio);
            let is_same =
                |expected: &[u64], actual: &[u64]| expected[..last - first] == actual[first..last];
            if !(is_same(&rolled_up.sums, &coarse_column.sums)
                && is_same(&rolled_up.minima, &coarse_column.minima)
                && is_same(&rolled_up.maxima, &coarse_column.maxima))
            {
                let from = finer_path.display();
                let what = format!("series {series} is not what {from} makes of it");
                self.add_fault(&path, what);
            }
        }
    }
}
