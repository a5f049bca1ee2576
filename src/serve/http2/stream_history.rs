//! Remembers which stream identifiers a client has used and how those streams ended: RFC 9113 sections 5.1 and 5.1.1.
//!
//! The history decides what a late frame on a stream means. Its memory is bounded, so of old resets only the highest
//! identifier is remembered. Streams up to this identifier count as reset by the client, unless their reset is remembered.

use std::collections::VecDeque;
use std::ops::Range;

use super::initial_settings::MAX_CONCURRENT_STREAMS;

/// Maximum number of resets, and of ranges of skipped identifiers, that are remembered. A client may have as many streams
/// open, so late frames are understood even if all of them are reset at once.
const MAX_REMEMBERED_ENTRIES: usize = MAX_CONCURRENT_STREAMS;

/// The streams that one client has opened so far.
#[derive(Debug, Default)]
pub struct StreamHistory {
    /// The identifier of the last stream that the client has opened; 0 if it has opened none.
    last_opened_id: u32,
    /// The latest resets, the oldest first.
    reset_streams: VecDeque<ResetStream>,
    /// The highest identifier among the reset streams that are no longer remembered; 0 if all are remembered.
    highest_forgotten_id: u32,
    /// The latest ranges of identifiers below `last_opened_id` that the client has not used, the oldest first.
    skipped_ids: VecDeque<Range<u32>>,
}

/// A stream that a side has reset.
#[derive(Debug)]
struct ResetStream {
    id: u32,
    sender: ResetSender,
}

/// The side that has reset a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetSender {
    /// The client has sent RST_STREAM.
    Client,
    /// The gateway has sent RST_STREAM.
    Gateway,
}

/// Why a stream is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastStream {
    /// The client has not opened the stream.
    NotOpened,
    /// The client has opened a higher stream instead, so this stream can never be opened.
    Skipped,
    /// Both sides have ended the stream, or it was skipped so long ago that the history has forgotten it.
    Ended,
    /// The client has reset the stream, or the history has forgotten how the stream ended.
    ResetByClient,
    /// The gateway has reset the stream, so frames may still have been on their way.
    ResetByGateway,
}

impl StreamHistory {
    /// The identifier of the last stream that the client has opened; 0 if it has opened none.
    pub fn last_opened_id(&self) -> u32 {
        self.last_opened_id
    }

    /// Records that the client has opened a stream, also if the gateway refuses it. The identifier must be odd, and higher
    /// than all before.
    pub fn record_open(&mut self, id: u32) {
        // Streams of clients have odd identifiers, from 1 on.
        let next_id = self.last_opened_id + if self.last_opened_id == 0 { 1 } else { 2 };
        if id != next_id {
            self.record_skipped(next_id..id);
        }
        self.last_opened_id = id;
    }

    #[cold]
    fn record_skipped(&mut self, skipped_ids: Range<u32>) {
        if self.skipped_ids.len() == MAX_REMEMBERED_ENTRIES {
            self.skipped_ids.pop_front();
        }
        self.skipped_ids.push_back(skipped_ids);
    }

    /// Records that `sender` has reset a stream.
    pub fn record_reset(&mut self, id: u32, sender: ResetSender) {
        if self.reset_streams.len() == MAX_REMEMBERED_ENTRIES
            && let Some(oldest_reset) = self.reset_streams.pop_front()
        {
            self.highest_forgotten_id = self.highest_forgotten_id.max(oldest_reset.id);
        }
        self.reset_streams.push_back(ResetStream { id, sender });
    }

    /// Whether the stream is no longer idle: the client has opened it, or a higher one instead.
    pub fn has_left_idle(&self, id: u32) -> bool {
        id <= self.last_opened_id && id % 2 == 1
    }

    /// Why a stream is not open. The caller has checked that it is not.
    pub fn past_stream(&self, id: u32) -> PastStream {
        if !self.has_left_idle(id) {
            return PastStream::NotOpened;
        }
        if self.skipped_ids.iter().any(|ids| ids.contains(&id)) {
            return PastStream::Skipped;
        }
        let mut resets = self
            .reset_streams
            .iter()
            .filter(|reset| reset.id == id)
            .peekable();
        if resets.peek().is_none() {
            // Up to the highest forgotten identifier, it is unclear whether a stream was reset or ended otherwise. Then
            // `ResetByClient` is the milder choice: a late head resets its stream, while after `Ended` it closes the
            // connection.
            return match id <= self.highest_forgotten_id {
                true => PastStream::ResetByClient,
                false => PastStream::Ended,
            };
        }
        // A reset by the gateway explains late frames, even if the client has reset the stream too.
        match resets.all(|reset| reset.sender == ResetSender::Client) {
            true => PastStream::ResetByClient,
            false => PastStream::ResetByGateway,
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
        history.record_reset(1, ResetSender::Client);
        history.record_reset(3, ResetSender::Gateway);
        assert_eq!(history.past_stream(1), PastStream::ResetByClient);
        assert_eq!(history.past_stream(3), PastStream::ResetByGateway);
        assert_eq!(
            [5, 7].map(|id| history.past_stream(id)),
            [PastStream::Skipped; 2]
        );
        assert_eq!(history.past_stream(9), PastStream::Ended);
        assert_eq!(
            [2, 8, 11].map(|id| history.past_stream(id)),
            [PastStream::NotOpened; 3]
        );
        // A reset by the gateway counts, also if the client had reset the stream before.
        history.record_reset(1, ResetSender::Gateway);
        assert_eq!(history.past_stream(1), PastStream::ResetByGateway);
        for number in 0..10_000 {
            history.record_open(13 + 4 * number);
            history.record_reset(13 + 4 * number, ResetSender::Gateway);
        }
        assert_eq!(history.reset_streams.len(), MAX_REMEMBERED_ENTRIES);
        assert_eq!(history.skipped_ids.len(), MAX_REMEMBERED_ENTRIES);
        assert_eq!(history.past_stream(3), PastStream::ResetByClient);
    }
}
