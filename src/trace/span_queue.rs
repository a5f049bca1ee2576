//! The queue of encoded spans between the workers and the thread that sends them.
//!
//! Bounds: [`MAX_QUEUED_BATCHES`], each of at most [`MAX_BATCH_BYTES`]: 4 MiB of spans, in buffers of at most 8 MiB. A
//! worker holds the lock only while it copies the spans of one request.

use std::collections::VecDeque;

use metrics::Counter;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The most bytes of a batch, which is sent in one request, unless the spans of a single request are larger.
pub const MAX_BATCH_BYTES: usize = 256 * 1024;
/// The most batches that wait. Further spans are lost.
pub const MAX_QUEUED_BATCHES: usize = 16;

/// Spans that are sent together.
#[derive(Debug, Default)]
pub struct SpanBatch {
    /// The spans, as [`Span::append_to`](super::Span::append_to) encodes them.
    pub encoded_spans: Vec<u8>,
    /// The number of spans.
    pub span_count: u64,
}

/// The queue. All workers and the thread that sends share it.
#[derive(Debug)]
pub struct SpanQueue {
    batches: Mutex<VecDeque<SpanBatch>>,
    /// Notified when a batch is full, so that it need not wait for the next interval.
    pub(super) has_full_batch: Notify,
    /// Counts the spans for which there was no room.
    lost_spans: Counter,
}

impl SpanQueue {
    /// An empty queue.
    pub fn new(lost_spans: Counter) -> SpanQueue {
        SpanQueue {
            batches: Mutex::default(),
            has_full_batch: Notify::new(),
            lost_spans,
        }
    }

    /// Appends the spans of one request. Without room for them they are counted as lost.
    pub fn push(&self, encoded_spans: &[u8], span_count: u64) {
        let mut batches = self.batches.lock();
        let has_room =
            |batch: &SpanBatch| batch.encoded_spans.len() + encoded_spans.len() <= MAX_BATCH_BYTES;
        if !batches.back().is_some_and(has_room) {
            if batches.len() == MAX_QUEUED_BATCHES {
                return self.lost_spans.increment(span_count);
            }
            if !batches.is_empty() {
                self.has_full_batch.notify_one();
            }
            batches.push_back(SpanBatch::default());
        }
        if let Some(batch) = batches.back_mut() {
            batch.encoded_spans.extend_from_slice(encoded_spans);
            batch.span_count += span_count;
        }
    }

    /// The number of batches that wait. All but the last are full.
    pub(super) fn batch_count(&self) -> usize {
        self.batches.lock().len()
    }

    /// Takes the oldest batch, full or not; `None` if no span waits.
    pub(super) fn take_batch(&self) -> Option<SpanBatch> {
        self.batches.lock().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::{Label, Metric, Registry};

    #[test]
    fn a_full_queue_loses_spans_and_counts_them() {
        let registry = Registry::default();
        let labels = [(Label::Result, "lost")];
        let queue = SpanQueue::new(registry.counter(Metric::Spans, &labels));
        let spans = [b's'; 1000];
        let spans_in_batch = (MAX_BATCH_BYTES / spans.len()) as u64;
        let room = spans_in_batch * MAX_QUEUED_BATCHES as u64;
        for _ in 0..room + 5 {
            queue.push(&spans, 1);
        }
        assert_eq!(registry.total(Metric::Spans, &labels), 5);
        let mut taken = 0;
        while let Some(batch) = queue.take_batch() {
            assert_eq!(batch.span_count, spans_in_batch);
            assert!(batch.encoded_spans.len() <= MAX_BATCH_BYTES);
            taken += batch.span_count;
        }
        assert_eq!(taken, room);
        queue.push(&spans, 3);
        assert_eq!(queue.take_batch().unwrap().span_count, 3);
        assert_eq!(registry.total(Metric::Spans, &labels), 5);
    }
}
