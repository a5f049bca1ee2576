//! Redirects: where a client is sent, and the value of `Location`. The client chooses nothing but the path and the query
//! behind a fixed host. With `https` the host is the one that it has named itself.
//!
//! No value begins with two slashes, which would name a host. What is appended begins with a slash and keeps its bytes.
//! Only a run of slashes at its start becomes one, and bytes that no URL may have are escaped. What `strip` leaves of a
//! path was checked by `path_change.rs`: it has no dot segment, and does not begin with two slashes.

use std::fmt;

use http::StatusCode;

use super::canonical_host::{canonical_host, without_port};

/// A redirect.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// 301, 302, 307 or 308.
    pub status: StatusCode,
    /// Where clients are sent.
    pub target: RedirectTarget,
}

/// Where clients are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectTarget {
    /// The same host, path and query over HTTPS.
    Https {
        /// The port; `None` for 443.
        port: Option<u16>,
    },
    /// The same path and query at another origin, `https://www.example.com`.
    Origin(Box<str>),
    /// Below this URL or path without query and fragment: the path, from which a prefix is taken off, and the query of
    /// the request follow it. A request for the prefix alone leads to the text as it is.
    Below(Box<str>),
    /// This URL or path, whatever the client's path and query are.
    Location(Box<str>),
}

/// Why a text is no target of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectTargetError {
    /// The text is neither `https` nor a URL nor a path.
    #[error("it is neither `https` nor a URL nor a path")]
    Unknown,
    /// A path begins with two slashes, so that browsers take its first segment for a host.
    #[error("browsers take what follows `//` for a host")]
    OtherHost,
    /// The URL has no valid host.
    #[error("it has no valid host")]
    Host,
    /// The URL has a user name or a password.
    #[error("a user name in it would be shown to every client")]
    UserName,
    /// A character may not stand in a URL.
    #[error("`{0}` cannot stand in a URL as it is")]
    Character(char),
}

impl RedirectTarget {
    /// Parses `https`, a URL with `http://` or `https://`, or a path that begins with a slash.
    ///
    /// # Errors
    ///
    /// See [`RedirectTargetError`].
    pub fn parse(text: &str) -> Result<RedirectTarget, RedirectTargetError> {
        if text == "https" {
            return Ok(RedirectTarget::Https { port: None });
        }
        if text.starts_with("//") {
            return Err(RedirectTargetError::OtherHost);
        }
        if text.starts_with('/') {
            check_characters(text)?;
            return Ok(RedirectTarget::Location(text.into()));
        }
        let (scheme, after_scheme) = text.split_once("://").ok_or(RedirectTargetError::Unknown)?;
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err(RedirectTargetError::Unknown);
        }
        let authority_end = after_scheme.find(['/', '?', '#']);
        let (authority, rest) = after_scheme.split_at(authority_end.unwrap_or(after_scheme.len()));
        if authority.contains('@') {
            return Err(RedirectTargetError::UserName);
        }
        check_characters(rest)?;
        let host = canonical_host(authority).ok_or(RedirectTargetError::Host)?;
        Ok(match rest.chars().next() {
            None => RedirectTarget::Origin(format!("{scheme}://{host}").into()),
            Some('/') => RedirectTarget::Location(format!("{scheme}://{host}{rest}").into()),
            // A query or a fragment follows the root.
            Some(_) => RedirectTarget::Location(format!("{scheme}://{host}/{rest}").into()),
        })
    }

    /// The target below which requests lead whose path is stripped of a prefix; `None` if nothing can be below it, as it
    /// has a query or a fragment.
    pub fn below(self) -> Option<RedirectTarget> {
        match self {
            RedirectTarget::Location(text) if text.contains(['?', '#']) => None,
            RedirectTarget::Location(text) => Some(RedirectTarget::Below(text)),
            other => Some(other),
        }
    }

    /// The value of `Location` for a request for `path` and `query` at `host`, which must be in its canonical form.
    /// `path` is what `strip` leaves of the client's path, perhaps nothing. `None` if the client has named no host and
    /// the target needs it, or if the request's target is no path.
    pub fn location(&self, host: Option<&str>, path: &str, query: Option<&str>) -> Option<String> {
        match self {
            RedirectTarget::Https { port } => {
                let name = without_port(host?);
                let origin = match port {
                    None => format!("https://{name}"),
                    Some(port) => format!("https://{name}:{port}"),
                };
                append_path_and_query(origin, path, query)
            }
            RedirectTarget::Origin(origin) => {
                append_path_and_query(origin.to_string(), path, query)
            }
            RedirectTarget::Below(base) if path.is_empty() => {
                Some(append_query(base.to_string(), query))
            }
            RedirectTarget::Below(base) => {
                let base = base.strip_suffix('/').unwrap_or(base);
                append_path_and_query(base.to_owned(), path, query)
            }
            RedirectTarget::Location(location) => Some(location.to_string()),
        }
    }
}

