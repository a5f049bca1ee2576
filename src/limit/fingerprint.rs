//! The form in which stores see keys: a keyed hash, from which no identity can be read.

/// The keyed hash of the identities that a limit counts by. Stores see keys in no other form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);
