//! The hosts that a pattern takes.

use std::fmt;

use super::{PatternError, PatternErrorKind};

/// Longest host name that is looked at.
pub(in crate::route) const MAX_HOST: usize = 255;

/// Which hosts a pattern takes. Names are kept in lower case, without port and last dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum HostPattern {
    /// Every host, also none.
    #[default]
    Any,
    /// `api.example.com`, or an address as the Host header writes it.
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
        if let Some(offset) = mistake(name.strip_suffix('.').unwrap_or(name), below) {
            return Err(PatternError {
                offset: at + offset,
                kind: PatternErrorKind::Host,
            });
        }
        let name = name
            .strip_suffix('.')
            .unwrap_or(name)
            .to_ascii_lowercase()
            .into_boxed_str();
        Ok(if below {
            HostPattern::Below(name)
        } else {
            HostPattern::Exact(name)
        })
    }

    #[cfg(test)]
    pub(in crate::route) fn takes(&self, host: Option<&str>) -> bool {
        let mut buffer = [0; MAX_HOST];
        let host = host.and_then(|host| canonical(host, &mut buffer));
        match (self, host) {
            (HostPattern::Any, _) => true,
            (_, None) => false,
            (HostPattern::Exact(name), Some(host)) => **name == *host,
            (HostPattern::Below(name), Some(host)) => host
                .strip_suffix(&**name)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        }
    }
}

/// Where `name` stops being a host name or a bracketed address.
fn mistake(name: &str, below: bool) -> Option<usize> {
    if name.is_empty() || name.len() > MAX_HOST {
        return Some(0);
    }
    if let Some(inner) = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let address = inner.parse::<std::net::Ipv6Addr>().is_ok();
        return if address && !below { None } else { Some(0) };
    }
    let mut start = 0;
    for label in name.split('.') {
        if label.is_empty() {
            return Some(start);
        }
        let odd = label
            .bytes()
            .position(|b| !(b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        if let Some(odd) = odd {
            return Some(start + odd);
        }
        start += label.len() + 1;
    }
    None
}

/// A Host header's name in the form that patterns have, in `buffer`. Nothing for what is too long
/// or not ASCII, which no pattern takes.
pub(in crate::route) fn canonical<'b>(
    host: &str,
    buffer: &'b mut [u8; MAX_HOST],
) -> Option<&'b str> {
    let name = match host.rfind(']') {
        Some(bracket) => &host[..=bracket],
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let place = buffer.get_mut(..name.len())?;
    place.copy_from_slice(name.as_bytes());
    place.make_ascii_lowercase();
    std::str::from_utf8(place)
        .ok()
        .filter(|name| !name.is_empty())
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
