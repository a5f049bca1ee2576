//! How [`MemcachedClient`] identifies the servers by their incarnations, and keeps their lists of live gateways. Once
//! identified, all servers hold the same secret, and each has a list of its own. Incarnations and lists are changed by
//! compare-and-swap, because all gateways change them.

use std::borrow::Cow;
use std::hash::Hasher;

use futures_util::future::join_all;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::client::{MemcachedClient, MemcachedServer};
use super::incarnation::{ServerIncarnation, random_bytes};
use super::keys::NO_EXPIRY;
use super::link::{Replies, unexpected_reply};
use super::wire::{MetaReply, Replaces};
use crate::store::shared::call::{
    GatewayHeartbeat, HeartbeatSender, LiveGateways, StoreError, StoreIdentity, StoreMark,
};

/// How long a gateway counts as alive after its last heartbeat, in microseconds.
const ALIVE_AFTER_HEARTBEAT_MICROS: u64 = 10_000_000;
/// Bytes of one gateway in the list: its number of 32 bits, and a time of 64.
const HEARTBEAT_BYTES: usize = 12;
/// The bit of a time that is set if the servers do not know all units of its gateway.
const UNREPORTED_BIT: u64 = 1 << 63;
/// The most gateways in the list. Of more gateways, those with the oldest heartbeats are dropped.
const MAX_GATEWAYS: usize = 1_000;
/// Most attempts to give all servers one secret, while other gateways do the same.
const MAX_IDENTIFY_ATTEMPTS: usize = 8;
/// Most attempts to change a list. There are many, because each of hundreds of gateways changes it once a second.
const MAX_LIST_ATTEMPTS: usize = 64;

/// A server's incarnation, as the server stores it.
struct StoredIncarnation {
    incarnation: ServerIncarnation,
    /// The version of the item, for compare-and-swap.
    version: u64,
}

/// The incarnation of a server, if it has one; or why it could not be read.
type IncarnationResult = Result<Option<StoredIncarnation>, StoreError>;
/// The last heartbeat of each gateway, with times in microseconds since the Unix epoch.
type HeartbeatList = Vec<GatewayHeartbeat>;

impl MemcachedServer {
    /// Checks that the server still has the incarnation by which it was identified. The reply with this index is that
    /// to the read of [`MemcachedClient::incarnation_key`].
    ///
    /// # Errors
    ///
    /// [`StoreError::MarkMismatch`] where the server has another incarnation or none, or was never identified.
    /// [`StoreError::Other`] where the reply is missing, an error, or no reply to a read.
    pub(super) fn check_incarnation(
        &self,
        replies: &Replies,
        index: usize,
    ) -> Result<ServerIncarnation, StoreError> {
        let incarnation = self.incarnation.read().ok_or(StoreError::MarkMismatch)?;
        match replies.get(index) {
            Some(MetaReply::Value { bytes, .. }) if bytes[..] == incarnation.encode() => {
                Ok(incarnation)
            }
            Some(MetaReply::Value { .. } | MetaReply::Missing) => Err(StoreError::MarkMismatch),
            other => Err(unexpected_reply(other)),
        }
    }

    /// Reads the server's incarnation from the item with this key.
    async fn read_incarnation(&self, connection_index: usize, key: &str) -> IncarnationResult {
        let replies = self.call(connection_index, |batch| {
            batch.get_with_version(key);
        });
        match replies.await?.get(0) {
            Some(MetaReply::Missing) => Ok(None),
            Some(MetaReply::Value { bytes, version }) => match ServerIncarnation::decode(bytes) {
                Some(incarnation) => Ok(Some(StoredIncarnation {
                    incarnation,
                    version: *version,
                })),
                None => Err(StoreError::Other(Cow::Owned(format!(
                    "`{key}` holds something else"
                )))),
            },
            other => Err(unexpected_reply(other)),
        }
    }
}

impl MemcachedClient {
    /// The key of the item that holds a server's incarnation.
    pub(super) fn incarnation_key(&self) -> String {
        format!("{}:mark", self.prefix)
    }

    fn list_key(&self) -> String {
        format!("{}:gateways", self.prefix)
    }

