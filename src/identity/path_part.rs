//! Finds the segment of a request's path that a route's pattern calls by a name: `{account}`.

use std::borrow::Cow;

use super::canonical::whole_number;
use super::{FieldValue, form};
use crate::route::{Pattern, Segment};

/// Extensions of scripts, without the dot. Servers run a script with the segments after it as its path.
const SCRIPT_EXTENSIONS: [&str; 11] = [
    "php", "phtml", "php5", "cgi", "fcgi", "pl", "py", "rb", "asp", "aspx", "jsp",
];

/// The segment of `path` that `pattern` calls `name`, with its escapes decoded. Absent if the pattern has no such segment,
/// or if it is empty or missing in the path; ambiguous if frameworks would take different texts for it.
///
/// The text after the last dot of the path's last segment does not count, because Rails and Spring take it for a format.
pub(super) fn find_segment<'p>(pattern: &Pattern, name: &str, path: &'p str) -> FieldValue<'p> {
    let Some(index) = pattern.segment_index(name) else {
        return FieldValue::Absent;
    };
    if !has_certain_segments(path) || !has_literal_segments(pattern, path) {
        return FieldValue::Ambiguous;
    }
    let mut segments = path.split('/').skip(1);
    let has_script = segments.clone().take(index + 1).any(is_script);
    let segment = segments.nth(index).filter(|segment| !segment.is_empty());
    let Some(segment) = segment else {
        return FieldValue::Absent;
    };
    let is_last = segments.all(str::is_empty);
    let (text, escapes) = form::unescape(segment.as_bytes(), b'+');
    let is_blank = |byte: &u8| byte.is_ascii_control() || *byte == b' ';
    // A `%` in the decoded text may begin another escape, which some servers decode too. Some trim blanks.
    let is_certain_text =
        !escapes.has_malformed && !text.contains(&b'%') && !text.iter().any(is_blank);
    let is_path_of_script = has_script && !is_last;
    if !is_certain_text || is_path_of_script {
        return FieldValue::Ambiguous;
    }
    if !is_last {
        return FieldValue::Single(text);
    }
    let has_other_number = {
        let whole = whole_number::parse(&text);
        whole != FieldValue::Absent
            && whole != whole_number::parse(without_format(text.as_ref().into()).as_ref())
    };
    match has_other_number {
        // To some it is `70` in the format `0e-1`, to others the number 7.
        true => FieldValue::Ambiguous,
        false => FieldValue::Single(without_format(text)),
    }
}

/// Whether a segment has the name of a script.
fn is_script(segment: &str) -> bool {
    let extension = segment.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| {
        SCRIPT_EXTENSIONS
            .iter()
            .any(|script_extension| script_extension.eq_ignore_ascii_case(extension))
    })
}

/// Whether the path has the literal segments of the pattern at the same positions, without regard to case. The route may
/// match by the reading of a framework that skips segments, as `/index.php`: then the positions differ.
fn has_literal_segments(pattern: &Pattern, path: &str) -> bool {
    let segments = path.split('/').skip(1);
    pattern
        .segments()
        .iter()
        .zip(segments)
        .all(|(expected, segment)| match expected {
            Segment::Literal(text) => {
                let (segment, _) = form::unescape(segment.as_bytes(), b'+');
                segment.eq_ignore_ascii_case(text.as_bytes())
            }
            Segment::One(_) | Segment::Rest => true,
        })
}

/// The value that requests have for a last segment `text`, if they cannot have `text` itself: see [`find_segment`].
pub fn without_ignored_format(text: &str) -> Option<&str> {
    let length = without_format(text.as_bytes().into()).len();
    Some(&text[..length]).filter(|kept| *kept != text)
}

