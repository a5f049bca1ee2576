//! Paths that a query or a form names, as frameworks read them beside the path of the request. Most frameworks do so where
//! the path is a script or the root, which leads nowhere by itself.
//!
//! This file finds the paths; `target.rs` decides which routes they lead to. Paths are read from `/?/login` (CodeIgniter),
//! `/?r=login` (Yii), `route` (OpenCart), `q` (Drupal), `s` (ThinkPHP), `url` and `_url` (Phalcon), `PATH_INFO`,
//! `rest_route` (WordPress).

use std::borrow::Cow;
use std::sync::LazyLock;

use super::body::{BodyStart, FieldPresence, MAX_READ_AHEAD_BYTES};
use crate::http::head::Head;
use crate::identity::body::{self, BodyField, FieldName};
use crate::identity::{FieldValue, form};
use crate::route::{literal_readings, normalise};

/// Maximum bytes of all paths that one query may name, with [`PATH_OVERHEAD_BYTES`] for each path. Each path is looked up
/// in several readings.
const MAX_PATH_BYTES: usize = 4096;

/// The bytes that a path counts in addition to its length, because to read a short path has a cost too.
const PATH_OVERHEAD_BYTES: usize = 64;

/// The query fields whose value is a path if the request's own path is a script or the root.
static PATH_FIELDS: LazyLock<[FieldName; 6]> =
    LazyLock::new(|| ["route", "q", "s", "url", "_url", "PATH_INFO"].map(FieldName::new));

/// The query field of Yii, whose value is a path beside any path of the request.
static YII_ROUTE: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("r"));

/// The path fields whose readers also split at `|` (ThinkPHP), or drop characters that no controller's name has (OpenCart).
static LENIENT_FIELDS: LazyLock<[FieldName; 2]> =
    LazyLock::new(|| ["route", "s"].map(FieldName::new));

/// The query field of WordPress, whose path is otherwise below `/wp-json`.
static REST_ROUTE: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("rest_route"));

/// The form field of WordPress, which WordPress prefers to the query field.
static REST_ROUTE_IN_BODY: LazyLock<BodyField> = LazyLock::new(|| BodyField::new("rest_route"));

/// A path that a query names.
#[derive(Debug, PartialEq, Eq)]
pub struct PathInQuery {
    /// The path by each reading that frameworks make of it, below the folder of the script.
    pub readings: Vec<String>,
    /// The number of segments of the script's folder, with which each reading begins.
    pub folder_depth: usize,
    /// Whether the value is certainly a path. A value without a leading slash may be a word to search for.
    pub is_certain: bool,
}

/// The readings of a path as it stands in a query; `None` if the path is too long for [`literal_readings`].
fn path_readings(path: &str) -> Option<Vec<String>> {
    let path = escape_stray_percents(path);
    let mut readings = literal_readings(&path, false)?;
    if let Ok(normal) = normalise(&path)
        && readings.iter().all(|reading| *reading != normal)
    {
        readings.push(normal.into_owned());
    }
    Some(readings)
}

/// Escapes each `%` without two hexadecimal digits behind it, because such a `%` stands for itself.
fn escape_stray_percents(path: &str) -> Cow<'_, str> {
    let mut pieces = path.split('%');
    let is_escape = |piece: &str| {
        let digits = piece.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if pieces.clone().skip(1).all(is_escape) {
        return path.into();
    }
    let mut escaped = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        escaped += if is_escape(piece) { "%" } else { "%25" };
        escaped += piece;
    }
    escaped.into()
}

/// Whether frameworks may find a path in this query when the request has this normal path.
#[inline]
pub fn may_name_path(path: &str, query: &str) -> bool {
    is_folder_or_script(path) || query.split('&').any(may_be_route_field)
}

/// Whether the path ends in a slash or in a script's name.
fn is_folder_or_script(path: &str) -> bool {
    path.ends_with('/') || is_script(path)
}

/// Whether a field of a query may be `r` of Yii or `rest_route` of WordPress, which both read beside any path. Only the
/// first byte is compared: an `r`, or a byte that a framework may decode or drop.
fn may_be_route_field(field: &str) -> bool {
    let first_byte = field.as_bytes().first();
    first_byte.is_some_and(|byte| b"rR%.[+_ ".contains(byte))
}

/// Whether the path ends in the name of a PHP or CGI script.
fn is_script(path: &str) -> bool {
    let extension = path.as_bytes().last_chunk::<4>();
    extension.is_some_and(|extension| {
        extension.eq_ignore_ascii_case(b".php") || extension.eq_ignore_ascii_case(b".cgi")
    })
}

/// Whether a body with this beginning may name a path.
pub fn may_name_path_in_body(head: &Head, body_start: BodyStart<'_>) -> FieldPresence {
    let BodyStart { bytes, is_whole } = body_start;
    body::may_have_field(&REST_ROUTE_IN_BODY, &head.fields, bytes, is_whole).into()
}

