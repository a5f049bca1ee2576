//! Who came most often in a minute, an hour or a day: what is kept of a [`super::Top`].

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::distinct::Distinct;
use super::top::Key;

/// Keys of a list that is kept.
pub const LONGEST: usize = 50;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct List {
    /// How often any key was counted.
    pub total: u64,
    /// The most frequent, in order.
    pub keys: Vec<Listed>,
    /// What tells how many different ones there were, where that is more than are listed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hex")]
    pub distinct: Option<Distinct>,
    /// Tells under which secret `distinct` was counted.
    #[serde(default)]
    pub seed: u64,
    /// There may have been more different ones: some were hashed under another secret, and those are not counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
}

/// A key and how often it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Whose it is.
    #[serde(flatten)]
    pub key: Key,
    /// Its hash.
    pub hash: u64,
    /// How often it came.
    pub count: u64,
}

impl Listed {
    /// The most frequent first.
    pub(crate) fn order(&self, other: &Listed) -> Ordering {
        (other.count, &self.key).cmp(&(self.count, &other.key))
    }
}

impl List {
    /// Of what was counted, the most frequent.
    pub fn new(total: u64, mut keys: Vec<Listed>, distinct: Option<Distinct>, seed: u64) -> List {
        keys.sort_by(Listed::order);
        let listed: u64 = keys.iter().map(|listed| listed.count).sum();
        let mut list = List {
            total,
            keys,
            distinct,
            seed,
            at_least: false,
        };
        // Else these are all there were.
        let more = list.keys.len() > LONGEST || listed < total;
        list.distinct = more.then(|| list.registers());
        list.keys.truncate(LONGEST);
        list
    }

    /// How many different keys there were.
    pub fn distinct(&self) -> u64 {
        let listed = self.keys.len() as u64;
        let estimate = self.distinct.as_ref().map(Distinct::estimate);
        estimate.map_or(listed, |estimate| estimate.max(listed))
    }

    /// What tells how many there were.
    pub(crate) fn registers(&self) -> Distinct {
        self.distinct.clone().unwrap_or_else(|| {
            let mut distinct = Distinct::default();
            self.keys
                .iter()
                .for_each(|listed| distinct.add(listed.hash));
            distinct
        })
    }
}

/// Who was counted most in a span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lists {
    /// Whom limits were asked about.
    pub asked: List,
    /// Whom they refused.
    pub refused: List,
}

/// Registers as text.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Distinct;

    pub(crate) fn serialize<S: Serializer>(
        distinct: &Option<Distinct>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let registers = distinct.as_ref().map_or(&[][..], Distinct::registers);
        // A register is at most 54.
        let letters = registers.iter().map(|rank| char::from(b'A' + *rank));
        to.serialize_str(&letters.collect::<String>())
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<Distinct>, D::Error> {
        let letters = String::deserialize(from)?;
        let ranks = letters.bytes().map(|letter| letter.checked_sub(b'A'));
        let registers: Option<Vec<u8>> = ranks.collect();
        let distinct = registers.and_then(|registers| Distinct::from_registers(&registers));
        distinct
            .map(Some)
            .ok_or_else(|| D::Error::custom("these are no registers"))
    }
}
