//! A file with what all series did in one span, at one step. It is written once, beside its place and then put there,
//! and never changed; a longer one takes its place while the span goes on.
//!
//! ```text
//! "tollgate record\n" | format u32 | step u32 | start u64 | buckets u32 | length of the coverage u32
//! coverage: seconds recorded in each bucket
//! columns, of the series in which anything happened
//! index, by series: number u32 | length u32 | checksum u32
//! series u32 | checksum u64 of everything but the columns
//! ```
//!
//! Little-endian throughout. Nothing is believed before its checksum is right, and no length before the file's own.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use siphasher::sip::SipHasher13;

use super::column::{Column, pack, unpack};
use super::tier::Tier;

const MARK: [u8; 16] = *b"tollgate record\n";
/// The number of the format. Any change of what is inside needs another.
const FORMAT: u32 = 1;
const HEAD: usize = 40;
const ENTRY: usize = 12;
const TAIL: usize = 12;

/// Why a file of the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// Something else.
    #[error("it is no part of a record")]
    Foreign,
    /// One that another version has written.
    #[error("it has format {0}, and this version reads format {FORMAT}")]
    Format(u32),
    /// It ends too early, or is not as it was written.
    #[error("its {0} is damaged")]
    Part(&'static str),
    /// One series of it is not as it was written.
    #[error("what it says of series {0} is damaged")]
    Series(u32),
    /// The disk cannot read it any more.
    #[error("the disk cannot read it")]
    Disk,
    /// It cannot be read now.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Damage {
        match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::IO) => Damage::Disk,
            _ => Damage::Read(error),
        }
    }
}

impl Damage {
    pub(super) fn into_io(self) -> io::Error {
        match self {
            Damage::Read(error) => error,
            damage => io::Error::other(damage),
        }
    }
}

/// A file that is open for reading.
#[derive(Debug)]
pub struct RecordSegment {
    file: File,
    tier: Tier,
    start: u64,
    covered: Vec<u32>,
    index: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    series: u32,
    at: u64,
    length: u32,
    checksum: u32,
}

