//! Checks what an operator says of a new API key, and makes the key.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry_terms::ApiKeyTerms;
use super::error::ApiKeyError;
use crate::identity::plan::PlanSource;
use crate::identity::runtime_keys::{KEY_BYTES, KEY_PREFIX};
use crate::identity::{Settings, custom, user_name};
use crate::limit::CustomIdentity;

/// The shortest time that a key with an end holds.
const MIN_DURATION: Duration = Duration::from_secs(1);
/// The longest one: ten years.
const MAX_DURATION: Duration = Duration::from_secs(3_650 * 86_400);
/// Most bytes of the name that an operator gives a key.
const MAX_NAME_BYTES: usize = 128;
/// The characters of a key: graphic, and read alike in a header field, a query and a cookie.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key that an operator adds.
#[derive(Clone, Debug)]
pub struct NewApiKey {
    /// Whose it is.
    pub user: String,
    /// The name of the user's plan; `None` for the default one.
    pub plan: Option<String>,
    /// The names and the values of the custom identities that come with the key.
    pub identities: BTreeMap<String, String>,
    /// How long it holds; `None` for a key without an end.
    pub duration: Option<Duration>,
    /// What it is for; may be empty.
    pub name: String,
    /// Who adds it.
    pub by: String,
}

/// Checks that requests can have what is said of a key.
pub(super) fn check_new_key(new_key: &NewApiKey, settings: &Settings) -> Result<(), ApiKeyError> {
    if !settings.accepts_runtime_keys() {
        return Err(ApiKeyError::NotAccepted);
    }
    if user_name::parse(&new_key.user).is_none() {
        return Err(ApiKeyError::User);
    }
    if new_key.name.len() > MAX_NAME_BYTES || new_key.name.contains(char::is_control) {
        return Err(ApiKeyError::Name(MAX_NAME_BYTES));
    }
    let mut durations = new_key.duration.iter();
    if !durations.all(|duration| (MIN_DURATION..=MAX_DURATION).contains(duration)) {
        return Err(ApiKeyError::Duration);
    }
    if let Some(plan) = &new_key.plan {
        check_plan(plan, settings)?;
    }
    for (name, value) in &new_key.identities {
        let identity = CustomIdentity::find(name);
        let source = identity.and_then(|identity| settings.custom_source(identity));
        if !matches!(source, Some(custom::Source::ApiKeys)) {
            return Err(ApiKeyError::unknown_identity(name, settings));
        }
        if user_name::parse(value).is_none() {
            return Err(ApiKeyError::Value(name.clone()));
        }
    }
    let lengths = new_key.identities.iter();
    let lengths = lengths.map(|(name, value)| name.len() + value.len());
    match lengths.sum::<usize>() > ApiKeyTerms::MAX_IDENTITY_BYTES {
        true => Err(ApiKeyError::Values(ApiKeyTerms::MAX_IDENTITY_BYTES)),
        false => Ok(()),
    }
}

fn check_plan(plan: &str, settings: &Settings) -> Result<(), ApiKeyError> {
    if settings.plan.index_of(plan).is_none() {
        return Err(ApiKeyError::unknown_plan(plan, settings));
    }
    if plan.len() > ApiKeyTerms::MAX_PLAN_BYTES {
        return Err(ApiKeyError::TooLong("plan", ApiKeyTerms::MAX_PLAN_BYTES));
    }
    match settings.plan.source {
        Some(PlanSource::ApiKeys) => Ok(()),
        _ => Err(ApiKeyError::PlanElsewhere),
    }
}

/// A new key: the prefix, and letters and digits with 256 random bits of the system.
pub(super) fn make_key() -> Result<String, ApiKeyError> {
    let mut key = String::with_capacity(KEY_BYTES);
    key.push_str(KEY_PREFIX);
    while key.len() < KEY_BYTES {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes).map_err(|_| ApiKeyError::NoRandom)?;
        // Other bytes would make some characters more frequent.
        let even_bytes = bytes.iter().filter(|byte| **byte < 248);
        let characters = even_bytes.map(|byte| ALPHABET[usize::from(*byte) % ALPHABET.len()]);
        let missing = KEY_BYTES - key.len();
        key.extend(characters.take(missing).map(char::from));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_words_of_one_length_and_all_different() {
        let keys: HashSet<String> = (0..1_000).map(|_| make_key().unwrap()).collect();
        assert_eq!(keys.len(), 1_000);
        let mut seen = HashSet::new();
        for key in &keys {
            assert_eq!(key.len(), KEY_BYTES);
            let random_part = key.strip_prefix("tg_").unwrap();
            assert!(random_part.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            seen.extend(random_part.bytes());
        }
        assert_eq!(seen.len(), ALPHABET.len(), "every character occurs");
    }
}
