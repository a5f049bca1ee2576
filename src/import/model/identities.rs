//! The identities that imported limits count by.

use crate::identity::strip::is_unfit_for_identity;
use crate::import::names::{is_yaml_word, safe_name};

/// Maximum number of identities of a configuration's own.
const MAX_OWN_IDENTITIES: usize = 40;
/// Words that are no names of identities.
const RESERVED_WORDS: [&str; 22] = [
    "and",
    "expires",
    "host",
    "over",
    "request_id",
    "store",
    "unlimited",
    "unverified",
    "ip",
    "user",
    "token",
    "email",
    "plan",
    "everyone",
    "route",
    "preflight",
    "or",
    "silent",
    "else",
    "all",
    "none",
    "status",
];
/// Parts of names behind which credentials stand, which the gateway must not show.
const SECRET_WORDS: [&str; 7] = [
    "key", "token", "auth", "secret", "session", "password", "sid",
];

/// Where an identity stands in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityPlace {
    /// In the header of this name.
    Header(String),
    /// In this cookie.
    Cookie(String),
    /// In this parameter of the query.
    Query(String),
    /// In this claim of the verified token of the user.
    Claim(String),
}

impl IdentityPlace {
    /// The name of the field, cookie, parameter or claim; `None` if no request can have it.
    fn valid_name(&self) -> Option<&str> {
        match self {
            IdentityPlace::Header(name) => http::HeaderName::try_from(name.as_str())
                .ok()
                .map(|_| name.as_str()),
            IdentityPlace::Cookie(name)
            | IdentityPlace::Query(name)
            | IdentityPlace::Claim(name) => is_plain_name(name).then_some(name.as_str()),
        }
    }
}

/// Users who are verified by signed tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDraft {
    /// The claim that names the user.
    pub claim: String,
    /// The path or the URL of the key set.
    pub key_set: String,
}

/// The identities of the gateway file, beside `ip`.
#[derive(Clone, Debug, Default)]
pub struct IdentityDrafts {
    /// Where a credential is found, the first place first.
    pub token: Vec<IdentityPlace>,
    /// What verifies users.
    pub user: Option<UserDraft>,
    /// Identities of its own, by name.
    pub own: Vec<(String, IdentityPlace)>,
}

impl IdentityDrafts {
    /// The word by which limits count by what stands at `place`, which becomes an identity if it is none yet. A place of
    /// a credential becomes `token`, if no other place is. `None` for a name that no request can have, and if there are
    /// too many identities.
    pub fn word(&mut self, place: &IdentityPlace) -> Option<String> {
        let name = place.valid_name()?;
        let is_claim = matches!(place, IdentityPlace::Claim(_));
        let is_secret = SECRET_WORDS
            .iter()
            .any(|word| name.to_ascii_lowercase().contains(word));
        let is_token = self.token.as_slice() == [place.clone()];
        if is_secret && !is_claim && (is_token || self.token.is_empty()) {
            self.token = vec![place.clone()];
            return Some("token".into());
        }
        self.word_with_values(place)
    }

    /// The word by which conditions compare values of what stands at `place`, which a token cannot have. `None` as of
    /// [`IdentityDrafts::word`].
    pub fn word_with_values(&mut self, place: &IdentityPlace) -> Option<String> {
        let name = place.valid_name()?;
        if let IdentityPlace::Header(name) = place
            && http::HeaderName::try_from(name.as_str())
                .is_ok_and(|name| is_unfit_for_identity(&name))
        {
            return None;
        }
        if let Some((word, _)) = self.own.iter().find(|(_, own)| own == place) {
            return Some(word.clone());
        }
        if self.own.len() >= MAX_OWN_IDENTITIES {
            return None;
        }
        let word = self.free_word(name);
        self.own.push((word.clone(), place.clone()));
        Some(word)
    }

    /// A name for an identity: at most 32 characters, and no word that stands for something else.
    fn free_word(&self, name: &str) -> String {
        let base: String = match safe_name(name) {
            base if base.is_empty() => "identity".into(),
            base => base.chars().take(26).collect(),
        };
        let base = base.trim_end_matches('-').to_owned();
        let is_free = |word: &str| {
            !RESERVED_WORDS.contains(&word)
                && !is_yaml_word(word)
                && !self.own.iter().any(|(own, _)| own == word)
        };
        if is_free(&base) {
            return base;
        }
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        numbered
            .take(MAX_OWN_IDENTITIES + 1)
            .find(|word| is_free(word))
            .unwrap_or(base)
    }

    /// The file of the key set that verifies users, if it is a file.
    pub fn key_set_file(&self) -> Option<&str> {
        let key_set = self.user.as_ref().map(|user| user.key_set.as_str());
        key_set.filter(|key_set| !key_set.starts_with("http"))
    }
}

fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain)
}
