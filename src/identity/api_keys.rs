//! The file of API keys: which key belongs to which user and plan.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use super::key::{Domain, Keyer};
use super::token::MAX_TOKEN;
use super::user_name;
use crate::limit::Fingerprint;

/// All keys, as hashes under a secret that only this value knows. A look-up compares hashes and never
/// a key's text, so that how long it takes says nothing of the keys.
pub struct ApiKeys {
    keyer: Keyer,
    owners: HashMap<Fingerprint, KeyOwner>,
}

/// Whose key it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The user.
    pub user: Arc<str>,
    /// Index into [`super::plan::Settings::plans`].
    pub plan: Option<usize>,
}

/// Why a list of keys is refused; the numbers are places in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeysError {
    /// A key that no request could bring.
    #[error("a key is 1 to {MAX_TOKEN} bytes without spaces at its ends and control characters")]
    Key(usize),
    /// A user that no header field can carry unchanged.
    #[error(
        "a user is 1 to {} bytes without control characters and blanks at its ends",
        user_name::MAX_USER
    )]
    User(usize),
    /// The same key twice.
    #[error("this key is already listed")]
    Repeated {
        /// Place of the second one.
        place: usize,
    },
}

impl ApiKeysError {
    /// The place in the list.
    pub fn place(self) -> usize {
        match self {
            ApiKeysError::Key(place)
            | ApiKeysError::User(place)
            | ApiKeysError::Repeated { place } => place,
        }
    }
}

impl ApiKeys {
    /// Keeps the hashes of these keys: key, user, index of the plan.
    ///
    /// # Errors
    ///
    /// The first key that cannot be one.
    pub fn new<K: AsRef<str>, U: AsRef<str>>(
        entries: impl IntoIterator<Item = (K, U, Option<usize>)>,
    ) -> Result<ApiKeys, ApiKeysError> {
        let keyer = Keyer::random();
        let mut owners = HashMap::new();
        for (place, (key, user, plan)) in entries.into_iter().enumerate() {
            let key = key.as_ref().as_bytes();
            let control = key.iter().any(u8::is_ascii_control);
            if key.is_empty() || key.len() > MAX_TOKEN || key.trim_ascii() != key || control {
                return Err(ApiKeysError::Key(place));
            }
            let user = user_name::parse(user.as_ref()).ok_or(ApiKeysError::User(place))?;
            match owners.entry(keyer.fingerprint(Domain::ApiKey, key)) {
                Entry::Occupied(_) => return Err(ApiKeysError::Repeated { place }),
                Entry::Vacant(free) => free.insert(KeyOwner { user, plan }),
            };
        }
        Ok(ApiKeys { keyer, owners })
    }

    /// Whose key this is.
    pub fn lookup(&self, key: &[u8]) -> Option<&KeyOwner> {
        self.owners
            .get(&self.keyer.fingerprint(Domain::ApiKey, key))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

/// Tells how many keys there are and nothing of them.
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
        let keys = ApiKeys::new(entries.iter().map(|(key, user)| (key, user, None)));
        assert_eq!(keys.map(|keys| keys.len()), expected, "{entries:?}");
    }

    #[test]
    fn lists() {
        check(&[], Ok(0));
        check(&[("k1", "ann"), ("k2", "ann")], Ok(2));
        check(&[("k1", "ann"), ("", "bob")], Err(ApiKeysError::Key(1)));
        check(&[("k 1 ", "ann")], Err(ApiKeysError::Key(0)));
        check(&[("k\n1", "ann")], Err(ApiKeysError::Key(0)));
        check(&[("k1", "")], Err(ApiKeysError::User(0)));
        check(&[("k1", "a\nb")], Err(ApiKeysError::User(0)));
        check(&[("k1", "ann\u{a0}")], Err(ApiKeysError::User(0)));
        check(
            &[("k1", "ann"), ("k1", "bob")],
            Err(ApiKeysError::Repeated { place: 1 }),
        );
    }

    #[test]
    fn owners() {
        let keys = ApiKeys::new([("k1", "ann", Some(1))]).unwrap();
        let owner = keys.lookup(b"k1").unwrap();
        assert_eq!((&*owner.user, owner.plan), ("ann", Some(1)));
        assert_eq!(keys.lookup(b"k"), None);
        assert_eq!(format!("{keys:?}"), "ApiKeys(1 keys)");
    }
}
