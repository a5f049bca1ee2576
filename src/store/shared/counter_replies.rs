//! What the store's replies about single counters mean: with the networks around a key, and as a finding. Nothing here
//! records a reply.

use std::borrow::Cow;

use super::call::{CallPart, CounterReply, StoreReply};
use super::pending_call::PendingCall;
use super::shared_item::{SharedItem, window_quota};
use crate::base::clock::Nanos;
use crate::limit::{LimitFinding, LimitStanding};

/// The networks around the key of the part with this index, and their replies.
pub(super) fn networks_around<'a>(
    pending_call: &'a PendingCall,
    part_index: usize,
    reply: &'a StoreReply,
) -> impl Iterator<Item = (&'a CallPart, &'a CounterReply)> {
    let parts = pending_call.call.parts.iter().zip(&reply.counters);
    parts.filter(move |(part, _)| part.key_part_index == Some(part_index as u8))
}

/// The reply for a key, with the networks around it: the least `remaining`, the longest `retry_after`, and a standing that
/// admits only if all networks admit too.
pub(super) fn within_networks<'a>(
    pending_call: &'a PendingCall,
    part_index: usize,
    reply: &'a StoreReply,
) -> Cow<'a, CounterReply> {
    let mut counter = Cow::Borrowed(&reply.counters[part_index]);
    for (_, network) in networks_around(pending_call, part_index, reply) {
        let counter = counter.to_mut();
        counter.remaining = counter.remaining.min(network.remaining);
        if network.standing.admits() {
            continue;
        }
        if counter.standing.admits() {
            counter.standing = network.standing;
        }
        counter.retry_after = counter.retry_after.max(network.retry_after);
    }
    counter
}

/// The finding that a counter's reply means for an item.
/// `wall` is the wall time by this gateway's clock.
pub(super) fn to_finding(item: &SharedItem, counter: &CounterReply, wall: Nanos) -> LimitFinding {
    LimitFinding {
        standing: match counter.standing {
            // Operators may add the credits that a request lacks.
            LimitStanding::Unsatisfiable if item.limit.is_credits() => LimitStanding::Refused,
            standing => standing,
        },
        window: counter.window_index,
        quota: window_quota(&item.limit, counter.window_index, item.scale.plan_factor),
        remaining: counter.remaining,
        wait: counter.retry_after,
        reset: counter.reset_after,
        delay: counter.delay,
        calendar_window: item.limit.calendar_window(counter.window_index, wall),
        sketched: false,
    }
}
