//! Remembers which stream identifiers a client has used and how those streams ended: RFC 9113 sections 5.1 and 5.1.1.
//!
//! It decides what a late frame on a stream means. Its memory is bounded, so old resets are remembered only by the highest
//! identifier.

use std::collections::VecDeque;
use std::ops::Range;

use super::initial_settings::MAX_CONCURRENT_STREAMS;

/// Number of resets that are remembered, and number of ranges of skipped identifiers.
const MAX_REMEMBERED: usize = MAX_CONCURRENT_STREAMS;

/// The streams that one client has opened so far.
#[derive(Debug, Default)]
pub struct StreamHistory {
    /// The last stream that the client has opened.
    last_opened: u32,
    resets: VecDeque<ResetStream>,
    /// The highest identifier of a reset that is no longer remembered.
    highest_forgotten_reset: u32,
    /// Identifiers below `last_opened` that the client has not used.
    skipped: VecDeque<Range<u32>>,
}

#[derive(Debug)]
struct ResetStream {
    id: u32,
    by_client: bool,
}

/// How a stream came not to be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastStream {
    /// The client has not opened it.
    Idle,
    /// The client has skipped it when it opened a higher one, so it never can be opened.
    Skipped,
    /// Both sides have ended it.
    Ended,
    /// The client has reset it, or the history no longer knows which side has.
    Reset,
    /// The gateway has reset it, so frames may still have been on their way.
    Refused,
}

impl StreamHistory {
    /// The last stream that the client has opened; 0 if it has opened none.
    pub fn last_opened(&self) -> u32 {
        self.last_opened
    }

    /// Records that the client has opened a stream, also if the gateway refuses it.
    pub fn record_open(&mut self, id: u32) {
        // Streams of clients have odd identifiers, from 1 on.
        let next = self.last_opened + if self.last_opened == 0 { 1 } else { 2 };
        if id != next {
            self.record_skipped(next..id);
        }
        self.last_opened = id;
    }

    #[cold]
    fn record_skipped(&mut self, identifiers: Range<u32>) {
        if self.skipped.len() == MAX_REMEMBERED {
            self.skipped.pop_front();
        }
        self.skipped.push_back(identifiers);
    }

    /// Records that a side has reset a stream.
    pub fn record_reset(&mut self, id: u32, by_client: bool) {
        if self.resets.len() == MAX_REMEMBERED
            && let Some(oldest) = self.resets.pop_front()
        {
            self.highest_forgotten_reset = self.highest_forgotten_reset.max(oldest.id);
        }
        self.resets.push_back(ResetStream { id, by_client });
    }

    /// Whether the client has opened the stream or skipped it.
    pub fn is_used(&self, id: u32) -> bool {
        id <= self.last_opened && id % 2 == 1
    }

    /// How a stream that is not open came to be so.
    pub fn past_stream(&self, id: u32) -> PastStream {
        if !self.is_used(id) {
            return PastStream::Idle;
        }
        if self.skipped.iter().any(|skipped| skipped.contains(&id)) {
            return PastStream::Skipped;
        }
        let mut resets = self.resets.iter().filter(|reset| reset.id == id).peekable();
        if resets.peek().is_none() {
            return match id <= self.highest_forgotten_reset {
                true => PastStream::Reset,
                false => PastStream::Ended,
            };
        }
        match resets.all(|reset| reset.by_client) {
            true => PastStream::Reset,
            false => PastStream::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_bounded() {
        let mut history = StreamHistory::default();
        for id in [1, 3, 9] {
            history.record_open(id);
        }
        history.record_reset(1, true);
        history.record_reset(3, false);
        assert_eq!(history.past_stream(1), PastStream::Reset);
        assert_eq!(history.past_stream(3), PastStream::Refused);
        assert_eq!(
            [5, 7].map(|id| history.past_stream(id)),
            [PastStream::Skipped; 2]
        );
        assert_eq!(history.past_stream(9), PastStream::Ended);
        assert_eq!(
            [2, 8, 11].map(|id| history.past_stream(id)),
            [PastStream::Idle; 3]
        );
        // A reset by the gateway counts, also if the client had reset the stream before.
        history.record_reset(1, false);
        assert_eq!(history.past_stream(1), PastStream::Refused);
        for number in 0..10_000 {
            history.record_open(13 + 4 * number);
            history.record_reset(13 + 4 * number, false);
        }
        let bound = (MAX_REMEMBERED, MAX_REMEMBERED);
        assert_eq!((history.resets.len(), history.skipped.len()), bound);
        assert_eq!(history.past_stream(3), PastStream::Reset);
    }
}
