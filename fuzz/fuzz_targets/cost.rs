//! However a body is cut into pieces, and in whatever coding it comes, the same numbers are found in it, and what is in
//! whole documents is what a whole JSON parser finds.
#![no_main]

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tollgate::limit::cost::{CostMeter, JsonPath, MeasuredCost, parse_units};

const CODINGS: [&str; 5] = ["identity", "gzip", "deflate", "br", "zstd"];

fn read<'a>(
    path: &JsonPath,
    coding: &str,
    stream: bool,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<MeasuredCost> {
    let codings = std::iter::once(coding.as_bytes());
    let content_type = stream.then_some(&b"text/event-stream"[..]);
    let mut meter = CostMeter::new(std::iter::once(path), codings, content_type, 0);
    pieces.for_each(|piece| meter.feed(piece));
    meter.finish(true);
    meter.measured(path)
}

fuzz_target!(|data: &[u8]| {
    let [settings, step, body @ ..] = data else {
        return;
    };
    let path: JsonPath = Arc::from(["usage".to_owned(), "total".to_owned()]);
    let (stream, step) = (settings & 1 == 1, usize::from(*step).max(1));
    let whole = read(&path, "identity", stream, std::iter::once(body));
    assert_eq!(read(&path, "identity", stream, body.chunks(step)), whole);
    // As the bytes of a coding, whatever they are.
    let coding = CODINGS[usize::from(settings >> 1) % CODINGS.len()];
    read(&path, coding, stream, body.chunks(step));

    let level = Compression::fast();
    let (mut gzip, mut zlib) = (
        GzEncoder::new(Vec::new(), level),
        ZlibEncoder::new(Vec::new(), level),
    );
    let (Ok(()), Ok(())) = (gzip.write_all(body), zlib.write_all(body)) else {
        return;
    };
    for (coding, packed) in [("gzip", gzip.finish()), ("deflate", zlib.finish())] {
        let Ok(packed) = packed else { return };
        assert_eq!(
            read(&path, coding, stream, packed.chunks(step)),
            whole,
            "{coding}"
        );
    }

    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    // Of doubled names and of what is no object nothing is said here.
    let Ok(document) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    if stream
        || !document.is_object()
        || serde_json::to_vec(&document).is_ok_and(|same| same != text)
    {
        return;
    }
    let expected = match document.pointer("/usage/total") {
        Some(Value::Number(number)) => parse_units(number.to_string().as_bytes()),
        Some(Value::String(text)) if text.len() > 64 => return,
        Some(Value::String(text)) => parse_units(text.as_bytes()),
        _ => None,
    };
    assert_eq!(whole.map(|found| found.units), expected);
});
