//! Descriptors, by which other proxies ask for a decision: a domain and entries, each with a key and a value, as in Envoy's
//! rate limit service. A [`DescriptorPattern`] says which descriptors a policy matches; [`DescriptorTable`] finds the policy
//! of one.
//!
//! A policy matches a descriptor that has exactly its keys. Of several policies the one with the most exact values matches.
//! Of these the one with the longest prefixes does, then the one whose exact values have the first keys by name.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use super::table::Conflict;

/// Maximum number of entries of a pattern. A descriptor with more entries matches no policy.
pub const MAX_ENTRIES: usize = 16;

/// The descriptors that a policy matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorPattern {
    /// The domain, which must be equal.
    pub domain: Box<str>,
    /// The entries, sorted by key and value. A key that occurs several times has exact values only.
    entries: Vec<EntryPattern>,
}

/// One entry of a [`DescriptorPattern`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPattern {
    /// The key, which must be equal.
    pub key: Box<str>,
    /// The values that match.
    pub value: ValuePattern,
}

/// The values that an entry matches. The order is that of [`DescriptorTable`]: the most specific first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValuePattern {
    /// This value only.
    Exact(Box<str>),
    /// All values that begin with this text, which is not empty.
    Prefix(Box<str>),
    /// All values.
    Any,
}

impl DescriptorPattern {
    /// A pattern of these entries, in any order.
    pub fn new(domain: &str, mut entries: Vec<EntryPattern>) -> DescriptorPattern {
        entries.sort_unstable();
        DescriptorPattern {
            domain: domain.into(),
            entries,
        }
    }

    /// The entries, sorted by key.
    pub fn entries(&self) -> &[EntryPattern] {
        &self.entries
    }

    /// Whether descriptors have this key, with values that differ.
    pub fn has_open_entry(&self, key: &str) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| &*entry.key == key && !matches!(entry.value, ValuePattern::Exact(_)))
    }
}

/// Writes the pattern as operators read it: `edge(path=/v1/*, remote_address)`.
impl fmt::Display for DescriptorPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.domain)?;
        for (index, EntryPattern { key, value }) in self.entries.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            match value {
                ValuePattern::Exact(text) => write!(f, "{separator}{key}={text}")?,
                ValuePattern::Prefix(text) => write!(f, "{separator}{key}={text}*")?,
                ValuePattern::Any => write!(f, "{separator}{key}")?,
            }
        }
        f.write_str(")")
    }
}

/// Finds the policy of a descriptor. A search costs a hash lookup for the keys, and one for each different form that the
/// patterns of these keys have. It never looks at each policy.
#[derive(Clone, Debug, Default)]
pub struct DescriptorTable {
    /// The patterns by domain and keys: see [`key_text`].
    by_keys: HashMap<Vec<u8>, Vec<FormTable>>,
}

/// The patterns with the same keys whose values have one form.
#[derive(Clone, Debug)]
struct FormTable {
    form: Vec<PatternForm>,
    /// The index of the policy's route, by the texts of the pattern: see [`value_text`].
    by_values: HashMap<Vec<u8>, usize>,
}

/// The form of an entry's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PatternForm {
    Exact,
    /// A prefix of so many bytes.
    Prefix(usize),
    Any,
}

impl ValuePattern {
    fn form(&self) -> PatternForm {
        match self {
            ValuePattern::Exact(_) => PatternForm::Exact,
            ValuePattern::Prefix(text) => PatternForm::Prefix(text.len()),
            ValuePattern::Any => PatternForm::Any,
        }
    }

    fn text(&self) -> &str {
        match self {
            ValuePattern::Exact(text) | ValuePattern::Prefix(text) => text,
            ValuePattern::Any => "",
        }
    }
}

impl DescriptorTable {
    /// Builds the table of patterns with the indexes of their routes.
    ///
    /// # Errors
    ///
    /// Each pair of equal patterns.
    pub fn build<'p>(
        patterns: impl IntoIterator<Item = (usize, &'p DescriptorPattern)>,
    ) -> Result<DescriptorTable, Vec<Conflict>> {
        let mut table = DescriptorTable::default();
        let mut conflicts = Vec::new();
        for (route_index, pattern) in patterns {
            let entries = &pattern.entries;
            let keys = key_text(&pattern.domain, entries.iter().map(|entry| &*entry.key));
            let form: Vec<PatternForm> = entries.iter().map(|entry| entry.value.form()).collect();
            let forms = table.by_keys.entry(keys).or_default();
            let position = match forms.iter().position(|table| table.form == form) {
                Some(position) => position,
                None => {
                    let rank = specificity(&form);
                    let position = forms.partition_point(|table| specificity(&table.form) < rank);
                    let by_values = HashMap::new();
                    forms.insert(position, FormTable { form, by_values });
                    position
                }
            };
            let values = value_text(entries.iter().map(|entry| entry.value.text().as_bytes()));
            if let Some(form_table) = forms.get_mut(position)
                && let Some(first_index) = form_table.by_values.insert(values, route_index)
            {
                conflicts.push(Conflict {
                    first_index,
                    second_index: route_index,
                });
            }
        }
        match conflicts.is_empty() {
            true => Ok(table),
            false => Err(conflicts),
        }
    }

