//! Texts of a certain form: spans, sizes, addresses, networks, header names.

use std::fmt::Display;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;

use super::super::collect::Cx;
use super::super::model::Located;
use super::super::section::FieldReader;
use super::super::table::{Form, ValueShape};
use super::super::tree::Node;
use super::{ValueError, invalid};
use crate::limit::{Identity, LimitName, Rate};
use crate::net::address::{Address, MAX_UNIX_PATH, PeerNetwork, UNIX};
use crate::route::HeaderStyle;

/// A span of time.
pub static DURATION: Form = Form {
    name: "duration",
    pattern: r"^\s*[0-9]+(ms|s|m|h|d)\s*$",
    doc: "A span of time: a whole number and ms, s, m, h or d.",
};

/// A number of bytes.
pub static SIZE: Form = Form {
    name: "size",
    pattern: r"^\s*[0-9]+\s*(B|KiB|MiB|GiB|TiB|KB|MB|GB)?\s*$",
    doc: "A number of bytes: a whole number and KiB, MiB or GiB.",
};

/// A rate.
pub static RATE: Form = Form {
    name: "rate",
    pattern: r"^\s*[0-9]+\s*/\s*[0-9]*[smhdw]\s*$",
    doc: "How many in how long: N/unit with s, m, h, d or w, for instance 5/15m.",
};

/// A socket's address.
pub static ADDRESS: Form = Form {
    name: "address",
    pattern: r"^(\[[0-9a-fA-F:.]+\]|[0-9.]+):[0-9]{1,5}$",
    doc: "An IP address and a port.",
};

/// A network.
pub static NETWORK: Form = Form {
    name: "network",
    pattern: r"^[0-9a-fA-F:.]+(/[0-9]{1,3})?$",
    doc: "An IP network such as 10.0.0.0/8, or one address.",
};

/// Where clients connect.
pub static LISTEN: Form = Form {
    name: "listen-address",
    pattern: r"^((\[[0-9a-fA-F:.]+\]|[0-9.]+):[0-9]{1,5}|unix:/.+)$",
    doc: "An IP address and a port, or `unix:` and the path of a Unix socket.",
};

/// Peers that are believed.
pub static PEERS: Form = Form {
    name: "peers",
    pattern: r"^(unix|[0-9a-fA-F:.]+(/[0-9]{1,3})?)$",
    doc: "An IP network such as 10.0.0.0/8, or one address; or `unix`: all that connect over a Unix socket.",
};

/// The permissions of a file.
pub static MODE: Form = Form {
    name: "mode",
    pattern: r"^0?[0-7]{3}$",
    doc: "The permissions of a file in octal digits: 0660.",
};

/// A header's name.
pub static HEADER: Form = Form {
    name: "header",
    pattern: r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
    doc: "The name of a header.",
};

/// A file's path.
pub static PATH: Form = Form {
    name: "path",
    pattern: r"^.+$",
    doc: "A path, relative to the gateway file's folder.",
};

/// The words for identities.
pub static IDENTITIES: &[&str] = &["ip", "user", "token", "email", "plan"];

/// The words for header styles.
pub const HEADER_STYLES: [(&str, HeaderStyle); 4] = [
    ("ietf", HeaderStyle::Ietf),
    ("legacy", HeaderStyle::Legacy),
    ("both", HeaderStyle::Both),
    ("none", HeaderStyle::None),
];

/// Reads how long to wait: 1 ms to a day.
pub struct Wait;

/// Reads how long to delay something: up to a day.
pub struct Delay;

impl FieldReader for Wait {
    type Value = Duration;
    const SHAPE: ValueShape = ValueShape::Form(&DURATION);

    fn read(cx: &mut Cx, node: &Node) -> Option<Duration> {
        cx.timeout(node)
    }

