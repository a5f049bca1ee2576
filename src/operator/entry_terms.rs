//! [`EntryTerms`]: what only entries of one kind have, as a part of the entry's text. Its names must not change.

use serde::{Deserialize, Serialize};

/// Most bytes of what names a limit: its name, and the policy or the folder before it.
const MAX_LIMIT_BYTES: usize = 256;

/// What only entries of one kind have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryTerms {
    /// Those of a grant.
    Grant(GrantTerms),
}

/// How much more of a limit a key has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantTerms {
    /// The limit by its name, such as `per-user`, or with its policy, such as `api/per-user`.
    pub limit: String,
    /// The factor of the number that holds, at least 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub times: u32,
    /// What is added to the number that holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub add: u32,
}

impl EntryTerms {
    /// Whether no part is too long.
    pub(super) fn is_bounded(&self) -> bool {
        let EntryTerms::Grant(terms) = self;
        terms.limit.len() <= MAX_LIMIT_BYTES
    }
}

impl GrantTerms {
    /// What a grant of this key is about: one key may have grants of several limits. Names of limits have no blanks.
    pub(super) fn subject(&self, key: &str) -> String {
        format!("{} {key}", self.limit)
    }

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
        self.times >= 1 && !self.limit.contains([' ', '\t', '\n', '\r'])
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