fn checksum(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// Of a column: its place is part of it, so that no column stands for another.
fn column_checksum(series: u32, start: u64, bytes: &[u8]) -> u32 {
    checksum(&[&series.to_le_bytes(), &start.to_le_bytes(), bytes]) as u32
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

impl RecordSegment {
    /// Reads all but the columns of the file that is to begin at `start`.
    pub fn open(path: &Path, tier: Tier, start: u64) -> Result<RecordSegment, Damage> {
        // A pipe in its place would be waited for without end.
        if !fs::metadata(path)?.is_file() {
            return Err(Damage::Foreign);
        }
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let read = |at: u64, length: usize, part| {
            let end = at.checked_add(length as u64);
            if end.is_none_or(|end| end > size) {
                return Err(Damage::Part(part));
            }
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, at)?;
            Ok(bytes)
        };
        let head = read(0, HEAD, "head")?;
        let (buckets, coverage) = parse_head(&head, tier, start)?;
        let tail_at = size.checked_sub(TAIL as u64).ok_or(Damage::Part("end"))?;
        let tail = read(tail_at, TAIL, "end")?;
        let count = word(&tail, 0).ok_or(Damage::Part("end"))? as usize;
        let expected = long(&tail, 4).ok_or(Damage::Part("end"))?;
        let index_at = tail_at.checked_sub((count as u64).saturating_mul(ENTRY as u64));
        let index_at = index_at.ok_or(Damage::Part("index"))?;
        let coverage = read(HEAD as u64, coverage, "coverage")?;
        let entries = read(index_at, count * ENTRY, "index")?;
        if checksum(&[&head, &coverage, &entries, &tail[..4]]) != expected {
            return Err(Damage::Part("index"));
        }
        let mut at = (HEAD + coverage.len()) as u64;
        let mut index = Vec::with_capacity(count);
        for entry in entries.chunks_exact(ENTRY) {
            let part = |place| word(entry, place).ok_or(Damage::Part("index"));
            let (series, length, checksum) = (part(0)?, part(4)?, part(8)?);
            index.push(Entry {
                series,
                at,
                length,
                checksum,
            });
            at += u64::from(length);
        }
        let mut rest = &coverage[..];
        let covered = unpack(&mut rest, buckets).ok_or(Damage::Part("coverage"))?;
        let covered = covered
            .into_iter()
            .map(|seconds| seconds.min(tier.step()) as u32)
            .collect();
        if at != index_at || !index.is_sorted_by_key(|entry| entry.series) {
            return Err(Damage::Part("index"));
        }
        Ok(RecordSegment {
            file,
            tier,
            start,
            covered,
            index,
        })
    }

    /// Its step.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Its first second, since 1970.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The second behind its last bucket.
    pub fn end(&self) -> u64 {
        self.start + self.covered.len() as u64 * self.tier.step()
    }

    /// Seconds that were recorded, of each bucket.
    pub fn covered(&self) -> &[u32] {
        &self.covered
    }

    /// The series in which anything happened.
    pub fn series(&self) -> impl Iterator<Item = u32> {
        self.index.iter().map(|entry| entry.series)
    }

    /// What a series did; nothing if it did nothing.
    pub fn column(&self, series: u32) -> Result<Option<Column>, Damage> {
        let Ok(place) = self
            .index
            .binary_search_by_key(&series, |entry| entry.series)
        else {
            return Ok(None);
        };
        let entry = self.index[place];
        let mut bytes = vec![0; entry.length as usize];
        self.file.read_exact_at(&mut bytes, entry.at)?;
        let sound = column_checksum(series, self.start, &bytes) == entry.checksum;
        let column = sound
            .then(|| Column::unpack(&bytes, self.tier, &self.covered))
            .flatten();
        column.ok_or(Damage::Series(series)).map(Some)
    }
}

/// How many buckets there are, and how many bytes of coverage.
fn parse_head(head: &[u8], tier: Tier, start: u64) -> Result<(usize, usize), Damage> {
    let number = |at| word(head, at).ok_or(Damage::Part("head"));
    if head[..16] != MARK {
        return Err(Damage::Foreign);
    }
    let (format, step, buckets) = (number(16)?, number(20)?, number(32)? as usize);
    if format != FORMAT {
        return Err(Damage::Format(format));
    }
    let own = long(head, 24) == Some(start);
    if u64::from(step) != tier.step() || buckets > tier.slots() || !own {
        return Err(Damage::Part("head"));
    }
    Ok((buckets, number(36)? as usize))
}

/// Writes a segment to a file that must not be there yet. Columns come by ascending number of their series.
pub struct Writing<'a> {
    out: BufWriter<File>,
    tier: Tier,
    start: u64,
    covered: &'a [u32],
    front: Vec<u8>,
    index: Vec<u8>,
    count: u32,
}

impl<'a> Writing<'a> {
    /// Begins it.
    pub fn new(path: &Path, tier: Tier, start: u64, covered: &'a [u32]) -> io::Result<Writing<'a>> {
        let mut coverage = Vec::new();
        pack(
            &covered.iter().copied().map(u64::from).collect::<Vec<_>>(),
            &mut coverage,
        );
        let mut front = Vec::with_capacity(HEAD + coverage.len());
        front.extend(MARK);
        front.extend(FORMAT.to_le_bytes());
        front.extend((tier.step() as u32).to_le_bytes());
        front.extend(start.to_le_bytes());
        front.extend((covered.len() as u32).to_le_bytes());
        front.extend((coverage.len() as u32).to_le_bytes());
        front.extend(coverage);
        let mut out = BufWriter::new(File::create_new(path)?);
        out.write_all(&front)?;
        Ok(Writing {
            out,
            tier,
            start,
            covered,
            front,
            index: Vec::new(),
            count: 0,
        })
    }

    /// Adds a series, as long as the coverage.
    pub fn add(&mut self, series: u32, column: &Column) -> io::Result<()> {
        self.add_packed(series, &column.pack(self.tier, self.covered))
    }

    /// Adds a series that is packed already.
    pub(super) fn add_packed(&mut self, series: u32, bytes: &[u8]) -> io::Result<()> {
        self.index.extend(series.to_le_bytes());
        self.index.extend((bytes.len() as u32).to_le_bytes());
        self.index
            .extend(column_checksum(series, self.start, bytes).to_le_bytes());
        self.count += 1;
        self.out.write_all(bytes)
    }

    /// Ends it, and has it on the disk.
    pub fn finish(mut self) -> io::Result<()> {
        let count = self.count.to_le_bytes();
        let sum = checksum(&[&self.front, &self.index, &count]);
        self.out.write_all(&self.index)?;
        self.out.write_all(&count)?;
        self.out.write_all(&sum.to_le_bytes())?;
        self.out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()
    }
}
