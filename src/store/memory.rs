//! placeholder
use super::{Item, Slot};
use crate::clock::Nanos;
use crate::limit::{Fingerprint, Limit, Reading};
use smallvec::SmallVec;
#[derive(Debug)]
pub struct Memory {}
#[derive(Debug, thiserror::Error)]
#[error("full")]
pub struct Error;
pub struct Settings {
    pub budget: usize,
}
pub struct Usage {
    pub budget: usize,
    pub bytes: usize,
    pub keys: usize,
    pub sketched: u64,
}
impl Memory {
    pub fn new(_: Settings) -> Result<Memory, Error> {
        Ok(Memory {})
    }
    pub fn register(&self, _: &str, _: &Limit) -> Result<Slot, Error> {
        Ok(Slot(0))
    }
    pub fn take(&self, _: &[Item<'_>], _: Nanos, _: &mut SmallVec<[Reading; 4]>) -> bool {
        true
    }
    pub fn peek(&self, _: &[Item<'_>], _: Nanos, _: &mut SmallVec<[Reading; 4]>) -> bool {
        true
    }
    pub fn settle(&self, _: &Limit, _: Slot, _: Fingerprint, _: u32, _: u32, _: Nanos) {}
    pub fn reset(&self, _: Slot, _: Fingerprint) -> bool {
        false
    }
    pub fn sweep(&self, _: Nanos, _: usize) -> usize {
        0
    }
    pub fn usage(&self) -> Usage {
        Usage {
            budget: 0,
            bytes: 0,
            keys: 0,
            sketched: 0,
        }
    }
}