    fn written(span: &Duration) -> String {
        // As people write them: 60s, and not 1m.
        match span.as_secs() {
            seconds @ ..120 if span.subsec_nanos() == 0 => format!("{seconds}s"),
            _ => shown_span(*span),
        }
    }
}

impl FieldReader for Delay {
    type Value = Duration;
    const SHAPE: ValueShape = Wait::SHAPE;

    fn read(cx: &mut Cx, node: &Node) -> Option<Duration> {
        let span = cx.span(node, Duration::ZERO, Duration::from_secs(86_400))?;
        Some(span.value)
    }

    fn written(span: &Duration) -> String {
        Wait::written(span)
    }
}

/// Reads a whole number within bounds.
pub struct Whole<T, const FROM: u64, const TO: u64>(PhantomData<T>);

impl<T, const FROM: u64, const TO: u64> FieldReader for Whole<T, FROM, TO>
where
    T: TryFrom<u64> + Display,
{
    type Value = T;
    const SHAPE: ValueShape = ValueShape::Whole(FROM, TO);

    fn read(cx: &mut Cx, node: &Node) -> Option<T> {
        let number = cx.whole(node, FROM, TO)?;
        T::try_from(number.value).ok()
    }

    fn written(number: &T) -> String {
        number.to_string()
    }
}

impl Cx {
    /// Reads `5/15m`.
    pub(super) fn rate(&mut self, node: &Node) -> Option<Located<Rate>> {
        self.read(node, "a rate such as 10/s or 5/15m", |text| {
            text.parse::<Rate>().map_err(|error| ValueError {
                message: format!("`{text}` is not a rate: {error}"),
                help: unit_help(text),
                offset: None,
            })
        })
    }

    /// Reads `10s` and the like within bounds.
    pub(super) fn span(
        &mut self,
        node: &Node,
        from: Duration,
        to: Duration,
    ) -> Option<Located<Duration>> {
        self.read(node, "a duration such as 10s or 200ms", |text| {
            let span = parse_span(text)?;
            if span < from || span > to {
                let (from, to) = (shown_span(from), shown_span(to));
                let help = format!("write a duration from {from} to {to}");
                return Err(invalid(format!("`{text}` is too short or too long"), help));
            }
            Ok(span)
        })
    }

    /// Reads how long to wait: 1 ms to a day.
    pub(super) fn timeout(&mut self, node: &Node) -> Option<Duration> {
        self.span(node, Duration::from_millis(1), Duration::from_secs(86_400))
            .map(|span| span.value)
    }

    /// Reads a number of things: 1 to `most`.
    pub(super) fn count(&mut self, node: &Node, most: u64) -> Option<u32> {
        let count = self.whole(node, 1, most)?;
        u32::try_from(count.value).ok()
    }

    /// Reads `64MiB` and the like within bounds.
    pub(super) fn size(&mut self, node: &Node, from: u64, to: u64) -> Option<Located<usize>> {
        self.read(node, "a size such as 64MiB", |text| {
            let size = parse_size(text)?;
            if size < from || size > to {
                let help = format!(
                    "write a size from {} to {}",
                    shown_size(from),
                    shown_size(to)
                );
                return Err(invalid(format!("`{text}` is too small or too large"), help));
            }
            usize::try_from(size)
                .map_err(|_| invalid(format!("`{text}` is too large"), "write less"))
        })
    }

    /// Reads `127.0.0.1:8080`.
    pub(super) fn address(&mut self, node: &Node) -> Option<Located<SocketAddr>> {
        self.read(node, "an address such as 127.0.0.1:8080", |text| {
            text.trim().parse::<SocketAddr>().map_err(|_| {
                let port = text
                    .rsplit(':')
                    .next()
                    .and_then(|port| port.trim().parse::<u16>().ok());
                let help = match (port, text.contains("localhost")) {
                    _ if text.starts_with('/') => format!("write `{UNIX}{text}`"),
                    (Some(port), true) => format!("write `127.0.0.1:{port}`"),
                    (Some(port), false) => {
                        format!("write `0.0.0.0:{port}`, `127.0.0.1:{port}` or `[::]:{port}`")
                    }
                    (None, _) => {
                        String::from("write an IP address and a port, for instance `0.0.0.0:8080`")
                    }
                };
                invalid(format!("`{text}` is not an IP address with a port"), help)
            })
        })
    }

