//! Lists of the most frequent keys of a minute, an hour or a day, in the form in which notes of the record store them.
//! `top_keys.rs` counts the keys, and `list_sum.rs` adds lists up.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::distinct_count::DistinctCount;
use super::limit_key::LimitKey;

/// The most keys of a list that the record keeps.
pub const MAX_LISTED_KEYS: usize = 50;

/// A list of the most frequent keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyList {
    /// The sum of the counts of all keys, listed or not.
    pub total: u64,
    /// The most frequent keys, in the order of [`ListedKey::compare`].
    pub keys: Vec<ListedKey>,
    /// An estimator of the number of different keys; `None` if all keys are listed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "registers_as_letters"
    )]
    pub distinct: Option<DistinctCount>,
    /// A number that stands for the secret under which `distinct` was counted.
    #[serde(default)]
    pub seed: u64,
    /// Whether the number of different keys is only a lower bound, because keys hashed under another secret are not
    /// counted.
    #[serde(
        default,
        rename = "at_least",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_lower_bound: bool,
}

/// A key and its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedKey {
    /// The names of the limit and of the key.
    #[serde(flatten)]
    pub key: LimitKey,
    /// The hash of the key under the secret of the list; in a sum, under that of the first list with the key.
    pub hash: u64,
    /// How often the key was counted.
    pub count: u64,
}

impl ListedKey {
    /// Orders the most frequent keys first, and equally frequent ones by name.
    pub(crate) fn compare(&self, other: &ListedKey) -> Ordering {
        (other.count, &self.key).cmp(&(self.count, &other.key))
    }
}

impl KeyList {
    /// Makes a list of the most frequent of these keys, at most [`MAX_LISTED_KEYS`]. `total` may be more than the sum
    /// of their counts; then `distinct` should have all keys. Without `distinct`, only `keys` are counted.
    pub fn new(
        total: u64,
        mut keys: Vec<ListedKey>,
        distinct: Option<DistinctCount>,
        seed: u64,
    ) -> KeyList {
        keys.sort_by(ListedKey::compare);
        let listed_total: u64 = keys.iter().map(|listed| listed.count).sum();
        let mut list = KeyList {
            total,
            keys,
            distinct,
            seed,
            is_lower_bound: false,
        };
        let has_unlisted = list.keys.len() > MAX_LISTED_KEYS || listed_total < total;
        list.distinct = has_unlisted.then(|| list.estimator());
        list.keys.truncate(MAX_LISTED_KEYS);
        list
    }

    /// The number of different keys: exact if all are listed, otherwise an estimate, which is at least the number of
    /// listed keys. It is too low if [`KeyList::is_lower_bound`].
    pub fn distinct_count(&self) -> u64 {
        let listed_count = self.keys.len() as u64;
        let estimate = self.distinct.as_ref().map(DistinctCount::estimate);
        estimate.map_or(listed_count, |estimate| estimate.max(listed_count))
    }

    /// Returns the estimator of the number of different keys. If all keys are listed, it is made of them.
    pub(crate) fn estimator(&self) -> DistinctCount {
        self.distinct.clone().unwrap_or_else(|| {
            let mut distinct = DistinctCount::default();
            self.keys
                .iter()
                .for_each(|listed| distinct.add(listed.hash));
            distinct
        })
    }
}

/// The lists of a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyLists {
    /// The keys of all decisions of limits, refusals among them.
    #[serde(rename = "asked")]
    pub decided: KeyList,
    /// The keys that limits refused.
    pub refused: KeyList,
}

/// Writes and reads the registers of an estimator as letters, one for each.
mod registers_as_letters {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::record::insight::distinct_count::DistinctCount;

    pub(crate) fn serialize<S: Serializer>(
        distinct: &Option<DistinctCount>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let registers = distinct.as_ref().map_or(&[][..], DistinctCount::registers);
        // A register is at most 54, so each is one ASCII character from `A` to `w`.
        let letters = registers.iter().map(|rank| char::from(b'A' + *rank));
        serializer.serialize_str(&letters.collect::<String>())
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(
        deserializer: D,
    ) -> Result<Option<DistinctCount>, D::Error> {
        let letters = String::deserialize(deserializer)?;
        let ranks = letters.bytes().map(|letter| letter.checked_sub(b'A'));
        let registers: Option<Vec<u8>> = ranks.collect();
        let distinct = registers.and_then(|registers| DistinctCount::from_registers(&registers));
        distinct
            .map(Some)
            .ok_or_else(|| D::Error::custom("these are no registers"))
    }
}
