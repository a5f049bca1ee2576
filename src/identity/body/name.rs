//! Names of fields as upstreams read them. A spelling resembles a name when some framework takes it for
//! that name; which of two spellings an upstream prefers is never guessed here.
//!
//! PHP drops blanks before a name, ends it at NUL and reads ` `, `.` and `[` as `_`. Rack skips brackets in
//! front of a name. `qs`, PHP and Rack read `name[]`, `name[0]` and `name[x]` as parts of `name`, Rack
//! `name]x` too, Spring `name.x`. ASP.NET and Go's JSON compare without case.

use std::fmt;

use smallvec::SmallVec;

/// The name of a field that is looked for.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldName {
    plain: Box<str>,
    folded: Box<[NameMark]>,
}

/// A piece of a folded name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameMark {
    Letter(char),
    /// Blanks and underscores.
    Join,
    /// A dot or a bracket, behind which some read the part of a field.
    Part,
}

impl FieldName {
    /// Looks for `plain`.
    pub fn new(plain: &str) -> FieldName {
        FieldName {
            plain: plain.into(),
            folded: NameMarks::of(plain).collect(),
        }
    }

    /// Whether some upstream takes this name of a form, a query or a cookie for it, or for a part of it.
    pub fn resembles(&self, given: &[u8]) -> bool {
        given == self.plain.as_bytes() || self.folds_to(&String::from_utf8_lossy(given))
    }

    /// The same for a member of a JSON object: there, underscores and hyphens may be left out too, as for
    /// `userId` where `user_id` is meant. One in front tells names apart: `method` is not `_method`.
    pub fn resembles_member(&self, given: &str) -> bool {
        let marked = |name: &str| name.trim_start_matches(is_blank).starts_with(['_', '-']);
        let alike = || marked(given) == marked(&self.plain);
        self.resembles(given.as_bytes()) || (alike() && letters(given).eq(letters(&self.plain)))
    }

    fn folds_to(&self, given: &str) -> bool {
        let joins = self
            .folded
            .first()
            .is_some_and(|first| *first == NameMark::Join);
        self.begins(NameMarks::of(given)) || (joins && self.begins(NameMarks::with_brackets(given)))
    }

    fn begins(&self, mut given: NameMarks<'_>) -> bool {
        let same = |wanted: &NameMark, given: NameMark| match (wanted, given) {
            (NameMark::Letter(wanted), NameMark::Letter(given)) => *wanted == given,
            (NameMark::Letter(_), _) | (_, NameMark::Letter(_)) => false,
            _ => true,
        };
        let begins = |mark| given.next().is_some_and(|given| same(mark, given));
        !self.folded.is_empty()
            && self.folded.iter().all(begins)
            && matches!(given.next(), None | Some(NameMark::Part))
    }
}

impl From<&str> for FieldName {
    fn from(plain: &str) -> FieldName {
        FieldName::new(plain)
    }
}

impl fmt::Debug for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plain.fmt(f)
    }
}

/// Whether frameworks trim this character.
pub(in crate::identity) fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control() || c == '\u{feff}'
}

/// Folds a name piece by piece, without memory.
struct NameMarks<'t> {
    rest: &'t str,
    /// What a letter has become, last first.
    letters: SmallVec<[char; 3]>,
}

impl<'t> NameMarks<'t> {
    /// Without brackets in front, as Rack reads names.
    fn of(text: &'t str) -> NameMarks<'t> {
        let mut marks = NameMarks::with_brackets(text);
        let in_front = |c| is_blank(c) || matches!(c, '[' | ']' | '?');
        marks.rest = marks.rest.trim_start_matches(in_front);
        marks
    }

    /// With them, for PHP reads `[method` as `_method`.
    fn with_brackets(text: &'t str) -> NameMarks<'t> {
        let text = text.split('\0').next().unwrap_or_default();
        NameMarks {
            rest: text.trim_matches(is_blank),
            letters: SmallVec::new(),
        }
    }

    /// The rest of a run of separators.
    fn run(&mut self) -> NameMark {
        let mut mark = NameMark::Join;
        while let Some(c) = self.rest.chars().next() {
            match c {
                ' ' | '_' => {}
                '.' | '[' | ']' => mark = NameMark::Part,
                _ => break,
            }
            self.rest = &self.rest[c.len_utf8()..];
            if c == '[' {
                // An index between brackets is no name.
                let digits = |c: char| c.is_ascii_digit();
                let behind = self.rest.trim_start_matches(digits);
                if behind.starts_with(']') {
                    self.rest = behind;
                }
            }
        }
        mark
    }
}

impl Iterator for NameMarks<'_> {
    type Item = NameMark;

    fn next(&mut self) -> Option<NameMark> {
        loop {
            if let Some(letter) = self.letters.pop() {
                return Some(NameMark::Letter(letter));
            }
            let c = self.rest.chars().next()?;
            if matches!(c, ' ' | '_' | '.' | '[' | ']') {
                return Some(self.run());
            }
            self.rest = &self.rest[c.len_utf8()..];
            self.letters.extend(lower(c));
            self.letters.reverse();
        }
    }
}

/// A letter without case: by way of the capital, so that `K` (Kelvin), `ſ` and `ı` are `k`, `s` and `i`
/// too. Nothing for the dot of `İ` and for what is not UTF-8.
fn lower(c: char) -> impl Iterator<Item = char> {
    let ascii = c.is_ascii().then(|| c.to_ascii_lowercase());
    let other = (!c.is_ascii()).then(|| c.to_uppercase().flat_map(char::to_lowercase));
    let kept = |c: &char| !matches!(c, '\u{307}' | '\u{fffd}');
    ascii
        .into_iter()
        .chain(other.into_iter().flatten().filter(kept))
}

fn letters(name: &str) -> impl Iterator<Item = char> {
    let name = name.split('\0').next().unwrap_or_default();
    let kept = name
        .trim_matches(is_blank)
        .chars()
        .filter(|c| !matches!(c, '_' | '-'));
    kept.flat_map(lower)
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
