//! Texts about limits that many responses have in their header fields. Each is made once, when a response first needs it.

use std::sync::OnceLock;

/// A cell for a value that is made when it is first needed. A clone is empty, because the limit that the value
/// describes may be changed in the copy.
#[derive(Debug)]
pub struct UnclonedCell<T>(OnceLock<T>);

/// The parts of rate-limit headers that stay the same for one limit.
#[derive(Debug)]
pub struct HeaderTexts {
    /// The text before the number of remaining units, in `RateLimit`.
    pub remaining_prefix: Box<str>,
    /// For each window: its quota in units without a plan's multiplier, and its member of `RateLimit-Policy` with the
    /// separator before it.
    pub windows: Box<[(u32, Box<str>)]>,
}

impl<T> UnclonedCell<T> {
    /// Returns the value. `make` is called the first time only.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(make)
    }
}

impl<T> Default for UnclonedCell<T> {
    fn default() -> UnclonedCell<T> {
        UnclonedCell(OnceLock::new())
    }
}

impl<T> Clone for UnclonedCell<T> {
    fn clone(&self) -> UnclonedCell<T> {
        UnclonedCell::default()
    }
}
