//! Series, and the numbers that stand for them in the files of the record.
//!
//! Series get numbers in the order in which they are first seen. A number is never given to a second series, not even
//! when the file of names is damaged. Values under a number whose name is lost then belong to no series.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;

use super::frame_file::FrameFile;
use super::segment::Damage;

/// The first bytes of the file of names.
const FILE_MARK: [u8; 16] = *b"tollgate series\n";
/// The byte that stands for [`SeriesKind::Counter`] in the file.
const COUNTER_CODE: u8 = 0;
/// The byte that stands for [`SeriesKind::Gauge`] in the file.
const GAUGE_CODE: u8 = 1;

/// The identity of a series, and how its values are read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// The name of the metric.
    pub name: String,
    /// The name and the value of each label. Labels in another order make another series.
    pub labels: Vec<(String, String)>,
    /// Whether values are increments or levels.
    pub kind: SeriesKind,
    /// How many of the last digits of recorded integers are decimal places: with 1, a recorded 25 means 2.5.
    pub decimals: u8,
}

/// The meaning of the values of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesKind {
    /// A value is the growth in one second.
    Counter,
    /// A value is the level in one second.
    Gauge,
}

/// The numbers of all series that have ever been recorded.
#[derive(Debug, Default)]
pub struct SeriesDictionary {
    /// The number of each series.
    numbers: BTreeMap<Series, u32>,
    /// The number of the next new series; no lower number is free.
    next_number: u32,
    /// Series that are not in the file of names yet.
    unsaved: VecDeque<(u32, Series)>,
}

impl SeriesDictionary {
    /// The most series of a record, so that its memory has a bound. Further series are not recorded.
    pub const MAX_SERIES: usize = 65_536;

    /// Reserves all numbers below this one.
    pub(super) fn reserve_below(&mut self, number: u32) {
        self.next_number = self.next_number.max(number);
    }

    /// Returns the number of a series, and gives a new series the next number. Returns `None` for a new series if there
    /// are [`SeriesDictionary::MAX_SERIES`] already, or no number is left.
    pub fn number_of(&mut self, series: &Series) -> Option<u32> {
        if let Some(number) = self.numbers.get(series) {
            return Some(*number);
        }
        let number = self.next_number;
        if self.numbers.len() >= SeriesDictionary::MAX_SERIES || number == u32::MAX {
            return None;
        }
        self.next_number += 1;
        self.numbers.insert(series.clone(), number);
        self.unsaved.push_back((number, series.clone()));
        Some(number)
    }

    /// Iterates over all series that have names, in the order of [`Series`], with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (&Series, u32)> {
        self.numbers
            .iter()
            .map(|(series, number)| (series, *number))
    }

    /// The series with the lowest number that is not in the file of names yet; `None` if all are in it.
    pub(super) fn first_unsaved(&self) -> Option<(u32, Series)> {
        self.unsaved.front().cloned()
    }

    /// Marks the series that [`SeriesDictionary::first_unsaved`] returns as saved, after it was written.
    pub(super) fn mark_first_saved(&mut self) {
        self.unsaved.pop_front();
    }
}

/// The file with the names of the series.
#[derive(Debug)]
pub(super) struct NamesFile {
    file: FrameFile,
}

impl NamesFile {
    /// Reads the file into a dictionary. A missing file counts as empty, and names behind damage are missing. Fails if
    /// the file is no list of names or cannot be read.
    pub(super) fn open(path: &Path) -> Result<(NamesFile, SeriesDictionary), Damage> {
        let mut dictionary = SeriesDictionary::default();
        let file = FrameFile::open(path, FILE_MARK, 0, |content| {
            let (number, series) = decode_series(content)?;
            dictionary.reserve_below(number.checked_add(1)?);
            dictionary.numbers.insert(series, number);
            Some(())
        })?;
        Ok((NamesFile { file }, dictionary))
    }

    /// Whether the file had bytes at its end that could not be read, because they were damaged or only unfinished.
    pub(super) fn has_lost_bytes(&self) -> bool {
        self.file.lost_bytes() > 0
    }

    /// The number of bytes at the end of the file that are damaged; `None` if there are none, or only an unfinished
    /// name.
    pub(super) fn damaged_bytes(&self) -> Option<u64> {
        self.file.damaged_bytes()
    }

    /// Appends the name of a series. It is durable once [`NamesFile::sync`] returns.
    pub(super) fn add(&mut self, number: u32, series: &Series) -> io::Result<()> {
        self.file.append(&encode_series(number, series))
    }

    /// Waits until the disk has the added names. Values of these series must not be written earlier: after a crash of
    /// the machine, their numbers could be given to other series.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Encodes a series: `number u32 | kind u8 | decimals u8`, then the name, and the name and value of each label. Before
/// each text stands its length as a `u32`.
fn encode_series(number: u32, series: &Series) -> Vec<u8> {
    let mut content = number.to_le_bytes().to_vec();
    content.push(match series.kind {
        SeriesKind::Counter => COUNTER_CODE,
        SeriesKind::Gauge => GAUGE_CODE,
    });
    content.push(series.decimals);
    let labels = series.labels.iter().flat_map(|(name, value)| [name, value]);
    for text in [&series.name].into_iter().chain(labels) {
        content.extend((text.len() as u32).to_le_bytes());
        content.extend(text.as_bytes());
    }
    content
}

/// Decodes a number and its series. Returns `None` if the number, the kind, the decimals, the name or the value of a
/// label is missing or malformed. Bytes that hold no further label are ignored.
fn decode_series(content: &[u8]) -> Option<(u32, Series)> {
    let (number, after_number) = content.split_first_chunk()?;
    let ([kind, decimals], mut undecoded) = after_number.split_first_chunk()?;
    let kind = match *kind {
        COUNTER_CODE => SeriesKind::Counter,
        GAUGE_CODE => SeriesKind::Gauge,
        _ => return None,
    };
    let mut read_text = || {
        let (length, after_length) = undecoded.split_first_chunk()?;
        let length = u32::from_le_bytes(*length) as usize;
        let (text, after_text) = after_length.split_at_checked(length)?;
        undecoded = after_text;
        Some(std::str::from_utf8(text).ok()?.to_owned())
    };
    let name = read_text()?;
    let mut labels = Vec::new();
    while let Some(label) = read_text() {
        labels.push((label, read_text()?));
    }
    let series = Series {
        name,
        labels,
        kind,
        decimals: *decimals,
    };
    Some((u32::from_le_bytes(*number), series))
}
