//! [`ServerIncarnation`]: one life of a server's data, from its first item to its loss. An item on the server names it,
//! holds the secret of all gateways, and is lost with the data. A gateway that reads another incarnation than before
//! treats the server's counts as lost.

use std::borrow::Cow;

use crate::store::shared::call::StoreError;

/// Bytes of an id, and of a secret.
const RANDOM_BYTES: usize = 16;
/// Bytes of the item: id, time and secret.
const ITEM_BYTES: usize = RANDOM_BYTES + size_of::<u64>() + RANDOM_BYTES;

/// The contents of the item that names a server's data: [`ITEM_BYTES`] bytes on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerIncarnation {
    /// A random number that names the server's data.
    pub(super) id: [u8; RANDOM_BYTES],
    /// When a gateway created the item, by that gateway's clock, in microseconds since the Unix epoch.
    pub(super) created_at_micros: u64,
    /// The secret with which all gateways hash keys.
    pub(super) secret: [u8; RANDOM_BYTES],
}

impl ServerIncarnation {
    /// An incarnation that begins now, with a random id.
    ///
    /// # Errors
    ///
    /// When the system gives no random bytes.
    pub(super) fn new(
        now_micros: u64,
        secret: [u8; RANDOM_BYTES],
    ) -> Result<ServerIncarnation, StoreError> {
        Ok(ServerIncarnation {
            id: random_bytes()?,
            created_at_micros: now_micros,
            secret,
        })
    }

    /// How long ago the item was created, in microseconds. Zero if its creation time is after `now_micros`, because the
    /// clock of another gateway is ahead.
    pub(super) fn age_micros(&self, now_micros: u64) -> u64 {
        now_micros.saturating_sub(self.created_at_micros)
    }

    /// Encodes the item: id, time in big-endian order, secret.
    pub(super) fn encode(&self) -> [u8; ITEM_BYTES] {
        let mut bytes = [0; ITEM_BYTES];
        let (id, time_and_secret) = bytes.split_at_mut(RANDOM_BYTES);
        let (time, secret) = time_and_secret.split_at_mut(size_of::<u64>());
        id.copy_from_slice(&self.id);
        time.copy_from_slice(&self.created_at_micros.to_be_bytes());
        secret.copy_from_slice(&self.secret);
        bytes
    }

    /// Decodes the item; `None` if it does not have [`ITEM_BYTES`] bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<ServerIncarnation> {
        let (id, time_and_secret) = bytes.split_first_chunk()?;
        let (created_at_micros, secret) = time_and_secret.split_first_chunk()?;
        Some(ServerIncarnation {
            id: *id,
            created_at_micros: u64::from_be_bytes(*created_at_micros),
            secret: secret.try_into().ok()?,
        })
    }
}

/// Random bytes of the system, for an id or a secret.
///
/// # Errors
///
/// When the system gives none.
pub(super) fn random_bytes() -> Result<[u8; RANDOM_BYTES], StoreError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|_| StoreError::Other(Cow::Borrowed("the system gives no random bytes")))?;
    Ok(bytes)
}
