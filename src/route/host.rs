//! A host in the one form in which it is matched and forwarded.
//!
//! - A name is labels of ASCII letters, digits, `-` and `_`, none of them empty, written in lower case;
//!   one dot at its end is left out (RFC 1034 section 3.1).
//! - A name whose last label is a number is an IPv4 address of four decimal numbers, as the URL Standard has it.
//!   `127.1`, `0x7f.1` and `2130706433`, which some resolvers take for addresses, are none.
//! - An IPv6 address stands in brackets without a zone, as RFC 5952 writes it.
//! - A port is at most 65535, without zeros in front; one that is empty is left out.
//!
//! Everything else is no host: servers disagree on what `a.com,b.com` or `a.com;x` names.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most bytes of a host and its port: RFC 1035 section 3.1.
pub const MAX_HOST: usize = 255;

/// The value of `Host`, or an authority, in its canonical form; nothing for what is no host. Borrows it where
/// nothing but its end is left out.
pub fn canonical(authority: &str) -> Option<Cow<'_, str>> {
    if authority.len() > MAX_HOST {
        return None;
    }
    let (name, rest) = split(authority);
    let port = match rest.strip_prefix(':') {
        Some("") => None,
        Some(digits) => Some(port(digits)?),
        None if rest.is_empty() => None,
        None => return None,
    };
    let name = canonical_name(name)?;
    let Some(port) = port else {
        return Some(name);
    };
    let written = authority.len() - rest.len() == name.len() && rest.len() == 1 + digits(port);
    if written && matches!(name, Cow::Borrowed(_)) {
        return Some(Cow::Borrowed(authority));
    }
    Some(Cow::Owned(format!("{name}:{port}")))
}

/// The same of a host without a port.
pub fn canonical_name(name: &str) -> Option<Cow<'_, str>> {
    if let Some(inner) = name.strip_prefix('[') {
        let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        let text = format!("[{address}]");
        return Some(if text == name {
            Cow::Borrowed(name)
        } else {
            Cow::Owned(text)
        });
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut capitals = false;
    let mut label = 0;
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => label += 1,
            b'A'..=b'Z' => {
                capitals = true;
                label += 1;
            }
            b'.' if label > 0 => label = 0,
            _ => return None,
        }
    }
    let last = name.get(name.len() - label..)?;
    if label == 0 || name.len() > MAX_HOST || (is_number(last) && name.parse::<Ipv4Addr>().is_err())
    {
        return None;
    }
    Some(if capitals {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    })
}

/// A canonical host without its port.
pub fn without_port(host: &str) -> &str {
    split(host).0
}

/// Name and what follows it, the colon too.
fn split(authority: &str) -> (&str, &str) {
    let bracket = authority.rfind(']').map(|at| at + 1);
    let end = bracket.or_else(|| authority.find(':'));
    authority.split_at(end.unwrap_or(authority.len()))
}

fn port(text: &str) -> Option<u16> {
    let digits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

fn digits(port: u16) -> usize {
    port.checked_ilog10().map_or(1, |tens| tens as usize + 1)
}

/// Whether a name that ends in this label is read as an IPv4 address: "ends in a number" of the URL Standard.
fn is_number(label: &str) -> bool {
    let hex = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"));
    match hex {
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
        let got = canonical(host);
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
            if let Some(once) = canonical(&host) {
                let twice = canonical(&once);
                prop_assert!(matches!(twice, Some(Cow::Borrowed(same)) if same == &*once), "{host:?} {once:?}");
                prop_assert!(!without_port(&once).ends_with('.'));
            }
        }
    }
}
