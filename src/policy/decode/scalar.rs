//! Reads scalars that several sections share: durations, sizes, rates, addresses, networks and names. Each has a format
//! for the schemas beside its reader.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;

use super::super::context::LoadContext;
use super::super::model::Located;
use super::super::table::TextFormat;
use super::super::tree::Node;
use super::ValueError;
use crate::limit::{Identity, LimitName, Rate};
use crate::net::address::{Address, MAX_UNIX_PATH_BYTES, PeerNetwork, UNIX_PREFIX};
use crate::route::HeaderStyle;

pub static DURATION_FORMAT: TextFormat = TextFormat {
    name: "duration",
    pattern: r"^\s*[0-9]+(ms|s|m|h|d)\s*$",
    doc: "A span of time: a whole number and ms, s, m, h or d.",
};

pub static SIZE_FORMAT: TextFormat = TextFormat {
    name: "size",
    pattern: r"^\s*[0-9]+\s*(B|KiB|MiB|GiB|TiB|KB|MB|GB)?\s*$",
    doc: "A number of bytes: a whole number and KiB, MiB or GiB.",
};

pub static RATE_FORMAT: TextFormat = TextFormat {
    name: "rate",
    pattern: r"^\s*[0-9]+\s*/\s*[0-9]*[smhdw]\s*$",
    doc: "How many in how long: N/unit with s, m, h, d or w, for instance 5/15m.",
};

pub static ADDRESS_FORMAT: TextFormat = TextFormat {
    name: "address",
    pattern: r"^(\[[0-9a-fA-F:.]+\]|[0-9.]+):[0-9]{1,5}$",
    doc: "An IP address and a port.",
};

pub static NETWORK_FORMAT: TextFormat = TextFormat {
    name: "network",
    pattern: r"^[0-9a-fA-F:.]+(/[0-9]{1,3})?$",
    doc: "An IP network such as 10.0.0.0/8, or one address.",
};

pub static LISTEN_ADDRESS_FORMAT: TextFormat = TextFormat {
    name: "listen-address",
    pattern: r"^((\[[0-9a-fA-F:.]+\]|[0-9.]+):[0-9]{1,5}|unix:/.+)$",
    doc: "An IP address and a port, or `unix:` and the path of a Unix socket.",
};

pub static PEERS_FORMAT: TextFormat = TextFormat {
    name: "peers",
    pattern: r"^(unix|[0-9a-fA-F:.]+(/[0-9]{1,3})?)$",
    doc: "An IP network such as 10.0.0.0/8, or one address; or `unix`: all that connect over a Unix socket.",
};

pub static FILE_MODE_FORMAT: TextFormat = TextFormat {
    name: "mode",
    pattern: r"^0?[0-7]{3}$",
    doc: "The permissions of a file in octal digits: 0660.",
};

pub static HEADER_NAME_FORMAT: TextFormat = TextFormat {
    name: "header",
    pattern: r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
    doc: "The name of a header.",
};

pub static PATH_FORMAT: TextFormat = TextFormat {
    name: "path",
    pattern: r"^.+$",
    doc: "A path, relative to the gateway file's folder.",
};

pub static IDENTITY_WORDS: &[&str] = &["ip", "user", "token", "email", "plan"];

pub const HEADER_STYLE_WORDS: [(&str, HeaderStyle); 4] = [
    ("ietf", HeaderStyle::Ietf),
    ("legacy", HeaderStyle::Legacy),
    ("both", HeaderStyle::Both),
    ("none", HeaderStyle::None),
];

/// The longest timeout and delay: a day.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);

impl LoadContext {
    /// Reads a rate such as `5/15m`.
    pub(super) fn read_rate(&mut self, node: &Node) -> Option<Located<Rate>> {
        self.read_scalar(node, "a rate such as 10/s or 5/15m", |text| {
            text.parse::<Rate>().map_err(|error| ValueError {
                message: format!("`{text}` is not a rate: {error}"),
                help: suggest_rate(text),
                offset: None,
            })
        })
    }

    /// Reads a duration such as `10s` from `min` to `max`.
    pub(super) fn read_duration(
        &mut self,
        node: &Node,
        min: Duration,
        max: Duration,
    ) -> Option<Located<Duration>> {
        self.read_scalar(node, "a duration such as 10s or 200ms", |text| {
            let duration = parse_duration(text)?;
            if duration < min || duration > max {
                let (min, max) = (format_duration(min), format_duration(max));
                let help = format!("write a duration from {min} to {max}");
                return Err(ValueError::new(
                    format!("`{text}` is too short or too long"),
                    help,
                ));
            }
            Ok(duration)
        })
    }

