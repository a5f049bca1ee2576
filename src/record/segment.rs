//! A segment: the file with the values of all series in one span and one tier. `folder.rs` says where it is, and
//! `column.rs` how the values of one series are packed.
//!
//! A segment is written under another name, renamed once it is complete, and never changed. While its span goes on,
//! longer segments replace it.
//!
//! ```text
//! "tollgate record\n" | format u32 | step u32 | start u64 | buckets u32 | length of the coverage u32
//! coverage: seconds recorded in each bucket
//! columns of the series that have values above zero
//! index, by series: number u32 | length u32 | checksum u32
//! number of series u32 | checksum u64 of everything but the columns
//! ```
//!
//! All numbers are little-endian. A length is compared with that of the file before so many bytes are read. Nothing
//! else is used before its checksum is verified.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use siphasher::sip::SipHasher13;

use super::column::{Column, pack_values, unpack_values};
use super::tier::Tier;

/// The first bytes of a segment.
const FILE_MARK: [u8; 16] = *b"tollgate record\n";
/// The version of the format. It must be raised with any change of the layout, of the form of columns or of checksums.
const FORMAT_VERSION: u32 = 1;
// The offsets of the fields of the head, after the mark.
const VERSION_OFFSET: usize = FILE_MARK.len();
const STEP_OFFSET: usize = VERSION_OFFSET + 4;
const START_OFFSET: usize = STEP_OFFSET + 4;
const BUCKET_COUNT_OFFSET: usize = START_OFFSET + 8;
const COVERAGE_BYTES_OFFSET: usize = BUCKET_COUNT_OFFSET + 4;
/// Bytes before the coverage.
const HEAD_BYTES: usize = COVERAGE_BYTES_OFFSET + 4;
/// Bytes of an entry of the index.
const INDEX_ENTRY_BYTES: usize = 12;
/// Bytes of the number of series, after the index.
const SERIES_COUNT_BYTES: usize = 4;
/// Bytes after the index: the number of series and the checksum.
const TAIL_BYTES: usize = SERIES_COUNT_BYTES + 8;

/// Why a file of the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The file has not the mark of its kind, or it is no regular file. A file of frames may also be that of another
    /// hour or day.
    #[error("it is no part of a record")]
    Foreign,
    /// Another version of the gateway wrote the file.
    #[error("it has format {0}, and this version reads format {FORMAT_VERSION}")]
    Format(u32),
    /// A section is cut off, has a wrong checksum, or contradicts the path of the file. The text names the section.
    #[error("its {0} is damaged")]
    Section(&'static str),
    /// The column of the series with this number has a wrong checksum or form.
    #[error("what it says of series {0} is damaged")]
    Series(u32),
    /// The disk has lost the file's content (`EIO`).
    #[error("the disk cannot read it")]
    Disk,
    /// The file is missing or cannot be read now, which says nothing of its content.
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
    /// Converts the damage to the error of a caller that cannot do without the file.
    pub(super) fn into_io(self) -> io::Error {
        match self {
            Damage::Read(error) => error,
            damage => io::Error::other(damage),
        }
    }
}

/// A segment that is open for reading. Its index is in memory, its columns are not.
#[derive(Debug)]
pub struct RecordSegment {
    file: File,
    tier: Tier,
    /// The first second of the segment, since 1970.
    start: u64,
    /// The number of recorded seconds in each bucket.
    covered_seconds: Vec<u32>,
    /// The entries of the index, by ascending numbers of the series.
    index: Vec<IndexEntry>,
}

/// Where the column of a series is in the file.
#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    /// The number of the series.
    series_number: u32,
    /// The bytes of the file before the column.
    offset: u64,
    /// The bytes of the column.
    length: u32,
    /// The checksum of the column, by [`column_checksum`].
    checksum: u32,
}

/// Computes SipHash-1-3 without a key.
fn checksum(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// Computes the checksum of a column: the lower half of SipHash-1-3. It also covers the series and the start, so that
/// no column stands for another.
fn column_checksum(series_number: u32, start: u64, bytes: &[u8]) -> u32 {
    checksum(&[&series_number.to_le_bytes(), &start.to_le_bytes(), bytes]) as u32
}

/// Reads the little-endian number of 32 bits at an offset; `None` if `bytes` ends before the number does.
fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let number_bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_le_bytes(*number_bytes))
}

/// As [`u32_at`], for a number of 64 bits.
fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let number_bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_le_bytes(*number_bytes))
}

