//! How [`MemcachedClient`] keeps the permits that gateways share. Each key has an item with the permits of each gateway's
//! lease, which is changed by compare-and-swap. Each lease has an item that expires with it.
//!
//! A lease has an item on each server, because a server is asked about its own keys alone. Once such an item is missing,
//! no gateway makes it again: the number of a lease is never used twice. So whoever sees that it is missing may take its
//! permits away, whatever the other gateway does at the same time.

use std::borrow::Cow;

use futures_util::future::try_join_all;

use super::client::{MemcachedClient, MemcachedServer};
use super::keys::exptime_until;
use super::link::unexpected_reply;
use super::wire::{MetaReply, Replaces};
use crate::base::clock::Nanos;
use crate::store::permits::permit_call::{PermitCall, PermitReply};
use crate::store::permits::{LATE_CALL_TIME, PermitKey, STORED_TIME};
use crate::store::shared::call::{CounterName, StoreError};
use crate::store::shared::permit_lease::LeaseStep;

/// Bytes of one gateway's permits in an item: its lease, their number and the number of its last call.
const HOLDER_BYTES: usize = 20;
/// Most attempts to change an item, while other gateways do the same.
const MAX_ATTEMPTS: usize = 64;

/// The permits of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    lease: u64,
    held: u32,
    last_call: u64,
}

impl MemcachedClient {
    /// Sets the number of permits of a key that a gateway holds. A call with the number 0 changes nothing.
    ///
    /// # Errors
    ///
    /// When there is no connection or no usable reply; [`StoreError::MarkMismatch`] when the server has lost its data, and
    /// [`StoreError::LeaseEnded`] when it does not have the lease.
    pub async fn set_permits(
        &self,
        connection_index: usize,
        call: &PermitCall,
    ) -> Result<PermitReply, StoreError> {
        let name = counter_name(&call.key);
        let server = &self.servers[self.server_index(&name)];
        let key = format!("{}:permits", self.counter_prefix(&name));
        let (mark_key, lease_key) = (self.incarnation_key(), self.lease_key(call.lease));
        for _ in 0..MAX_ATTEMPTS {
            let replies = server.call(connection_index, |batch| {
                batch.get(&mark_key);
                batch.get(&lease_key);
                batch.get_with_version(&key);
            });
            let replies = replies.await?;
            server.check_incarnation(&replies, 0)?;
            let reads = call.number == 0;
            match replies.get(1) {
                Some(MetaReply::Value { .. }) => {}
                Some(MetaReply::Missing) if reads => {}
                Some(MetaReply::Missing) => return Err(StoreError::LeaseEnded),
                other => return Err(unexpected_reply(other)),
            }
            let (mut holders, replaces) = match replies.get(2) {
                Some(MetaReply::Missing) => (Vec::new(), Replaces::Nothing),
                Some(MetaReply::Value { bytes, version }) => {
                    (decode(bytes)?, Replaces::Version(*version))
                }
                other => return Err(unexpected_reply(other)),
            };
            let own = holders.iter().find(|holder| holder.lease == call.lease);
            if !reads && own.is_some_and(|own| call.number <= own.last_call) {
                let error = "a later call about permits came first";
                return Err(StoreError::Other(Cow::Borrowed(error)));
            }
            let own_held = own.map_or(0, |own| own.held);
            holders.retain(|holder| holder.lease != call.lease);
            // Who returns permits has time to look who is gone. Who wants some looks where too few are free.
            let is_short = call.needed > call.ceiling.saturating_sub(sum(&holders));
            if !holders.is_empty() && (is_short || call.needed <= own_held) {
                self.remove_ended(server, connection_index, &mut holders)
                    .await?;
            }
            let others = sum(&holders);
            if reads {
                return Ok(PermitReply { held: 0, others });
            }
            let held = held_by(call, others);
            if held > 0 || !call.is_clean {
                holders.push(Holder {
                    lease: call.lease,
                    held,
                    last_call: call.number,
                });
            }
            // An item without permits must outlive calls that are under way.
            let kept = match sum(&holders) {
                0 => LATE_CALL_TIME,
                _ => STORED_TIME,
            };
            let (value, exptime) = (encode(&holders), exptime_of(kept));
            let replies = server.call(connection_index, |batch| {
                batch.set(&key, &value, exptime, replaces);
            });
            match replies.await?.get(0) {
                Some(MetaReply::Done) => return Ok(PermitReply { held, others }),
                // Another gateway was faster.
                Some(MetaReply::NotStored | MetaReply::Missing) => {}
                other => return Err(unexpected_reply(other)),
            }
        }
        let error = "too many gateways change the permits of one key";
        Err(StoreError::Other(Cow::Borrowed(error)))
    }

