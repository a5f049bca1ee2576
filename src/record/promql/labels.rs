//! Labels of series, and what a selector asks of them.

use std::sync::Arc;

use regex_lite::{Regex, RegexBuilder};

/// The label that holds a metric's name.
pub const NAME: &str = "__name__";

/// Most bytes of a compiled pattern, beside those for each of its letters: repetitions take more than they are long.
const PATTERN: usize = 16 << 10;
/// Bytes of a compiled pattern for each of its letters.
const LETTER: usize = 64;
/// Most groups of a pattern, whose places are kept for each of its states.
const GROUPS: usize = 16;

/// Names and values, sorted by name; a label with an empty value is none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Labels(Arc<[LabelPair]>);

type LabelPair = (Arc<str>, Arc<str>);

impl Labels {
    /// Of names and values in any order.
    pub fn new<N: Into<Arc<str>>, V: Into<Arc<str>>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Labels {
        let pairs = pairs.into_iter();
        let mut all: Vec<LabelPair> = pairs.map(|(n, v)| (n.into(), v.into())).collect();
        all.retain(|(_, value)| !value.is_empty());
        all.sort();
        all.dedup_by(|a, b| a.0 == b.0);
        Labels(all.into())
    }

    /// A label's value; empty when there is no such label.
    pub fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| &**own == name);
        found.map_or("", |(_, value)| value)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        let each = self.iter().map(|(name, value)| name.len() + value.len());
        each.map(|letters| letters + size_of::<LabelPair>()).sum()
    }

    /// Those labels for which `keep` says so.
    pub fn filtered(&self, keep: impl Fn(&str) -> bool) -> Labels {
        if self.0.iter().all(|(name, _)| keep(name)) {
            return self.clone();
        }
        let kept = self.0.iter().filter(|(name, _)| keep(name));
        Labels(kept.cloned().collect())
    }

    /// All but the metric's name.
    pub fn nameless(&self) -> Labels {
        self.filtered(|name| name != NAME)
    }

    /// With another value of a label; an empty one takes it away.
    pub fn with(&self, name: &str, value: &str) -> Labels {
        let others = self.0.iter().filter(|(own, _)| &**own != name).cloned();
        Labels::new(others.chain([(name.into(), value.into())]))
    }
}

impl std::fmt::Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{")?;
        for (place, (name, value)) in self.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{name}={value:?}")?;
        }
        write!(f, "}}")
    }
}

/// What one label of a series must be.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// The label's name.
    pub name: Arc<str>,
    /// What its value is compared with.
    pub test: Test,
}

/// How a label's value is compared.
#[derive(Clone, Debug)]
pub enum Test {
    /// `=`
    Is(String),
    /// `!=`
    IsNot(String),
    /// `=~`
    Like(Regex),
    /// `!~`
    Unlike(Regex),
}

impl Matcher {
    /// Whether a value is as it must be.
    pub fn takes(&self, value: &str) -> bool {
        match &self.test {
            Test::Is(other) => value == other,
            Test::IsNot(other) => value != other,
            Test::Like(pattern) => pattern.is_match(value),
            Test::Unlike(pattern) => !pattern.is_match(value),
        }
    }
}

/// Whether labels are as all matchers say.
pub fn fits(matchers: &[Matcher], labels: &Labels) -> bool {
    matchers.iter().all(|m| m.takes(labels.get(&m.name)))
}

/// A pattern that is compared with a whole value.
pub fn pattern(text: &str) -> Result<Regex, String> {
    let whole = format!("^(?:{text})$");
    let most = PATTERN + LETTER * text.len();
    let wrong = |why: &str| format!("error parsing regexp: {why}: `{whole}`");
    let built = RegexBuilder::new(&whole).size_limit(most).build();
    let built = built.map_err(|error| wrong(&error.to_string()))?;
    // The whole match is one.
    if built.captures_len() > GROUPS + 1 {
        return Err(wrong(&format!("more than {GROUPS} groups")));
    }
    Ok(built)
}

/// Whether a text can be a label's name.
pub fn is_label_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(plain) && text.starts_with(|c: char| !c.is_ascii_digit())
}