impl RecordSegment {
    /// Opens the segment of a tier that begins at the second `start`, and reads everything except the columns.
    ///
    /// # Errors
    ///
    /// Fails if the file is missing, is not this segment, has another format, is damaged, or cannot be read.
    pub fn open(path: &Path, tier: Tier, start: u64) -> Result<RecordSegment, Damage> {
        // Opening a pipe would block for ever.
        if !fs::metadata(path)?.is_file() {
            return Err(Damage::Foreign);
        }
        let file = File::open(path)?;
        let file_bytes = file.metadata()?.len();
        let read_section = |offset: u64, length: usize, section| {
            let end = offset.checked_add(length as u64);
            if end.is_none_or(|end| end > file_bytes) {
                return Err(Damage::Section(section));
            }
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        };
        let head = read_section(0, HEAD_BYTES, "head")?;
        let (bucket_count, coverage_bytes) = decode_head(&head, tier, start)?;
        let tail_offset = file_bytes
            .checked_sub(TAIL_BYTES as u64)
            .ok_or(Damage::Section("end"))?;
        let tail = read_section(tail_offset, TAIL_BYTES, "end")?;
        let series_count = u32_at(&tail, 0).ok_or(Damage::Section("end"))? as usize;
        let expected_checksum = u64_at(&tail, SERIES_COUNT_BYTES).ok_or(Damage::Section("end"))?;
        let index_bytes = (series_count as u64).saturating_mul(INDEX_ENTRY_BYTES as u64);
        let index_offset = tail_offset
            .checked_sub(index_bytes)
            .ok_or(Damage::Section("index"))?;
        let packed_coverage = read_section(HEAD_BYTES as u64, coverage_bytes, "coverage")?;
        let encoded_index = read_section(index_offset, series_count * INDEX_ENTRY_BYTES, "index")?;
        if checksum(&[
            &head,
            &packed_coverage,
            &encoded_index,
            &tail[..SERIES_COUNT_BYTES],
        ]) != expected_checksum
        {
            return Err(Damage::Section("index"));
        }
        let columns_offset = (HEAD_BYTES + packed_coverage.len()) as u64;
        let (index, columns_end) = decode_index(&encoded_index, columns_offset)?;
        let covered_seconds = unpack_values(&mut &packed_coverage[..], bucket_count)
            .ok_or(Damage::Section("coverage"))?
            .into_iter()
            .map(|seconds| seconds.min(tier.step_seconds()) as u32)
            .collect();
        if columns_end != index_offset || !index.is_sorted_by_key(|entry| entry.series_number) {
            return Err(Damage::Section("index"));
        }
        Ok(RecordSegment {
            file,
            tier,
            start,
            covered_seconds,
            index,
        })
    }

    /// The tier of the segment.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// The first second of the segment, since 1970.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The second after the last bucket.
    pub fn end(&self) -> u64 {
        self.start + self.covered_seconds.len() as u64 * self.tier.step_seconds()
    }

    /// The number of recorded seconds in each bucket.
    pub fn covered_seconds(&self) -> &[u32] {
        &self.covered_seconds
    }

    /// The numbers of the series that have values above zero.
    pub fn series_numbers(&self) -> impl Iterator<Item = u32> {
        self.index.iter().map(|entry| entry.series_number)
    }

    /// Reads the values of a series, one for each bucket. Returns `None` if all are zero.
    ///
    /// # Errors
    ///
    /// Fails if the column is damaged or cannot be read.
    pub fn read_column(&self, series_number: u32) -> Result<Option<Column>, Damage> {
        let Ok(entry_index) = self
            .index
            .binary_search_by_key(&series_number, |entry| entry.series_number)
        else {
            return Ok(None);
        };
        let entry = self.index[entry_index];
        let mut bytes = vec![0; entry.length as usize];
        self.file.read_exact_at(&mut bytes, entry.offset)?;
        let is_sound = column_checksum(series_number, self.start, &bytes) == entry.checksum;
        let column = is_sound
            .then(|| Column::unpack(&bytes, self.tier, &self.covered_seconds))
            .flatten();
        column.ok_or(Damage::Series(series_number)).map(Some)
    }
}

/// Checks the head. Returns the number of buckets, and the number of bytes of the packed coverage.
fn decode_head(head: &[u8], tier: Tier, start: u64) -> Result<(usize, usize), Damage> {
    let field = |offset| u32_at(head, offset).ok_or(Damage::Section("head"));
    if head[..VERSION_OFFSET] != FILE_MARK {
        return Err(Damage::Foreign);
    }
    let version = field(VERSION_OFFSET)?;
    let step_seconds = field(STEP_OFFSET)?;
    let bucket_count = field(BUCKET_COUNT_OFFSET)? as usize;
    if version != FORMAT_VERSION {
        return Err(Damage::Format(version));
    }
    let has_start = u64_at(head, START_OFFSET) == Some(start);
    let has_tier = u64::from(step_seconds) == tier.step_seconds();
    if !has_tier || !has_start || bucket_count > tier.file_bucket_count() {
        return Err(Damage::Section("head"));
    }
    Ok((bucket_count, field(COVERAGE_BYTES_OFFSET)? as usize))
}

