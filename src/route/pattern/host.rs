//! The hosts that a pattern takes.

use std::fmt;
use std::net::Ipv4Addr;

use super::error::{PatternError, PatternErrorKind};
use crate::route::host::{MAX_HOST, canonical_name};

/// Which hosts a pattern takes. Names are kept in their canonical form: see [`crate::route::host`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum HostPattern {
    /// Every host, also none.
    #[default]
    Any,
    /// `api.example.com`, or an address; one of IPv6 in brackets.
    Exact(Box<str>),
    /// `*.example.com`: every name below, at any depth, and not the name itself.
    Below(Box<str>),
}

impl HostPattern {
    /// Reads `api.example.com`, `*.example.com` or `*`.
    ///
    /// # Errors
    ///
    /// What is wrong, with the byte offset in `text`.
    pub fn parse(text: &str) -> Result<HostPattern, PatternError> {
        if text == "*" {
            return Ok(HostPattern::Any);
        }
        let (below, name, at) = match text.strip_prefix("*.") {
            Some(name) => (true, name, 2),
            None => (false, text, 0),
        };
        let address = |host: &str| host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
        match canonical_name(name) {
            Some(host) if below && !address(&host) => Ok(HostPattern::Below(host.into())),
            Some(host) if !below => Ok(HostPattern::Exact(host.into())),
            _ => Err(PatternError {
                offset: at + mistake(name),
                kind: PatternErrorKind::Host,
            }),
        }
    }

    /// Whether it takes every host that `other` takes.
    pub(super) fn covers(&self, other: &HostPattern) -> bool {
        let (HostPattern::Exact(name) | HostPattern::Below(name)) = other else {
            return *self == HostPattern::Any;
        };
        let is_below = |above: &str| {
            name.strip_suffix(above)
                .is_some_and(|rest| rest.ends_with('.'))
        };
        match self {
            HostPattern::Any => true,
            HostPattern::Below(above) => self == other || is_below(above),
            HostPattern::Exact(_) => self == other,
        }
    }

    #[cfg(test)]
    pub(in crate::route) fn takes(&self, host: Option<&str>) -> bool {
        match (self, host.map(crate::route::host::without_port)) {
            (HostPattern::Any, _) => true,
            (_, None) => false,
            (HostPattern::Exact(name), Some(host)) => **name == *host,
            (HostPattern::Below(name), Some(host)) => host
                .strip_suffix(&**name)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        }
    }
}

/// Where a name that is no host stops being one, as far as one byte can be blamed.
fn mistake(name: &str) -> usize {
    if name.len() > MAX_HOST || name.starts_with('[') {
        return 0;
    }
    let mut start = 0;
    for label in name.split('.') {
        let odd = label
            .bytes()
            .position(|b| !(b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        if label.is_empty() || odd.is_some() {
            return start + odd.unwrap_or(0);
        }
        start += label.len() + 1;
    }
    0
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Any => f.write_str("*"),
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Below(name) => write!(f, "*.{name}"),
        }
    }
}
