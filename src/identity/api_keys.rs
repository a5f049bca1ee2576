//! Finds the owner of an API key: its user, plan and custom identities. It keeps hashes of keys, and never their text.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

use super::custom_value::{CustomValue, IdentityValue};
use super::key::{Domain, Keyer};
use super::token::MAX_CREDENTIAL_BYTES;
use super::user_name;
use crate::limit::{CustomIdentity, Fingerprint};

/// The bytes of a SHA-256 hash.
pub type Sha256Hash = [u8; 32];

/// All API keys and their owners. Keys that the file has as text are hashed under a random secret. A lookup compares
/// hashes, so the time that it takes reveals nothing of the keys.
pub struct ApiKeys {
    /// Hashes keys with a secret of this list.
    keyer: Keyer,
    /// The owners of the keys that the file has as text.
    owners_by_fingerprint: HashMap<Fingerprint, KeyOwner>,
    /// The owners of the keys of which the file has only the SHA-256 hash.
    owners_by_sha256: HashMap<Sha256Hash, KeyOwner>,
    /// Whether some key has a time of expiry.
    may_expire: bool,
    /// Whether keys that operators add at run time verify too.
    accepts_runtime_keys: bool,
}

/// What the file of API keys says of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The user, spelled as the upstream and the log get it.
    pub user: Arc<str>,
    /// Index into [`super::plan::Settings::plans`]; `None` if the file names no plan.
    pub plan: Option<usize>,
    /// The time since the Unix epoch from which on the key is no longer valid; `None` if it does not expire.
    pub expires_at: Option<Duration>,
    /// The custom identities that come with the key.
    pub custom: Vec<CustomValue>,
}

impl KeyOwner {
    /// The owner of a key that does not expire and has neither plan nor custom identities.
    pub fn new(user: Arc<str>) -> KeyOwner {
        KeyOwner {
            user,
            plan: None,
            expires_at: None,
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
    Sha256(Sha256Hash),
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
                    .any(|name| prefix.eq_ignore_ascii_case(name));
            return (!is_other_hash).then(|| WrittenKey::Text(text.into()));
        };
        let mut hash = [0; 32];
        let digits = digits.as_bytes();
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            let hex_value = |digit: u8| char::from(digit).to_digit(16);
            let [high, low] = pair else { return None };
            *byte = (hex_value(*high)? << 4 | hex_value(*low)?) as u8;
        }
        (digits.len() == 2 * hash.len()).then_some(WrittenKey::Sha256(hash))
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
    pub fn entry_index(self) -> usize {
        match self {
            ApiKeysError::InvalidKey(index)
            | ApiKeysError::InvalidUser(index)
            | ApiKeysError::RepeatedKey(index) => index,
        }
    }
}

/// No keys.
impl Default for ApiKeys {
    fn default() -> ApiKeys {
        ApiKeys {
            keyer: Keyer::random(),
            owners_by_fingerprint: HashMap::new(),
            owners_by_sha256: HashMap::new(),
            may_expire: false,
            accepts_runtime_keys: false,
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
        let mut keys = ApiKeys::default();
        // A key must not be listed as text and as its hash.
        let mut sha256_of_texts: HashSet<Sha256Hash> = HashSet::new();
        for (index, (key, owner)) in entries.into_iter().enumerate() {
            if user_name::parse(&owner.user).is_none() {
                return Err(ApiKeysError::InvalidUser(index));
            }
            keys.may_expire |= owner.expires_at.is_some();
            let is_repeated = match &key {
                WrittenKey::Text(text) => keys.owner_of(text.as_bytes()).is_some(),
                WrittenKey::Sha256(hash) => {
                    keys.owners_by_sha256.contains_key(hash) || sha256_of_texts.contains(hash)
                }
            };
            if is_repeated {
                return Err(ApiKeysError::RepeatedKey(index));
            }
            match key {
                WrittenKey::Text(text) if !is_sendable(text.as_bytes()) => {
                    return Err(ApiKeysError::InvalidKey(index));
                }
                WrittenKey::Text(text) => {
                    let fingerprint = keys.keyer.fingerprint(Domain::ApiKey, text.as_bytes());
                    sha256_of_texts.extend(sha256(text.as_bytes()));
                    keys.owners_by_fingerprint.insert(fingerprint, owner);
                }
                WrittenKey::Sha256(hash) => {
                    keys.owners_by_sha256.insert(hash, owner);
                }
            }
        }
        Ok(keys)
    }

    /// Accepts keys that operators add at run time too, if `accepts_runtime_keys`.
    pub fn with_runtime_keys(self, accepts_runtime_keys: bool) -> ApiKeys {
        ApiKeys {
            accepts_runtime_keys,
            ..self
        }
    }

    /// Whether keys that operators add at run time verify too.
    pub fn accepts_runtime_keys(&self) -> bool {
        self.accepts_runtime_keys
    }

    /// Describes the source in some words, for operators.
    pub fn describe(&self) -> &'static str {
        match (self.accepts_runtime_keys, self.is_empty()) {
            (false, _) => "file of API keys",
            (true, true) => "API keys added at run time",
            (true, false) => "file of API keys, or those added at run time",
        }
    }

    /// The owner of `key`, which may have expired; `None` if the file does not list the key.
    pub fn owner_of(&self, key: &[u8]) -> Option<&KeyOwner> {
        let fingerprint = self.keyer.fingerprint(Domain::ApiKey, key);
        self.owners_by_fingerprint.get(&fingerprint).or_else(|| {
            if self.owners_by_sha256.is_empty() {
                return None;
            }
            self.owners_by_sha256.get(&sha256(key)?)
        })
    }

    /// The names that the keys have as this identity, in no order. A name of several keys is repeated.
    pub fn values_of(&self, identity: CustomIdentity) -> impl Iterator<Item = Arc<str>> {
        let owners = self.owners_by_fingerprint.values();
        let owners = owners.chain(self.owners_by_sha256.values());
        let values = owners.flat_map(|owner| &owner.custom);
        let values = values.filter(move |value| value.identity == identity);
        values.flat_map(|custom| match &custom.value {
            IdentityValue::Names(names) => names.to_vec(),
            IdentityValue::Hash(_) | IdentityValue::Ambiguous => Vec::new(),
        })
    }

    /// Whether some key has a time of expiry.
    pub fn may_expire(&self) -> bool {
        self.may_expire
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.owners_by_fingerprint.len() + self.owners_by_sha256.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The SHA-256 hash of a text; never `None`, because its length is that of the type.
pub fn sha256(text: &[u8]) -> Option<Sha256Hash> {
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