    /// Identifies the store: reads the incarnations of all servers, against which later calls are checked. A server
    /// that does not reply keeps the incarnation by which it was last identified, if that has the same secret.
    ///
    /// Of the secrets in the servers, that of the first server by name counts. Empty servers and servers with another
    /// secret get it, with new incarnations. If all servers that reply are empty, they get `known_secret`; without one
    /// they get a new secret, if `may_initialize` is set.
    ///
    /// # Errors
    ///
    /// [`StoreError::Empty`] where all servers that reply are empty, no secret is known and `may_initialize` is not
    /// set. The error of a server, if none replies, or if one replies with an error or with something malformed.
    /// [`StoreError::Other`] if the system gives no random bytes, or after [`MAX_IDENTIFY_ATTEMPTS`] without one secret
    /// in all servers.
    pub async fn identify(
        &self,
        connection_index: usize,
        known_secret: Option<[u8; 16]>,
        may_initialize: bool,
    ) -> Result<StoreIdentity, StoreError> {
        let (now_micros, key) = (self.now_micros(), self.incarnation_key());
        let mut own_secret = known_secret;
        for _ in 0..MAX_IDENTIFY_ATTEMPTS {
            let servers = self.servers.iter();
            let incarnations =
                join_all(servers.map(|server| server.read_incarnation(connection_index, &key)))
                    .await;
            if let Some(error) = unusable_store(&incarnations) {
                return Err(error);
            }
            // Servers are sorted by name, so all gateways agree on which one is first.
            let mut readable = incarnations
                .iter()
                .filter_map(|incarnation| incarnation.as_ref().ok());
            let stored =
                readable.find_map(|stored| stored.as_ref().map(|stored| stored.incarnation.secret));
            let secret = match (stored, own_secret) {
                (Some(secret), _) | (None, Some(secret)) => secret,
                // A new secret is kept for the next attempts.
                (None, None) if !may_initialize => return Err(StoreError::Empty),
                (None, None) => *own_secret.insert(random_bytes()?),
            };
            let is_empty = stored.is_none();
            if !self
                .write_incarnations(
                    connection_index,
                    &incarnations,
                    secret,
                    now_micros,
                    is_empty,
                )
                .await?
            {
                return Ok(self.record_incarnations(&incarnations, secret, now_micros));
            }
        }
        Err(StoreError::Other(Cow::Borrowed(
            "the servers do not agree on one secret",
        )))
    }

    /// Tries to write new incarnations to servers without one or with another secret. Returns whether there was such a
    /// server; it may have refused the write. In a store that `is_empty` only the first one is written.
    ///
    /// # Errors
    ///
    /// When the system gives no random bytes.
    async fn write_incarnations(
        &self,
        connection_index: usize,
        incarnations: &[IncarnationResult],
        secret: [u8; 16],
        now_micros: u64,
        is_empty: bool,
    ) -> Result<bool, StoreError> {
        let key = self.incarnation_key();
        let mut has_tried = false;
        for (server, incarnation) in self.servers.iter().zip(incarnations) {
            let replaces = match incarnation {
                Ok(None) => Replaces::Nothing,
                Ok(Some(stored)) if stored.incarnation.secret != secret => {
                    Replaces::Version(stored.version)
                }
                Ok(Some(_)) | Err(_) => continue,
            };
            has_tried = true;
            let incarnation = ServerIncarnation::new(now_micros, secret)?.encode();
            let written = server.call(connection_index, |batch| {
                batch.set(&key, &incarnation, NO_EXPIRY, replaces);
            });
            // Another gateway may have been faster, or the server may be away. The next attempt reads it again.
            drop(written.await);
            if is_empty {
                // Another gateway may try the same with its own secret. The next attempt reads which secret has won,
                // and writes it to the other servers.
                break;
            }
        }
        Ok(has_tried)
    }

