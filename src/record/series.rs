//! Which series there are, and the numbers by which files know them.
//!
//! A number is given in the order of first sight and never to another series, not even when the file that says so is
//! damaged: what is known of such a number then belongs to nobody.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;

use super::frames::Frames;
use super::segment::Damage;

const MARK: [u8; 16] = *b"tollgate series\n";

/// What a series is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// The metric's name.
    pub name: String,
    /// What the metric is split by: names and values.
    pub labels: Vec<(String, String)>,
    /// What its values are.
    pub kind: Kind,
    /// A value is the recorded number, this many digits of which are behind the point.
    pub decimals: u8,
}

/// What the values of a series are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// By how much something grew in a second.
    Counter,
    /// How much there was of something in a second.
    Gauge,
}

/// All series, living and gone.
#[derive(Debug, Default)]
pub struct Dictionary {
    numbers: BTreeMap<Series, u32>,
    next: u32,
    /// Those that no file knows yet.
    unsaved: VecDeque<(u32, Series)>,
}

impl Dictionary {
    /// Most series that there have ever been.
    pub const MOST: usize = 65_536;

    /// Gives no number before this one.
    pub(super) fn begin_at(&mut self, number: u32) {
        self.next = self.next.max(number);
    }

    /// The number of a series, which is new if it has none; nothing when there is no room for it.
    pub fn number(&mut self, series: &Series) -> Option<u32> {
        if let Some(number) = self.numbers.get(series) {
            return Some(*number);
        }
        let number = self.next;
        if self.numbers.len() >= Dictionary::MOST || number == u32::MAX {
            return None;
        }
        self.next += 1;
        self.numbers.insert(series.clone(), number);
        self.unsaved.push_back((number, series.clone()));
        Some(number)
    }

    /// All of them, with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (&Series, u32)> {
        self.numbers
            .iter()
            .map(|(series, number)| (series, *number))
    }

    /// The first that no file knows yet.
    pub(super) fn unsaved(&self) -> Option<(u32, Series)> {
        self.unsaved.front().cloned()
    }

    /// It is known.
    pub(super) fn saved(&mut self) {
        self.unsaved.pop_front();
    }
}

/// The file of a dictionary.
#[derive(Debug)]
pub(super) struct Names {
    frames: Frames,
}

impl Names {
    /// Reads a file, if there is one. Whether something of it is lost.
    pub(super) fn open(path: &Path) -> Result<(Names, Dictionary, bool), Damage> {
        let mut dictionary = Dictionary::default();
        let frames = Frames::open(path, MARK, 0, |content| {
            let (number, series) = parse(content)?;
            dictionary.begin_at(number.checked_add(1)?);
            dictionary.numbers.insert(series, number);
            Some(())
        })?;
        let lost = frames.lost > 0;
        Ok((Names { frames }, dictionary, lost))
    }

    /// Bytes at its end that are damaged, not only unfinished.
    pub(super) fn damaged(&self) -> Option<u64> {
        self.frames.damaged.then_some(self.frames.lost)
    }

    /// Adds one.
    pub(super) fn add(&mut self, number: u32, series: &Series) -> io::Result<()> {
        self.frames.add(&content(number, series))
    }

    /// Has on the disk what was added, before anything is said of it: a machine that dies must not give its
    /// number to another.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.frames.sync()
    }
}

fn content(number: u32, series: &Series) -> Vec<u8> {
    let mut out = number.to_le_bytes().to_vec();
    out.push(match series.kind {
        Kind::Counter => 0,
        Kind::Gauge => 1,
    });
    out.push(series.decimals);
    let labels = series.labels.iter().flat_map(|(name, value)| [name, value]);
    for text in [&series.name].into_iter().chain(labels) {
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    }
    out
}

fn parse(content: &[u8]) -> Option<(u32, Series)> {
    let (number, rest) = content.split_first_chunk()?;
    let ([kind, decimals], mut rest) = rest.split_first_chunk()?;
    let kind = match kind {
        0 => Kind::Counter,
        1 => Kind::Gauge,
        _ => return None,
    };
    let mut text = || {
        let (length, behind) = rest.split_first_chunk()?;
        let (text, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        Some(std::str::from_utf8(text).ok()?.to_owned())
    };
    let name = text()?;
    let mut labels = Vec::new();
    while let Some(name) = text() {
        labels.push((name, text()?));
    }
    let decimals = *decimals;
    let series = Series {
        name,
        labels,
        kind,
        decimals,
    };
    Some((u32::from_le_bytes(*number), series))
}