    /// Reads a timeout, from 1 ms to a day.
    pub(super) fn read_timeout(&mut self, node: &Node) -> Option<Duration> {
        self.read_duration(node, Duration::from_millis(1), MAX_TIMEOUT)
            .map(|timeout| timeout.value)
    }

    /// Reads a count from 1 to `max`.
    pub(super) fn read_count(&mut self, node: &Node, max: u64) -> Option<u32> {
        let count = self.read_whole_number(node, 1, max)?;
        u32::try_from(count.value).ok()
    }

    /// Reads a size in bytes such as `64MiB`, from `min` to `max`.
    pub(super) fn read_size(&mut self, node: &Node, min: u64, max: u64) -> Option<Located<usize>> {
        self.read_scalar(node, "a size such as 64MiB", |text| {
            let size = parse_size(text)?;
            if size < min || size > max {
                let (min, max) = (format_size(min), format_size(max));
                let help = format!("write a size from {min} to {max}");
                return Err(ValueError::new(
                    format!("`{text}` is too small or too large"),
                    help,
                ));
            }
            usize::try_from(size)
                .map_err(|_| ValueError::new(format!("`{text}` is too large"), "write less"))
        })
    }

    /// Reads an IP address with a port, such as `127.0.0.1:8080`.
    pub(super) fn read_socket_address(&mut self, node: &Node) -> Option<Located<SocketAddr>> {
        self.read_scalar(node, "an address such as 127.0.0.1:8080", |text| {
            text.trim().parse::<SocketAddr>().map_err(|_| {
                let port = text
                    .rsplit(':')
                    .next()
                    .and_then(|port| port.trim().parse::<u16>().ok());
                let help = match (port, text.contains("localhost")) {
                    _ if text.starts_with('/') => format!("write `{UNIX_PREFIX}{text}`"),
                    (Some(port), true) => format!("write `127.0.0.1:{port}`"),
                    (Some(port), false) => {
                        format!("write `0.0.0.0:{port}`, `127.0.0.1:{port}` or `[::]:{port}`")
                    }
                    (None, _) => {
                        String::from("write an IP address and a port, for instance `0.0.0.0:8080`")
                    }
                };
                ValueError::new(format!("`{text}` is not an IP address with a port"), help)
            })
        })
    }

    /// Reads an IP address with a port, or a Unix socket such as `unix:/run/tollgate.sock`.
    pub(super) fn read_listen_address(&mut self, node: &Node) -> Option<Located<Address>> {
        if node
            .scalar()
            .is_some_and(|text| text.starts_with(UNIX_PREFIX))
        {
            let path = self.read_scalar(node, "a Unix socket", |text| {
                let path = parse_unix_path(text)?;
                // A handover passes the paths to the next process in one variable, separated by `:`.
                if path.as_os_str().as_bytes().contains(&b':') {
                    let message = format!("the path of `{text}` has a `:`");
                    return Err(ValueError::new(message, "choose a path without it"));
                }
                Ok(path)
            })?;
            return Some(path.map(Address::Unix));
        }
        self.read_socket_address(node)
            .map(|address| address.map(Address::Tcp))
    }

    /// Reads the permissions of a file, such as `0660`.
    pub(super) fn read_file_mode(&mut self, node: &Node) -> Option<Located<u32>> {
        self.read_scalar(node, "permissions such as 0660", |text| {
            let digits = text.strip_prefix('0').unwrap_or(text);
            let mode = u32::from_str_radix(digits, 8).ok();
            let error = || {
                let help = "write three octal digits: `0660` lets the user and the group connect, `0666` everybody";
                ValueError::new(format!("`{text}` is not permissions of a file"), help)
            };
            mode.filter(|_| digits.len() == 3 && !digits.starts_with('+'))
                .ok_or_else(error)
        })
    }

    /// Reads a network such as `10.0.0.0/8`, or a single address.
    pub(super) fn read_network(&mut self, node: &Node) -> Option<Located<IpNet>> {
        self.read_scalar(node, "a network such as 10.0.0.0/8", |text| {
            let text = text.trim();
            if let Ok(address) = text.parse::<IpAddr>() {
                return Ok(IpNet::from(address));
            }
            let net: IpNet = text.parse().map_err(|_| {
                let help =
                    "write a network such as `10.0.0.0/8` or `2001:db8::/32`, or one address";
                ValueError::new(format!("`{text}` is not an IP network"), help)
            })?;
            if net.addr() != net.network() {
                let message = format!("`{text}` has bits set behind its prefix");
                let help = format!(
                    "write `{}` for the network or `{}` for the address",
                    net.trunc(),
                    net.addr()
                );
                return Err(ValueError::new(message, help));
            }
            Ok(net)
        })
    }