    /// Records the incarnations for later checks, and hashes their ids to the store's mark.
    fn record_incarnations(
        &self,
        incarnations: &[IncarnationResult],
        secret: [u8; 16],
        now_micros: u64,
    ) -> StoreIdentity {
        let mut hash = SipHasher13::new();
        for (server, stored) in self.servers.iter().zip(incarnations) {
            let mut incarnation = server.incarnation.write();
            if let Ok(Some(stored)) = stored {
                *incarnation = Some(stored.incarnation);
            }
            // Under another secret keys have other hashes. So a server that is away, and had another secret when it was
            // last identified, counts as not identified.
            *incarnation = incarnation.filter(|incarnation| incarnation.secret == secret);
            hash.write(server.name.as_bytes());
            hash.write(&incarnation.map_or([0; 16], |incarnation| incarnation.id));
        }
        let mark: StoreMark = hash.finish128().as_u128().to_be_bytes();
        StoreIdentity {
            mark,
            secret,
            // memcached has no master.
            has_new_master: false,
            now_micros,
        }
    }

    /// Lists the gateways that are alive, by the latest heartbeat of each on any server. With a `sender`, first records
    /// that it is alive and what it states.
    ///
    /// # Errors
    ///
    /// [`StoreError::MarkMismatch`] where a server that replies has lost its data or was never identified. The error of
    /// a server, if none has a usable reply.
    pub async fn send_heartbeat(
        &self,
        connection_index: usize,
        sender: Option<HeartbeatSender>,
    ) -> Result<LiveGateways, StoreError> {
        let now_micros = self.now_micros();
        let lists = self.servers.iter().map(|server| async move {
            let record_heartbeat = |list: &mut HeartbeatList| {
                if let Some(sender) = sender {
                    list.retain(|heartbeat| heartbeat.sender.gateway != sender.gateway);
                    list.push(GatewayHeartbeat {
                        sender,
                        sent_at_micros: now_micros,
                    });
                }
            };
            let stores_list = sender.is_some();
            self.update_list(
                server,
                connection_index,
                now_micros,
                stores_list,
                record_heartbeat,
            )
            .await
        });
        let mut heartbeats = HeartbeatList::new();
        let (mut has_replied, mut error) = (false, StoreError::NotConnected);
        for list in join_all(lists).await {
            match list {
                Ok(list) => {
                    has_replied = true;
                    heartbeats.extend(list);
                }
                Err(StoreError::MarkMismatch) => return Err(StoreError::MarkMismatch),
                Err(server_error) => error = server_error,
            }
        }
        // Keeps the latest heartbeat of each gateway.
        heartbeats.sort_unstable_by_key(|heartbeat| {
            (
                heartbeat.sender.gateway,
                u64::MAX - heartbeat.sent_at_micros,
            )
        });
        heartbeats.dedup_by_key(|heartbeat| heartbeat.sender.gateway);
        match has_replied {
            true => Ok(LiveGateways {
                now_micros,
                heartbeats,
            }),
            false => Err(error),
        }
    }

