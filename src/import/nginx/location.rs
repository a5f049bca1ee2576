//! The paths of a `location` as matches of policies.

use crate::route::pattern::Pattern;

/// Maximum number of matches that a regular expression may become.
const MAX_PATHS: usize = 32;

/// The matches that a location becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocationPaths {
    /// Paths as `match` has them.
    pub paths: Vec<String>,
    /// What differs from nginx, if anything does.
    pub differences: Vec<String>,
    /// Whether it is a regular expression, which nginx tries before longer prefixes.
    pub is_regex: bool,
}

/// Reads the arguments of a `location`: an optional `=`, `~`, `~*` or `^~`, and a path.
///
/// # Errors
///
/// Why it is no match of a policy, and the nearest way by hand.
pub fn read_location(arguments: &[String]) -> Result<LocationPaths, String> {
    let (modifier, path) = match arguments {
        [path] => split_modifier(path),
        [modifier, path] => (modifier.as_str(), path.as_str()),
        _ => return Err("it is not written as nginx reads it".into()),
    };
    let mut read = match modifier {
        "=" => exact(path)?,
        "" | "^~" => prefix(path)?,
        "~" | "~*" => {
            let mut read = regex(path)?;
            read.is_regex = true;
            if modifier == "~*" {
                read.differences.push(
                    "other cases of its letters count here only where a broader policy of the same upstream would take them".into(),
                );
            }
            read
        }
        _ => return Err(format!("`{modifier}` has no counterpart")),
    };
    for path in &read.paths {
        Pattern::parse(path)
            .map_err(|error| format!("`{path}` is no path of a match: {}", error.kind))?;
    }
    read.paths.dedup();
    Ok(read)
}

/// A modifier that is written without a blank before the path, such as `=/x`.
fn split_modifier(text: &str) -> (&str, &str) {
    let modifiers = ["^~", "~*", "~", "="];
    modifiers
        .into_iter()
        .find_map(|modifier| Some((modifier, text.strip_prefix(modifier)?)))
        .unwrap_or(("", text))
}

fn check_literal(path: &str) -> Result<(), String> {
    if path.starts_with('@') {
        return Err("clients cannot ask for a named location".into());
    }
    if !path.starts_with('/') {
        return Err("its path does not begin with a slash".into());
    }
    match path.find(['*', '{', '}', '$', '?', '#']) {
        Some(_) => Err("its path has a character that means something else in a match".into()),
        None => Ok(()),
    }
}

fn exact(path: &str) -> Result<LocationPaths, String> {
    check_literal(path)?;
    Ok(LocationPaths {
        paths: vec![without_last_slash(path)],
        ..LocationPaths::default()
    })
}

fn prefix(path: &str) -> Result<LocationPaths, String> {
    check_literal(path)?;
    let mut read = LocationPaths {
        paths: vec![subtree(path)],
        ..LocationPaths::default()
    };
    if !path.ends_with('/') {
        read.differences.push(open_end(path));
    }
    Ok(read)
}

/// The difference of a prefix that ends within a segment.
fn open_end(path: &str) -> String {
    let path = crate::import::report::printable(path, 40);
    format!("nginx takes `{path}x` too, which belongs to the next broader policy here")
}

fn without_last_slash(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".into(),
        path => path.into(),
    }
}

fn subtree(path: &str) -> String {
    format!("{}/**", path.trim_end_matches('/'))
}

const NO_REGEX: &str =
    "a regular expression has no counterpart; write policies for the paths that it stands for";

/// How a regular expression ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathEnd {
    /// The whole path is matched.
    Exact,
    /// Everything below is matched too.
    Subtree,
    /// Anything may follow, also in the last segment.
    Open,
}

