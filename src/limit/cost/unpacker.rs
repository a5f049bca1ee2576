//! Decompresses a body piece by piece, with any `Content-Encoding` of gzip, deflate, br and zstd (RFC 9110, section
//! 8.4).
//!
//! Bounds: [`MAX_CODINGS`] codings on top of each other; a window of 8 MiB for zstd (RFC 9659) and 16 MiB for br;
//! [`MAX_WINDOWS`] of these two in the process; some 64 KiB for gzip and deflate; [`MAX_OUTPUT_RATIO`] bytes out for
//! each byte in, and [`FREE_OUTPUT_BYTES`] more. A body that exceeds a bound is unreadable.
//!
//! An owner that has at least as many windows as are free gets no more of them. So a client that holds slow bodies open
//! has at most half of them, and other clients get the rest.

mod zstd;

use std::fmt;
use std::io::{self, ErrorKind, Write};

use brotli_decompressor::{BrotliDecoderParameter, DecompressorWriter};
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use parking_lot::Mutex;

use super::body_text::BodyText;
use zstd::ZstdDecoder;

/// The largest number of codings on top of each other. Servers use one; each further one multiplies the work.
const MAX_CODINGS: usize = 3;

/// The largest number of windows of br and zstd that are in use at a time in the process: at most 2 GiB.
const MAX_WINDOWS: usize = 128;

/// The largest number of bytes that may come out of one byte, beyond [`FREE_OUTPUT_BYTES`]. The output is not kept, so
/// this bounds the time that it takes. Deflate reaches 1,032; several codings, and repetitions in br and zstd, exceed
/// it.
const MAX_OUTPUT_RATIO: u64 = 1_100;

/// The bytes that may come out of any body, because short bodies of blanks compress well.
const FREE_OUTPUT_BYTES: u64 = 1024 * 1024;

/// The buffer of brotli's decompressor, in bytes.
const BROTLI_BUFFER_BYTES: usize = 4096;

/// The owner of each window in use.
static WINDOW_OWNERS: Mutex<Vec<u128>> = Mutex::new(Vec::new());

/// Why a body cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    #[error("the content coding is unknown")]
    UnknownCoding,
    #[error("more than {MAX_CODINGS} content codings")]
    TooManyCodings,
    #[error("no window is free for this client")]
    NoWindow,
}

/// A body as it is read for costs.
#[derive(Debug)]
pub enum OpenedBody {
    /// The body has no coding.
    Plain(BodyText),
    /// The body is decompressed first.
    Packed(Box<Unpacker>),
}

/// Decompresses a body into a [`BodyText`].
#[derive(Debug)]
pub struct Unpacker {
    outermost: BoundedDecoder,
    /// The windows become free when the unpacker is dropped.
    _windows: Vec<DecoderWindow>,
}

/// A decoder with a bound on the bytes that are written to it.
#[derive(Debug)]
struct BoundedDecoder {
    decoder: ContentDecoder,
    /// The number of bytes that may still be written; it grows with the compressed body. The outermost decoder has no use
    /// for it, because the body itself is written there.
    remaining_bytes: u64,
}

/// The decoder of one coding, which writes to the decoder of the coding below it. The innermost one is the text.
enum ContentDecoder {
    Text(BodyText),
    Gzip(Box<MultiGzDecoder<BoundedDecoder>>),
    /// Deflate before its first two bytes, which say whether there is a zlib header. Holds the first of them, and the
    /// decoder behind this one.
    Deflate(Option<u8>, Option<Box<BoundedDecoder>>),
    Zlib(Box<ZlibDecoder<BoundedDecoder>>),
    Raw(Box<DeflateDecoder<BoundedDecoder>>),
    Brotli(Box<DecompressorWriter<BoundedDecoder>>),
    Zstd(Box<ZstdDecoder<BoundedDecoder>>),
}

/// One of the [`MAX_WINDOWS`] windows.
#[derive(Debug)]
struct DecoderWindow {
    /// The client for whom the window is used, as a keyed hash.
    owner: u128,
}

impl DecoderWindow {
    /// Takes a window for `owner`.
    ///
    /// # Errors
    ///
    /// The owner has at least as many windows as are free.
    fn new(owner: u128) -> Result<DecoderWindow, UnpackError> {
        let mut owners = WINDOW_OWNERS.lock();
        let own_count = owners.iter().filter(|holder| **holder == owner).count();
        if own_count + owners.len() >= MAX_WINDOWS {
            return Err(UnpackError::NoWindow);
        }
        owners.push(owner);
        Ok(DecoderWindow { owner })
    }
}