    /// Removes a gateway from the lists of all servers that reply.
    ///
    /// # Errors
    ///
    /// The error of a server, if none replies.
    pub async fn remove_gateway(
        &self,
        connection_index: usize,
        gateway: u32,
    ) -> Result<(), StoreError> {
        let now_micros = self.now_micros();
        let lists = self.servers.iter().map(|server| {
            let remove = move |list: &mut HeartbeatList| {
                list.retain(|heartbeat| heartbeat.sender.gateway != gateway)
            };
            self.update_list(server, connection_index, now_micros, true, remove)
        });
        let lists = join_all(lists).await;
        let has_replied = lists.iter().any(Result::is_ok);
        match lists.into_iter().find_map(Result::err) {
            Some(error) if !has_replied => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads a server's list without the gateways that are no longer alive, and changes it. If `stores_list` is set, stores
    /// the changed list, and begins anew if another gateway was faster. Returns the changed list, latest heartbeats first.
    ///
    /// # Errors
    ///
    /// [`StoreError::MarkMismatch`] where the server has another incarnation or was never identified. Another error when
    /// there is no usable reply, the list is malformed, or [`MAX_LIST_ATTEMPTS`] were in vain.
    async fn update_list(
        &self,
        server: &MemcachedServer,
        connection_index: usize,
        now_micros: u64,
        stores_list: bool,
        change: impl Fn(&mut HeartbeatList),
    ) -> Result<HeartbeatList, StoreError> {
        let (incarnation_key, list_key) = (self.incarnation_key(), self.list_key());
        for _ in 0..MAX_LIST_ATTEMPTS {
            let replies = server.call(connection_index, |batch| {
                batch.get(&incarnation_key);
                batch.get_with_version(&list_key);
            });
            let replies = replies.await?;
            server.check_incarnation(&replies, 0)?;
            let (mut list, replaces) = match replies.get(1) {
                Some(MetaReply::Missing) => (Vec::new(), Replaces::Nothing),
                Some(MetaReply::Value { bytes, version }) => {
                    (decode_list(bytes)?, Replaces::Version(*version))
                }
                other => return Err(unexpected_reply(other)),
            };
            // After a gateway's clock was put back, its heartbeats may be in the future. A heartbeat far ahead would keep
            // its gateway alive for too long, so it counts as sent now. Nothing new is reported by it.
            let future_heartbeats = list.iter_mut().filter(|heartbeat| {
                heartbeat.sent_at_micros > now_micros + ALIVE_AFTER_HEARTBEAT_MICROS
            });
            future_heartbeats.for_each(|heartbeat| {
                heartbeat.sent_at_micros = now_micros;
                heartbeat.sender.has_reported = false;
            });
            list.retain(|heartbeat| {
                now_micros.saturating_sub(heartbeat.sent_at_micros) <= ALIVE_AFTER_HEARTBEAT_MICROS
            });
            change(&mut list);
            list.sort_unstable_by_key(|heartbeat| u64::MAX - heartbeat.sent_at_micros);
            list.truncate(MAX_GATEWAYS);
            if !stores_list {
                return Ok(list);
            }
            let replies = server.call(connection_index, |batch| {
                batch.set(&list_key, &encode_list(&list), NO_EXPIRY, replaces);
            });
            match replies.await?.get(0) {
                Some(MetaReply::Done) => return Ok(list),
                Some(MetaReply::NotStored | MetaReply::Missing) => {}
                other => return Err(unexpected_reply(other)),
            }
        }
        Err(StoreError::Other(Cow::Borrowed(
            "too many gateways change the list at once",
        )))
    }
}

/// The error that makes the whole store unusable: the first one, if no incarnation could be read. Otherwise the first
/// [`StoreError::Other`], for instance for a malformed reply. `None` if the store is usable: then each server that could
/// not be read is only out of reach.
fn unusable_store(incarnations: &[IncarnationResult]) -> Option<StoreError> {
    let mut errors = incarnations
        .iter()
        .filter_map(|incarnation| incarnation.as_ref().err());
    if incarnations.iter().all(Result::is_err) {
        return Some(errors.next().cloned().unwrap_or(StoreError::NotConnected));
    }
    errors
        .find(|error| matches!(error, StoreError::Other(_)))
        .cloned()
}

/// Encodes a list: for each gateway its number, then the time of its heartbeat with [`UNREPORTED_BIT`], both in
/// big-endian order.
fn encode_list(list: &[GatewayHeartbeat]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(list.len() * HEARTBEAT_BYTES);
    for heartbeat in list {
        let HeartbeatSender {
            gateway,
            has_reported,
        } = heartbeat.sender;
        let bit = if has_reported { 0 } else { UNREPORTED_BIT };
        bytes.extend_from_slice(&gateway.to_be_bytes());
        bytes.extend_from_slice(&(heartbeat.sent_at_micros | bit).to_be_bytes());
    }
    bytes
}

/// Decodes a list as [`encode_list`] has written it. Fails if its length is not a multiple of [`HEARTBEAT_BYTES`].
fn decode_list(bytes: &[u8]) -> Result<HeartbeatList, StoreError> {
    let (entries, remainder) = bytes.as_chunks::<HEARTBEAT_BYTES>();
    if !remainder.is_empty() {
        return Err(StoreError::Other(Cow::Borrowed(
            "the list of gateways is malformed",
        )));
    }
    let heartbeats = entries.iter().filter_map(|entry| {
        let (gateway, heartbeat_at) = entry.split_first_chunk()?;
        let heartbeat_at = u64::from_be_bytes(heartbeat_at.try_into().ok()?);
        Some(GatewayHeartbeat {
            sender: HeartbeatSender {
                gateway: u32::from_be_bytes(*gateway),
                has_reported: heartbeat_at & UNREPORTED_BIT == 0,
            },
            sent_at_micros: heartbeat_at & !UNREPORTED_BIT,
        })
    });
    Ok(heartbeats.collect())
}
