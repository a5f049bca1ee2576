//! Lists of the most frequent keys of a minute, an hour or a day.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::distinct::DistinctCount;
use super::key::LimitKey;

/// Most keys of a list that the record keeps.
pub const LONGEST: usize = 50;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyList {
    /// The sum of the counts of all keys, listed or not.
    pub total: u64,
    /// The most frequent keys, in order.
    pub keys: Vec<ListedKey>,
    /// An estimator of the number of different keys, where it is more than are listed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hex")]
    pub distinct: Option<DistinctCount>,
    /// Names the secret under which `distinct` was counted.
    #[serde(default)]
    pub seed: u64,
    /// Whether the number of different keys is only a lower bound: keys that were hashed under another secret are not counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
}

/// A key and its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedKey {
    /// The key.
    #[serde(flatten)]
    pub key: LimitKey,
    /// The hash of the key.
    pub hash: u64,
    /// How often it was counted.
    pub count: u64,
}

impl ListedKey {
    /// Orders the most frequent keys first.
    pub(crate) fn order(&self, other: &ListedKey) -> Ordering {
        (other.count, &self.key).cmp(&(self.count, &other.key))
    }
}

impl KeyList {
    /// The list of the most frequent of these keys.
    pub fn new(
        total: u64,
        mut keys: Vec<ListedKey>,
        distinct: Option<DistinctCount>,
        seed: u64,
    ) -> KeyList {
        keys.sort_by(ListedKey::order);
        let listed: u64 = keys.iter().map(|listed| listed.count).sum();
        let mut list = KeyList {
            total,
            keys,
            distinct,
            seed,
            at_least: false,
        };
        // Otherwise the list has all keys.
        let more = list.keys.len() > LONGEST || listed < total;
        list.distinct = more.then(|| list.registers());
        list.keys.truncate(LONGEST);
        list
    }

    /// The number of different keys, or an estimate of it.
    pub fn distinct(&self) -> u64 {
        let listed = self.keys.len() as u64;
        let estimate = self.distinct.as_ref().map(DistinctCount::estimate);
        estimate.map_or(listed, |estimate| estimate.max(listed))
    }

    /// The estimator of the number of different keys.
    pub(crate) fn registers(&self) -> DistinctCount {
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
    /// The keys of all decisions of limits.
    pub asked: KeyList,
    /// The keys that limits refused.
    pub refused: KeyList,
}

/// Registers as text.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::record::insight::distinct::DistinctCount;

    pub(crate) fn serialize<S: Serializer>(
        distinct: &Option<DistinctCount>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let registers = distinct.as_ref().map_or(&[][..], DistinctCount::registers);
        // A register is at most 54.
        let letters = registers.iter().map(|rank| char::from(b'A' + *rank));
        to.serialize_str(&letters.collect::<String>())
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<DistinctCount>, D::Error> {
        let letters = String::deserialize(from)?;
        let ranks = letters.bytes().map(|letter| letter.checked_sub(b'A'));
        let registers: Option<Vec<u8>> = ranks.collect();
        let distinct = registers.and_then(|registers| DistinctCount::from_registers(&registers));
        distinct
            .map(Some)
            .ok_or_else(|| D::Error::custom("these are no registers"))
    }
}
