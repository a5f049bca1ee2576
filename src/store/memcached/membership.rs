//! Meets the servers, and keeps their lists of live gateways.

use std::borrow::Cow;
use std::hash::Hasher;

use futures_util::future::join_all;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::client::{MemcachedClient, MemcachedServer};
use super::life::{Life, random};
use super::link::{Replies, unexpected};
use super::wire::{MetaReply, Replaces};
use crate::store::shared::call::{LiveGateways, StoreError, StoreIdentity, StoreMark};

/// How long a gateway counts as alive after its last beat, and a life as young, in microseconds.
pub(super) const LATELY: u64 = 10_000_000;
/// Most gateways in the list.
const MOST_GATEWAYS: usize = 1_000;
/// Most attempts to meet the servers, and to change the list, while other gateways change them. Hundreds of gateways
/// change the list each second.
const ATTEMPTS: usize = 8;
const CHANGES: usize = 64;

impl MemcachedServer {
    /// Checks that the server's item, in the reply at `place`, names the life that was met.
    pub(super) fn check(&self, replies: &Replies, place: usize) -> Result<Life, StoreError> {
        let known = self.life.read().ok_or(StoreError::Renewed)?;
        match replies.get(place) {
            Some(MetaReply::Value { bytes, .. }) if bytes[..] == known.encode() => Ok(known),
            Some(MetaReply::Value { .. } | MetaReply::Missing) => Err(StoreError::Renewed),
            other => Err(unexpected(other)),
        }
    }

    /// Reads the item and its version.
    async fn look(&self, number: usize, key: &str) -> Result<Option<(Life, u64)>, StoreError> {
        let replies = self.ask(number, |batch| {
            batch.get_version(key);
        });
        match replies.await?.get(0) {
            Some(MetaReply::Missing) => Ok(None),
            Some(MetaReply::Value { bytes, version }) => match Life::decode(bytes) {
                Some(life) => Ok(Some((life, *version))),
                None => Err(StoreError::Other(Cow::Owned(format!(
                    "`{key}` holds something else"
                )))),
            },
            other => Err(unexpected(other)),
        }
    }
}

impl MemcachedClient {
    pub(super) fn mark_key(&self) -> String {
        format!("{}:mark", self.prefix)
    }

    fn list_key(&self) -> String {
        format!("{}:gateways", self.prefix)
    }

    /// Meets the store: later calls are checked against the servers' lives as they are now. A server that is away keeps the
    /// life that was known. Where all servers are empty they get the `known` secret; a new one only where `begins` is set.
    ///
    /// # Errors
    ///
    /// [`StoreError::Empty`] where all servers are empty, no secret is known and `begins` is not set.
    pub async fn meet(
        &self,
        number: usize,
        known: Option<[u8; 16]>,
        begins: bool,
    ) -> Result<StoreIdentity, StoreError> {
        let (now, key) = (self.now(), self.mark_key());
        let mut own = known;
        for _ in 0..ATTEMPTS {
            let looks = self.servers.iter().map(|server| server.look(number, &key));
            let found = join_all(looks).await;
            if found.iter().all(|look| look.is_err()) {
                return Err(found
                    .into_iter()
                    .find_map(Result::err)
                    .unwrap_or(StoreError::NotConnected));
            }
            if let Some(Err(odd)) = found
                .iter()
                .find(|look| matches!(look, Err(StoreError::Other(_))))
            {
                return Err(odd.clone());
            }
            // The secret of the first server counts, by name: all gateways agree on that order.
            let first = found
                .iter()
                .find_map(|look| look.as_ref().ok()?.map(|(life, _)| life.secret));
            let secret = match (first, own) {
                (Some(secret), _) | (None, Some(secret)) => secret,
                (None, None) if !begins => return Err(StoreError::Empty),
                (None, None) => *own.insert(random()?),
            };
            let mut settled = true;
            for (server, look) in self.servers.iter().zip(&found) {
                let replaces = match look {
                    Ok(None) => Replaces::Nothing,
                    Ok(Some((life, version))) if life.secret != secret => {
                        Replaces::Version(*version)
                    }
                    Ok(Some(_)) | Err(_) => continue,
                };
                settled = false;
                let life = Life::fresh(now, secret)?.encode();
                let set = server.ask(number, |batch| {
                    batch.set(&key, &life, 0, replaces);
                });
                // Another gateway may have been faster; a server that went away is seen in the next round.
                drop(set.await);
                if first.is_none() {
                    // Another gateway may have begun here, too: the other servers get the secret that has won.
                    break;
                }
            }
            if settled {
                return Ok(self.met(&found, secret, now));
            }
        }
        Err(StoreError::Other(Cow::Borrowed(
            "the servers do not agree on one secret",
        )))
    }

