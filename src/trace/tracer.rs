//! What a worker needs for traces: a draw for each request, and the queue for its spans.

use std::sync::Arc;

use super::sample_rate::SampleRate;
use super::span_queue::SpanQueue;
use super::trace_parent::random_id;
use crate::base::random::SplitMix64;

/// Chooses the requests of one worker that are traced, and takes their spans.
pub struct Tracer {
    queue: Arc<SpanQueue>,
    random: SplitMix64,
}

impl Tracer {
    /// A tracer that puts spans into this queue. `None` if the system has no random numbers.
    pub fn new(queue: Arc<SpanQueue>) -> Option<Tracer> {
        let seed = u64::from_ne_bytes(random_id()?);
        let random = SplitMix64::new(seed);
        Some(Tracer { queue, random })
    }

    /// Draws whether the next request is traced.
    #[inline]
    pub fn draw(&self, rate: SampleRate) -> bool {
        rate.chooses(self.random.draw())
    }

    /// Hands over the spans of one request, as [`Span::append_to`](super::Span::append_to) encodes them.
    pub fn push(&self, encoded_spans: &[u8], span_count: u64) {
        self.queue.push(encoded_spans, span_count);
    }
}
