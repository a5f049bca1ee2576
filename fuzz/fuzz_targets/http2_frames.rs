//! HTTP/2 frames: what is read does not depend on how the bytes are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::http::http2::frame_reader::{FrameReader, PREFACE};

/// What comes of the bytes, read in pieces of so many.
fn read(bytes: &[u8], piece: usize) -> Vec<String> {
    let mut reader = FrameReader::default();
    let (mut frames, mut input) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            let length = match reader.next_frame(&input) {
                Ok(Some((length, frame))) => {
                    frames.push(format!("{frame:?}"));
                    length
                }
                Ok(None) => break,
                Err(fatal) => {
                    frames.push(format!("{fatal:?}"));
                    return frames;
                }
            };
            assert!(length <= input.len() && length > 0);
            input.drain(..length);
        }
    }
    frames
}

fuzz_target!(|data: &[u8]| {
    let Some((piece, bytes)) = data.split_first() else {
        return;
    };
    let bytes = [PREFACE, bytes].concat();
    let pieces = read(&bytes, usize::from(*piece).max(1));
    assert_eq!(pieces, read(&bytes, bytes.len()));
});
