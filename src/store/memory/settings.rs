//! The settings of the in-memory store, and its errors.

use std::io;

/// Most limits that are in use or still have counts at a time: as many as the 16 bits of a slot can number. A limit counts
/// once for each state shape that its scope still keeps.
pub(super) const MAX_LIMITS: usize = 65_536;

/// The settings of the in-memory store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of all counts together, from [`Settings::MIN_BUDGET_BYTES`] to [`Settings::MAX_BUDGET_BYTES`].
    pub budget_bytes: usize,
}

impl Settings {
    /// The smallest budget: 1 MiB.
    pub const MIN_BUDGET_BYTES: usize = 1 << 20;
    /// The largest budget: 128 GiB. Half of it is the arena, whose block ids of 32 bits number units of 16 bytes.
    pub const MAX_BUDGET_BYTES: usize = 128 << 30;
}

/// Why an in-memory store cannot be made, or cannot register a limit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The budget is below [`Settings::MIN_BUDGET_BYTES`] or above [`Settings::MAX_BUDGET_BYTES`].
    #[error("the store takes {least} to {most} bytes", least = Settings::MIN_BUDGET_BYTES, most = Settings::MAX_BUDGET_BYTES)]
    Budget,
    /// Too many limits are in use or still have counts.
    #[error("more than {most} limits are in use", most = MAX_LIMITS)]
    Slots,
    /// The system gives no memory.
    #[error("the system gives no memory for the store: {0}")]
    Memory(#[from] io::Error),
}
