//! Reads the head of a request: RFC 9114 section 4.3. Its fields become a head in the same way as those of HTTP/2.

use std::future::poll_fn;
use std::task::Poll;

use http::Version;

use super::frame_stream::{FrameStream, StreamEnd};
use super::shared_state::SharedState;
use crate::http::head::Head;
use crate::http::http1::MAX_HEAD_BYTES;
use crate::http::http3::frame::frame_type;
use crate::http::http3::{Code, qpack};
use crate::serve::http2::head::HeadDraft;
use crate::serve::http2::head_memory::HeadCharge;
use crate::serve::stack::unreadable_request::UnreadableRequest;

/// The head of a request, with the charge for its memory.
pub type ReadHead = (Result<Head, UnreadableRequest>, HeadCharge);

/// Why a stream has no head.
pub enum HeadEnd {
    /// The stream or the connection has ended.
    Stream(StreamEnd),
    /// The client has ended the stream before the head.
    Incomplete,
    /// The memory for heads is used up. The client may send the request again.
    OutOfMemory,
}

impl From<StreamEnd> for HeadEnd {
    fn from(end: StreamEnd) -> HeadEnd {
        match end {
            StreamEnd::OutOfMemory => HeadEnd::OutOfMemory,
            end => HeadEnd::Stream(end),
        }
    }
}

/// Reads the head of the request on this stream.
///
/// # Errors
///
/// There is no head that could get a response.
pub async fn read_head(frames: &mut FrameStream, state: &SharedState) -> Result<ReadHead, HeadEnd> {
    let length = find_head(frames, state).await?;
    let is_too_large = length > MAX_HEAD_BYTES as u64;
    let block = match is_too_large {
        // Nothing of such a head is read.
        true => Vec::new(),
        false => poll_fn(|cx| frames.poll_block(cx)).await?,
    };
    // The end of the stream usually comes with the head.
    let is_bodiless = poll_fn(|cx| {
        let _ = frames.poll_received(cx);
        Poll::Ready(frames.is_over())
    })
    .await;
    // The draft takes a buffer that all heads of the thread share, so nothing is awaited from here on.
    let mut draft = HeadDraft::new(Version::HTTP_3);
    let memory = &mut *state.head_memory.borrow_mut();
    memory.count_received_block(block.len());
    match is_too_large {
        true => draft.mark_too_large(),
        false => qpack::decode(&block, |field| draft.add(field)).map_err(StreamEnd::Broken)?,
    }
    match draft.finish(is_bodiless, memory) {
        Ok(Some((head, charge))) => Ok((Ok(head), charge)),
        Ok(None) => Err(HeadEnd::OutOfMemory),
        Err(unreadable) => Ok((Err(unreadable), HeadCharge::default())),
    }
}

/// Skips unknown frames up to the frame of the head. Returns the length of that in bytes.
async fn find_head(frames: &mut FrameStream, state: &SharedState) -> Result<u64, HeadEnd> {
    loop {
        let frame = poll_fn(|cx| frames.poll_frame(cx)).await?;
        let frame = frame.ok_or(HeadEnd::Incomplete)?;
        match frame.frame_type {
            frame_type::HEADERS => return Ok(frame.length),
            frame_type::DATA => return Err(StreamEnd::Broken(Code::FRAME_UNEXPECTED).into()),
            _ if frame.is_about_connection() => {
                return Err(StreamEnd::Broken(Code::FRAME_UNEXPECTED).into());
            }
            _ => {
                state.spend_frame();
                poll_fn(|cx| frames.poll_skip(cx)).await?;
            }
        }
    }
}
