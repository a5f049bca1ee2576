//! Texts about limits that many responses carry, made once.

use std::sync::OnceLock;

/// A value that is made when it is first needed. A clone is empty, because the limit that it describes may be changed in
/// the copy.
#[derive(Debug)]
pub struct Once<T>(OnceLock<T>);

/// The parts of rate-limit headers that stay the same for one limit.
#[derive(Debug)]
pub struct Texts {
    /// The text before the number of remaining units, in `RateLimit`.
    pub left: Box<str>,
    /// For each window its quota without a plan, and its member of `RateLimit-Policy` with the separator before it.
    pub windows: Box<[(u32, Box<str>)]>,
}

impl<T> Once<T> {
    /// The value; `make` is called for the first time only.
    pub fn get(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(make)
    }
}

impl<T> Default for Once<T> {
    fn default() -> Once<T> {
        Once(OnceLock::new())
    }
}

impl<T> Clone for Once<T> {
    fn clone(&self) -> Once<T> {
        Once::default()
    }
}
