//! Settings and errors of the store.

use std::io;

/// Most limits at a time that are in use or still count something.
pub(super) const MOST_LIMITS: usize = 65_536;

/// Settings of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes for all counts together, from [`Settings::LEAST`] to [`Settings::MOST`].
    pub budget: usize,
}

impl Settings {
    /// The smallest budget: 1 MiB.
    pub const LEAST: usize = 1 << 20;
    /// The largest budget: 128 GiB, because half of it is the arena, whose block numbers have 32 bits.
    pub const MOST: usize = 128 << 30;
}

/// Why a store cannot be made, or cannot register a limit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The budget is below [`Settings::LEAST`] or above [`Settings::MOST`].
    #[error("the store takes {least} to {most} bytes", least = Settings::LEAST, most = Settings::MOST)]
    Budget,
    /// Too many limits are in use or still have counts.
    #[error("more than {most} limits are in use", most = MOST_LIMITS)]
    Slots,
    /// The system gives no memory.
    #[error("the system gives no memory for the store: {0}")]
    Memory(#[from] io::Error),
}
