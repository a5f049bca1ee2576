//! The body of an upstream's response, compressed on its way to the client. It stands around the body that settles, so
//! limits on costs see what the upstream sent.
//!
//! What the upstream has sent leaves compressed as soon as the upstream pauses. Bounds: an [`ContentEncoder`], one piece of the
//! upstream and [`MAX_OUTPUT_BYTES`] for each response. Nothing is read while the client does not read.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use super::body_error::Error;
use super::content_encoder::ContentEncoder;
use crate::http::content_coding::ContentCoding;
use crate::http::head::hop_by_hop::strip_forbidden_trailers;

/// Bytes that are compressed in one step.
const STEP_BYTES: usize = 16 * 1024;

/// Bytes that are compressed before the worker's other connections have their turn: half a millisecond of work.
const MAX_TURN_BYTES: usize = 32 * 1024;

/// Bytes of output that leave before the upstream pauses. A step and what the coding has held back come on top of it.
const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// Fields with a digest of the content as the upstream sent it.
pub const DIGEST_FIELDS: [&str; 4] = ["content-digest", "content-md5", "digest", "repr-digest"];

/// A response's body that is compressed.
pub struct CompressedBody<B> {
    inner: B,
    stage: Stage,
    /// What the upstream has sent and is not compressed yet.
    input: Bytes,
    /// Whether bytes may be held back by the encoder.
    has_unflushed: bool,
    /// Bytes that were compressed since other connections had their turn.
    turn_bytes: usize,
}

enum Stage {
    Compressing(ContentEncoder),
    /// The content has ended, perhaps before the trailers.
    Ended(Option<HeaderMap>),
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> CompressedBody<B> {
    /// Compresses `inner`. Returns it as it was if no memory is free for an encoder.
    pub fn new(inner: B, coding: ContentCoding) -> Result<CompressedBody<B>, B> {
        match ContentEncoder::new(coding) {
            None => Err(inner),
            Some(encoder) => Ok(CompressedBody {
                inner,
                stage: Stage::Compressing(encoder),
                input: Bytes::new(),
                has_unflushed: false,
                turn_bytes: 0,
            }),
        }
    }

    /// The body as the upstream sends it.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// The body as the upstream sends it, no longer compressed.
    pub fn into_inner(self) -> B {
        self.inner
    }

    /// The next piece, as [`Body::poll_frame`]. Pending also when other connections must have their turn.
    fn poll_compressed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, Error>> {
        loop {
            let encoder = match &mut self.stage {
                Stage::Compressing(encoder) => encoder,
                Stage::Ended(trailers) => {
                    return Poll::Ready(Ok(trailers.take().map(Frame::trailers)));
                }
            };
            if !self.input.is_empty() {
                if self.turn_bytes >= MAX_TURN_BYTES {
                    self.turn_bytes = 0;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let step = self.input.split_to(self.input.len().min(STEP_BYTES));
                encoder.write(&step).map_err(Error::Compression)?;
                self.turn_bytes += step.len();
                self.has_unflushed = true;
                if encoder.output().len() >= MAX_OUTPUT_BYTES {
                    let output = std::mem::take(encoder.output());
                    return Poll::Ready(Ok(Some(Frame::data(output.into()))));
                }
                continue;
            }
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.input = data,
                    Err(frame) => return Poll::Ready(self.finish(frame.into_trailers().ok())),
                },
                Poll::Ready(None) => return Poll::Ready(self.finish(None)),
                // The content is not ended, so that no client takes it for whole.
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.turn_bytes = 0;
                    if !std::mem::take(&mut self.has_unflushed) {
                        return Poll::Pending;
                    }
                    encoder.flush().map_err(Error::Compression)?;
                    let output = std::mem::take(encoder.output());
                    return Poll::Ready(Ok(Some(Frame::data(output.into()))));
                }
            }
        }
    }

    /// Ends the content. Its last bytes are returned; the trailers follow.
    fn finish(&mut self, mut trailers: Option<HeaderMap>) -> Result<Option<Frame<Bytes>>, Error> {
        if let Some(trailers) = &mut trailers {
            strip_forbidden_trailers(trailers, |name| {
                DIGEST_FIELDS.iter().any(|field| field.as_bytes() == name)
            });
        }
        match std::mem::replace(&mut self.stage, Stage::Ended(trailers)) {
            Stage::Compressing(encoder) => {
                let output = encoder.finish().map_err(Error::Compression)?;
                Ok(Some(Frame::data(output.into())))
            }
            Stage::Ended(_) => Ok(None),
        }
    }
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for CompressedBody<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.poll_compressed(cx).map(Result::transpose)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.stage, Stage::Ended(None))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use http_body_util::{BodyExt, Full};

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A long piece that is there at once is compressed in turns, after each of which the task runs again.
    #[test]
    fn a_long_piece_does_not_hold_its_worker() {
        const TURNS: usize = 8;
        let content = Bytes::from(vec![b'a'; TURNS * MAX_TURN_BYTES]);
        let body = Full::new(content).map_err(|never| match never {});
        let compressed = CompressedBody::new(body, ContentCoding::Gzip);
        let mut compressed = compressed.ok().unwrap();
        let wake_count = Arc::new(WakeCount::default());
        let waker = Waker::from(wake_count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut waits = 0;
        loop {
            match Pin::new(&mut compressed).poll_frame(&mut cx) {
                Poll::Pending => waits += 1,
                Poll::Ready(Some(frame)) => assert!(frame.is_ok()),
                Poll::Ready(None) => break,
            }
        }
        assert_eq!(waits, TURNS - 1);
        assert_eq!(wake_count.0.load(Ordering::Relaxed), waits);
    }
}
