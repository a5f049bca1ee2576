//! What is said of a limit for every request, made of it once.

use std::sync::OnceLock;

/// Texts of one limit, made when they are first asked for. A copy of it makes its own, for what they say may be changed
/// in a copy.
#[derive(Debug, Default)]
pub struct Once(OnceLock<Texts>);

/// See [`Once`].
#[derive(Debug)]
pub struct Texts {
    /// Before the number of units that are left.
    pub left: Box<str>,
    /// By window: units that no plan multiplies, and what is said of them behind others.
    pub windows: Box<[(u32, Box<str>)]>,
}

impl Once {
    /// The texts; `make` is asked for them once.
    pub fn get(&self, make: impl FnOnce() -> Texts) -> &Texts {
        self.0.get_or_init(make)
    }
}

impl Clone for Once {
    fn clone(&self) -> Once {
        Once::default()
    }
}