/// Reads a regular expression that stands for a few paths: `^`, literals, one level of groups of literals, classes that
/// are a whole segment, and an end.
fn regex(text: &str) -> Result<LocationPaths, String> {
    let Some(rest) = text.strip_prefix('^').filter(|rest| rest.starts_with('/')) else {
        return Err(format!("{NO_REGEX}, which may be anywhere in a path"));
    };
    let mut reader = RegexReader {
        rest,
        paths: vec![String::new()],
        differences: Vec::new(),
    };
    let end = reader.read()?;
    let mut read = LocationPaths {
        differences: reader.differences,
        ..LocationPaths::default()
    };
    for path in reader.paths {
        if !path.starts_with('/') {
            return Err(NO_REGEX.into());
        }
        match end {
            PathEnd::Exact => read.paths.push(without_last_slash(&path)),
            PathEnd::Subtree => read.paths.push(subtree(&path)),
            PathEnd::Open if path.ends_with('/') => read.paths.push(subtree(&path)),
            PathEnd::Open => {
                read.differences.push(open_end(&path));
                read.paths.push(subtree(&path));
            }
        }
    }
    Ok(read)
}

struct RegexReader<'t> {
    rest: &'t str,
    paths: Vec<String>,
    differences: Vec<String>,
}

impl RegexReader<'_> {
    fn read(&mut self) -> Result<PathEnd, String> {
        let fail = || Err(NO_REGEX.to_owned());
        loop {
            let ends = [
                ("$", PathEnd::Exact),
                ("/?$", PathEnd::Exact),
                ("(/|$)", PathEnd::Subtree),
                ("(?:/|$)", PathEnd::Subtree),
                ("(/.*)?$", PathEnd::Subtree),
                ("(/.*)?", PathEnd::Subtree),
                (".*", PathEnd::Open),
                (".*$", PathEnd::Open),
                ("(.*)", PathEnd::Open),
                ("(.*)$", PathEnd::Open),
                (".+", PathEnd::Open),
                (".+$", PathEnd::Open),
                ("(.+)$", PathEnd::Open),
                ("", PathEnd::Open),
            ];
            if let Some((_, end)) = ends.into_iter().find(|(text, _)| *text == self.rest) {
                return Ok(end);
            }
            if let Some(length) = self.class_length() {
                self.add_segment(length)?;
                continue;
            }
            if self.rest.starts_with('(') {
                self.add_group()?;
                continue;
            }
            let Some(c) = self.literal() else {
                return fail();
            };
            if self.rest.starts_with(['?', '*', '+', '{']) {
                return fail();
            }
            self.paths.iter_mut().for_each(|path| path.push(c));
        }
    }

    /// Takes a literal character off the text. A plain dot is taken for one.
    fn literal(&mut self) -> Option<char> {
        let (c, rest) = match self.rest.strip_prefix('\\') {
            Some(escaped) => {
                let c = escaped.chars().next().filter(|c| ".-/_~".contains(*c))?;
                (c, escaped.get(c.len_utf8()..)?)
            }
            None => {
                let c = self.rest.chars().next()?;
                let is_literal = c.is_ascii_alphanumeric() || "/_-.~".contains(c);
                (c, self.rest.get(c.len_utf8()..).filter(|_| is_literal)?)
            }
        };
        if c == '.' && !self.rest.starts_with('\\') {
            self.differences
                .push("its `.` is taken as a dot, and not as any character".into());
        }
        self.rest = rest;
        Some(c)
    }

    /// The length of a class of characters with `+`, in a group or not; `None` if there is none.
    fn class_length(&self) -> Option<usize> {
        let (open, close) = match self.rest.starts_with('(') {
            true => (group_head(self.rest), 1),
            false => (0, 0),
        };
        let inner = self.rest.get(open..)?;
        let class = match inner.strip_prefix('[') {
            Some(after) => after.find(']')? + 2,
            None => ["\\d", "\\w"]
                .into_iter()
                .find(|class| inner.starts_with(class))?
                .len(),
        };
        let is_repeated = inner.get(class..)?.starts_with('+');
        let end = open + class + 1;
        let is_closed = close == 0 || self.rest.get(end..)?.starts_with(')');
        (is_repeated && is_closed).then_some(end + close)
    }

    /// Adds a segment of any text for a class that is a whole segment.
    fn add_segment(&mut self, length: usize) -> Result<(), String> {
        let (class, rest) = self.rest.split_at(length);
        let is_whole = self.paths.iter().all(|path| path.ends_with('/'))
            && (rest.is_empty() || rest.starts_with(['/', '$']));
        if !is_whole {
            return Err(NO_REGEX.into());
        }
        if !class.contains("[^/]") {
            self.differences
                .push(format!("any segment is taken in place of `{class}`"));
        }
        self.rest = rest;
        self.paths.iter_mut().for_each(|path| path.push('*'));
        Ok(())
    }

    /// Adds each alternative of a group of literals; none of them with `?` behind the group.
    fn add_group(&mut self) -> Result<(), String> {
        let fail = || NO_REGEX.to_owned();
        let after_open = self.rest.get(group_head(self.rest)..).ok_or_else(fail)?;
        let (inner, mut rest) = after_open.split_once(')').ok_or_else(fail)?;
        let mut alternatives: Vec<String> = Vec::new();
        for alternative in inner.split('|') {
            let text = alternative
                .replace("\\.", ".")
                .replace("\\-", "-")
                .replace("\\/", "/");
            let is_literal = |c: char| c.is_ascii_alphanumeric() || "/_-.~".contains(c);
            if !text.chars().all(is_literal) {
                return Err(fail());
            }
            alternatives.push(text);
        }
        if let Some(after) = rest.strip_prefix('?') {
            alternatives.push(String::new());
            rest = after;
        }
        if rest.starts_with(['*', '+', '{']) || alternatives.len() * self.paths.len() > MAX_PATHS {
            return Err(fail());
        }
        let paths = self.paths.iter();
        self.paths = paths
            .flat_map(|path| {
                alternatives
                    .iter()
                    .map(move |alternative| format!("{path}{alternative}"))
            })
            .collect();
        self.rest = rest;
        Ok(())
    }
}

