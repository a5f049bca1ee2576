//! The form in which keys are stored.

/// The keyed hash of who or what is counted; the only form in which a key is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);
