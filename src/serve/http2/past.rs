//! Which stream identifiers a client has used, and how the streams ended that are no longer open: RFC 9113 sections
//! 5.1 and 5.1.1.

use std::collections::VecDeque;
use std::ops::Range;

use super::offer::MAX_STREAMS;

/// Streams that were reset, and stretches of identifiers that were left out, that are remembered.
const KEPT: usize = MAX_STREAMS;

/// See the module.
#[derive(Debug, Default)]
pub struct PastStreams {
    /// The last stream that the client has opened.
    last: u32,
    resets: VecDeque<ResetStream>,
    /// The highest identifier of a stream that was reset and is no longer remembered.
    forgotten: u32,
    /// Identifiers below the last that no stream has.
    skipped: VecDeque<Range<u32>>,
}

#[derive(Debug)]
struct ResetStream {
    id: u32,
    by_client: bool,
}

/// What is known of a stream that is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedStream {
    /// It was never opened.
    Idle,
    /// Its identifier was left out when a higher one was used.
    Skipped,
    /// Both sides have ended it.
    Ended,
    /// The client has reset it, or it is not remembered who has.
    Reset,
    /// The gateway has reset it, so that frames may have been under way.
    Refused,
}

impl PastStreams {
    /// The last stream that the client has opened.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// The client has opened a stream, whatever comes of it.
    pub fn record_open(&mut self, id: u32) {
        // The first is 1.
        let next = self.last + if self.last == 0 { 1 } else { 2 };
        if id != next {
            self.record_skipped(next..id);
        }
        self.last = id;
    }

    #[cold]
    fn record_skipped(&mut self, identifiers: Range<u32>) {
        if self.skipped.len() == KEPT {
            self.skipped.pop_front();
        }
        self.skipped.push_back(identifiers);
    }

    /// A stream has been reset.
    pub fn record_reset(&mut self, id: u32, by_client: bool) {
        if self.resets.len() == KEPT
            && let Some(oldest) = self.resets.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.id);
        }
        self.resets.push_back(ResetStream { id, by_client });
    }

    /// Whether the stream was open once, or could no longer be.
    pub fn was_opened(&self, id: u32) -> bool {
        id <= self.last && id % 2 == 1
    }

    /// What is known of a stream that is not open.
    pub fn closed_stream(&self, id: u32) -> ClosedStream {
        if !self.was_opened(id) {
            return ClosedStream::Idle;
        }
        if self.skipped.iter().any(|skipped| skipped.contains(&id)) {
            return ClosedStream::Skipped;
        }
        let mut resets = self.resets.iter().filter(|reset| reset.id == id).peekable();
        if resets.peek().is_none() {
            return match id <= self.forgotten {
                true => ClosedStream::Reset,
                false => ClosedStream::Ended,
            };
        }
        match resets.all(|reset| reset.by_client) {
            true => ClosedStream::Reset,
            false => ClosedStream::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_has_a_bound() {
        let mut past = PastStreams::default();
        for id in [1, 3, 9] {
            past.record_open(id);
        }
        past.record_reset(1, true);
        past.record_reset(3, false);
        assert_eq!(past.closed_stream(1), ClosedStream::Reset);
        assert_eq!(past.closed_stream(3), ClosedStream::Refused);
        assert_eq!(
            [5, 7].map(|id| past.closed_stream(id)),
            [ClosedStream::Skipped; 2]
        );
        assert_eq!(past.closed_stream(9), ClosedStream::Ended);
        assert_eq!(
            [2, 8, 11].map(|id| past.closed_stream(id)),
            [ClosedStream::Idle; 3]
        );
        // What the gateway did about frames that came late is its last word.
        past.record_reset(1, false);
        assert_eq!(past.closed_stream(1), ClosedStream::Refused);
        for number in 0..10_000 {
            past.record_open(13 + 4 * number);
            past.record_reset(13 + 4 * number, false);
        }
        assert_eq!((past.resets.len(), past.skipped.len()), (KEPT, KEPT));
        assert_eq!(past.closed_stream(3), ClosedStream::Reset);
    }
}
