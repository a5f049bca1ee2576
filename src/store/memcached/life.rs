//! [`ServerIncarnation`]: an item on each server that names the server's data, and that is lost with the data. A gateway that
//! finds another life than before knows that the server has lost its counts. The item never changes while the data lives.

use std::borrow::Cow;

use crate::store::shared::call::StoreError;

/// The contents of the item that names a server's data, 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerIncarnation {
    /// A random number that names the server's data.
    pub(super) id: [u8; 16],
    /// When a gateway created the item, by that gateway's clock, in microseconds since the Unix epoch.
    pub(super) created_at_micros: u64,
    /// The secret with which all gateways hash keys.
    pub(super) secret: [u8; 16],
}

impl ServerIncarnation {
    /// A life with a new random id.
    ///
    /// # Errors
    ///
    /// When the system gives no random bytes.
    pub(super) fn new(now_micros: u64, secret: [u8; 16]) -> Result<ServerIncarnation, StoreError> {
        Ok(ServerIncarnation {
            id: random_bytes()?,
            created_at_micros: now_micros,
            secret,
        })
    }

    pub(super) fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.id);
        bytes[16..24].copy_from_slice(&self.created_at_micros.to_be_bytes());
        bytes[24..].copy_from_slice(&self.secret);
        bytes
    }

    /// Decodes the item; `None` where it has another length.
    pub(super) fn decode(bytes: &[u8]) -> Option<ServerIncarnation> {
        let (id, bytes) = bytes.split_first_chunk()?;
        let (created_at_micros, secret) = bytes.split_first_chunk()?;
        Some(ServerIncarnation {
            id: *id,
            created_at_micros: u64::from_be_bytes(*created_at_micros),
            secret: secret.try_into().ok()?,
        })
    }
}

/// Random bytes of the system, for an id or a secret.
pub(super) fn random_bytes() -> Result<[u8; 16], StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|_| StoreError::Other(Cow::Borrowed("the system gives no random bytes")))?;
    Ok(bytes)
}
