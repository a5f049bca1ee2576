//! Hashes identities under a secret, with SipHash-1-3 of 128 bits. Limits count under these hashes alone, and stores hold
//! no other trace of an identity.
//!
//! No client can choose a text whose hash collides with another client's, because the secret is hidden. Counters name no
//! client to a reader without the secret.

use std::fmt;

use siphasher::sip128::SipHasher13;
use smallvec::{SmallVec, smallvec};

use super::custom_value::IdentityValue;
use super::random_secret::{SECRET_BYTES, random_secret};
use crate::limit::{CustomIdentity, Fingerprint};

// The tags of the parts of a custom identity in the hash of a key. `identifier.rs` has the tags of built-in identities.
// Gateways share these hashes, so the tags must not change.

/// Tag of the identity's name.
const CUSTOM_NAME_TAG: u8 = 6;
/// Tag of each name in the identity's value.
const CUSTOM_VALUE_TAG: u8 = 7;
/// Tag of the hash of the identity's value.
const CUSTOM_HASH_TAG: u8 = 8;

/// Hashes identities under one secret. Two keyers with the same secret give the same fingerprints,
/// on every machine and in every version.
#[derive(Clone)]
pub struct Keyer(SipHasher13);

/// The kind of text that is hashed, as in domain separation. The same bytes have unrelated fingerprints in two domains.
///
/// Gateways of different versions share fingerprints, so the numbers must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Domain {
    /// The key of a limit, made of one or more parts; see [`KeyHasher`].
    Key = 1,
    /// A credential in its canonical form.
    Token = 2,
    /// A folded email address, or the name of an account in its place.
    Email = 3,
    /// A network around an IPv6 client, wider than the client's own.
    Network = 4,
    /// The text of a token, under which the result of its verification is cached.
    Verdict = 5,
    /// A key in the file of API keys.
    ApiKey = 6,
    /// Nothing but the secret; see [`Keyer::seed`].
    Seed = 7,
    /// The key of a limit that counts all clients together. The same hash marks the secret of an
    /// [`OverrideCache`](super::override_table::OverrideCache).
    Everyone = 8,
    /// A value of a custom identity that is secret, or that is no valid name.
    Custom = 9,
}

impl Keyer {
    /// Hashes under `secret`.
    pub fn new(secret: [u8; SECRET_BYTES]) -> Keyer {
        Keyer(SipHasher13::new_with_key(&secret))
    }

    /// Hashes under a new random secret.
    pub fn random() -> Keyer {
        Keyer::new(random_secret())
    }

    /// The secret, for a later process that must make the same fingerprints.
    pub fn secret(&self) -> [u8; SECRET_BYTES] {
        self.0.key()
    }

    /// A number that depends only on the secret and reveals nothing of it.
    pub fn seed(&self) -> u64 {
        // Either half of a hash is as random as the whole.
        self.fingerprint(Domain::Seed, &[]).0 as u64
    }

    /// The fingerprint of `bytes` in `domain`.
    pub fn fingerprint(&self, domain: Domain, bytes: &[u8]) -> Fingerprint {
        let mut hashed_bytes: SmallVec<[u8; 128]> = SmallVec::new();
        hashed_bytes.push(domain as u8);
        hashed_bytes.extend_from_slice(bytes);
        self.hash(&hashed_bytes)
    }

    /// Hashes bytes of which the first one is their [`Domain`].
    fn hash(&self, bytes: &[u8]) -> Fingerprint {
        Fingerprint(self.0.hash(bytes).as_u128())
    }

    /// Begins a fingerprint of several parts in [`Domain::Key`].
    pub fn key_hasher(&self) -> KeyHasher<'_> {
        KeyHasher {
            keyer: self,
            bytes: smallvec![Domain::Key as u8],
        }
    }
}

impl fmt::Debug for Keyer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyer(..)")
    }
}

/// Collects the parts of a limit's key and hashes them. Each part is hashed with its tag and its length, so that no two
/// lists of parts give the same bytes. The order of the parts matters.
#[derive(Debug)]
pub struct KeyHasher<'k> {
    keyer: &'k Keyer,
    /// The domain, and the parts so far.
    bytes: SmallVec<[u8; 128]>,
}

impl KeyHasher<'_> {
    /// Adds a part. `tag` says which identity the part is of.
    pub fn add_part(&mut self, tag: u8, bytes: &[u8]) {
        self.bytes.push(tag);
        self.bytes
            .extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds the value of a custom identity. An ambiguous one adds nothing.
    pub fn add_custom(&mut self, identity: CustomIdentity, value: &IdentityValue) {
        if *value == IdentityValue::Ambiguous {
            return;
        }
        self.add_part(CUSTOM_NAME_TAG, identity.as_str().as_bytes());
        match value {
            IdentityValue::Names(names) => {
                for name in names {
                    self.add_part(CUSTOM_VALUE_TAG, name.as_bytes());
                }
            }
            IdentityValue::Hash(Fingerprint(hash)) => {
                self.add_part(CUSTOM_HASH_TAG, &hash.to_le_bytes())
            }
            IdentityValue::Ambiguous => {}
        }
    }

    /// The fingerprint of all parts; `None` if no part was added.
    pub fn finish(self) -> Option<Fingerprint> {
        // The first byte is the domain.
        let has_parts = self.bytes.len() > 1;
        has_parts.then(|| self.keyer.hash(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(parts: &[(u8, &[u8])]) -> Option<Fingerprint> {
        let keyer = Keyer::new([7; 16]);
        let mut hasher = keyer.key_hasher();
        for (tag, bytes) in parts {
            hasher.add_part(*tag, bytes);
        }
        hasher.finish()
    }

    #[test]
    fn lists_of_parts_never_read_alike() {
        let lists: [&[(u8, &[u8])]; 8] = [
            &[(0, b"ab")],
            &[(1, b"ab")],
            &[(0, b"a"), (0, b"b")],
            &[(0, b"a"), (1, b"b")],
            &[(0, b"ab"), (1, b"")],
            &[(0, b""), (1, b"ab")],
            &[(0, b"")],
            &[],
        ];
        for (index, parts) in lists.iter().enumerate() {
            for (other_index, other_parts) in lists.iter().enumerate() {
                assert_eq!(
                    key_of(parts) == key_of(other_parts),
                    index == other_index,
                    "{parts:?} {other_parts:?}"
                );
            }
        }
        assert_eq!(key_of(&[]), None);
    }

    #[test]
    fn secret_and_domain_separate() {
        let keyer = Keyer::new([1; 16]);
        let other_keyer = Keyer::new([2; 16]);
        let hash_x = |keyer: &Keyer, domain| keyer.fingerprint(domain, b"x");
        assert_eq!(
            hash_x(&keyer, Domain::Token),
            hash_x(&Keyer::new([1; 16]), Domain::Token)
        );
        assert_ne!(
            hash_x(&keyer, Domain::Token),
            hash_x(&other_keyer, Domain::Token)
        );
        assert_ne!(hash_x(&keyer, Domain::Token), hash_x(&keyer, Domain::Email));
        assert_ne!(
            hash_x(&Keyer::random(), Domain::Token),
            hash_x(&Keyer::random(), Domain::Token)
        );
    }

    /// Gateways of different versions share counters, so this may never change.
    #[test]
    fn fingerprints_are_stable() {
        let keyer = Keyer::new(*b"0123456789abcdef");
        let token = keyer.fingerprint(Domain::Token, b"secret");
        assert_eq!(
            format!("{:032x}", token.0),
            "d158a5d96eec2c6b027e34d4007ed8aa"
        );
    }
}