    fn met(
        &self,
        found: &[Result<Option<(Life, u64)>, StoreError>],
        secret: [u8; 16],
        now: u64,
    ) -> StoreIdentity {
        let mut hash = SipHasher13::new();
        for (server, look) in self.servers.iter().zip(found) {
            let mut life = server.life.write();
            if let Ok(Some((found, _))) = look {
                *life = Some(*found);
            }
            // A server with another secret has other keys than the rest.
            *life = life.filter(|life| life.secret == secret);
            hash.write(server.name.as_bytes());
            hash.write(&life.map_or([0; 16], |life| life.id));
        }
        let mark: StoreMark = hash.finish128().as_u128().to_be_bytes();
        StoreIdentity {
            mark,
            secret,
            moved: false,
            now,
        }
    }

    /// Says that `gateway` is alive and has reported all its units, where it is given. Returns the gateways that are.
    pub async fn beat(
        &self,
        number: usize,
        gateway: Option<u32>,
    ) -> Result<LiveGateways, StoreError> {
        let now = self.now();
        let each = self.servers.iter().map(|server| async move {
            let change = |list: &mut Vec<(u32, u64)>| {
                if let Some(gateway) = gateway {
                    list.retain(|(other, _)| *other != gateway);
                    list.push((gateway, now));
                }
            };
            self.list(server, number, now, gateway.is_some(), change)
                .await
        });
        let mut gateways: Vec<(u32, u64)> = Vec::new();
        let (mut heard, mut failure) = (false, StoreError::NotConnected);
        for said in join_all(each).await {
            match said {
                Ok(list) => {
                    heard = true;
                    gateways.extend(list);
                }
                Err(StoreError::Renewed) => return Err(StoreError::Renewed),
                Err(other) => failure = other,
            }
        }
        // The latest beat of each gateway.
        gateways.sort_unstable_by_key(|(gateway, at)| (*gateway, u64::MAX - at));
        gateways.dedup_by_key(|(gateway, _)| *gateway);
        match heard {
            true => Ok(LiveGateways { now, gateways }),
            false => Err(failure),
        }
    }

    /// Removes this gateway from the lists.
    pub async fn leave(&self, number: usize, gateway: u32) -> Result<(), StoreError> {
        let now = self.now();
        let each = self.servers.iter().map(|server| {
            let change =
                move |list: &mut Vec<(u32, u64)>| list.retain(|(other, _)| *other != gateway);
            self.list(server, number, now, true, change)
        });
        let said = join_all(each).await;
        let heard = said.iter().any(Result::is_ok);
        match said.into_iter().find_map(Result::err) {
            Some(failure) if !heard => Err(failure),
            _ => Ok(()),
        }
    }

    /// Reads a server's list, and stores it changed; again where another gateway was faster.
    async fn list(
        &self,
        server: &MemcachedServer,
        number: usize,
        now: u64,
        write: bool,
        change: impl Fn(&mut Vec<(u32, u64)>),
    ) -> Result<Vec<(u32, u64)>, StoreError> {
        let (mark, key) = (self.mark_key(), self.list_key());
        for _ in 0..CHANGES {
            let replies = server.ask(number, |batch| {
                batch.get(&mark);
                batch.get_version(&key);
            });
            let replies = replies.await?;
            server.check(&replies, 0)?;
            let (mut list, replaces) = match replies.get(1) {
                Some(MetaReply::Missing) => (Vec::new(), Replaces::Nothing),
                Some(MetaReply::Value { bytes, version }) => {
                    (decode_list(bytes)?, Replaces::Version(*version))
                }
                other => return Err(unexpected(other)),
            };
            // After a clock went back: a beat later than now counts as one of now.
            let ahead = list.iter_mut().filter(|(_, at)| *at > now + LATELY);
            ahead.for_each(|(_, at)| *at = now);
            list.retain(|(_, at)| now.saturating_sub(*at) <= LATELY);
            change(&mut list);
            list.sort_unstable_by_key(|(_, at)| u64::MAX - at);
            list.truncate(MOST_GATEWAYS);
            if !write {
                return Ok(list);
            }
            let replies = server.ask(number, |batch| {
                batch.set(&key, &encode_list(&list), 0, replaces);
            });
            match replies.await?.get(0) {
                Some(MetaReply::Done) => return Ok(list),
                Some(MetaReply::Other | MetaReply::Missing) => {}
                other => return Err(unexpected(other)),
            }
        }
        Err(StoreError::Other(Cow::Borrowed(
            "too many gateways change the list at once",
        )))
    }
}

fn encode_list(list: &[(u32, u64)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(list.len() * 12);
    for (gateway, at) in list {
        bytes.extend_from_slice(&gateway.to_be_bytes());
        bytes.extend_from_slice(&at.to_be_bytes());
    }
    bytes
}

fn decode_list(bytes: &[u8]) -> Result<Vec<(u32, u64)>, StoreError> {
    let (entries, rest) = bytes.as_chunks::<12>();
    if !rest.is_empty() {
        return Err(StoreError::Other(Cow::Borrowed(
            "the list of gateways is malformed",
        )));
    }
    let each = entries.iter().filter_map(|entry| {
        let (gateway, at) = entry.split_first_chunk()?;
        Some((
            u32::from_be_bytes(*gateway),
            u64::from_be_bytes(at.try_into().ok()?),
        ))
    });
    Ok(each.collect())
}
