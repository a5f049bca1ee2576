//! Compares names of fields as upstreams do. A spelling resembles a name if some framework takes it for that name. Nothing
//! here decides which of two spellings in one request an upstream prefers.
//!
//! - PHP drops blanks before a name, ends it at NUL, and reads ` `, `.` and `[` as `_`.
//! - Rack skips brackets before a name.
//! - `qs`, PHP and Rack read `name[]`, `name[0]` and `name[x]` as parts of `name`, Rack also `name]x`, Spring `name.x`.
//! - ASP.NET and Go's JSON ignore case.

use std::fmt;

use smallvec::SmallVec;

/// The configured name of a field, to which names in requests are compared.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldName {
    /// The name as the gateway file has it.
    text: Box<str>,
    /// The folded name.
    symbols: Box<[NameSymbol]>,
}

/// A symbol of a folded name. Names that an upstream takes for one another fold to the same symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameSymbol {
    /// A letter in lower case, or any character that is no separator.
    Letter(char),
    /// A run of spaces and underscores, which joins two words of a name.
    WordSeparator,
    /// A run of separators with a dot or a bracket. Some readers take the text after it for the name of a part of the
    /// field.
    PartSeparator,
}

impl FieldName {
    /// Folds the name once, for all later comparisons.
    pub fn new(text: &str) -> FieldName {
        FieldName {
            text: text.into(),
            symbols: NameSymbols::new(text).collect(),
        }
    }

    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether some upstream takes `spelling`, in a form, a query or a cookie, for this name or for a part of this field.
    pub fn resembles(&self, spelling: &[u8]) -> bool {
        spelling == self.text.as_bytes() || self.folds_like(&String::from_utf8_lossy(spelling))
    }

    /// Whether some upstream takes `member`, the name in a JSON object, for this name or for a part of this field. Members
    /// may lack underscores and hyphens, as `userId` for `user_id`. Only a leading one counts: `method` is not `_method`.
    pub fn resembles_member(&self, member: &str) -> bool {
        let has_leading_separator =
            |name: &str| name.trim_start_matches(is_blank).starts_with(['_', '-']);
        let begin_alike = || has_leading_separator(member) == has_leading_separator(&self.text);
        self.resembles(member.as_bytes())
            || (begin_alike() && letters_of(member).eq(letters_of(&self.text)))
    }

    /// Whether the folded `spelling` is this name, or this name with the name of a part after it.
    fn folds_like(&self, spelling: &str) -> bool {
        let begins_with_separator = self.symbols.first() == Some(&NameSymbol::WordSeparator);
        self.is_prefix_of(NameSymbols::new(spelling))
            || (begins_with_separator
                && self.is_prefix_of(NameSymbols::with_leading_brackets(spelling)))
    }

    /// Whether the symbols of a spelling are those of this name, with nothing or the name of a part after them. The two
    /// kinds of separators count as the same.
    fn is_prefix_of(&self, mut spelling: NameSymbols<'_>) -> bool {
        let are_alike = |ours: &NameSymbol, theirs: NameSymbol| match (ours, theirs) {
            (NameSymbol::Letter(ours), NameSymbol::Letter(theirs)) => *ours == theirs,
            (NameSymbol::Letter(_), _) | (_, NameSymbol::Letter(_)) => false,
            _ => true,
        };
        let matches_next = |ours| {
            spelling
                .next()
                .is_some_and(|theirs| are_alike(ours, theirs))
        };
        !self.symbols.is_empty()
            && self.symbols.iter().all(matches_next)
            && matches!(spelling.next(), None | Some(NameSymbol::PartSeparator))
    }
}

impl From<&str> for FieldName {
    fn from(text: &str) -> FieldName {
        FieldName::new(text)
    }
}

impl fmt::Debug for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Whether some framework trims this character.
pub(in crate::identity) fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control() || c == '\u{feff}'
}

/// Iterates over the symbols of a folded name without allocating.
struct NameSymbols<'t> {
    /// The text whose symbols are still to come.
    remaining: &'t str,
    /// The folded letters of the last character that are still to come, in reverse order: some characters fold to
    /// several.
    pending_letters: SmallVec<[char; 3]>,
}

