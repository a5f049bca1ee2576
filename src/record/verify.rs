//! Whether a record is as it was written: every checksum, and every sum of a longer step against what it was made of.
//!
//! It changes nothing, and may run beside the gateway: files are put in their place when they are whole.

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
use super::series::Names;
use super::tier::Tier;
use super::topic::Topic;

/// What was found.
#[derive(Debug, Default)]
pub struct Verified {
    /// Files that were read, without journals.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Buckets that were held against what they were made of.
    pub compared: u64,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

/// Something that is wrong.
#[derive(Debug)]
pub struct Fault {
    /// In which file.
    pub path: PathBuf,
    /// What.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// Reads all files of the record in a folder.
pub fn verify(path: &Path) -> io::Result<Verified> {
    let folder = Folder::at(path);
    let mut verified = Verified::default();
    let known = verified.names(&folder)?;
    let mut nameless = BTreeSet::new();
    for tier in Tier::ALL {
        for start in folder.starts(tier)? {
            let path = folder.file(tier, start);
            let Some(segment) = verified.check(&folder, &path, tier, start)? else {
                continue;
            };
            verified.files += 1;
            verified.bytes += fs::metadata(&path)?.len();
            nameless.extend(segment.series().filter(|series| !known.contains(series)));
            if let Some(coarser) = Tier::ALL
                .into_iter()
                .find(|other| other.beneath() == Some(tier))
            {
                verified.compare(&folder, &segment, coarser)?;
            }
        }
    }
    verified.journals(&folder, |series| {
        if !known.contains(&series) {
            nameless.insert(series);
        }
    })?;
    if !nameless.is_empty() {
        let what = format!(
            "it has no names of {} series that there is something of",
            nameless.len()
        );
        verified.fault(&folder.names(), what);
    }
    for topic in Topic::ALL {
        for (day, path) in folder.note_files(topic)? {
            verified.files += 1;
            verified.bytes += fs::metadata(&path).map_or(0, |file| file.len());
            let what = match notes::check(&path, day) {
                Ok(0) => continue,
                Ok(lost) => format!(
                    "its last {lost} bytes are damaged, and the notes in them are lost; those before are still read. \
                     Of today's file the gateway keeps a copy in `damaged` when it starts; an older one may be deleted"
                ),
                Err(damage) => damage.to_string(),
            };
            verified.faults.push(Fault { path, what });
        }
    }
    Ok(verified)
}

impl Verified {
    /// The numbers of the series that have names.
    fn names(&mut self, folder: &Folder) -> io::Result<BTreeSet<u32>> {
        let path = folder.names();
        match Names::open(&path) {
            Ok((names, dictionary, _)) => {
                if let Some(lost) = names.damaged() {
                    let what =
                        format!("its last {lost} bytes are damaged: the names in them are lost");
                    self.fault(&path, what);
                }
                Ok(dictionary.all().map(|(_, number)| number).collect())
            }
            Err(Damage::Read(error)) => Err(error),
            Err(damage) => {
                self.fault(&path, damage.to_string());
                Ok(BTreeSet::new())
            }
        }
    }

    /// Reads what is in no other file yet, and shows whose it is.
    fn journals(&mut self, folder: &Folder, mut see: impl FnMut(u32)) -> io::Result<()> {
        for hour in folder.journals()? {
            let path = folder.journal_file(hour);
            let read = Journal::open(&path, hour, |second| {
                second.values.iter().for_each(|(series, _)| see(*series));
            });
            match read.map(|journal| journal.lost()) {
                Ok((bytes, true)) => {
                    let what = format!(
                        "its last {bytes} bytes are damaged: the seconds in them are lost when the gateway starts anew"
                    );
                    self.fault(&path, what);
                }
                Ok(_) => {}
                // It has become a file.
                Err(Damage::Read(error)) if error.kind() == ErrorKind::NotFound => {}
                Err(Damage::Read(error)) => return Err(error),
                Err(damage) => self.fault(&path, damage.to_string()),
            }
        }
        Ok(())
    }

    /// A file all of which is sound; one that the gateway has deleted meanwhile is none.
    fn check(
        &mut self,
        folder: &Folder,
        path: &Path,
        tier: Tier,
        start: u64,
    ) -> io::Result<Option<RecordSegment>> {
        let sound =
            RecordSegment::open(&folder.file(tier, start), tier, start).and_then(|segment| {
                for series in segment.series() {
                    segment.column(series)?;
                }
                Ok(segment)
            });
        match sound {
            Ok(segment) => Ok(Some(segment)),
            Err(Damage::Read(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(Damage::Read(error)) => Err(error),
            Err(damage) => {
                self.fault(path, damage.to_string());
                Ok(None)
            }
        }
    }

    fn fault(&mut self, path: &Path, what: String) {
        let path = path.to_owned();
        self.faults.push(Fault { path, what });
    }

    /// Holds the buckets that were made of a file against it.
    fn compare(&mut self, folder: &Folder, finer: &RecordSegment, tier: Tier) -> io::Result<()> {
        let start = finer.start() - finer.start() % tier.span();
        let path = folder.file(tier, start);
        let Ok(coarse) = RecordSegment::open(&path, tier, start) else {
            // It is not there yet, or told of by itself.
            return Ok(());
        };
        let ratio = (tier.step() / finer.tier().step()) as usize;
        let first = ((finer.start() - start) / tier.step()) as usize;
        let last = (first + finer.covered().len() / ratio).min(coarse.covered().len());
        if first >= last {
            return Ok(());
        }
        self.compared += (last - first) as u64;
        let covered = finer
            .covered()
            .chunks(ratio)
            .map(|chunk| chunk.iter().sum::<u32>());
        if !covered
            .take(last - first)
            .eq(coarse.covered()[first..last].iter().copied())
        {
            let what = format!(
                "it does not cover what {} covers",
                folder.file(finer.tier(), finer.start()).display()
            );
            self.fault(&path, what);
        }
        let series: BTreeSet<u32> = finer.series().chain(coarse.series()).collect();
        for series in series {
            let (Ok(below), Ok(above)) = (finer.column(series), coarse.column(series)) else {
                continue;
            };
            let (mut below, mut above) = (below.unwrap_or_default(), above.unwrap_or_default());
            below.fill(finer.covered().len());
            above.fill(coarse.covered().len());
            let mut made = Column::default();
            made.roll_up(&below, finer.covered(), ratio);
            let same = |made: &[u64], found: &[u64]| made[..last - first] == found[first..last];
            if !(same(&made.sums, &above.sums)
                && same(&made.least, &above.least)
                && same(&made.most, &above.most))
            {
                let from = folder.file(finer.tier(), finer.start());
                self.fault(
                    &path,
                    format!("series {series} is not what {} makes of it", from.display()),
                );
            }
        }
        Ok(())
    }
}