impl Drop for DecoderWindow {
    fn drop(&mut self) {
        let mut owners = WINDOW_OWNERS.lock();
        if let Some(index) = owners.iter().position(|owner| *owner == self.owner) {
            owners.swap_remove(index);
        }
    }
}

/// Prepares to read a body with these `Content-Encoding` fields into `text`. The windows of decompressors count for
/// `owner`.
///
/// # Errors
///
/// A coding is unknown, there are too many codings, or no window is free.
pub fn open_body<'a>(
    fields: impl Iterator<Item = &'a [u8]>,
    text: BodyText,
    owner: u128,
) -> Result<OpenedBody, UnpackError> {
    let mut outermost = BoundedDecoder {
        decoder: ContentDecoder::Text(text),
        remaining_bytes: FREE_OUTPUT_BYTES,
    };
    let mut windows = Vec::new();
    // The last coding was applied last, so it is the outermost.
    let codings = fields.flat_map(|field| field.split(|byte| *byte == b','));
    for (index, coding) in codings
        .map(<[u8]>::trim_ascii)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
        .enumerate()
    {
        if index == MAX_CODINGS {
            return Err(UnpackError::TooManyCodings);
        }
        if coding.eq_ignore_ascii_case(b"br") || coding.eq_ignore_ascii_case(b"zstd") {
            windows.push(DecoderWindow::new(owner)?);
        }
        outermost = BoundedDecoder {
            decoder: ContentDecoder::new(coding, outermost)?,
            remaining_bytes: FREE_OUTPUT_BYTES,
        };
    }
    Ok(match outermost.decoder {
        ContentDecoder::Text(text) => OpenedBody::Plain(text),
        _ => OpenedBody::Packed(Box::new(Unpacker {
            outermost,
            _windows: windows,
        })),
    })
}

impl ContentDecoder {
    fn new(coding: &[u8], inner: BoundedDecoder) -> Result<ContentDecoder, UnpackError> {
        let is_coding = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
        Ok(match () {
            () if is_coding("gzip") || is_coding("x-gzip") => {
                ContentDecoder::Gzip(Box::new(MultiGzDecoder::new(inner)))
            }
            () if is_coding("deflate") => ContentDecoder::Deflate(None, Some(Box::new(inner))),
            () if is_coding("br") => {
                let mut decoder = DecompressorWriter::new(inner, BROTLI_BUFFER_BYTES);
                let large_window = BrotliDecoderParameter::BROTLI_DECODER_PARAM_LARGE_WINDOW;
                decoder.set_parameter(large_window, 0);
                ContentDecoder::Brotli(Box::new(decoder))
            }
            () if is_coding("zstd") => ContentDecoder::Zstd(Box::new(ZstdDecoder::new(inner))),
            () => return Err(UnpackError::UnknownCoding),
        })
    }

    /// The decoder behind this one; `None` for the text.
    fn inner(&self) -> Option<&BoundedDecoder> {
        match self {
            ContentDecoder::Text(_) => None,
            ContentDecoder::Gzip(decoder) => Some(decoder.get_ref()),
            ContentDecoder::Deflate(_, inner) => inner.as_deref(),
            ContentDecoder::Zlib(decoder) => Some(decoder.get_ref()),
            ContentDecoder::Raw(decoder) => Some(decoder.get_ref()),
            ContentDecoder::Brotli(decoder) => Some(decoder.get_ref()),
            ContentDecoder::Zstd(decoder) => Some(&decoder.out),
        }
    }

    fn inner_mut(&mut self) -> Option<&mut BoundedDecoder> {
        match self {
            ContentDecoder::Text(_) => None,
            ContentDecoder::Gzip(decoder) => Some(decoder.get_mut()),
            ContentDecoder::Deflate(_, inner) => inner.as_deref_mut(),
            ContentDecoder::Zlib(decoder) => Some(decoder.get_mut()),
            ContentDecoder::Raw(decoder) => Some(decoder.get_mut()),
            ContentDecoder::Brotli(decoder) => Some(decoder.get_mut()),
            ContentDecoder::Zstd(decoder) => Some(&mut decoder.out),
        }
    }

