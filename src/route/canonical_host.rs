//! Rewrites a host to its canonical form, in which it is matched and forwarded. No name is resolved here.
//!
//! - A name has labels of ASCII letters, digits, `-` and `_`, in lower case. No label is empty, and one dot at the
//!   end is dropped (RFC 1034 section 3.1).
//! - A name whose last label is a number is an IPv4 address of four decimal numbers, as in the URL Standard. `127.1`,
//!   `0x7f.1` and `2130706433`, which some resolvers take for addresses, are refused.
//! - An IPv6 address stands in brackets without a zone, as RFC 5952 writes it.
//! - A port is at most 65535. Leading zeros of up to five digits are dropped, and so is an empty port.
//!
//! Everything else is no host, because servers disagree on what `a.com,b.com` or `a.com;x` names.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum bytes of a host and its port. RFC 1035 section 3.1 allows as many for the name alone.
pub const MAX_HOST_BYTES: usize = 255;

/// The canonical form of the value of `Host`, or of an authority; `None` for a text that is no host. Borrows the text
/// if at most a dot or a colon at its end is dropped.
pub fn canonical_host(authority: &str) -> Option<Cow<'_, str>> {
    if authority.len() > MAX_HOST_BYTES {
        return None;
    }
    let (name, colon_and_port) = split_after_name(authority);
    let port = match colon_and_port.strip_prefix(':') {
        Some("") => None,
        Some(digits) => Some(parse_port(digits)?),
        None if colon_and_port.is_empty() => None,
        None => return None,
    };
    let written_name = name;
    let name = canonical_name(written_name)?;
    let Some(port) = port else {
        return Some(name);
    };
    let is_canonical = written_name.len() == name.len()
        && colon_and_port.len() == 1 + count_digits(port)
        && matches!(name, Cow::Borrowed(_));
    if is_canonical {
        return Some(Cow::Borrowed(authority));
    }
    Some(Cow::Owned(format!("{name}:{port}")))
}

/// The canonical form of a host without a port; `None` for a text that is no host.
pub fn canonical_name(name: &str) -> Option<Cow<'_, str>> {
    if let Some(bracketed) = name.strip_prefix('[') {
        let address: Ipv6Addr = bracketed.strip_suffix(']')?.parse().ok()?;
        let canonical = format!("[{address}]");
        return Some(if canonical == name {
            Cow::Borrowed(name)
        } else {
            Cow::Owned(canonical)
        });
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut has_capitals = false;
    let mut label_length = 0;
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => label_length += 1,
            b'A'..=b'Z' => {
                has_capitals = true;
                label_length += 1;
            }
            b'.' if label_length > 0 => label_length = 0,
            _ => return None,
        }
    }
    let last_label = name.get(name.len() - label_length..)?;
    let is_address = is_numeric_label(last_label);
    if label_length == 0
        || name.len() > MAX_HOST_BYTES
        || (is_address && name.parse::<Ipv4Addr>().is_err())
    {
        return None;
    }
    Some(if has_capitals {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    })
}

/// The host without its port, if it has one. The host must be in its canonical form.
pub fn without_port(host: &str) -> &str {
    split_after_name(host).0
}

/// A canonical host as its name and its port; `None` without a port.
pub fn split_port(host: &str) -> (&str, Option<u16>) {
    let (name, colon_and_port) = split_after_name(host);
    let port = colon_and_port.strip_prefix(':');
    (name, port.and_then(|port| port.parse().ok()))
}

/// An authority without the user and the password that it may begin with. Neither may be shown.
pub fn without_user(authority: &str) -> &str {
    authority.rsplit('@').next().unwrap_or(authority)
}

/// Splits an authority before the colon of its port. The second part is empty if nothing follows the name.
fn split_after_name(authority: &str) -> (&str, &str) {
    let after_bracket = authority.rfind(']').map(|bracket| bracket + 1);
    let name_end = after_bracket.or_else(|| authority.find(':'));
    authority.split_at(name_end.unwrap_or(authority.len()))
}

/// The most digits of a port, leading zeros included.
const MAX_PORT_DIGITS: usize = 5;

/// Parses a port; `None` if it has other bytes than digits, too many digits, or is above 65535.
fn parse_port(text: &str) -> Option<u16> {
    let is_number = text.len() <= MAX_PORT_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn count_digits(port: u16) -> usize {
    port.checked_ilog10()
        .map_or(1, |exponent| exponent as usize + 1)
}

/// Whether a name that ends in this label is read as an IPv4 address: it "ends in a number", in the URL Standard's
/// terms.
fn is_numeric_label(label: &str) -> bool {
    let hex_digits = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"));
    match hex_digits {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(host: &str, expected: Option<&str>) {
        let got = canonical_host(host);
        assert_eq!(got.as_deref(), expected, "{host:?}");
        if expected == Some(host) {
            assert!(matches!(got, Some(Cow::Borrowed(_))), "borrows {host:?}");
        }
    }

    #[test]
    fn canonical_hosts_are_borrowed() {
        for host in [
            "a",
            "a.com",
            "a-b_c.1a.com",
            "xn--e1a.com",
            "-.-",
            "a.com:80",
            "a.com:0",
            "a.com:65535",
            "127.0.0.1",
            "127.0.0.1:8080",
            "[::1]",
            "[2001:db8::1]:443",
            "1.a",
            "1.0xg",
        ] {
            check(host, Some(host));
        }
    }

    #[test]
    fn spellings_of_one_host() {
        for host in ["A.com", "a.com.", "a.COM.", "a.com:", "a.com.:"] {
            check(host, Some("a.com"));
        }
        for host in ["a.com:080", "a.com.:80", "A.com:00080"] {
            check(host, Some("a.com:80"));
        }
        check("127.0.0.1.", Some("127.0.0.1"));
        check("[0:0:0:0:0:0:0:1]", Some("[::1]"));
        check("[2001:DB8::0.0.0.1]:080", Some("[2001:db8::1]:80"));
        check("a:000", Some("a:0"));
    }

    #[test]
    fn what_is_no_host() {
        for host in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a..",
            "..",
            "a.com,b",
            "a.com, b",
            "a.com;x",
            "a.com'",
            "a(b)",
            "a!b",
            "a~b",
            "a=b",
            "a b",
            " a",
            "a/b",
            "a@b",
            "a%41",
            "*",
            "*.a.com",
            "é.com",
            "a:b",
            "a:65536",
            "a:99999",
            "a:000080",
            "a:80:80",
            "a:+80",
            "a:-1",
            "::1",
            "[::1",
            "[::1]x",
            "[::1].",
            "[::1%eth0]",
            "[::1%25eth0]",
            "[v1.x]",
            "[]",
            "[127.0.0.1]",
            "x[::1]",
            "127.1",
            "127",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "0x",
            "127.000.000.001",
            "0177.0.0.1",
            "127.0.0.0x1",
            "1.2.3.4.5",
            "a.1",
            "256.0.0.1",
            "127.0.0.1..",
        ] {
            check(host, None);
        }
        check(&"a".repeat(255), Some(&"a".repeat(255)));
        check(&"a".repeat(256), None);
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_stable(host in "[aA1.:x0\\-\\[\\]]{0,12}") {
            if let Some(once) = canonical_host(&host) {
                let twice = canonical_host(&once);
                prop_assert!(matches!(twice, Some(Cow::Borrowed(same)) if same == &*once), "{host:?} {once:?}");
                prop_assert!(!without_port(&once).ends_with('.'));
            }
        }
    }
}