    /// Reads `127.0.0.1:8080` or `unix:/run/tollgate.sock`.
    pub(super) fn listen_address(&mut self, node: &Node) -> Option<Located<Address>> {
        if node.text().is_some_and(|text| text.starts_with(UNIX)) {
            let path = self.read(node, "a Unix socket", |text| {
                let path = parse_unix(text)?;
                // A process passes the paths to the next one in one variable, with `:` in between.
                if path.as_os_str().as_bytes().contains(&b':') {
                    let message = format!("the path of `{text}` has a `:`");
                    return Err(invalid(message, "choose a path without it"));
                }
                Ok(path)
            })?;
            return Some(path.map(Address::Unix));
        }
        self.address(node).map(|address| address.map(Address::Tcp))
    }

    /// Reads `0660`.
    pub(super) fn mode(&mut self, node: &Node) -> Option<Located<u32>> {
        self.read(node, "permissions such as 0660", |text| {
            let digits = text.strip_prefix('0').unwrap_or(text);
            let mode = u32::from_str_radix(digits, 8).ok();
            let wrong = || {
                let help = "write three octal digits: `0660` lets the user and the group connect, `0666` everybody";
                invalid(format!("`{text}` is not permissions of a file"), help)
            };
            mode.filter(|_| digits.len() == 3 && !digits.starts_with('+'))
                .ok_or_else(wrong)
        })
    }

    /// Reads `10.0.0.0/8` or a single address.
    pub(super) fn network(&mut self, node: &Node) -> Option<Located<IpNet>> {
        self.read(node, "a network such as 10.0.0.0/8", |text| {
            let text = text.trim();
            if let Ok(address) = text.parse::<IpAddr>() {
                return Ok(IpNet::from(address));
            }
            let net: IpNet = text.parse().map_err(|_| {
                let help =
                    "write a network such as `10.0.0.0/8` or `2001:db8::/32`, or one address";
                invalid(format!("`{text}` is not an IP network"), help)
            })?;
            if net.addr() != net.network() {
                let message = format!("`{text}` has bits set behind its prefix");
                let help = format!(
                    "write `{}` for the network or `{}` for the address",
                    net.trunc(),
                    net.addr()
                );
                return Err(invalid(message, help));
            }
            Ok(net)
        })
    }

    /// Reads one network or a list.
    pub(super) fn networks(&mut self, node: &Node) -> Vec<IpNet> {
        self.many(node, |cx, item| cx.network(item).map(|net| net.value))
    }

    /// Reads the networks of peers whose word on others is taken.
    pub(super) fn believed(&mut self, node: &Node) -> Vec<PeerNetwork> {
        self.many(node, |cx, item| {
            if item.text() == Some("unix") {
                return Some(PeerNetwork::Unix);
            }
            let net = cx.network(item)?.value;
            if net.prefix_len() == 0 {
                let message =
                    format!("`{net}` believes everyone: any client can claim to be anyone");
                let help = "name the networks of your proxies";
                cx.warn(item.place, message, Some(help.into()));
            }
            Some(net.into())
        })
    }

    /// Reads a header's name.
    pub(super) fn header(&mut self, node: &Node) -> Option<Located<HeaderName>> {
        self.read(node, "the name of a header", |text| {
            parse_header(text).map_err(|message| ValueError {
                message,
                help: None,
                offset: None,
            })
        })
    }

    /// Reads an identity.
    pub(super) fn identity(&mut self, node: &Node) -> Option<Located<Identity>> {
        self.word(
            node,
            &Identity::ALL.map(|identity| (identity.as_str(), identity)),
        )
    }