impl fmt::Display for RedirectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedirectTarget::Https { port: None } => f.write_str("https"),
            RedirectTarget::Https { port: Some(port) } => write!(f, "https at port {port}"),
            RedirectTarget::Origin(text) | RedirectTarget::Location(text) => f.write_str(text),
            RedirectTarget::Below(base) => write!(f, "{}/…", base.trim_end_matches('/')),
        }
    }
}

/// Checks that a text has only characters that may stand in a URL as they are.
fn check_characters(text: &str) -> Result<(), RedirectTargetError> {
    let is_allowed = |character: &char| u8::try_from(*character).is_ok_and(is_url_byte);
    match text.chars().find(|character| !is_allowed(character)) {
        Some(character) => Err(RedirectTargetError::Character(character)),
        None => Ok(()),
    }
}

/// Appends a path, which may be empty, and a query to an origin. `None` for a target that is no path, such as `*`.
fn append_path_and_query(origin: String, path: &str, query: Option<&str>) -> Option<String> {
    if !path.is_empty() && !path.starts_with('/') {
        return None;
    }
    let mut url = origin;
    url.push('/');
    // Others may cut the origin off, such as a proxy that makes URLs relative. Then two slashes would name a host.
    append_escaped(&mut url, path.trim_start_matches(['/', '\\']));
    Some(append_query(url, query))
}

fn append_query(mut url: String, query: Option<&str>) -> String {
    if let Some(query) = query {
        url.push('?');
        append_escaped(&mut url, query);
    }
    url
}

/// Appends a text, with an escape for each byte that may not stand in a URL.
fn append_escaped(url: &mut String, text: &str) {
    const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if is_url_byte(byte) {
            url.push(char::from(byte));
        } else {
            url.push('%');
            url.push(char::from(HEX_DIGITS[usize::from(byte >> 4)]));
            url.push(char::from(HEX_DIGITS[usize::from(byte & 15)]));
        }
    }
}

