//! Reads the streams that a client opens in one direction: its control stream, and the streams of QPACK. None of them
//! changes what the gateway does; the rules of RFC 9114 section 6.2 are checked.

use std::future::poll_fn;
use std::rc::Rc;

use quinn::RecvStream;

use super::frame_stream::{FrameStream, StreamEnd};
use super::shared_state::SharedState;
use crate::http::http3::Code;
use crate::http::http3::frame::{FrameHead, check_settings, frame_type, stream_type};

/// Maximum bytes of a client's settings, of which none is used.
const MAX_SETTINGS_BYTES: u64 = 1024;

/// The only instruction for the gateway's table of fields that is allowed: it has no room. RFC 9204 section 4.3.1.
const EMPTY_TABLE: u8 = 0x20;

/// Reads a stream of the client to its end, and closes the connection if the client breaks a rule.
pub async fn read_one_way_stream(stream: RecvStream, state: Rc<SharedState>) {
    state.spend_frame();
    let mut stream = FrameStream::new(stream, state.clone());
    if let Err(StreamEnd::Broken(code)) = read_to_end(&mut stream, &state).await {
        state.close(code);
    }
}

async fn read_to_end(stream: &mut FrameStream, state: &SharedState) -> Result<(), StreamEnd> {
    let Some(kind) = poll_fn(|cx| stream.poll_integer(cx)).await? else {
        return Ok(());
    };
    let is_open = usize::try_from(kind)
        .ok()
        .and_then(|kind| state.opened_streams.get(kind));
    let Some(is_open) = is_open else {
        // The type is unknown: RFC 9114 section 6.2.3.
        stream.stop(Code::STREAM_CREATION_ERROR);
        return Ok(());
    };
    // No client pushes.
    if kind == stream_type::PUSH || is_open.replace(true) {
        return Err(StreamEnd::Broken(Code::STREAM_CREATION_ERROR));
    }
    match kind {
        stream_type::CONTROL => read_control(stream, state).await?,
        _ => read_qpack(stream, state, kind).await?,
    }
    Err(StreamEnd::Broken(Code::CLOSED_CRITICAL_STREAM))
}

/// Reads the frames of a control stream until it ends.
async fn read_control(stream: &mut FrameStream, state: &SharedState) -> Result<(), StreamEnd> {
    let mut has_settings = false;
    while let Some(FrameHead { frame_type, length }) = poll_fn(|cx| stream.poll_frame(cx)).await? {
        state.spend_frame();
        let fault = match frame_type {
            frame_type::SETTINGS if has_settings => Some(Code::FRAME_UNEXPECTED),
            frame_type::SETTINGS if length > MAX_SETTINGS_BYTES => Some(Code::EXCESSIVE_LOAD),
            frame_type::SETTINGS => {
                has_settings = true;
                let payload = poll_fn(|cx| stream.poll_block(cx)).await?;
                check_settings(&payload).err()
            }
            _ if !has_settings => Some(Code::MISSING_SETTINGS),
            frame_type::DATA | frame_type::HEADERS | frame_type::PUSH_PROMISE => {
                Some(Code::FRAME_UNEXPECTED)
            }
            // Among them GOAWAY, which is about pushes, and MAX_PUSH_ID.
            _ => None,
        };
        if let Some(code) = fault {
            return Err(StreamEnd::Broken(code));
        }
        poll_fn(|cx| stream.poll_skip(cx)).await?;
    }
    Ok(())
}

/// Reads a stream of QPACK until it ends. What a client reports about the gateway's own fields says nothing, because they
/// refer to no table.
///
/// # Errors
///
/// An instruction for the gateway's table would use it.
async fn read_qpack(
    stream: &mut FrameStream,
    state: &SharedState,
    kind: u64,
) -> Result<(), StreamEnd> {
    while poll_fn(|cx| stream.poll_received(cx)).await? {
        state.spend_frame();
        let instructions = stream.take_received();
        let is_allowed = |instruction: &u8| *instruction == EMPTY_TABLE;
        if kind == stream_type::QPACK_ENCODER && !instructions.iter().all(is_allowed) {
            return Err(StreamEnd::Broken(Code::QPACK_ENCODER_STREAM_ERROR));
        }
    }
    Ok(())
}
