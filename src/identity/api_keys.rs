//! Finds the owner of an API key: its user, plan and custom identities. It keeps hashes of keys, and never their text.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

use super::custom_value::CustomValue;
use super::key::{Domain, Keyer};
use super::token::MAX_CREDENTIAL_BYTES;
use super::user_name;
use crate::limit::Fingerprint;

/// All API keys. Keys that were written as text are hashed under a secret of their own. A look-up compares hashes, so the
/// time that it takes reveals nothing of the keys.
pub struct ApiKeys {
    /// Hashes keys with a secret of this list.
    keyer: Keyer,
    owners: HashMap<Fingerprint, KeyOwner>,
    /// The owners of the keys of which only the SHA-256 hash is known.
    owners_by_sha256: HashMap<[u8; 32], KeyOwner>,
    /// Whether some key has an end.
    may_expire: bool,
}

/// What the file of API keys says of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The user, spelled as the upstream and the log get it.
    pub user: Arc<str>,
    /// Index into [`super::plan::Settings::plans`]; `None` if the file names no plan.
    pub plan: Option<usize>,
    /// The time since the epoch from which on the key is no longer valid.
    pub expires: Option<Duration>,
    /// The custom identities that come with the key.
    pub custom: Vec<CustomValue>,
}

impl KeyOwner {
    /// The owner of a key that does not expire and has neither plan nor custom identities.
    pub fn new(user: Arc<str>) -> KeyOwner {
        KeyOwner {
            user,
            plan: None,
            expires: None,
            custom: Vec::new(),
        }
    }
}

/// A key as the file of API keys has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenKey<'k> {
    /// The text that requests carry.
    Text(Cow<'k, str>),
    /// The SHA-256 hash of that text.
    Sha256([u8; 32]),
}

impl<'k> WrittenKey<'k> {
    /// Parses `sha256:` and 64 hexadecimal digits as a hash; most other texts are the key itself. `None` if `sha256:`
    /// stands before anything else, and for a text that looks like a hash in another form, such as `md5:` and digits.
    pub fn parse(text: &'k str) -> Option<WrittenKey<'k>> {
        const HASH_NAMES: [&str; 6] = ["sha256", "sha-256", "sha384", "sha512", "sha1", "md5"];
        let Some(digits) = text.strip_prefix("sha256:") else {
            let prefix = text.split([':', '=']).next().unwrap_or_default();
            let is_other_hash = prefix.len() < text.len()
                && HASH_NAMES
                    .iter()
                    .any(|hash| prefix.eq_ignore_ascii_case(hash));
            return (!is_other_hash).then(|| WrittenKey::Text(text.into()));
        };
        let mut hash = [0; 32];
        let digits = digits.as_bytes();
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            let hex_value = |digit: u8| char::from(digit).to_digit(16);
            let [high, low] = pair else { return None };
            *byte = (hex_value(*high)? << 4 | hex_value(*low)?) as u8;
        }
        (digits.len() == 64).then_some(WrittenKey::Sha256(hash))
    }
}

/// A mistake in a list of keys. Each variant holds the index of the faulty entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeysError {
    /// A key that no request could carry.
    #[error(
        "a key is 1 to {MAX_CREDENTIAL_BYTES} bytes without spaces at its ends and control characters"
    )]
    InvalidKey(usize),
    /// A user that no header field can carry unchanged.
    #[error(
        "a user is 1 to {} bytes without control characters and blanks at its ends",
        user_name::MAX_USER_NAME_BYTES
    )]
    InvalidUser(usize),
    /// A key that an earlier entry has; the index is that of the second entry.
    #[error("this key is already listed")]
    RepeatedKey(usize),
}

impl ApiKeysError {
    /// Index of the faulty entry in the list.
    pub fn index(self) -> usize {
        match self {
            ApiKeysError::InvalidKey(index)
            | ApiKeysError::InvalidUser(index)
            | ApiKeysError::RepeatedKey(index) => index,
        }
    }
}

impl ApiKeys {
    /// Hashes a list of keys and their owners.
    ///
    /// # Errors
    ///
    /// The first faulty entry has an invalid key or user, or its key is in an earlier entry, as text or as hash.
    pub fn new<'k>(
        entries: impl IntoIterator<Item = (WrittenKey<'k>, KeyOwner)>,
    ) -> Result<ApiKeys, ApiKeysError> {
        let mut keys = ApiKeys {
            keyer: Keyer::random(),
            owners: HashMap::new(),
            owners_by_sha256: HashMap::new(),
            may_expire: false,
        };
        let mut sha256_of_texts: HashSet<[u8; 32]> = HashSet::new();
        for (index, (key, owner)) in entries.into_iter().enumerate() {
            if user_name::parse(&owner.user).is_none() {
                return Err(ApiKeysError::InvalidUser(index));
            }
            keys.may_expire |= owner.expires.is_some();
            let is_repeated = match &key {
                WrittenKey::Text(key) => keys.owner_of(key.as_bytes()).is_some(),
                WrittenKey::Sha256(hash) => {
                    keys.owners_by_sha256.contains_key(hash) || sha256_of_texts.contains(hash)
                }
            };
            if is_repeated {
                return Err(ApiKeysError::RepeatedKey(index));
            }
            match key {
                WrittenKey::Text(key) if !is_sendable(key.as_bytes()) => {
                    return Err(ApiKeysError::InvalidKey(index));
                }
                WrittenKey::Text(key) => {
                    let hash = keys.keyer.fingerprint(Domain::ApiKey, key.as_bytes());
                    sha256_of_texts.extend(sha256(key.as_bytes()));
                    keys.owners.insert(hash, owner);
                }
                WrittenKey::Sha256(hash) => {
                    keys.owners_by_sha256.insert(hash, owner);
                }
            }
        }
        Ok(keys)
    }

