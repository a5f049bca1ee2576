//! [`EntryTerms`]: what only entries of one kind have, as a part of the entry's text. Its names must not change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::api_key_id::find_id;
use super::credit_terms::CreditTerms;
use crate::identity::api_keys::{Sha256Hash, WrittenKey};
use crate::identity::user_name::{self, MAX_USER_NAME_BYTES};
use crate::limit::Rate;

/// What only entries of one kind have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryTerms {
    /// Those of a grant.
    Grant(GrantTerms),
    /// Those of an API key.
    ApiKey(ApiKeyTerms),
    /// Those of an account of credits.
    Credit(CreditTerms),
}

/// Whose an API key is. The entry's key is the id of the API key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyTerms {
    /// The SHA-256 hash of the API key, as 64 hexadecimal digits.
    pub sha256: String,
    /// The user.
    pub user: String,
    /// The name of the plan; `None` for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The names and the values of custom identities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub identities: BTreeMap<String, String>,
}

/// How much more of a limit a key has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantTerms {
    /// The limit as [`Rule::granted_limit`](crate::limit::Rule::granted_limit) writes it, such as `per-user`,
    /// `api/per-user` or `*/per-route`.
    pub limit: String,
    /// The factor of the number that holds; 1 if units are added.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub times: u32,
    /// What is added to the number that holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub add: u32,
}

/// What a grant or an account is about: one key may have some of several limits. Names of limits have no blanks.
pub(super) fn granted_subject(limit: &str, key: &str) -> String {
    format!("{limit} {key}")
}

impl EntryTerms {
    /// Whether no part is too long.
    pub(super) fn is_bounded(&self) -> bool {
        match self {
            EntryTerms::Grant(terms) => terms.limit.len() <= GrantTerms::MAX_LIMIT_BYTES,
            EntryTerms::ApiKey(terms) => terms.is_bounded(),
            EntryTerms::Credit(terms) => {
                terms.limit.len() <= GrantTerms::MAX_LIMIT_BYTES && terms.is_bounded()
            }
        }
    }
}

impl ApiKeyTerms {
    /// Most bytes of the name of a plan.
    pub const MAX_PLAN_BYTES: usize = 256;
    /// Most bytes of the names and values of all custom identities.
    pub const MAX_IDENTITY_BYTES: usize = 512;

    /// The hash of the API key; `None` if the digits are none.
    pub(super) fn hash(&self) -> Option<Sha256Hash> {
        match WrittenKey::parse(&format!("sha256:{}", self.sha256))? {
            WrittenKey::Sha256(hash) => Some(hash),
            WrittenKey::Text(_) => None,
        }
    }

    /// The API key with this id in a few words. An email address is no text for logs.
    pub(super) fn description(&self, id: &str) -> String {
        match self.user.contains('@') {
            true => id.to_owned(),
            false => format!("{id} of {}", self.user),
        }
    }

    fn is_bounded(&self) -> bool {
        let lengths = self.identities.iter();
        let lengths = lengths.map(|(name, value)| name.len() + value.len());
        let plan_bytes = self.plan.as_ref().map_or(0, String::len);
        self.sha256.len() == 2 * size_of::<Sha256Hash>()
            && self.user.len() <= MAX_USER_NAME_BYTES
            && plan_bytes <= ApiKeyTerms::MAX_PLAN_BYTES
            && lengths.sum::<usize>() <= ApiKeyTerms::MAX_IDENTITY_BYTES
    }

    /// Whether a gateway may have made these terms for this id. With another id the key could not be revoked by its own.
    pub(super) fn is_possible(&self, id: &str) -> bool {
        let mut values = self.identities.values();
        let id_of_hash = self.hash().and_then(|hash| find_id(&hash));
        id_of_hash.as_deref() == Some(id)
            && user_name::parse(&self.user).is_some()
            && values.all(|value| user_name::parse(value).is_some())
    }
}

impl GrantTerms {
    /// Most bytes of what names a limit: its name, and the policy or the folder before it.
    pub const MAX_LIMIT_BYTES: usize = 256;
    /// The largest factor.
    pub const MAX_TIMES: u32 = 1_000_000;

    /// The grant of this key in a few words.
    pub(super) fn description(&self, key: &str) -> String {
        let GrantTerms { limit, times, add } = self;
        match add {
            0 => format!("{key} of {limit}: {times} times"),
            _ => format!("{key} of {limit}: {add} more"),
        }
    }

    /// Whether a gateway may have made these terms.
    pub(super) fn is_possible(&self) -> bool {
        let has_times = (2..=GrantTerms::MAX_TIMES).contains(&self.times) && self.add == 0;
        let has_units = self.times == 1 && (1..=Rate::MAX_QUOTA).contains(&self.add);
        (has_times || has_units) && !self.limit.contains([' ', '\t', '\n', '\r'])
    }
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grants_that_can_be_ordered_are_possible() {
        let check = |times, add, expected: bool| {
            let limit = "few".into();
            let terms = GrantTerms { limit, times, add };
            assert_eq!(terms.is_possible(), expected, "{terms:?}");
        };
        check(2, 0, true);
        check(1_000_000, 0, true);
        check(1_000_001, 0, false);
        check(0, 0, false);
        check(1, 0, false);
        check(1, 1, true);
        check(1, Rate::MAX_QUOTA, true);
        check(1, Rate::MAX_QUOTA + 1, false);
        check(0, 1, false);
        check(2, 1, false);
    }
}