impl<'t> NameSymbols<'t> {
    /// The symbols of a name without leading brackets and `?`, which Rack skips.
    fn new(name: &'t str) -> NameSymbols<'t> {
        let mut symbols = NameSymbols::with_leading_brackets(name);
        let is_skipped = |c| is_blank(c) || matches!(c, '[' | ']' | '?');
        symbols.remaining = symbols.remaining.trim_start_matches(is_skipped);
        symbols
    }

    /// The symbols of a name with its leading brackets: PHP reads `[method` as `_method`.
    fn with_leading_brackets(name: &'t str) -> NameSymbols<'t> {
        let name = name.split('\0').next().unwrap_or_default();
        NameSymbols {
            remaining: name.trim_matches(is_blank),
            pending_letters: SmallVec::new(),
        }
    }

    /// Removes a run of separators from the remaining text.
    fn take_separators(&mut self) -> NameSymbol {
        let mut symbol = NameSymbol::WordSeparator;
        while let Some(c) = self.remaining.chars().next() {
            match c {
                ' ' | '_' => {}
                '.' | '[' | ']' => symbol = NameSymbol::PartSeparator,
                _ => break,
            }
            self.remaining = &self.remaining[c.len_utf8()..];
            if c == '[' {
                self.skip_index();
            }
        }
        symbol
    }

    /// Skips the digits in `[0]`, which are an index and no name.
    fn skip_index(&mut self) {
        let is_digit = |c: char| c.is_ascii_digit();
        let after_digits = self.remaining.trim_start_matches(is_digit);
        if after_digits.starts_with(']') {
            self.remaining = after_digits;
        }
    }
}

impl Iterator for NameSymbols<'_> {
    type Item = NameSymbol;

    fn next(&mut self) -> Option<NameSymbol> {
        loop {
            if let Some(letter) = self.pending_letters.pop() {
                return Some(NameSymbol::Letter(letter));
            }
            let c = self.remaining.chars().next()?;
            if matches!(c, ' ' | '_' | '.' | '[' | ']') {
                return Some(self.take_separators());
            }
            self.remaining = &self.remaining[c.len_utf8()..];
            self.pending_letters.extend(fold_case(c));
            self.pending_letters.reverse();
        }
    }
}

/// The letter without case. It goes through the upper case, so that `K` (Kelvin), `ſ` and `ı` are `k`, `s` and `i`.
/// The dot of `İ` folds to nothing. So does the replacement character, as for readers that drop invalid UTF-8.
fn fold_case(c: char) -> impl Iterator<Item = char> {
    let ascii = c.is_ascii().then(|| c.to_ascii_lowercase());
    let non_ascii = (!c.is_ascii()).then(|| c.to_uppercase().flat_map(char::to_lowercase));
    let is_letter = |c: &char| !matches!(c, '\u{307}' | '\u{fffd}');
    ascii
        .into_iter()
        .chain(non_ascii.into_iter().flatten().filter(is_letter))
}

/// The letters of a JSON member's name, without case, underscores and hyphens.
fn letters_of(name: &str) -> impl Iterator<Item = char> {
    let name = name.split('\0').next().unwrap_or_default();
    name.trim_matches(is_blank)
        .chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .flat_map(fold_case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wanted: &str, given: &str, expected: bool) {
        let name = FieldName::new(wanted);
        assert_eq!(
            name.resembles(given.as_bytes()),
            expected,
            "{wanted} {given:?}"
        );
    }

    #[test]
    fn spellings_that_some_upstream_takes_for_the_name() {
        for given in [
            "email",
            "Email",
            " email",
            "\t email",
            "email ",
            "email\0x",
            "email[]",
            "email[0]",
            "email[x]",
            "email[",
            "email]",
            "email]x",
            "[email]",
            "[email",
            "]email",
            "[][email]",
            "email.x",
            "email.",
            "EMA\u{131}L",
            "ema\u{130}l",
            "?email",
            "\u{feff}email",
            "em\u{fffd}ail",
        ] {
            check("email", given, true);
        }
        for given in [
            "",
            "e",
            "mail",
            "emails",
            "email_confirmation",
            "email_",
            "e_mail",
            "user[email]",
            "xemail",
            "\0email",
            "email2",
            "email x",
            "_email",
        ] {
            check("email", given, false);
        }
        for given in [
            "user.email",
            "user[email]",
            "user[][email]",
            "user[0][email]",
            "user_email",
            "user email",
            "user[email",
            "user[email][]",
            "USER[EMAIL]",
            "user.email.x",
        ] {
            check("user.email", given, true);
            check("user_email", given, true);
        }
        for given in ["user", "useremail", "user[x][email]", "email"] {
            check("user.email", given, false);
        }
        check("__Host-sid", "..Host-sid", true);
        for given in ["[_method]", "_method[x]", "[method", ".method", "_Method"] {
            check("_method", given, true);
        }
        check("_method", "method", false);
        check("_method", "[method]", true);
        check("tasks", "ta\u{17f}\u{212a}s", true);
        check("", "", true);
        check("", "x", false);
    }

    #[test]
    fn members() {
        let name = FieldName::new("user_id");
        for given in [
            "user_id",
            "userId",
            "UserID",
            "user-id",
            "user.id",
            "userid\0x",
        ] {
            assert!(name.resembles_member(given), "{given:?}");
        }
        for given in ["user", "id", "user_id_2", "user_ids"] {
            assert!(!name.resembles_member(given), "{given:?}");
        }
        let name = FieldName::new("_method");
        for given in ["_method", "_METHOD", "-method", " _method"] {
            assert!(name.resembles_member(given), "{given:?}");
        }
        assert!(!name.resembles_member("method"));
    }
}
