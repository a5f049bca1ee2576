//! Looks up API keys: which key belongs to which user and plan. It holds hashes and never a key's text.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use super::key::{Domain, Keyer};
use super::token::MAX_TOKEN;
use super::user_name;
use crate::limit::Fingerprint;

/// All API keys, hashed under a secret of their own. A look-up compares hashes, so the time that it takes reveals
/// nothing of the keys.
pub struct ApiKeys {
    keyer: Keyer,
    owners: HashMap<Fingerprint, KeyOwner>,
}

/// The user and plan of an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The user, spelled as the upstream and the log get it.
    pub user: Arc<str>,
    /// Index into [`super::plan::Settings::plans`].
    pub plan: Option<usize>,
}

/// A mistake in a list of keys. Each variant holds the index of the faulty entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeysError {
    /// A key that no request could carry.
    #[error("a key is 1 to {MAX_TOKEN} bytes without spaces at its ends and control characters")]
    Key(usize),
    /// A user that no header field can carry unchanged.
    #[error(
        "a user is 1 to {} bytes without control characters and blanks at its ends",
        user_name::MAX_USER
    )]
    User(usize),
    /// A key that an earlier entry has; the index is that of the second entry.
    #[error("this key is already listed")]
    Repeated(usize),
}

impl ApiKeysError {
    /// Index of the faulty entry in the list.
    pub fn index(self) -> usize {
        match self {
            ApiKeysError::Key(index)
            | ApiKeysError::User(index)
            | ApiKeysError::Repeated(index) => index,
        }
    }
}

impl ApiKeys {
    /// Hashes a list of entries: key, user, index of the plan.
    ///
    /// # Errors
    ///
    /// [`ApiKeysError`] for the first faulty entry.
    pub fn new<K: AsRef<str>, U: AsRef<str>>(
        entries: impl IntoIterator<Item = (K, U, Option<usize>)>,
    ) -> Result<ApiKeys, ApiKeysError> {
        let keyer = Keyer::random();
        let mut owners = HashMap::new();
        for (index, (key, user, plan)) in entries.into_iter().enumerate() {
            let key = key.as_ref().as_bytes();
            let has_control = key.iter().any(u8::is_ascii_control);
            if key.is_empty() || key.len() > MAX_TOKEN || key.trim_ascii() != key || has_control {
                return Err(ApiKeysError::Key(index));
            }
            let user = user_name::parse(user.as_ref()).ok_or(ApiKeysError::User(index))?;
            match owners.entry(keyer.fingerprint(Domain::ApiKey, key)) {
                Entry::Occupied(_) => return Err(ApiKeysError::Repeated(index)),
                Entry::Vacant(vacant) => vacant.insert(KeyOwner { user, plan }),
            };
        }
        Ok(ApiKeys { keyer, owners })
    }

    /// The owner of `key`; none if the file does not list it.
    pub fn owner_of(&self, key: &[u8]) -> Option<&KeyOwner> {
        self.owners
            .get(&self.keyer.fingerprint(Domain::ApiKey, key))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

/// Shows the number of keys and nothing of them.
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
            Err(ApiKeysError::Repeated(1)),
        );
    }

    #[test]
    fn owners() {
        let keys = ApiKeys::new([("k1", "ann", Some(1))]).unwrap();
        let owner = keys.owner_of(b"k1").unwrap();
        assert_eq!((&*owner.user, owner.plan), ("ann", Some(1)));
        assert_eq!(keys.owner_of(b"k"), None);
        assert_eq!(format!("{keys:?}"), "ApiKeys(1 keys)");
    }
}