    /// Reads one network or a list of networks.
    pub(super) fn read_networks(&mut self, node: &Node) -> Vec<IpNet> {
        self.read_list(node, |cx, item| cx.read_network(item).map(|net| net.value))
    }

    /// Reads the networks of peers that are trusted to name the client.
    pub(super) fn read_trusted_peers(&mut self, node: &Node) -> Vec<PeerNetwork> {
        self.read_list(node, |cx, item| {
            if item.scalar() == Some("unix") {
                return Some(PeerNetwork::Unix);
            }
            let net = cx.read_network(item)?.value;
            if net.prefix_len() == 0 {
                let message =
                    format!("`{net}` believes everyone: any client can claim to be anyone");
                let help = "name the networks of your proxies";
                cx.warn(item.location, message, Some(help.into()));
            }
            Some(net.into())
        })
    }

    /// Reads the name of a header field.
    pub(super) fn read_header_name(&mut self, node: &Node) -> Option<Located<HeaderName>> {
        self.read_scalar(node, "the name of a header", |text| {
            parse_header_name(text).map_err(|message| ValueError {
                message,
                help: None,
                offset: None,
            })
        })
    }

    /// Reads an identity.
    pub(super) fn read_identity(&mut self, node: &Node) -> Option<Located<Identity>> {
        self.read_word(
            node,
            &Identity::ALL.map(|identity| (identity.as_str(), identity)),
        )
    }

    /// Reads a header style.
    pub(super) fn read_header_style(&mut self, node: &Node) -> Option<Located<HeaderStyle>> {
        self.read_word(node, &HEADER_STYLE_WORDS)
    }
}

/// Parses the path of a Unix socket, written `unix:/run/app.sock` or `unix:///run/app.sock`.
pub(super) fn parse_unix_path(text: &str) -> Result<Arc<Path>, ValueError> {
    let text = text.trim();
    let path = text.strip_prefix(UNIX_PREFIX).unwrap_or(text);
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        let help = "write the path from the root, for instance `unix:/run/app.sock`";
        return Err(ValueError::new(
            format!("`{text}` is not a Unix socket"),
            help,
        ));
    }
    if path.len() > MAX_UNIX_PATH_BYTES {
        let message = format!(
            "the path of this Unix socket has {} bytes; the system takes at most {MAX_UNIX_PATH_BYTES}",
            path.len()
        );
        return Err(ValueError::new(
            message,
            "choose a shorter one, below `/run`",
        ));
    }
    Ok(Path::new(path).into())
}

/// Parses a name that the user chooses. Limits, upstreams, plans and destinations follow the same rule. Messages call
/// the named thing `kind`, for instance "a limit".
pub(super) fn parse_name(text: &str, kind: &str) -> Result<LimitName, ValueError> {
    LimitName::new(text).map_err(|_| {
        let help = "use 1 to 64 letters, digits, `-` or `_`, starting with a letter";
        ValueError::new(format!("`{text}` is not a name for {kind}"), help)
    })
}

/// Parses the name of a header field, which becomes lower case.
pub(super) fn parse_header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(text.trim()).map_err(|_| format!("`{text}` is not the name of a header"))
}

/// Suggests the short form of a rate whose unit is spelled out, such as `5 per 15 minutes`.
fn suggest_rate(text: &str) -> Option<String> {
    let (quota, window) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    let unit = window
        .trim()
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim();
    let units = window.trim().strip_suffix(unit)?.trim();
    let letter = match unit.to_ascii_lowercase().as_str() {
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
    let suggestion = format!("{}/{units}{letter}", quota.trim());
    (suggestion != text && suggestion.parse::<Rate>().is_ok())
        .then(|| format!("write `{suggestion}`"))
}

/// Parses a duration such as `10s`, `200ms`, `1m`, `1h` or `2d`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, ValueError> {
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
            return Err(ValueError::new(format!("`{text}` is not a duration"), help));
        }
    };
    let total_millis = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(millis));
    total_millis.map(Duration::from_millis).ok_or_else(|| {
        let help = "write a whole number and ms, s, m, h or d, for instance `10s`";
        ValueError::new(format!("`{text}` is not a duration"), help)
    })
}

/// Parses a size in bytes such as `64MiB`.
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
        ValueError::new(format!("`{text}` is not a size"), help)
    })
}

/// Formats a duration as files write it, in the largest unit that fits exactly.
pub(in crate::policy) fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
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

/// Formats a size as files write it, in the largest unit that fits exactly.
pub(in crate::policy) fn format_size(bytes: u64) -> String {
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
