//! Keyed hashes: the only form in which identities are counted and stored. SipHash-1-3 with 128 bits and a secret
//! key. So no client can choose a text that lands on another's counter, and a stolen counter names no client.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::SipHasher13;
use smallvec::{SmallVec, smallvec};

use crate::limit::Fingerprint;

/// Hashes identities under one secret. Two keyers with the same secret give the same fingerprints,
/// on every machine and in every version.
#[derive(Clone)]
pub struct Keyer(SipHasher13);

/// What a fingerprint is of; the same bytes in two domains have unrelated fingerprints.
///
/// The numbers are part of what gateways share and must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Domain {
    /// What a limit counts by; see [`Mixer`].
    Key = 1,
    /// A credential.
    Token = 2,
    /// A normalised email address.
    Email = 3,
    /// A network around an IPv6 client.
    Network = 4,
    /// A token whose verification is remembered.
    Verdict = 5,
    /// A key of the file of API keys.
    ApiKey = 6,
    /// See [`Keyer::seed`].
    Seed = 7,
}

impl Keyer {
    /// Hashes under `secret`.
    pub fn new(secret: [u8; 16]) -> Keyer {
        Keyer(SipHasher13::new_with_key(&secret))
    }

    /// Hashes under a secret that only this process knows.
    pub fn random() -> Keyer {
        let mut secret = [0; 16];
        if getrandom::fill(&mut secret).is_err() {
            // The standard library's own source, which falls back where a sandbox forbids the
            // system call.
            let random = RandomState::new();
            for (number, half) in secret.chunks_mut(8).enumerate() {
                let mut hasher = random.build_hasher();
                hasher.write_usize(number);
                half.copy_from_slice(&hasher.finish().to_le_bytes()[..half.len()]);
            }
        }
        Keyer::new(secret)
    }

    /// The secret, for who is to give the same fingerprints later.
    pub fn secret(&self) -> [u8; 16] {
        self.0.key()
    }

    /// For what must not be the same in every process and is no secret.
    pub fn seed(&self) -> u64 {
        // Each half is as good as the whole.
        self.fingerprint(Domain::Seed, &[]).0 as u64
    }

    /// The fingerprint of `bytes` in `domain`.
    pub fn fingerprint(&self, domain: Domain, bytes: &[u8]) -> Fingerprint {
        let mut text: SmallVec<[u8; 128]> = SmallVec::new();
        text.push(domain as u8);
        text.extend_from_slice(bytes);
        self.hash(&text)
    }

    fn hash(&self, bytes: &[u8]) -> Fingerprint {
        Fingerprint(self.0.hash(bytes).as_u128())
    }

    /// Begins the fingerprint of several parts.
    pub fn mix(&self) -> Mixer<'_> {
        Mixer {
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

/// Several parts that become one fingerprint in [`Domain::Key`]. Each goes in with its tag and its
/// length, so that no two lists of parts read alike: which parts are there is part of the key.
#[derive(Debug)]
pub struct Mixer<'k> {
    keyer: &'k Keyer,
    bytes: SmallVec<[u8; 128]>,
}

impl Mixer<'_> {
    /// Adds one part.
    pub fn part(&mut self, tag: u8, bytes: &[u8]) {
        self.bytes.push(tag);
        self.bytes
            .extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    /// The fingerprint of all parts, nothing when there is none.
    pub fn finish(self) -> Option<Fingerprint> {
        let some = self.bytes.len() > 1;
        some.then(|| self.keyer.hash(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(parts: &[(u8, &[u8])]) -> Option<Fingerprint> {
        let keyer = Keyer::new([7; 16]);
        let mut mixer = keyer.mix();
        for (tag, bytes) in parts {
            mixer.part(*tag, bytes);
        }
        mixer.finish()
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
        for (place, one) in lists.iter().enumerate() {
            for (other_place, other) in lists.iter().enumerate() {
                assert_eq!(
                    mixed(one) == mixed(other),
                    place == other_place,
                    "{one:?} {other:?}"
                );
            }
        }
        assert_eq!(mixed(&[]), None);
    }

    #[test]
    fn secret_and_domain_separate() {
        let (one, two) = (Keyer::new([1; 16]), Keyer::new([2; 16]));
        let of = |keyer: &Keyer, domain| keyer.fingerprint(domain, b"x");
        assert_eq!(
            of(&one, Domain::Token),
            of(&Keyer::new([1; 16]), Domain::Token)
        );
        assert_ne!(of(&one, Domain::Token), of(&two, Domain::Token));
        assert_ne!(of(&one, Domain::Token), of(&one, Domain::Email));
        assert_ne!(
            of(&Keyer::random(), Domain::Token),
            of(&Keyer::random(), Domain::Token)
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