/// The length of `(`, `(?:` or `(?<name>` at the begin of a text.
fn group_head(text: &str) -> usize {
    if text.starts_with("(?:") {
        return 3;
    }
    let named = ["(?<", "(?P<"]
        .into_iter()
        .find(|head| text.starts_with(head));
    match named.and(text.find('>')) {
        Some(end) => end + 1,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, paths: &[&str], differences: usize) {
        let arguments: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let read = read_location(&arguments).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read.paths, paths, "{text}");
        assert_eq!(
            read.differences.len(),
            differences,
            "{text}: {:?}",
            read.differences
        );
    }

    #[test]
    fn locations_as_matches() {
        check("/", &["/**"], 0);
        check("/api/", &["/api/**"], 0);
        check("/api", &["/api/**"], 1);
        check("= /x/", &["/x"], 0);
        check("=/x", &["/x"], 0);
        check("^~ /static/", &["/static/**"], 0);
        check("~ ^/(login|register)$", &["/login", "/register"], 0);
    }

    #[test]
    fn regular_expressions_as_matches() {
        check("~ ^/users/[^/]+$", &["/users/*"], 0);
        check("~ ^/users/(\\d+)/posts/?$", &["/users/*/posts"], 1);
        check("~ ^/(?<team>[^/]+)/x", &["/*/x/**"], 1);
        check("~* ^/admin(/|$)", &["/admin/**"], 1);
        check("~ ^/a(/v1)?/b/", &["/a/v1/b/**", "/a/b/**"], 0);
        check("~ ^/a/.*$", &["/a/**"], 0);
        check("~ ^/robots.txt$", &["/robots.txt"], 1);
        check("~ ^/robots\\.txt$", &["/robots.txt"], 0);
    }

    #[test]
    fn locations_without_a_counterpart() {
        for text in [
            "@named",
            "~ \\.php$",
            "~ ^/a[0-9]+$",
            "~ ^/a|^/b",
            "~ ^/a?b",
            "~ ^(/a",
            "x",
            "/a*b",
            "/a{2}",
            "~ ^/(a(b))$",
            "/a/../b",
            "~ ^/x{2}$",
        ] {
            let arguments: Vec<String> = text.split(' ').map(str::to_owned).collect();
            assert!(read_location(&arguments).is_err(), "{text}");
        }
    }
}
