//! [`Cors`]: which pages of other origins may read a route's responses (CORS; Fetch standard, section 3.3). `serve/stack`
//! writes the header fields.

use super::canonical_host::{canonical_host, canonical_name};

/// Which pages may read responses, and what else browsers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The pages that may read responses.
    pub origins: AllowedOrigins,
    /// Whether their requests may carry cookies and other credentials.
    pub allows_credentials: bool,
    /// The value of `Access-Control-Allow-Headers`; `None` allows the fields that a preflight asks for.
    pub allowed_fields: Option<Box<str>>,
    /// The fields of responses that pages may read beside those of limits, with a comma before each.
    pub exposed_fields: Box<str>,
    /// How long browsers may remember the response to a preflight, in seconds.
    pub max_age_seconds: u64,
}

/// Origins whose pages may read responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// All origins.
    Any,
    /// Only these.
    Listed(Vec<OriginPattern>),
}

/// One origin, or those of all names below a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    /// This origin, as browsers write it.
    Exact(Box<str>),
    /// `https://*.example.com`: any name below the domain, with the scheme and the port of the pattern.
    Below {
        /// The scheme with `://`.
        scheme: Box<str>,
        /// The domain with a dot before it, and the port if it is not the scheme's own.
        suffix: Box<str>,
    },
}

/// Why a text is no origin, with the nearest origin if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginError {
    /// The corrected text; `None` if none is obvious.
    pub suggestion: Option<String>,
}

impl Cors {
    /// Lets no page read responses.
    pub fn for_no_page() -> Cors {
        Cors {
            origins: AllowedOrigins::Listed(Vec::new()),
            allows_credentials: false,
            allowed_fields: None,
            exposed_fields: Box::default(),
            max_age_seconds: 0,
        }
    }

    /// Whether no page may read responses.
    pub fn is_for_no_page(&self) -> bool {
        matches!(&self.origins, AllowedOrigins::Listed(patterns) if patterns.is_empty())
    }
}

impl AllowedOrigins {
    /// Whether pages of this origin may read responses. The origin is the value of the field `Origin`.
    pub fn contains(&self, origin: &str) -> bool {
        match self {
            AllowedOrigins::Any => true,
            AllowedOrigins::Listed(patterns) => {
                patterns.iter().any(|pattern| pattern.matches(origin))
            }
        }
    }
}

impl OriginPattern {
    /// Parses an origin such as `https://app.example.com`, or `https://*.example.com` for all names below.
    ///
    /// # Errors
    ///
    /// The text is not an origin as browsers write it, which has neither a path nor capital letters.
    pub fn parse(text: &str) -> Result<OriginPattern, OriginError> {
        let error = |suggestion| OriginError { suggestion };
        let canonical = canonical_origin(text).ok_or_else(|| error(None))?;
        if canonical != text {
            return Err(error(Some(canonical)));
        }
        Ok(match text.split_once("://*.") {
            None => OriginPattern::Exact(text.into()),
            Some((scheme, domain)) => OriginPattern::Below {
                scheme: format!("{scheme}://").into(),
                suffix: format!(".{domain}").into(),
            },
        })
    }

    fn matches(&self, origin: &str) -> bool {
        match self {
            OriginPattern::Exact(exact) => **exact == *origin,
            OriginPattern::Below { scheme, suffix } => origin
                .strip_prefix(&**scheme)
                .and_then(|host| host.strip_suffix(&**suffix))
                .is_some_and(|name| {
                    canonical_name(name).is_some_and(|canonical| canonical == name)
                }),
        }
    }
}

/// Writes the origins as sentences name them.
impl std::fmt::Display for AllowedOrigins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AllowedOrigins::Any => f.write_str("any origin"),
            AllowedOrigins::Listed(patterns) => {
                let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
                f.write_str(&patterns.join(", "))
            }
        }
    }
}

impl std::fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OriginPattern::Exact(origin) => f.write_str(origin),
            OriginPattern::Below { scheme, suffix } => write!(f, "{scheme}*{suffix}"),
        }
    }
}

/// The origin of a URL as browsers write it: scheme and host in lower case, the port unless it is the scheme's own, and no
/// path. `None` if the text has no scheme or no host.
fn canonical_origin(text: &str) -> Option<String> {
    let (scheme, rest) = text.trim().split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let authority = rest.split(['/', '?', '#']).next()?;
    let (wildcard, authority) = match authority.strip_prefix("*.") {
        Some(domain) => ("*.", domain),
        None => ("", authority),
    };
    let host = canonical_host(authority).filter(|_| is_scheme)?;
    let own_port = match &*scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let host = host.strip_suffix(own_port).unwrap_or(&host);
    Some(format!("{scheme}://{wildcard}{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_those_that_browsers_write() {
        for origin in [
            "https://app.example.com",
            "http://localhost:3000",
            "https://*.example.com",
            "https://*.example.com:8443",
            "http://[::1]:8080",
            "capacitor://localhost",
            "chrome-extension://abcdefghijklmnop",
        ] {
            let pattern = OriginPattern::parse(origin).unwrap();
            assert_eq!(pattern.to_string(), origin);
        }
        for (written, suggestion) in [
            ("https://App.example.com", Some("https://app.example.com")),
            ("https://app.example.com/", Some("https://app.example.com")),
            (
                "https://app.example.com:443",
                Some("https://app.example.com"),
            ),
            ("http://app.example.com:080", Some("http://app.example.com")),
            ("HTTPS://*.example.com./x?y", Some("https://*.example.com")),
            ("app.example.com", None),
            ("https://", None),
            ("https://*", None),
            ("https://a.*.example.com", None),
            ("https://user@example.com", None),
            ("https://a,b", None),
            ("://a", None),
            ("null", None),
        ] {
            let error = OriginPattern::parse(written).unwrap_err();
            assert_eq!(error.suggestion.as_deref(), suggestion, "{written}");
        }
    }

    #[test]
    fn names_below_a_domain() {
        let origins =
            AllowedOrigins::Listed(vec![OriginPattern::parse("https://*.example.com").unwrap()]);
        for origin in ["https://a.example.com", "https://a.b.example.com"] {
            assert!(origins.contains(origin), "{origin}");
        }
        for origin in [
            "https://example.com",
            "https://.example.com",
            "http://a.example.com",
            "https://a.example.com:8443",
            "https://a.example.com.evil.test",
            "https://evilexample.com",
            "https://evil.test/.example.com",
            "https://evil.test#.example.com",
            "https://evil@a.example.com",
            "https://A.example.com",
            "null",
            "",
        ] {
            assert!(!origins.contains(origin), "{origin}");
        }
    }
}