    /// Ends this coding and the inner ones. It is an error if one of them was cut off.
    fn finish(&mut self) -> io::Result<()> {
        match self {
            ContentDecoder::Text(_) => return Ok(()),
            ContentDecoder::Gzip(decoder) => decoder.try_finish()?,
            ContentDecoder::Deflate(..) => return Err(ErrorKind::UnexpectedEof.into()),
            ContentDecoder::Zlib(decoder) => decoder.try_finish()?,
            ContentDecoder::Raw(decoder) => decoder.try_finish()?,
            ContentDecoder::Brotli(decoder) => decoder.close()?,
            ContentDecoder::Zstd(decoder) => decoder.finish()?,
        }
        self.inner_mut()
            .map_or(Ok(()), |inner| inner.decoder.finish())
    }

    fn write_all(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            ContentDecoder::Text(text) => {
                text.feed(data);
                Ok(())
            }
            ContentDecoder::Gzip(decoder) => decoder.write_all(data),
            ContentDecoder::Deflate(first_byte, inner) => {
                let Some((two_bytes, remaining_data)) = split_two_bytes(*first_byte, data) else {
                    *first_byte = first_byte.or(data.first().copied());
                    return Ok(());
                };
                // The decoder behind is there until it is moved into `Zlib` or `Raw` below.
                let Some(inner) = inner.take() else {
                    return Err(ErrorKind::InvalidData.into());
                };
                *self = match is_zlib(two_bytes) {
                    true => ContentDecoder::Zlib(Box::new(ZlibDecoder::new(*inner))),
                    // Raw deflate is against the RFC, but some servers send it and browsers read it.
                    false => ContentDecoder::Raw(Box::new(DeflateDecoder::new(*inner))),
                };
                self.write_all(&two_bytes)?;
                self.write_all(remaining_data)
            }
            ContentDecoder::Zlib(decoder) => write_until_end(decoder, data),
            ContentDecoder::Raw(decoder) => write_until_end(decoder, data),
            ContentDecoder::Brotli(decoder) => write_until_end(decoder, data),
            ContentDecoder::Zstd(decoder) => decoder.feed(data),
        }
    }
}

/// Writes all of `data`, or the part before the end of the compressed stream.
fn write_until_end(decoder: &mut impl Write, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match decoder.write(data)? {
            0 => break,
            written => data = &data[written..],
        }
    }
    Ok(())
}

/// The first two bytes of a stream, and the part of `data` behind them. `first` is the byte that an earlier piece ended
/// with. `None` until both bytes are there.
fn split_two_bytes(first: Option<u8>, data: &[u8]) -> Option<([u8; 2], &[u8])> {
    match (first, data) {
        (Some(first), [second, remaining @ ..]) => Some(([first, *second], remaining)),
        (None, [first, second, remaining @ ..]) => Some(([*first, *second], remaining)),
        _ => None,
    }
}

/// Whether a stream that begins with these bytes has a zlib header (RFC 1950, section 2.2).
fn is_zlib(bytes: [u8; 2]) -> bool {
    bytes[0] & 0x0f == 8 && u16::from_be_bytes(bytes).is_multiple_of(31)
}

impl fmt::Debug for ContentDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContentDecoder")
    }
}

impl Write for BoundedDecoder {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let remaining_bytes = self.remaining_bytes.checked_sub(data.len() as u64);
        self.remaining_bytes = remaining_bytes.ok_or(ErrorKind::FileTooLarge)?;
        self.decoder.write_all(data)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Unpacker {
    /// Reads the next piece of the compressed body.
    ///
    /// # Errors
    ///
    /// The bytes do not match a coding, or their output exceeds a bound.
    pub fn feed(&mut self, data: &[u8]) -> io::Result<()> {
        let added_bytes = data.len() as u64 * MAX_OUTPUT_RATIO;
        let mut next = self.outermost.decoder.inner_mut();
        while let Some(inner) = next {
            inner.remaining_bytes = inner.remaining_bytes.saturating_add(added_bytes);
            next = inner.decoder.inner_mut();
        }
        self.outermost.decoder.write_all(data)
    }

    /// Ends the compressed body.
    ///
    /// # Errors
    ///
    /// The body was cut off, or its last output exceeds a bound.
    pub fn finish(&mut self) -> io::Result<()> {
        self.outermost.decoder.finish()
    }

    /// The text that the body is decompressed into; `None` for a chain of decoders without a text, which
    /// [`open_body`] never makes.
    pub fn text(&self) -> Option<&BodyText> {
        let mut decoder = &self.outermost.decoder;
        while let Some(inner) = decoder.inner() {
            decoder = &inner.decoder;
        }
        match decoder {
            ContentDecoder::Text(text) => Some(text),
            _ => None,
        }
    }
}
