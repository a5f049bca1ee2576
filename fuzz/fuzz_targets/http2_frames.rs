//! HTTP/2 frames: what is read does not depend on how the bytes are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::http::http2::frame_reader::{Frame, FrameReader, PREFACE};

/// Adds a frame to those before it. DATA frames are read as they arrive, so that those in a row count as one.
fn push(frames: &mut Vec<String>, body: &mut Option<(u32, Vec<u8>, u32)>, frame: Frame<'_>) {
    let Frame::Data {
        stream_id,
        data,
        flow_bytes,
        ends_stream,
    } = frame
    else {
        end_body(frames, body);
        return frames.push(format!("{frame:?}"));
    };
    if body.as_ref().is_some_and(|(id, ..)| *id != stream_id) {
        end_body(frames, body);
    }
    let (_, bytes, all_flow_bytes) = body.get_or_insert_with(|| (stream_id, Vec::new(), 0));
    bytes.extend_from_slice(data);
    *all_flow_bytes += flow_bytes;
    if ends_stream {
        end_body(frames, body);
        frames.push("end".into());
    }
}

/// Adds the body of DATA frames in a row, if there is one.
fn end_body(frames: &mut Vec<String>, body: &mut Option<(u32, Vec<u8>, u32)>) {
    frames.extend(body.take().map(|body| format!("{body:?}")));
}

/// What comes of the bytes, read in pieces of so many.
fn read(bytes: &[u8], piece: usize) -> Vec<String> {
    let mut reader = FrameReader::default();
    let (mut frames, mut input) = (Vec::new(), Vec::new());
    let mut body = None;
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            let length = match reader.next_frame(&input) {
                Ok(Some((length, frame))) => {
                    push(&mut frames, &mut body, frame);
                    length
                }
                Ok(None) => break,
                Err(fatal) => {
                    end_body(&mut frames, &mut body);
                    frames.push(format!("{fatal:?}"));
                    return frames;
                }
            };
            assert!(length <= input.len() && length > 0);
            input.drain(..length);
        }
    }
    end_body(&mut frames, &mut body);
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
