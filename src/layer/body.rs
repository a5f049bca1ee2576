//! [`ThrottledBody`]: the body of a service's response, or that of a refusal. It holds the permits of its request until
//! it ends or is dropped, and never changes the bytes of the service.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::store::permits::PermitGuard;

pin_project! {
    /// The body of a response behind a [`Throttle`](super::Throttle).
    #[derive(Debug)]
    pub struct ThrottledBody<B> {
        #[pin]
        source: BodySource<B>,
        permits: Option<PermitGuard>,
    }
}

pin_project! {
    /// Where the bytes come from.
    #[project = BodySourceProject]
    #[derive(Debug)]
    enum BodySource<B> {
        Service { #[pin] body: B },
        Refusal { document: Option<Bytes> },
    }
}

impl<B> ThrottledBody<B> {
    /// The body of an admitted request's response.
    pub(super) fn admitted(body: B, permits: Option<PermitGuard>) -> ThrottledBody<B> {
        ThrottledBody {
            source: BodySource::Service { body },
            permits,
        }
    }

    /// The body of a refusal.
    pub(super) fn refusal(document: Bytes) -> ThrottledBody<B> {
        ThrottledBody {
            source: BodySource::Refusal {
                document: Some(document).filter(|document| !document.is_empty()),
            },
            permits: None,
        }
    }
}

impl<B: Body<Data: From<Bytes>>> Body for ThrottledBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = match this.source.project() {
            BodySourceProject::Service { body } => ready!(body.poll_frame(cx)),
            BodySourceProject::Refusal { document } => {
                let document = document.take();
                document.map(|document| Ok(Frame::data(document.into())))
            }
        };
        if !matches!(frame, Some(Ok(_))) {
            // Servers may keep a body for a while after its end.
            *this.permits = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Service { body } => body.is_end_stream(),
            BodySource::Refusal { document } => document.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Service { body } => body.size_hint(),
            BodySource::Refusal { document } => {
                SizeHint::with_exact(document.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }
}