/// The path that `rest_route` names in a body. Ambiguous if it may be there, but the body cannot be searched, is not whole
/// or names several.
pub fn find_path_in_body<'b>(head: &Head, body_start: BodyStart<'b>) -> FieldValue<'b> {
    if may_name_path_in_body(head, body_start) == FieldPresence::Impossible {
        return FieldValue::Absent;
    }
    if !body_start.is_whole || body::is_unsearchable(&head.fields, MAX_READ_AHEAD_BYTES) {
        return FieldValue::Ambiguous;
    }
    let content_types = head.fields.all("content-type");
    body::find_field(&REST_ROUTE_IN_BODY, content_types, body_start.bytes)
}

/// Reads the value of `rest_route` in a form, as a path below the root and as one below `/wp-json`. `None` if either path
/// is longer than [`MAX_PATH_BYTES`], or too long for [`literal_readings`].
pub fn read_rest_route(value: &[u8]) -> Option<Vec<PathInQuery>> {
    let rest_route = String::from_utf8_lossy(value);
    let rest_route = rest_route.trim_start_matches('/');
    let read_below = |folder: &str| {
        let path = format!("{folder}{rest_route}");
        let readings = (path.len() <= MAX_PATH_BYTES).then(|| path_readings(&path))??;
        Some(PathInQuery {
            readings,
            folder_depth: 0,
            is_certain: true,
        })
    };
    ["/", "/wp-json/"].into_iter().map(read_below).collect()
}

/// The paths that a query names beside `path`. `None` if they have more than [`MAX_PATH_BYTES`], or if one is too long for
/// [`literal_readings`].
pub fn find_paths_in_query(path: &str, query: &str) -> Option<Vec<PathInQuery>> {
    // A slash after the name of a script does not hide the script.
    let script_path = path.strip_suffix('/').unwrap_or(path);
    let is_script = is_script(script_path);
    let folder = match script_path.rfind('/') {
        Some(slash) if is_script => &script_path[..=slash],
        _ => path,
    };
    let mut named_paths = NamedPaths::default();
    if query.starts_with('/') && is_folder_or_script(path) {
        let path_end = query.find(['?', '&']).unwrap_or(query.len());
        named_paths.add_path(folder, &query[..path_end], true)?;
    }
    let reads_all_fields = is_script || path == "/";
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.try_for_each(|(name, value)| {
        named_paths.add_field(folder, reads_all_fields, name, value)
    })?;
    Some(named_paths.paths)
}

/// The paths that a query names to a server that gets `path` without the segments of `strip`. They begin with `strip`, as
/// clients write them. `None` as in [`find_paths_in_query`].
pub fn find_paths_below(strip: &str, path: &str, query: &str) -> Option<Vec<PathInQuery>> {
    let rest = path.strip_prefix(strip).filter(|rest| !rest.is_empty());
    let rest = rest.unwrap_or("/");
    if !may_name_path(rest, query) {
        return Some(Vec::new());
    }
    let mut paths = find_paths_in_query(rest, query)?;
    for path in &mut paths {
        path.folder_depth += strip.matches('/').count();
        for reading in &mut path.readings {
            reading.insert_str(0, strip);
        }
    }
    Some(paths)
}

/// The paths that one query names, within [`MAX_PATH_BYTES`].
#[derive(Default)]
struct NamedPaths {
    paths: Vec<PathInQuery>,
    /// Bytes of all paths so far, with [`PATH_OVERHEAD_BYTES`] for each.
    total_bytes: usize,
}

impl NamedPaths {
    /// Adds a path below a folder; `None` if it is too long, or all paths have too many bytes.
    fn add_path(&mut self, folder: &str, text: &str, is_certain: bool) -> Option<()> {
        let path = format!("{folder}{}", text.trim_start_matches('/'));
        self.total_bytes += path.len() + PATH_OVERHEAD_BYTES;
        let readings = (self.total_bytes <= MAX_PATH_BYTES).then(|| path_readings(&path))??;
        self.paths.push(PathInQuery {
            readings,
            folder_depth: folder.matches('/').count() - 1,
            is_certain,
        });
        Some(())
    }