/// Whether the byte may stand in a path or a query as it is: RFC 3986 section 2. A `%` counts as the start of an escape,
/// and brackets do not belong there.
fn is_url_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#@!$&'()*+,;=%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::*;

    #[track_caller]
    fn check_target(text: &str, expected: Result<&str, RedirectTargetError>) {
        let target = RedirectTarget::parse(text).map(|target| target.to_string());
        assert_eq!(
            target.as_deref().map_err(|error| *error),
            expected,
            "{text}"
        );
    }

    #[test]
    fn targets() {
        use RedirectTargetError::{Character, Host, OtherHost, Unknown, UserName};
        check_target("https", Ok("https"));
        check_target("/new", Ok("/new"));
        check_target("/new?a=b#c", Ok("/new?a=b#c"));
        check_target("HTTPS://WWW.Example.com.", Ok("https://www.example.com"));
        check_target("https://a.example:0443/x", Ok("https://a.example:443/x"));
        check_target(
            "https://[2001:DB8::1]:8443",
            Ok("https://[2001:db8::1]:8443"),
        );
        check_target("http://a.example?b", Ok("http://a.example/?b"));
        check_target("//a.example", Err(OtherHost));
        check_target("/\\a.example", Err(Character('\\')));
        check_target("/a b", Err(Character(' ')));
        check_target("/a\r\nx: y", Err(Character('\r')));
        check_target("/ä", Err(Character('ä')));
        check_target("https://", Err(Host));
        check_target("https:///a", Err(Host));
        check_target("https://a.example:99999", Err(Host));
        check_target("https://me:secret@a.example", Err(UserName));
        for text in [
            "",
            "http",
            "javascript:alert(1)",
            "ftp://a.example",
            "a.example",
            "*",
        ] {
            check_target(text, Err(Unknown));
        }
    }

    #[track_caller]
    fn check_location(target: &str, host: Option<&str>, uri: &str, expected: Option<&str>) {
        let target = RedirectTarget::parse(target).unwrap();
        let uri: Uri = uri.parse().unwrap();
        let location = target.location(host, uri.path(), uri.query());
        assert_eq!(location.as_deref(), expected, "{uri}");
    }

    #[test]
    fn path_and_query_stay_behind_the_host() {
        let check = |uri: &str, expected: &str| {
            check_location("https://b.example", None, uri, Some(expected));
        };
        check("/", "https://b.example/");
        check("/a/b?c=d&e", "https://b.example/a/b?c=d&e");
        check("/a%2Fb;c=d?", "https://b.example/a%2Fb;c=d?");
        check("//evil.example/a", "https://b.example/evil.example/a");
        check("/\\evil.example", "https://b.example/evil.example");
        check("/a\\b", "https://b.example/a%5Cb");
        check("/a|b", "https://b.example/a%7Cb");
        check("http://evil.example/a", "https://b.example/a");
        check_location("https://b.example", None, "*", None);
        check_location("/new", None, "/old?a=b", Some("/new"));
    }

    #[track_caller]
    fn check_below(target: &str, rest: &str, query: Option<&str>, expected: &str) {
        let target = RedirectTarget::parse(target).unwrap().below().unwrap();
        let location = target.location(Some("a.example"), rest, query);
        assert_eq!(location.as_deref(), Some(expected), "{target} and {rest}");
    }

    #[test]
    fn the_rest_of_a_path_stays_below_the_target() {
        check_below("/new", "", None, "/new");
        check_below("/new", "", Some("a=b"), "/new?a=b");
        check_below("/new", "/", None, "/new/");
        check_below("/new/", "", None, "/new/");
        check_below("/new/", "/a/", Some("b"), "/new/a/?b");
        check_below("/", "", None, "/");
        check_below("/", "/a", None, "/a");
        check_below("/new", "/a\\b|c", None, "/new/a%5Cb%7Cc");
        let url = "https://b.example/x";
        check_below(url, "/a/b", Some("q=1"), "https://b.example/x/a/b?q=1");
        check_below("https://b.example/", "", None, "https://b.example/");
        check_below("https://b.example", "", Some("q"), "https://b.example/?q");
        check_below("https://b.example", "/a", None, "https://b.example/a");
        check_below("https", "/a", None, "https://a.example/a");
        check_below("https", "", None, "https://a.example/");
        // Checks of the path come before, but no slash that slips through may name a host.
        check_below("/", "//evil.example", None, "/evil.example");
        check_below("/", "/\\evil.example", None, "/evil.example");
        for target in ["/new?a", "/new#a", "https://b.example?a"] {
            let target = RedirectTarget::parse(target).unwrap();
            assert_eq!(target.below(), None);
        }
    }

    #[test]
    fn https_keeps_the_host_without_its_port() {
        check_location(
            "https",
            Some("a.example:8080"),
            "/x",
            Some("https://a.example/x"),
        );
        check_location("https", Some("[::1]:80"), "/", Some("https://[::1]/"));
        check_location("https", None, "/", None);
        let target = RedirectTarget::Https { port: Some(8443) };
        let location = target.location(Some("a.example:8080"), "/x", Some("y"));
        assert_eq!(location.as_deref(), Some("https://a.example:8443/x?y"));
    }
}