/// Returns the entries of the index, and the offset in the file after the last column. The columns lie one after
/// another, from `columns_offset` on.
fn decode_index(
    encoded_index: &[u8],
    columns_offset: u64,
) -> Result<(Vec<IndexEntry>, u64), Damage> {
    let mut offset = columns_offset;
    let mut index = Vec::with_capacity(encoded_index.len() / INDEX_ENTRY_BYTES);
    for entry in encoded_index.chunks_exact(INDEX_ENTRY_BYTES) {
        let field = |offset| u32_at(entry, offset).ok_or(Damage::Section("index"));
        let (series_number, length, checksum) = (field(0)?, field(4)?, field(8)?);
        index.push(IndexEntry {
            series_number,
            offset,
            length,
            checksum,
        });
        offset += u64::from(length);
    }
    Ok((index, offset))
}

/// Writes a segment to a new file. Columns must be added by ascending numbers of their series.
pub struct SegmentWriter<'a> {
    out: BufWriter<File>,
    tier: Tier,
    start: u64,
    covered_seconds: &'a [u32],
    /// The head and the coverage, which the checksum at the end covers.
    head_and_coverage: Vec<u8>,
    /// The encoded entries of the index, which are written after the columns.
    index: Vec<u8>,
    /// The number of series so far.
    series_count: u32,
}

impl<'a> SegmentWriter<'a> {
    /// Creates the file and writes the head and the coverage. `covered_seconds` has the number of recorded seconds in
    /// each bucket.
    ///
    /// # Errors
    ///
    /// Fails if the file exists or the disk fails.
    pub fn new(
        path: &Path,
        tier: Tier,
        start: u64,
        covered_seconds: &'a [u32],
    ) -> io::Result<SegmentWriter<'a>> {
        let mut coverage = Vec::new();
        pack_values(
            &covered_seconds
                .iter()
                .copied()
                .map(u64::from)
                .collect::<Vec<_>>(),
            &mut coverage,
        );
        let mut head_and_coverage = Vec::with_capacity(HEAD_BYTES + coverage.len());
        head_and_coverage.extend(FILE_MARK);
        head_and_coverage.extend(FORMAT_VERSION.to_le_bytes());
        head_and_coverage.extend((tier.step_seconds() as u32).to_le_bytes());
        head_and_coverage.extend(start.to_le_bytes());
        head_and_coverage.extend((covered_seconds.len() as u32).to_le_bytes());
        head_and_coverage.extend((coverage.len() as u32).to_le_bytes());
        head_and_coverage.extend(coverage);
        let mut out = BufWriter::new(File::create_new(path)?);
        out.write_all(&head_and_coverage)?;
        Ok(SegmentWriter {
            out,
            tier,
            start,
            covered_seconds,
            head_and_coverage,
            index: Vec::new(),
            series_count: 0,
        })
    }

    /// Adds a column, which must have as many buckets as the coverage. Fails if the disk does.
    pub fn add(&mut self, series_number: u32, column: &Column) -> io::Result<()> {
        self.add_packed(series_number, &column.pack(self.tier, self.covered_seconds))
    }

    /// Adds a column in the form that [`Column::pack`] returns. Fails if the disk does.
    pub(super) fn add_packed(&mut self, series_number: u32, bytes: &[u8]) -> io::Result<()> {
        self.index.extend(series_number.to_le_bytes());
        self.index.extend((bytes.len() as u32).to_le_bytes());
        self.index
            .extend(column_checksum(series_number, self.start, bytes).to_le_bytes());
        self.series_count += 1;
        self.out.write_all(bytes)
    }

    /// Writes the index and the tail, and syncs the file. Then its content survives a crash of the machine. Fails if
    /// the disk does.
    pub fn finish(mut self) -> io::Result<()> {
        let series_count = self.series_count.to_le_bytes();
        let checksum = checksum(&[&self.head_and_coverage, &self.index, &series_count]);
        self.out.write_all(&self.index)?;
        self.out.write_all(&series_count)?;
        self.out.write_all(&checksum.to_le_bytes())?;
        self.out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()
    }
}
