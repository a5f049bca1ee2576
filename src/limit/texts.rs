//! What is said of limits for every request, made of them once.

use std::sync::OnceLock;

/// Made when it is first asked for. A copy of what it is said of makes its own, for that may be changed in a copy.
#[derive(Debug)]
pub struct Once<T>(OnceLock<T>);

/// Texts of one limit.
#[derive(Debug)]
pub struct Texts {
    /// Before the number of units that are left.
    pub left: Box<str>,
    /// By window: units that no plan multiplies, and what is said of them behind others.
    pub windows: Box<[(u32, Box<str>)]>,
}

impl<T> Once<T> {
    /// What was made; `make` is asked for it once.
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
