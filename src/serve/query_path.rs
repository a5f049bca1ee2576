//! Paths that a query names, as frameworks read them where the path is a script or the root and so says nothing:
//! `/?/login` (CodeIgniter), `/?r=login` (Yii), `route` (OpenCart), `q` (Drupal), `s` (ThinkPHP), `url` and `_url`
//! (Phalcon), `PATH_INFO`, `rest_route` (WordPress).

use std::sync::LazyLock;

use crate::identity::body::Name;
use crate::identity::form;

/// Most paths that are looked at.
const MAX: usize = 8;

/// Fields whose value is a path.
static FIELDS: LazyLock<[Name; 7]> =
    LazyLock::new(|| ["r", "route", "q", "s", "url", "_url", "PATH_INFO"].map(Name::new));

/// The same of WordPress, whose path is below `/wp-json` otherwise.
static REST_ROUTE: LazyLock<Name> = LazyLock::new(|| Name::new("rest_route"));

/// A path that a query names.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// As it stands there, below the folder of the script.
    pub path: String,
    /// How many segments that folder has.
    pub depth: usize,
    /// It begins with a slash, as words that are searched for do not.
    pub surely: bool,
}

/// Whether frameworks look for a path in the query beside this path, which is normal.
#[inline]
pub fn is_looked_for(path: &str) -> bool {
    path.ends_with('/') || is_script(path)
}

fn is_script(path: &str) -> bool {
    let end = path.as_bytes().last_chunk::<4>();
    end.is_some_and(|end| end.eq_ignore_ascii_case(b".php") || end.eq_ignore_ascii_case(b".cgi"))
}

/// The paths that a query names beside `path`; nothing if there are more than [`MAX`].
pub fn find(path: &str, query: &str) -> Option<Vec<Named>> {
    let file = path.strip_suffix('/').unwrap_or(path);
    let script = is_script(file);
    let folder = match file.rfind('/') {
        Some(slash) if script => &file[..=slash],
        _ => path,
    };
    let mut all = Vec::new();
    let mut add = |below: &str, text: &str, surely: bool| {
        let path = format!("{folder}{below}{}", text.trim_start_matches('/'));
        let depth = folder.matches('/').count() - 1;
        all.push(Named {
            path,
            depth,
            surely,
        });
    };
    if query.starts_with('/') {
        let end = query.find(['?', '&']).unwrap_or(query.len());
        add("", &query[..end], true);
    }
    if !script && path != "/" {
        return Some(all);
    }
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = 0;
    pairs.try_for_each(|(name, value)| {
        let name = form::decode(name.as_bytes());
        // PHP makes an array of those.
        if value.is_empty() || name.contains(&b']') {
            return Some(());
        }
        let of_wordpress = REST_ROUTE.resembles(&name);
        if !of_wordpress && !FIELDS.iter().any(|field| field.resembles(&name)) {
            return Some(());
        }
        named += 1;
        let value = form::decode(value.as_bytes());
        let text = String::from_utf8_lossy(&value);
        add("", &text, text.starts_with('/'));
        if of_wordpress {
            add("wp-json/", &text, true);
        }
        (named <= MAX).then_some(())
    })?;
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, query: &str, expected: &[&str]) {
        assert!(is_looked_for(path), "{path}");
        let found = find(path, query).unwrap();
        let found: Vec<_> = found.iter().map(|named| &*named.path).collect();
        assert_eq!(found, expected, "{path}?{query}");
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
            check(path, "path.info=a&q=b+c", &["/a", "/b c"]);
            check(path, "rest_route=/a/b", &["/a/b", "/wp-json/a/b"]);
            check(path, "x=/login&page=login&r", &[]);
        }
        check("/shop/index.php", "/a&route=b", &["/shop/a", "/shop/b"]);
        check("/shop/", "/a&route=b", &["/shop/a"]);
        for path in ["/a", "/a.png", "/php", "/a.php5x"] {
            assert!(!is_looked_for(path), "{path}");
        }
        let named = find("/a/x.php", "q=b&s=/c").unwrap();
        let seen: Vec<_> = named.iter().map(|one| (one.depth, one.surely)).collect();
        assert_eq!(seen, [(1, false), (1, true)]);
    }

    #[test]
    fn they_are_bounded() {
        assert_eq!(find("/", &"q=a&".repeat(8)).map(|all| all.len()), Some(8));
        assert_eq!(find("/", &"q=a&".repeat(9)), None);
        assert_eq!(find("/a/", &"q=a&".repeat(9)), Some(Vec::new()));
    }
}