    /// Reads a header style.
    pub(super) fn headers(&mut self, node: &Node) -> Option<Located<HeaderStyle>> {
        self.word(node, &HEADER_STYLES)
    }
}

/// The path of a Unix socket, written `unix:/run/app.sock`.
pub(super) fn parse_unix(text: &str) -> Result<Arc<Path>, ValueError> {
    let text = text.trim();
    let path = text.strip_prefix(UNIX).unwrap_or(text);
    // As a URL.
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        let help = "write the path from the root, for instance `unix:/run/app.sock`";
        return Err(invalid(format!("`{text}` is not a Unix socket"), help));
    }
    if path.len() > MAX_UNIX_PATH {
        let message = format!(
            "the path of this Unix socket has {} bytes; the system takes at most {MAX_UNIX_PATH}",
            path.len()
        );
        return Err(invalid(message, "choose a shorter one, below `/run`"));
    }
    Ok(Path::new(path).into())
}

/// Checks a name of the user's choice; what holds for limits holds for upstreams and plans.
pub(super) fn parse_name(text: &str, whose: &str) -> Result<LimitName, ValueError> {
    LimitName::new(text).map_err(|_| {
        let help = "use 1 to 64 letters, digits, `-` or `_`, starting with a letter";
        invalid(format!("`{text}` is not a name for {whose}"), help)
    })
}

/// A header's name in lower case.
pub(super) fn parse_header(text: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(text.trim()).map_err(|_| format!("`{text}` is not the name of a header"))
}

/// The short form of a rate whose unit is spelled out.
fn unit_help(text: &str) -> Option<String> {
    let (count, unit) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    let word = unit
        .trim()
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim();
    let many = unit.trim().strip_suffix(word)?.trim();
    let letter = match word.to_ascii_lowercase().as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => "w",
        "month" | "months" | "mo" => {
            return Some("calendar months are not supported; `30d` is near".into());
        }
        _ => return None,
    };
    let fixed = format!("{}/{many}{letter}", count.trim());
    (fixed != text && fixed.parse::<Rate>().is_ok()).then(|| format!("write `{fixed}`"))
}

/// `10s`, `200ms`, `1m`, `1h`, `2d`.
pub(super) fn parse_span(text: &str) -> Result<Duration, ValueError> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let millis: u64 = match unit.trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => {
            let help = "write a whole number and ms, s, m, h or d, for instance `10s`";
            return Err(invalid(format!("`{text}` is not a duration"), help));
        }
    };
    let span = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(millis));
    span.map(Duration::from_millis).ok_or_else(|| {
        let help = "write a whole number and ms, s, m, h or d, for instance `10s`";
        invalid(format!("`{text}` is not a duration"), help)
    })
}

fn parse_size(text: &str) -> Result<u64, ValueError> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let bytes: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => 0,
    };
    let size = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(bytes));
    size.filter(|_| bytes > 0).ok_or_else(|| {
        let help = "write a whole number and KiB, MiB or GiB, for instance `64MiB`";
        invalid(format!("`{text}` is not a size"), help)
    })
}

/// A span as files write it.
pub(in crate::policy) fn shown_span(span: Duration) -> String {
    let millis = span.as_millis();
    [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ]
    .into_iter()
    .find(|(length, _)| millis >= *length && millis.is_multiple_of(*length))
    .map_or_else(
        || format!("{millis}ms"),
        |(length, unit)| format!("{}{unit}", millis / length),
    )
}

/// A size as files write it.
pub(in crate::policy) fn shown_size(bytes: u64) -> String {
    [
        (1u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ]
    .into_iter()
    .find(|(length, _)| bytes >= *length && bytes.is_multiple_of(*length))
    .map_or_else(
        || format!("{bytes}B"),
        |(length, unit)| format!("{}{unit}", bytes / length),
    )
}
