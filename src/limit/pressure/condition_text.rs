//! Parses the condition of an elastic limit as policies write it, and says what is wrong with it and where.

use super::condition::{Condition, SignalBound};
use crate::base::clock::Nanos;
use crate::base::suggest::{list_words, nearest_word};

/// The largest number of bounds in one condition.
pub const MAX_BOUNDS: usize = 8;

const LOAD_SIGNAL: &str = "upstream.load";
const P50_SIGNAL: &str = "upstream.latency.p50";
const P90_SIGNAL: &str = "upstream.latency.p90";
const CPU_SIGNAL: &str = "gateway.cpu";
const SIGNALS: [&str; 4] = [LOAD_SIGNAL, P50_SIGNAL, P90_SIGNAL, CPU_SIGNAL];

/// A mistake in a condition, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{mistake}")]
pub struct ConditionError {
    /// The offset of the wrong word in bytes; the length of the text where a word is missing.
    pub offset: usize,
    /// What is wrong with that word.
    pub mistake: ConditionMistake,
}

/// The kind of a [`ConditionError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionMistake {
    /// The text ends too early.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The word is not a signal.
    #[error("`{word}` is not a signal; {}", signal_hint(.nearest))]
    UnknownSignal {
        /// The word as written.
        word: String,
        /// The most similar signal; `None` if none is similar.
        nearest: Option<&'static str>,
    },
    /// The comparison is not `<`.
    #[error("`{0}` cannot compare; a condition bounds from above, with `<`")]
    Comparison(String),
    /// The conjunction is not `and`.
    #[error("`{0}` cannot join; conditions are joined by `and`")]
    Conjunction(String),
    /// The word is not a value of the signal.
    #[error("`{word}` is not {expected}")]
    Value {
        /// The word as written.
        word: String,
        /// How values of the signal are written.
        expected: &'static str,
    },
    /// More than [`MAX_BOUNDS`] bounds.
    #[error("more than {MAX_BOUNDS} bounds")]
    TooManyBounds,
}

fn signal_hint(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("use {}", list_words(SIGNALS)),
    }
}

impl Condition {
    /// Parses a condition as policies write it.
    ///
    /// # Errors
    ///
    /// The text is not `signal < value`, joined by `and`, with known signals and values of theirs, or it has more than
    /// [`MAX_BOUNDS`] bounds.
    pub fn parse(text: &str) -> Result<Condition, ConditionError> {
        let mut words = ConditionWords { text, offset: 0 };
        let mut bounds = Vec::new();
        loop {
            let (offset, signal) = words.expect_word("a signal")?;
            if !SIGNALS.contains(&signal) {
                let mistake = ConditionMistake::UnknownSignal {
                    word: signal.to_owned(),
                    nearest: nearest_word(signal, SIGNALS),
                };
                return Err(mistake.at_offset(offset));
            }
            let (offset, sign) = words.expect_word("`<`")?;
            if sign != "<" {
                return Err(ConditionMistake::Comparison(sign.to_owned()).at_offset(offset));
            }
            let (offset, word) = words.expect_word("a value")?;
            let wrong = || ConditionMistake::Value {
                word: word.to_owned(),
                expected: describe_values(signal),
            };
            bounds.push(parse_bound(signal, word).ok_or_else(|| wrong().at_offset(offset))?);
            if bounds.len() > MAX_BOUNDS {
                return Err(ConditionMistake::TooManyBounds.at_offset(offset));
            }
            match words.next() {
                None => {
                    let text = text.trim().into();
                    return Ok(Condition { text, bounds });
                }
                Some((_, "and")) => {}
                Some((offset, word)) => {
                    return Err(ConditionMistake::Conjunction(word.to_owned()).at_offset(offset));
                }
            }
        }
    }
}

impl ConditionMistake {
    fn at_offset(self, offset: usize) -> ConditionError {
        ConditionError {
            offset,
            mistake: self,
        }
    }
}

/// Parses the value of a bound; `None` if `value` is not one of this signal.
fn parse_bound(signal: &str, value: &str) -> Option<SignalBound> {
    match signal {
        LOAD_SIGNAL => parse_share(value).map(SignalBound::Load),
        CPU_SIGNAL => parse_share(value).map(SignalBound::Cpu),
        P50_SIGNAL => parse_duration(value).map(SignalBound::P50),
        P90_SIGNAL => parse_duration(value).map(SignalBound::P90),
        _ => None,
    }
}