    /// Removes holders whose leases have ended.
    async fn remove_ended(
        &self,
        server: &MemcachedServer,
        connection_index: usize,
        holders: &mut Vec<Holder>,
    ) -> Result<(), StoreError> {
        let replies = server.call(connection_index, |batch| {
            for holder in &*holders {
                batch.get(&self.lease_key(holder.lease));
            }
        });
        let replies = replies.await?;
        let mut index = 0;
        holders.retain(|_| {
            let is_missing = matches!(replies.get(index), Some(MetaReply::Missing));
            index += 1;
            !is_missing
        });
        Ok(())
    }

    /// Begins, renews or ends the lease of a gateway on all servers.
    ///
    /// # Errors
    ///
    /// As [`MemcachedClient::set_permits`], if any server fails.
    pub async fn keep_permit_lease(
        &self,
        connection_index: usize,
        lease: u64,
        step: LeaseStep,
        life: Nanos,
    ) -> Result<(), StoreError> {
        let (mark_key, lease_key) = (self.incarnation_key(), self.lease_key(lease));
        let (mark_key, lease_key, exptime) = (&mark_key, &lease_key, exptime_of(life));
        let steps = self.servers.iter().map(|server| async move {
            let replies = server.call(connection_index, |batch| {
                batch.get(mark_key);
                match step {
                    LeaseStep::Begin => batch.set(lease_key, b"", exptime, Replaces::Nothing),
                    LeaseStep::Renew => batch.touch(lease_key, exptime),
                    LeaseStep::End => batch.delete(lease_key),
                };
            });
            let replies = replies.await?;
            server.check_incarnation(&replies, 0)?;
            match (step, replies.get(1)) {
                (_, Some(MetaReply::Done)) => Ok(()),
                (LeaseStep::End, Some(MetaReply::Missing)) => Ok(()),
                (_, Some(MetaReply::Missing | MetaReply::NotStored)) => Err(StoreError::LeaseEnded),
                (_, other) => Err(unexpected_reply(other)),
            }
        });
        try_join_all(steps).await.map(|_| ())
    }

    fn lease_key(&self, lease: u64) -> String {
        format!("{}:lease:{lease:x}", self.prefix)
    }
}

/// The permits that a call leaves to its gateway, where other gateways hold `others`.
fn held_by(call: &PermitCall, others: u32) -> u32 {
    let free = call.ceiling.saturating_sub(others);
    let held = match free.checked_sub(call.needed) {
        Some(left) => call.needed + call.spare.min(left / 2),
        None => free,
    };
    // What requests use already counts in any case.
    held.max(call.used)
}

/// The exptime of an item that is kept for so long.
fn exptime_of(kept: Nanos) -> u64 {
    exptime_until(kept.0 / 1_000, 0)
}

fn sum(holders: &[Holder]) -> u32 {
    let held = holders.iter().map(|holder| holder.held);
    held.fold(0, u32::saturating_add)
}

fn encode(holders: &[Holder]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(holders.len() * HOLDER_BYTES);
    for holder in holders {
        bytes.extend(holder.lease.to_be_bytes());
        bytes.extend(holder.held.to_be_bytes());
        bytes.extend(holder.last_call.to_be_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Result<Vec<Holder>, StoreError> {
    let (chunks, rest) = bytes.as_chunks::<HOLDER_BYTES>();
    if !rest.is_empty() {
        let error = "the permits in the store are malformed";
        return Err(StoreError::Other(Cow::Borrowed(error)));
    }
    let holder = |chunk: &[u8; HOLDER_BYTES]| {
        let (lease, rest) = chunk.split_first_chunk()?;
        let (held, rest) = rest.split_first_chunk()?;
        Some(Holder {
            lease: u64::from_be_bytes(*lease),
            held: u32::from_be_bytes(*held),
            last_call: u64::from_be_bytes(rest.try_into().ok()?),
        })
    };
    Ok(chunks.iter().filter_map(holder).collect())
}

/// The name by which the server of a key is chosen.
fn counter_name(key: &PermitKey) -> CounterName {
    CounterName {
        limit: key.scope.hash() as u64,
        key: key.key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_read_as_they_were_written() {
        let holders = [1, u64::MAX].map(|number| Holder {
            lease: number,
            held: number as u32,
            last_call: number,
        });
        assert_eq!(decode(&encode(&holders)), Ok(holders.to_vec()));
        assert_eq!(decode(b""), Ok(Vec::new()));
        assert!(decode(&[0; HOLDER_BYTES + 1]).is_err());
        assert_eq!(sum(&holders), u32::MAX);
    }
}