    /// The owner of `key`, which may have expired; `None` if the file does not list the key.
    pub fn owner_of(&self, key: &[u8]) -> Option<&KeyOwner> {
        let fingerprint = self.keyer.fingerprint(Domain::ApiKey, key);
        self.owners.get(&fingerprint).or_else(|| {
            if self.owners_by_sha256.is_empty() {
                return None;
            }
            self.owners_by_sha256.get(&sha256(key)?)
        })
    }

    /// Whether some key has an end.
    pub fn may_expire(&self) -> bool {
        self.may_expire
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.owners.len() + self.owners_by_sha256.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn sha256(text: &[u8]) -> Option<[u8; 32]> {
    digest(&SHA256, text).as_ref().try_into().ok()
}

/// Whether a request can carry the key: see [`ApiKeysError::InvalidKey`].
fn is_sendable(key: &[u8]) -> bool {
    let has_control_bytes = key.iter().any(u8::is_ascii_control);
    !key.is_empty()
        && key.len() <= MAX_CREDENTIAL_BYTES
        && key.trim_ascii() == key
        && !has_control_bytes
}

/// Shows only the number of keys.
impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({} keys)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entries: &[(&str, &str)], expected: Result<usize, ApiKeysError>) {
        let entries = entries.iter().map(|(key, user)| {
            (
                WrittenKey::Text((*key).into()),
                KeyOwner::new((*user).into()),
            )
        });
        let keys = ApiKeys::new(entries);
        assert_eq!(keys.map(|keys| keys.len()), expected);
    }

    #[test]
    fn lists() {
        check(&[], Ok(0));
        check(&[("k1", "ann"), ("k2", "ann")], Ok(2));
        check(
            &[("k1", "ann"), ("", "bob")],
            Err(ApiKeysError::InvalidKey(1)),
        );
        check(&[("k 1 ", "ann")], Err(ApiKeysError::InvalidKey(0)));
        check(&[("k\n1", "ann")], Err(ApiKeysError::InvalidKey(0)));
        check(&[("k1", "")], Err(ApiKeysError::InvalidUser(0)));
        check(&[("k1", "a\nb")], Err(ApiKeysError::InvalidUser(0)));
        check(&[("k1", "ann\u{a0}")], Err(ApiKeysError::InvalidUser(0)));
        check(
            &[("k1", "ann"), ("k1", "bob")],
            Err(ApiKeysError::RepeatedKey(1)),
        );
    }

    #[test]
    fn owners() {
        let ann = KeyOwner {
            plan: Some(1),
            ..KeyOwner::new("ann".into())
        };
        let keys = ApiKeys::new([(WrittenKey::Text("k1".into()), ann.clone())]).unwrap();
        assert_eq!(keys.owner_of(b"k1"), Some(&ann));
        assert_eq!(keys.owner_of(b"k"), None);
        assert_eq!(format!("{keys:?}"), "ApiKeys(1 keys)");
    }

    #[test]
    fn a_key_is_found_by_its_hash() {
        // SHA-256 of `abc`, from FIPS 180-4.
        let hash = "sha256:BA7816BF8F01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let written = || WrittenKey::parse(hash).unwrap();
        let keys = ApiKeys::new([(written(), KeyOwner::new("ann".into()))]).unwrap();
        assert_eq!(keys.owner_of(b"abc").map(|owner| &*owner.user), Some("ann"));
        assert_eq!(keys.owner_of(hash.as_bytes()), None);
        let text = || WrittenKey::Text("abc".into());
        for entries in [[written(), text()], [text(), written()]] {
            let entries = entries.map(|key| (key, KeyOwner::new("bob".into())));
            assert_eq!(
                ApiKeys::new(entries).err(),
                Some(ApiKeysError::RepeatedKey(1))
            );
        }
        assert_eq!(WrittenKey::parse(&hash[..hash.len() - 1]), None);
        assert_eq!(WrittenKey::parse(&hash.replace('B', "G")), None);
        assert_eq!(WrittenKey::parse(&format!("{hash}00")), None);
        let twice = [written(), written()].map(|key| (key, KeyOwner::new("bob".into())));
        assert_eq!(
            ApiKeys::new(twice).err(),
            Some(ApiKeysError::RepeatedKey(1))
        );
    }
}