fn describe_values(signal: &str) -> &'static str {
    match signal {
        LOAD_SIGNAL | CPU_SIGNAL => "a share above 0 and at most 1, for instance 0.7 or 70%",
        _ => "a span above 0, for instance 200ms, 1.5s or 800us",
    }
}

/// Parses `0.7` or `70%`; `None` unless it is above 0 and at most 1.
fn parse_share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => parse_number(percent)? / 100.0,
        None => parse_number(text)?,
    };
    (share > 0.0 && share <= 1.0).then_some(share)
}

/// Parses a duration such as `200ms`; `None` unless it is from a nanosecond to an hour.
fn parse_duration(text: &str) -> Option<Nanos> {
    let units = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (count, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let nanos = parse_number(count)? * unit;
    (1.0..=3.6e12)
        .contains(&nanos)
        .then_some(Nanos(nanos as u64))
}

/// Parses digits with at most one point among them; unlike `f64`'s parser it takes no sign, exponent or `inf`.
fn parse_number(text: &str) -> Option<f64> {
    let has_only_digits = text.starts_with(|first: char| first.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| has_only_digits)
}

/// Iterates over words and runs of comparison signs, each with its offset in bytes. `0.7<` is two of them.
struct ConditionWords<'t> {
    text: &'t str,
    /// The end of the last word, in bytes.
    offset: usize,
}

impl<'t> ConditionWords<'t> {
    /// The next word and its offset. If there is none, the error says that `what` is missing.
    fn expect_word(&mut self, what: &'static str) -> Result<(usize, &'t str), ConditionError> {
        self.next()
            .ok_or_else(|| ConditionMistake::Missing(what).at_offset(self.text.len()))
    }
}

impl<'t> Iterator for ConditionWords<'t> {
    type Item = (usize, &'t str);

    fn next(&mut self) -> Option<(usize, &'t str)> {
        let unread = self.text[self.offset..].trim_start();
        let start = self.text.len() - unread.len();
        let is_sign = |c: char| matches!(c, '<' | '>' | '=' | '!');
        let starts_with_sign = unread.starts_with(is_sign);
        let length = unread
            .find(|c: char| c.is_whitespace() || is_sign(c) != starts_with_sign)
            .unwrap_or(unread.len());
        self.offset = start + length;
        (length > 0).then(|| (start, &unread[..length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn wrong(text: &str, offset: usize, message: &str) {
        let error = Condition::parse(text).unwrap_err();
        assert_eq!(
            (error.offset, error.to_string().as_str()),
            (offset, message)
        );
    }

    #[test]
    fn mistakes_say_what_and_where() {
        wrong("", 0, "a signal is missing");
        wrong("upstream.load", 13, "`<` is missing");
        wrong("upstream.load < ", 16, "a value is missing");
        wrong("upstream.load < 0.5 and", 23, "a signal is missing");
        wrong(
            "gateway.cpu<1 and upsteam.load < 1",
            18,
            "`upsteam.load` is not a signal; did you mean `upstream.load`?",
        );
        wrong(
            "x < 1",
            0,
            "`x` is not a signal; use `upstream.load`, `upstream.latency.p50`, \
             `upstream.latency.p90` or `gateway.cpu`",
        );
        let sign = "cannot compare; a condition bounds from above, with `<`";
        wrong("upstream.load > 0.7", 14, &format!("`>` {sign}"));
        wrong("upstream.load <= 0.7", 14, &format!("`<=` {sign}"));
        wrong("upstream.load is 0.7", 14, &format!("`is` {sign}"));
        wrong(
            "upstream.load < 0.7 or gateway.cpu < 1",
            20,
            "`or` cannot join; conditions are joined by `and`",
        );
        for value in [
            "200ms", "0", "1.1", "101%", "-1", "nan", "1e-3", "0.7.1", "+1", ".",
        ] {
            let expected = "a share above 0 and at most 1, for instance 0.7 or 70%";
            wrong(
                &format!("upstream.load < {value}"),
                16,
                &format!("`{value}` is not {expected}"),
            );
        }
        for value in ["200", "0ms", "2h", "9999s", "ms", "-1s", "1é"] {
            let expected = "a span above 0, for instance 200ms, 1.5s or 800us";
            wrong(
                &format!("upstream.latency.p90 < {value}"),
                23,
                &format!("`{value}` is not {expected}"),
            );
        }
        let many = ["gateway.cpu < 1"; 9].join(" and ");
        wrong(&many, 174, "more than 8 bounds");
    }
}
