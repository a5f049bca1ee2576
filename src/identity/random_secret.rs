//! A random secret for [`Keyer`](super::Keyer). Builds without the gateway have no dependency that reads random bytes, and
//! use the random keys of the standard library.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Length of the secret, in bytes: SipHash keys have 128 bits.
pub(super) const SECRET_BYTES: usize = 16;

/// A secret that no earlier call has returned.
pub(super) fn random_secret() -> [u8; SECRET_BYTES] {
    let mut secret = [0; SECRET_BYTES];
    // A sandbox may forbid the system call. The standard library has a fallback for that, but gives no random bytes.
    if !fill_with_random_bytes(&mut secret) {
        fill_with_hashes(&mut secret);
    }
    secret
}

/// Reads random bytes from the system. Returns `false` if it gives none.
#[cfg(feature = "gateway")]
fn fill_with_random_bytes(secret: &mut [u8; SECRET_BYTES]) -> bool {
    getrandom::fill(secret).is_ok()
}

/// Returns `false`, because nothing here reads random bytes.
#[cfg(not(feature = "gateway"))]
fn fill_with_random_bytes(_: &mut [u8; SECRET_BYTES]) -> bool {
    false
}

/// Two hashes under random keys of the standard library, which are as random as those keys, are the halves of the secret.
fn fill_with_hashes(secret: &mut [u8; SECRET_BYTES]) {
    let random_state = RandomState::new();
    for (index, half) in secret.chunks_mut(SECRET_BYTES / 2).enumerate() {
        let mut hasher = random_state.build_hasher();
        hasher.write_usize(index);
        half.copy_from_slice(&hasher.finish().to_le_bytes()[..half.len()]);
    }
}
