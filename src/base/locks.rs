//! Locks that no panic poisons: those of parking_lot, or without the gateway's dependencies those of the standard library.

#[cfg(not(feature = "gateway"))]
mod std_locks;

#[cfg(feature = "gateway")]
pub use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "gateway"))]
pub use std_locks::{Mutex, MutexGuard, RwLock};
