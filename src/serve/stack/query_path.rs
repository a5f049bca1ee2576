//! Paths that a query names, as frameworks read them where the path is a script or the root and so says nothing:
//! `/?/login` (CodeIgniter), `/?r=login` (Yii), `route` (OpenCart), `q` (Drupal), `s` (ThinkPHP), `url` and `_url`
//! (Phalcon), `PATH_INFO`, `rest_route` (WordPress).

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::identity::body::FieldName;
use crate::identity::form;
use crate::route::{literal_readings, normalise};

/// Most bytes of the paths that are looked at, with [`EACH`] for each of them.
const MAX_BYTES: usize = 4096;

/// What a short path is taken to cost beside its bytes.
const EACH: usize = 64;

/// Fields whose value is a path.
static FIELDS: LazyLock<[FieldName; 7]> =
    LazyLock::new(|| ["r", "route", "q", "s", "url", "_url", "PATH_INFO"].map(FieldName::new));

/// Those whose readers part at `|` too (ThinkPHP), or leave out what stands in no name of a controller (OpenCart).
static LENIENT: LazyLock<[FieldName; 2]> = LazyLock::new(|| ["route", "s"].map(FieldName::new));

/// The same of WordPress, whose path is below `/wp-json` otherwise.
static REST_ROUTE: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("rest_route"));

/// A path that a query names.
#[derive(Debug, PartialEq, Eq)]
pub struct PathInQuery {
    /// The path by each reading that frameworks make of it, below the folder of the script.
    pub readings: Vec<String>,
    /// How many segments that folder has.
    pub depth: usize,
    /// It begins with a slash, as words that are searched for do not.
    pub surely: bool,
}

/// The readings of a path as it stands in a query.
fn readings(path: &str) -> Option<Vec<String>> {
    let path = with_sound_escapes(path);
    let mut readings = literal_readings(&path, false)?;
    if let Ok(normal) = normalise(&path)
        && readings.iter().all(|reading| *reading != normal)
    {
        readings.push(normal.into_owned());
    }
    Some(readings)
}

/// Each `%` that two hexadecimal digits do not follow stands for itself.
fn with_sound_escapes(path: &str) -> Cow<'_, str> {
    let mut parts = path.split('%');
    let is_escape = |part: &str| {
        let digits = part.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if parts.clone().skip(1).all(is_escape) {
        return path.into();
    }
    let mut sound = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        sound += if is_escape(part) { "%" } else { "%25" };
        sound += part;
    }
    sound.into()
}

/// Whether frameworks look for a path in this query beside this path, which is normal.
#[inline]
pub fn is_looked_for(path: &str, query: &str) -> bool {
    is_folder_or_script(path) || query.split('&').any(may_be_route)
}

fn is_folder_or_script(path: &str) -> bool {
    path.ends_with('/') || is_script(path)
}

/// Whether a field of a query may be `r` of Yii or `rest_route` of WordPress, which both read beside any path.
fn may_be_route(field: &str) -> bool {
    let first = field.as_bytes().first();
    first.is_some_and(|first| b"rR%.[+_ ".contains(first))
}

fn is_script(path: &str) -> bool {
    let end = path.as_bytes().last_chunk::<4>();
    end.is_some_and(|end| end.eq_ignore_ascii_case(b".php") || end.eq_ignore_ascii_case(b".cgi"))
}

/// The path that a form names as `rest_route`; nothing if it is longer than [`MAX_BYTES`].
pub fn of_wordpress(value: &[u8]) -> Option<Vec<PathInQuery>> {
    let text = String::from_utf8_lossy(value);
    let text = text.trim_start_matches('/');
    let named = |folder: &str| {
        let path = format!("{folder}{text}");
        let readings = (path.len() <= MAX_BYTES).then(|| readings(&path))??;
        Some(PathInQuery {
            readings,
            depth: 0,
            surely: true,
        })
    };
    ["/", "/wp-json/"].into_iter().map(named).collect()
}

/// The paths that a query names beside `path`; nothing if there are more than [`MAX_BYTES`] of them.
pub fn find(path: &str, query: &str) -> Option<Vec<PathInQuery>> {
    let file = path.strip_suffix('/').unwrap_or(path);
    let script = is_script(file);
    let folder = match file.rfind('/') {
        Some(slash) if script => &file[..=slash],
        _ => path,
    };
    let mut all = Vec::new();
    let mut bytes = 0;
    let mut add = |folder: &str, text: &str, surely: bool| {
        let path = format!("{folder}{}", text.trim_start_matches('/'));
        let depth = folder.matches('/').count() - 1;
        bytes += path.len() + EACH;
        let readings = (bytes <= MAX_BYTES).then(|| readings(&path))??;
        all.push(PathInQuery {
            readings,
            depth,
            surely,
        });
        Some(())
    };
    if query.starts_with('/') && is_folder_or_script(path) {
        let end = query.find(['?', '&']).unwrap_or(query.len());
        add(folder, &query[..end], true)?;
    }
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.try_for_each(|(name, value)| {
        let name = form::decode(name.as_bytes());
        // PHP makes an array of those.
        if value.is_empty() || name.contains(&b']') {
            return Some(());
        }
        let of_wordpress = REST_ROUTE.resembles(&name);
        let anywhere = of_wordpress || FIELDS[0].resembles(&name);
        let beside = script || path == "/";
        let here = || beside && FIELDS.iter().any(|field| field.resembles(&name));
        if !(anywhere || here()) {
            return Some(());
        }
        let folder = if beside { folder } else { "/" };
        let value = form::decode(value.as_bytes());
        let text = String::from_utf8_lossy(&value);
        // Frameworks trim those, or take them out.
        let text = text.replace(char::is_control, "");
        add(folder, &text, text.starts_with('/'))?;
        if LENIENT.iter().any(|field| field.resembles(&name)) {
            let mut bare = text.replace('|', "/");
            bare.retain(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.'));
            if bare != text {
                add(folder, &bare, text.starts_with('/'))?;
            }
        }
        if of_wordpress {
            add(&format!("{folder}wp-json/"), &text, true)?;
        }
        Some(())
    })?;
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, query: &str, expected: &[&str]) {
        assert!(is_looked_for(path, query), "{path}");
        let found = find(path, query).unwrap();
        let mut found = found.iter();
        let same = expected.iter().all(|path| {
            let named = found.next();
            named.is_some_and(|named| named.readings.iter().any(|reading| reading == path))
        });
        assert!(same && found.next().is_none(), "{path}?{query}");
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
            assert!(!is_looked_for(path, "a=b&q=/login"), "{path}");
        }
        check("/a", "x&r=login&q=b", &["/login"]);
        check("/shop/a", "rest_route=/b", &["/b", "/wp-json/b"]);
        check("/a", "%72=login&ref=b", &["/login"]);
        check("/a", "/login&ref=b", &[]);
        let named = find("/a/x.php", "q=b&s=/c").unwrap();
        let seen: Vec<_> = named.iter().map(|one| (one.depth, one.surely)).collect();
        assert_eq!(seen, [(1, false), (1, true)]);
    }

    #[test]
    fn readings_of_paths() {
        let check = |query: &str, expected: &[&str]| {
            let named = find("/", query).unwrap();
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
    fn they_are_bounded() {
        let count = |path: &str, many: usize| find(path, &"q=a&".repeat(many)).map(|all| all.len());
        assert_eq!(count("/", 62), Some(62));
        assert_eq!(count("/", 63), None);
        assert_eq!(count("/a/", 63), Some(0));
        let long = format!("/{}", "a/../".repeat(900));
        assert_eq!(find("/", &long), None);
    }
}
