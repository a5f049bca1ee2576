//! Finds the segment of a request's path that a route's pattern calls by a name: `{account}`.

use std::borrow::Cow;

use super::form;
use crate::route::{Pattern, Segment};

/// Extensions of scripts, without the dot. Servers run a script with the segments after it as its path.
const SCRIPT_EXTENSIONS: [&str; 11] = [
    "php", "phtml", "php5", "cgi", "fcgi", "pl", "py", "rb", "asp", "aspx", "jsp",
];

/// The segment of `path` that `pattern` calls `name`, without its escapes. The last segment of a path counts without what
/// follows its last dot, which is a format for Rails and Spring. `None` if the pattern has no such segment or the path is
/// shorter; the inner `None` if frameworks would take different texts for it.
pub(super) fn find<'p>(
    pattern: &Pattern,
    name: &str,
    path: &'p str,
) -> Option<Option<Cow<'p, [u8]>>> {
    let index = pattern.segment_index(name)?;
    if !has_certain_segments(path) || !has_literal_segments(pattern, path) {
        return Some(None);
    }
    let mut segments = path.split('/').skip(1);
    let has_script = segments.clone().take(index + 1).any(is_script);
    let segment = segments.nth(index).filter(|segment| !segment.is_empty())?;
    let is_last = segments.all(str::is_empty);
    let (text, escapes) = form::unescape(segment.as_bytes(), b'+');
    let is_blank = |byte: &u8| byte.is_ascii_control() || *byte == b' ';
    // A `%` that is left may be an escape of an escape, which some servers decode too.
    let is_clear = !escapes.has_malformed && !text.contains(&b'%') && !text.iter().any(is_blank);
    let is_clear = is_clear && (is_last || !has_script);
    Some(is_clear.then(|| if is_last { without_format(text) } else { text }))
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
        let escapes = memchr::memchr_iter(b'%', bytes).filter_map(|at| bytes.get(at + 1..at + 3));
        let mut lower_case_digits = escapes.map(<[u8]>::to_ascii_lowercase);
        lower_case_digits
            .any(|digits| matches!(digits.as_slice(), b"2f" | b"5c" | b"3b" | b"2e" | b"25"))
    };
    let is_ambiguous_segment =
        |segment: &str| segment.is_empty() || segment == "." || segment == "..";
    let path_after_slash = path.strip_prefix('/').unwrap_or(path);
    let path_after_slash = path_after_slash
        .strip_suffix('/')
        .unwrap_or(path_after_slash);
    !path.contains([';', '\\'])
        && !has_ambiguous_escape()
        && !path_after_slash.split('/').any(is_ambiguous_segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        // `expected`: the text, the inner `None` for an ambiguous one, the outer for an absent one.
        let check = |pattern: &str, path: &str, expected: Option<Option<&str>>| {
            let pattern = Pattern::parse(pattern).unwrap();
            let found = find(&pattern, "account", path);
            let found =
                found.map(|part| part.map(|text| String::from_utf8_lossy(&text).into_owned()));
            assert_eq!(found, expected.map(|part| part.map(String::from)), "{path}");
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