/// The text without the dots at its end, and then without its last dot and what follows that. A dot at the beginning of
/// the text is not such a dot.
fn without_format(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let end = text
        .iter()
        .rposition(|byte| *byte != b'.')
        .map_or(0, |last_index| last_index + 1);
    let dot = text[..end]
        .iter()
        .rposition(|byte| *byte == b'.')
        .filter(|dot| *dot > 0);
    let length = dot.unwrap_or(end);
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..length]),
        Cow::Owned(mut text) => {
            text.truncate(length);
            text.into()
        }
    }
}

/// Whether all servers split the path into the same segments. Servers differ on backslashes, parameters (`;`), dot
/// segments, empty segments, and escapes of any of these characters.
fn has_certain_segments(path: &str) -> bool {
    let bytes = path.as_bytes();
    // Escapes of `/`, `\`, `;`, `.` and `%`.
    let has_ambiguous_escape = || {
        let digit_pairs = memchr::memchr_iter(b'%', bytes)
            .filter_map(|percent| bytes.get(percent + 1..percent + 3));
        let mut lower_case_digits = digit_pairs.map(<[u8]>::to_ascii_lowercase);
        lower_case_digits
            .any(|digits| matches!(digits.as_slice(), b"2f" | b"5c" | b"3b" | b"2e" | b"25"))
    };
    let is_ambiguous_segment =
        |segment: &str| segment.is_empty() || segment == "." || segment == "..";
    let path_after_slash = path.strip_prefix('/').unwrap_or(path);
    let inner_path = (path_after_slash.strip_suffix('/')).unwrap_or(path_after_slash);
    !path.contains([';', '\\'])
        && !has_ambiguous_escape()
        && !inner_path.split('/').any(is_ambiguous_segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        // `expected`: the text, the inner `None` for an ambiguous one, the outer for an absent one.
        let check = |pattern: &str, path: &str, expected: Option<Option<&str>>| {
            let pattern = Pattern::parse(pattern).unwrap();
            let expected = match expected {
                None => FieldValue::Absent,
                Some(None) => FieldValue::Ambiguous,
                Some(Some(text)) => FieldValue::Single(text.as_bytes().into()),
            };
            assert_eq!(find_segment(&pattern, "account", path), expected, "{path}");
        };
        check(
            "/accounts/{account}/**",
            "/accounts/acme/items",
            Some(Some("acme")),
        );
        check(
            "/accounts/{account}/**",
            "/accounts/acme/",
            Some(Some("acme")),
        );
        check(
            "/accounts/{account}/**",
            "/accounts/%61cme",
            Some(Some("acme")),
        );
        check(
            "/accounts/{account}/**",
            "/accounts/a%C3%A9",
            Some(Some("a\u{e9}")),
        );
        check("/accounts/{id}/**", "/accounts/acme", None);
        check(
            "/accounts/*/{account}",
            "/accounts/x/acme",
            Some(Some("acme")),
        );
        check(
            "/Accounts/{account}",
            "/accounts/acme.json",
            Some(Some("acme")),
        );
        check(
            "/accounts/{account}",
            "/accounts/acme.foo1/",
            Some(Some("acme")),
        );
        check(
            "/accounts/{account}",
            "/accounts/acme.x..",
            Some(Some("acme")),
        );
        check(
            "/accounts/{account}",
            "/accounts/.acme",
            Some(Some(".acme")),
        );
        check("/{account}/**", "/index.php/acme", Some(None));
        check(
            "/accounts/{account}/**",
            "/accounts/acme.json/x",
            Some(Some("acme.json")),
        );
        for unclear in [
            "/index.php/accounts/acme",
            "/accounts/acme;v=1",
            "/accounts//acme",
            "/accounts/./acme",
            "/accounts/../accounts/acme",
            "/accounts/acme%2Fb",
            "/accounts/acme%5cb",
            "/accounts/acme\\b",
            "/accounts/acme%2561",
            "/accounts/acme%20",
            "/accounts/acme%00",
            "/accounts/%zz",
            "/accounts/%2e%2E/accounts/acme",
        ] {
            check("/accounts/{account}/**", unclear, Some(None));
        }
    }
}
