//! Compresses a body piece by piece into memory, with one content coding.
//!
//! Levels and windows are low, because responses are compressed while clients wait, and slow clients keep their encoders
//! for long. Bounds: [`memory_bytes`] for each encoder, [`MAX_ENCODER_BYTES`] for all of the process.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use zstd::zstd_safe::CParameter;

use crate::http::content_coding::ContentCoding;

/// Maximum memory of all encoders of the process, in bytes.
const MAX_ENCODER_BYTES: usize = 256 * 1024 * 1024;

/// The level of gzip. The next one takes twice the time for 2 % fewer bytes.
const GZIP_LEVEL: u32 = 5;

/// The level of br. The next one takes seven times the memory for 4 % fewer bytes.
const BR_LEVEL: u32 = 3;

/// The window of br, as a power of 2: 64 KiB.
const BR_WINDOW_LOG: u32 = 16;

/// The buffer of br's output, in bytes.
const BR_BUFFER_BYTES: usize = 4096;

/// The level of zstd.
const ZSTD_LEVEL: i32 = 3;

/// The window of zstd, as a power of 2: 128 KiB. Clients must take up to 8 MiB (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 17;

/// The size of zstd's two tables of matches, as a power of 2. The default of the level is four times as large, for 1 %
/// fewer bytes.
const ZSTD_TABLE_LOG: u32 = 15;

/// The memory that all encoders of the process take, in bytes.
static USED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The memory of an encoder in bytes, as measured.
fn memory_bytes(coding: ContentCoding) -> usize {
    match coding {
        ContentCoding::Zstd => 512 * 1024,
        ContentCoding::Br => 768 * 1024,
        ContentCoding::Gzip => 352 * 1024,
    }
}

/// Compresses one body.
pub struct ContentEncoder {
    writer: Writer,
    _share: MemoryShare,
}

enum Writer {
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Br(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

impl ContentEncoder {
    /// An encoder for this coding. `None` if the encoders of the process have all their memory in use.
    pub fn new(coding: ContentCoding) -> Option<ContentEncoder> {
        let share = MemoryShare::take(memory_bytes(coding))?;
        let output = Vec::new();
        let writer = match coding {
            ContentCoding::Zstd => Writer::Zstd(Box::new(new_zstd(output).ok()?)),
            ContentCoding::Br => Writer::Br(Box::new(brotli::CompressorWriter::new(
                output,
                BR_BUFFER_BYTES,
                BR_LEVEL,
                BR_WINDOW_LOG,
            ))),
            ContentCoding::Gzip => Writer::Gzip(Box::new(GzEncoder::new(
                output,
                Compression::new(GZIP_LEVEL),
            ))),
        };
        Some(ContentEncoder {
            writer,
            _share: share,
        })
    }

    /// Compresses a piece. Its bytes may come out later. Fails only if the coding's library does.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.writer().write_all(piece)
    }

    /// Has all bytes come out that were written, so that a client can decompress them. Fails as [`ContentEncoder::write`] does.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// The bytes that have come out and were not taken.
    pub fn output(&mut self) -> &mut Vec<u8> {
        match &mut self.writer {
            Writer::Zstd(writer) => writer.get_mut(),
            Writer::Br(writer) => writer.get_mut(),
            Writer::Gzip(writer) => writer.get_mut(),
        }
    }

    /// Ends the body, and returns its last bytes. Fails as [`ContentEncoder::write`] does.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.writer {
            Writer::Zstd(writer) => writer.finish(),
            Writer::Br(writer) => Ok(writer.into_inner()),
            Writer::Gzip(writer) => writer.finish(),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.writer {
            Writer::Zstd(writer) => writer,
            Writer::Br(writer) => writer,
            Writer::Gzip(writer) => writer,
        }
    }
}

fn new_zstd(output: Vec<u8>) -> io::Result<zstd::stream::write::Encoder<'static, Vec<u8>>> {
    let mut encoder = zstd::stream::write::Encoder::new(output, ZSTD_LEVEL)?;
    for parameter in [
        CParameter::WindowLog(ZSTD_WINDOW_LOG),
        CParameter::HashLog(ZSTD_TABLE_LOG),
        CParameter::ChainLog(ZSTD_TABLE_LOG),
    ] {
        encoder.set_parameter(parameter)?;
    }
    Ok(encoder)
}

/// A part of the memory of all encoders, which is free again when the value is dropped.
struct MemoryShare(usize);

impl MemoryShare {
    fn take(bytes: usize) -> Option<MemoryShare> {
        let with_more = |used: usize| {
            let sum = used + bytes;
            (sum <= MAX_ENCODER_BYTES).then_some(sum)
        };
        let result = USED_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_more);
        result.ok().map(|_| MemoryShare(bytes))
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        USED_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A text that compresses, and bytes that do not.
    fn content() -> Vec<u8> {
        let mut seed = 7_u32;
        let mut bytes = Vec::new();
        for number in 0..40_000_u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match number % 8 {
                0 => bytes.extend_from_slice(&seed.to_le_bytes()),
                _ => bytes.extend_from_slice(format!("{{\"n\":{number}}}").as_bytes()),
            }
        }
        bytes
    }

    fn decompress(coding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        let result = match coding {
            ContentCoding::Zstd => ruzstd::decoding::StreamingDecoder::new(bytes)
                .unwrap()
                .read_to_end(&mut content),
            ContentCoding::Br => {
                brotli_decompressor::Decompressor::new(bytes, 4096).read_to_end(&mut content)
            }
            ContentCoding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut content),
        };
        result.unwrap();
        content
    }

    #[test]
    fn other_decoders_read_what_is_written() {
        let content = content();
        for coding in ContentCoding::ALL {
            let mut encoder = ContentEncoder::new(coding).unwrap();
            let mut compressed = Vec::new();
            for (index, piece) in content.chunks(3_001).enumerate() {
                encoder.write(piece).unwrap();
                if index % 7 == 0 {
                    encoder.flush().unwrap();
                }
                compressed.append(encoder.output());
            }
            compressed.extend(encoder.finish().unwrap());
            assert!(compressed.len() < content.len() * 2 / 3, "{coding}");
            assert_eq!(decompress(coding, &compressed), content, "{coding}");
        }
    }

    #[test]
    fn an_empty_body_is_whole_too() {
        for coding in ContentCoding::ALL {
            let compressed = ContentEncoder::new(coding).unwrap().finish().unwrap();
            assert_eq!(decompress(coding, &compressed), b"", "{coding}");
        }
    }

    #[test]
    fn the_memory_of_all_encoders_is_bounded() {
        let mut encoders: Vec<_> =
            std::iter::from_fn(|| ContentEncoder::new(ContentCoding::Br)).collect();
        let expected_count = MAX_ENCODER_BYTES / memory_bytes(ContentCoding::Br);
        // Other tests of the process may have some.
        assert!(encoders.len() <= expected_count && encoders.len() + 4 >= expected_count);
        encoders.pop();
        assert!(ContentEncoder::new(ContentCoding::Gzip).is_some());
    }
}