    /// Adds the paths that one field of a query names; `None` if one is too long, or all have too many bytes. Where the
    /// request's path is neither a script nor the root, only two fields count, and their paths begin at the root.
    fn add_field(
        &mut self,
        folder: &str,
        reads_all_fields: bool,
        name: &str,
        value: &str,
    ) -> Option<()> {
        let name = form::decode(name.as_bytes());
        // PHP makes an array of a name with brackets.
        if value.is_empty() || name.contains(&b']') {
            return Some(());
        }
        let has_name = |field: &FieldName| field.resembles(&name);
        let is_rest_route = has_name(&REST_ROUTE);
        let is_path_field = is_rest_route
            || has_name(&YII_ROUTE)
            || reads_all_fields && PATH_FIELDS.iter().any(has_name);
        if !is_path_field {
            return Some(());
        }
        let folder = if reads_all_fields { folder } else { "/" };
        let value = form::decode(value.as_bytes());
        let text = String::from_utf8_lossy(&value);
        // Frameworks trim control characters, or remove them.
        let text = text.replace(char::is_control, "");
        self.add_path(folder, &text, text.starts_with('/'))?;
        if LENIENT_FIELDS.iter().any(has_name) {
            let mut controller = text.replace('|', "/");
            controller.retain(|character| {
                character.is_ascii_alphanumeric() || matches!(character, '_' | '/' | '.')
            });
            if controller != text {
                self.add_path(folder, &controller, text.starts_with('/'))?;
            }
        }
        if is_rest_route {
            self.add_path(&format!("{folder}wp-json/"), &text, true)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, query: &str, expected: &[&str]) {
        assert!(may_name_path(path, query), "{path}");
        let named_paths = find_paths_in_query(path, query).unwrap();
        let mut named_paths = named_paths.iter();
        let are_all_found = expected.iter().all(|expected_path| {
            let named_path = named_paths.next();
            named_path.is_some_and(|path| path.readings.contains(&expected_path.to_string()))
        });
        assert!(
            are_all_found && named_paths.next().is_none(),
            "{path}?{query}"
        );
    }

    #[test]
    fn paths_behind_a_stripped_prefix() {
        let readings = |path: &str, query: &str| {
            let paths = find_paths_below("/shop", path, query).unwrap();
            paths
                .into_iter()
                .flat_map(|path| path.readings)
                .collect::<Vec<_>>()
        };
        let login = [String::from("/shop/account/login")];
        for path in ["/shop", "/shop/", "/shop/index.php"] {
            assert_eq!(readings(path, "route=account/login"), login, "{path}");
        }
        assert_eq!(readings("/shop/a", "route=account/login"), [""; 0]);
        let paths = readings("/shop/", "rest_route=/wp/v2/users");
        assert!(
            paths.contains(&String::from("/shop/wp-json/wp/v2/users")),
            "{paths:?}"
        );
    }

    #[test]
    fn paths_that_are_named() {
        for path in ["/", "/index.php", "/index.PHP/"] {
            check(path, "/login", &["/login"]);
            check(path, "//login?x=1", &["/login"]);
            check(path, "/login&x", &["/login"]);
            check(path, "r=site/login&x=y", &["/site/login"]);
            check(path, "x=y&_url=%2Flogin", &["/login"]);
            check(path, "[url=/login&q=&s[]=x", &["/login"]);
            check(path, "path.info=a&q=b+c", &["/a", "/b%20c"]);
            check(path, "rest_route=/a/b", &["/a/b", "/wp-json/a/b"]);
            check(path, "x=/login&page=login&r", &[]);
        }
        check("/shop/index.php", "/a&route=b", &["/shop/a", "/shop/b"]);
        check("/shop/", "/a&route=b", &["/shop/a"]);
        check("/", "route=lo-gin%0a!", &["/lo-gin!", "/login"]);
        check(
            "/",
            "s=login|index&q=a|b",
            &["/login%7Cindex", "/login/index", "/a%7Cb"],
        );
        for path in ["/a", "/a.png", "/php", "/a.php5x"] {
            assert!(!may_name_path(path, "a=b&q=/login"), "{path}");
        }
        check("/a", "x&r=login&q=b", &["/login"]);
        check("/shop/a", "rest_route=/b", &["/b", "/wp-json/b"]);
        check("/a", "%72=login&ref=b", &["/login"]);
        check("/a", "/login&ref=b", &[]);
        let named = find_paths_in_query("/a/x.php", "q=b&s=/c").unwrap();
        let depths_and_certainty: Vec<_> = named
            .iter()
            .map(|path| (path.folder_depth, path.is_certain))
            .collect();
        assert_eq!(depths_and_certainty, [(1, false), (1, true)]);
    }

    #[test]
    fn readings_of_paths() {
        let check = |query: &str, expected: &[&str]| {
            let named = find_paths_in_query("/", query).unwrap();
            assert_eq!(named[0].readings, expected, "{query}");
        };
        check("/login", &["/login"]);
        check("/login/..", &["/login/..", "/login/", "/"]);
        check("/login/..;", &["/login/..%3B", "/", "/login/.."]);
        check("q=login/%25", &["/login/%25"]);
        check(
            "q=login%252f..",
            &["/login%2F..", "/login/..", "/login/", "/"],
        );
        check("/login%00", &[]);
    }

    #[test]
    fn paths_are_bounded() {
        let count = |path: &str, field_count: usize| {
            find_paths_in_query(path, &"q=a&".repeat(field_count)).map(|paths| paths.len())
        };
        assert_eq!(count("/", 62), Some(62));
        assert_eq!(count("/", 63), None);
        assert_eq!(count("/a/", 63), Some(0));
        let long = format!("/{}", "a/../".repeat(900));
        assert_eq!(find_paths_in_query("/", &long), None);
    }
}
