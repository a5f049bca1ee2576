//! Parses and compares the hosts that a pattern takes: one name, all names below one, or any.

use std::fmt;
use std::net::Ipv4Addr;

use super::error::{PatternError, PatternErrorKind};
use crate::route::canonical_host::{MAX_HOST_BYTES, canonical_name};

/// The hosts that a pattern takes. Names are in their canonical form: see [`crate::route::canonical_host`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum HostPattern {
    /// Every host, and requests without one.
    #[default]
    Any,
    /// `api.example.com`, or an address; an IPv6 address stands in brackets.
    Exact(Box<str>),
    /// `*.example.com`: every name below this one, at any depth, but not the name itself.
    Below(Box<str>),
}

impl HostPattern {
    /// Parses `api.example.com`, `*.example.com` or `*`.
    ///
    /// # Errors
    ///
    /// [`PatternErrorKind::BadHost`], with the byte offset of the mistake in `text`.
    pub fn parse(text: &str) -> Result<HostPattern, PatternError> {
        if text == "*" {
            return Ok(HostPattern::Any);
        }
        let (is_below, name, name_offset) = match text.strip_prefix("*.") {
            Some(name) => (true, name, 2),
            None => (false, text, 0),
        };
        let is_address = |host: &str| host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
        match canonical_name(name) {
            Some(host) if is_below && !is_address(&host) => Ok(HostPattern::Below(host.into())),
            Some(host) if !is_below => Ok(HostPattern::Exact(host.into())),
            _ => Err(PatternError {
                offset: name_offset + mistake_offset(name),
                kind: PatternErrorKind::BadHost,
            }),
        }
    }

    /// Whether this pattern takes every host that `other` takes.
    pub fn is_superset_of(&self, other: &HostPattern) -> bool {
        let (HostPattern::Exact(name) | HostPattern::Below(name)) = other else {
            return *self == HostPattern::Any;
        };
        let is_below = |above: &str| {
            name.strip_suffix(above)
                .is_some_and(|labels_before| labels_before.ends_with('.'))
        };
        match self {
            HostPattern::Any => true,
            HostPattern::Below(above) => self == other || is_below(above),
            HostPattern::Exact(_) => self == other,
        }
    }

    #[cfg(test)]
    pub(in crate::route) fn takes(&self, host: Option<&str>) -> bool {
        match (self, host.map(crate::route::canonical_host::without_port)) {
            (HostPattern::Any, _) => true,
            (_, None) => false,
            (HostPattern::Exact(name), Some(host)) => **name == *host,
            (HostPattern::Below(name), Some(host)) => host
                .strip_suffix(&**name)
                .is_some_and(|labels| labels.len() > 1 && labels.ends_with('.')),
        }
    }
}

/// The byte offset of the first mistake in a name that is no host: a wrong byte, or the start of an empty label. It is
/// 0 for any other mistake, for a name that is too long, and for a name that begins with a bracket.
fn mistake_offset(name: &str) -> usize {
    if name.len() > MAX_HOST_BYTES || name.starts_with('[') {
        return 0;
    }
    let mut label_start = 0;
    for label in name.split('.') {
        let wrong_byte = label
            .bytes()
            .position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
        if label.is_empty() || wrong_byte.is_some() {
            return label_start + wrong_byte.unwrap_or(0);
        }
        label_start += label.len() + 1;
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
