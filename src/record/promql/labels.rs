//! Labels of series, and the matchers with which a selector chooses series by them.

use std::sync::Arc;

use regex_lite::{Regex, RegexBuilder};

/// The label that holds a metric's name.
pub const METRIC_NAME_LABEL: &str = "__name__";

/// The bytes that any compiled pattern may take. Repetitions such as `a{1000}` need more memory than their text.
const PATTERN_BASE_BYTES: usize = 16 << 10;
/// The bytes that a compiled pattern may take in addition, for each byte of its text.
const PATTERN_FACTOR_BYTES: usize = 64;
/// The most groups of a pattern. Matching stores the position of each of them for each state.
const MAX_PATTERN_GROUPS: usize = 16;

/// The labels of a series, sorted by name. A label with an empty value counts as missing, and is never stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Labels(Arc<[LabelPair]>);

/// The name and the value of a label.
type LabelPair = (Arc<str>, Arc<str>);

impl Labels {
    /// Makes labels of names and values in any order. Of several values for one name, the least is kept.
    pub fn new<N: Into<Arc<str>>, V: Into<Arc<str>>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Labels {
        let pairs = pairs.into_iter();
        let mut label_pairs: Vec<LabelPair> = pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        label_pairs.retain(|(_, value)| !value.is_empty());
        label_pairs.sort();
        label_pairs.dedup_by(|(next_name, _), (name, _)| next_name == name);
        Labels(label_pairs.into())
    }

    /// The value of a label; empty when there is no such label.
    pub fn get(&self, name: &str) -> &str {
        let label = self.0.iter().find(|(own_name, _)| &**own_name == name);
        label.map_or("", |(_, value)| value)
    }

    /// Iterates over names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The bytes of the texts and of the pointers to them in memory, if no other labels share them.
    pub fn byte_len(&self) -> usize {
        let text_bytes = self.iter().map(|(name, value)| name.len() + value.len());
        text_bytes.map(|bytes| bytes + size_of::<LabelPair>()).sum()
    }

    /// Returns only the labels for whose names `is_kept` holds.
    pub fn filtered(&self, is_kept: impl Fn(&str) -> bool) -> Labels {
        if self.0.iter().all(|(name, _)| is_kept(name)) {
            return self.clone();
        }
        let kept_pairs = self.0.iter().filter(|(name, _)| is_kept(name));
        Labels(kept_pairs.cloned().collect())
    }

    /// Returns the labels without the name of the metric.
    pub fn nameless(&self) -> Labels {
        self.filtered(|name| name != METRIC_NAME_LABEL)
    }

    /// Returns the labels, with `value` for the label `name`. An empty value removes the label.
    pub fn with(&self, name: &str, value: &str) -> Labels {
        let other_pairs = self.0.iter().filter(|(own_name, _)| &**own_name != name);
        Labels::new(other_pairs.cloned().chain([(name.into(), value.into())]))
    }
}

impl std::fmt::Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{")?;
        for (index, (name, value)) in self.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{name}={value:?}")?;
        }
        write!(f, "}}")
    }
}

/// A condition on one label of a series.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// The name of the label.
    pub name: Arc<str>,
    /// The test of its value.
    pub test: LabelTest,
}

/// How the value of a label is compared. A missing label has an empty value.
#[derive(Clone, Debug)]
pub enum LabelTest {
    /// `=`: the value is this text.
    Equal(String),
    /// `!=`: the value is another text.
    NotEqual(String),
    /// `=~`: the pattern matches the whole value.
    Matching(Regex),
    /// `!~`: the pattern does not match the whole value.
    NotMatching(Regex),
}

impl Matcher {
    /// Whether the value of the label passes the test.
    pub fn accepts(&self, value: &str) -> bool {
        match &self.test {
            LabelTest::Equal(expected) => value == expected,
            LabelTest::NotEqual(unwanted) => value != unwanted,
            LabelTest::Matching(pattern) => pattern.is_match(value),
            LabelTest::NotMatching(pattern) => !pattern.is_match(value),
        }
    }
}

/// Whether labels pass the tests of all matchers. Without matchers, all labels do.
pub fn match_all(matchers: &[Matcher], labels: &Labels) -> bool {
    let mut matchers = matchers.iter();
    matchers.all(|matcher| matcher.accepts(labels.get(&matcher.name)))
}

/// Compiles a pattern that must match a whole value.
///
/// # Errors
///
/// Returns a message as in Prometheus if the pattern is invalid, too large, or has too many groups.
pub fn compile_pattern(text: &str) -> Result<Regex, String> {
    let anchored = format!("^(?:{text})$");
    let max_bytes = PATTERN_BASE_BYTES + PATTERN_FACTOR_BYTES * text.len();
    let error = |why: &str| format!("error parsing regexp: {why}: `{anchored}`");
    let compiled = RegexBuilder::new(&anchored)
        .size_limit(max_bytes)
        .build()
        .map_err(|why| error(&why.to_string()))?;
    // The whole match counts as a group of its own.
    if compiled.captures_len() > MAX_PATTERN_GROUPS + 1 {
        return Err(error(&format!("more than {MAX_PATTERN_GROUPS} groups")));
    }
    Ok(compiled)
}

/// Whether a text can be the name of a label: ASCII letters, digits and `_`, and no digit at first.
pub fn is_label_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(is_allowed) && text.starts_with(|c: char| !c.is_ascii_digit())
}
