//! A server's life: an item on each server that names its data, and that is gone when the data is.

use std::borrow::Cow;

use crate::store::shared::call::StoreError;

/// The contents of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) id: [u8; 16],
    /// When the first gateway met the server, by that gateway's clock, in microseconds.
    pub(super) begun: u64,
    pub(super) secret: [u8; 16],
}

impl Life {
    pub(super) fn fresh(now: u64, secret: [u8; 16]) -> Result<Life, StoreError> {
        let (id, begun) = (random()?, now);
        Ok(Life { id, begun, secret })
    }

    pub(super) fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.id);
        bytes[16..24].copy_from_slice(&self.begun.to_be_bytes());
        bytes[24..].copy_from_slice(&self.secret);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Life> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (begun, rest) = rest.split_first_chunk()?;
        Some(Life {
            id: *id,
            begun: u64::from_be_bytes(*begun),
            secret: rest.try_into().ok()?,
        })
    }
}

pub(super) fn random() -> Result<[u8; 16], StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|_| StoreError::Other(Cow::Borrowed("the system gives no random bytes")))?;
    Ok(bytes)
}