    /// The index of the route of the policy that matches a descriptor with these entries, each a key and a value, in any
    /// order. `None` if no policy matches it.
    pub fn find(&self, domain: &str, entries: &[(&str, &str)]) -> Option<usize> {
        if entries.is_empty() || entries.len() > MAX_ENTRIES {
            return None;
        }
        let mut entries = entries.to_vec();
        entries.sort_unstable();
        let keys = key_text(domain, entries.iter().map(|(key, _)| *key));
        self.by_keys.get(&keys)?.iter().find_map(|table| {
            let mut texts = Vec::with_capacity(entries.len());
            for (form, (_, value)) in table.form.iter().zip(&entries) {
                texts.push(match form {
                    PatternForm::Exact => value.as_bytes(),
                    PatternForm::Prefix(length) => value.as_bytes().get(..*length)?,
                    PatternForm::Any => &[],
                });
            }
            table.by_values.get(&value_text(texts.into_iter())).copied()
        })
    }
}

/// What is sorted ascending to have the most specific form first.
fn specificity(form: &[PatternForm]) -> (Reverse<usize>, Reverse<usize>, Vec<PatternForm>) {
    let is_exact = |form: &&PatternForm| **form == PatternForm::Exact;
    let prefix_bytes = form.iter().map(|form| match form {
        PatternForm::Prefix(length) => *length,
        PatternForm::Exact | PatternForm::Any => 0,
    });
    let exact_count = form.iter().filter(is_exact).count();
    (
        Reverse(exact_count),
        Reverse(prefix_bytes.sum()),
        form.to_vec(),
    )
}

/// The domain and the sorted keys in one text, each after its length.
fn key_text<'k>(domain: &'k str, keys: impl Iterator<Item = &'k str>) -> Vec<u8> {
    value_text(std::iter::once(domain).chain(keys).map(str::as_bytes))
}

/// Several texts in one, each after its length.
fn value_text<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    for text in texts {
        joined.extend_from_slice(&(text.len() as u64).to_le_bytes());
        joined.extend_from_slice(text);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(entries: &[(&str, &str)]) -> DescriptorPattern {
        let entries = entries.iter().map(|(key, value)| EntryPattern {
            key: (*key).into(),
            value: match value.strip_suffix('*') {
                Some("") => ValuePattern::Any,
                Some(prefix) => ValuePattern::Prefix(prefix.into()),
                None => ValuePattern::Exact((*value).into()),
            },
        });
        DescriptorPattern::new("edge", entries.collect())
    }

    #[test]
    fn the_most_specific_policy_matches() {
        let patterns = [
            pattern(&[("a", "*"), ("b", "*")]),
            pattern(&[("a", "1"), ("b", "*")]),
            pattern(&[("a", "*"), ("b", "1")]),
            pattern(&[("a", "1"), ("b", "1")]),
            pattern(&[("a", "/v*"), ("b", "*")]),
            pattern(&[("a", "/v1/*"), ("b", "*")]),
            pattern(&[("a", "")]),
            pattern(&[("a", "x"), ("a", "y")]),
        ];
        let table = DescriptorTable::build(patterns.iter().enumerate()).unwrap();
        let check = |entries: &[(&str, &str)], expected: Option<usize>| {
            assert_eq!(table.find("edge", entries), expected, "{entries:?}");
        };
        check(&[("a", "2"), ("b", "2")], Some(0));
        check(&[("b", "2"), ("a", "1")], Some(1));
        check(&[("a", "2"), ("b", "1")], Some(2));
        check(&[("b", "1"), ("a", "1")], Some(3));
        check(&[("a", "/v2"), ("b", "2")], Some(4));
        check(&[("a", "/v1/x"), ("b", "")], Some(5));
        // An exact value of the other key counts for more than a prefix.
        check(&[("a", "/v1/x"), ("b", "1")], Some(2));
        check(&[("a", "")], Some(6));
        check(&[("a", "2")], None);
        check(&[("a", "y"), ("a", "x")], Some(7));
        check(&[("a", "x"), ("a", "x")], None);
        check(&[("a", "1"), ("b", "1"), ("c", "1")], None);
        check(&[], None);
        assert_eq!(table.find("other", &[("a", "")]), None);
    }

    #[test]
    fn exact_values_of_the_first_keys_come_first() {
        let patterns = [
            pattern(&[("a", "*"), ("b", "1")]),
            pattern(&[("a", "1"), ("b", "*")]),
        ];
        let table = DescriptorTable::build(patterns.iter().enumerate()).unwrap();
        assert_eq!(table.find("edge", &[("a", "1"), ("b", "1")]), Some(1));
    }

    #[test]
    fn equal_patterns_conflict() {
        let patterns = [
            pattern(&[("a", "1"), ("b", "*")]),
            pattern(&[("b", "*"), ("a", "1")]),
        ];
        let conflicts = DescriptorTable::build(patterns.iter().enumerate()).unwrap_err();
        assert_eq!(
            (conflicts[0].first_index, conflicts[0].second_index),
            (0, 1)
        );
    }

    #[test]
    fn keys_and_values_never_run_into_each_other() {
        let patterns = [pattern(&[("ab", "c")])];
        let table = DescriptorTable::build(patterns.iter().enumerate()).unwrap();
        assert_eq!(table.find("edge", &[("a", "bc")]), None);
        assert_eq!(table.find("edgea", &[("b", "c")]), None);
    }
}
