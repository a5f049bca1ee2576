//! Reads scalars that several sections share: durations, sizes, rates, addresses, networks and names. It also has the
//! formats of such texts, which the schemas and the reference show.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;

use super::super::context::LoadContext;
use super::super::section::FieldReader;
use super::super::table::{TextFormat, ValueShape};
use super::super::tree::{Located, Node};
use super::field::{scalar_fields, word_fields};
use super::{ValueError, unknown_word};
use crate::limit::custom_identity::PREFLIGHT;
use crate::limit::{Identity, LimitName, Rate};
use crate::net::address::{Address, MAX_UNIX_PATH_BYTES, PeerNetwork, UNIX_PREFIX};
use crate::route::{HeaderStyle, Priority};

pub static DURATION_FORMAT: TextFormat = TextFormat {
    name: "duration",
    pattern: r"^\s*[0-9]+(ms|s|m|h|d)\s*$",
    doc: "A span of time: a whole number and ms, s, m, h or d.",
};

pub static SIZE_FORMAT: TextFormat = TextFormat {
    name: "size",
    pattern: r"^\s*[0-9]+\s*(B|KiB|MiB|GiB|TiB|KB|MB|GB)?\s*$",
    doc: "A number of bytes: a whole number and KiB, MiB or GiB, or KB, MB or GB, which are powers of 1,000.",
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
    doc: "An IP network such as 192.0.2.0/24, or one address.",
};

pub static LISTEN_ADDRESS_FORMAT: TextFormat = TextFormat {
    name: "listen-address",
    pattern: r"^((\[[0-9a-fA-F:.]+\]|[0-9.]+):[0-9]{1,5}|unix:/.+)$",
    doc: "An IP address and a port, or `unix:` and the path of a Unix socket.",
};

pub static PEERS_FORMAT: TextFormat = TextFormat {
    name: "peers",
    pattern: r"^(unix|[0-9a-fA-F:.]+(/[0-9]{1,3})?)$",
    doc: "An IP network such as 192.0.2.0/24, or one address; or `unix`: all that connect over a Unix socket.",
};

pub static IDENTITY_FORMAT: TextFormat = TextFormat {
    name: "identity",
    pattern: r"^[a-z][a-z0-9_-]{0,31}$",
    doc: "ip, user, token, email, plan, or an identity that the gateway file defines.",
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

word_fields! {
    /// A field with the style of rate-limit header fields.
    pub struct HeaderStyleField: HeaderStyle = "ietf" => HeaderStyle::Ietf, "legacy" => HeaderStyle::Legacy,
        "both" => HeaderStyle::Both, "none" => HeaderStyle::None;
    /// A field that says what is shed last under pressure.
    pub struct PriorityField: Priority = "low" => Priority::Low, "normal" => Priority::Normal,
        "critical" => Priority::Critical;
}

scalar_fields! {
    /// A field with an identity.
    pub struct IdentityField: Identity = ValueShape::Format(&IDENTITY_FORMAT), "an identity such as user", parse_identity;
    /// A field with a rate such as `5/15m`.
    pub struct RateField: Rate =
        ValueShape::Format(&RATE_FORMAT), "a rate such as 10/s or 5/15m", parse_rate;
    /// A field with an IP address and a port, such as `127.0.0.1:8080`.
    pub struct SocketAddressField: SocketAddr =
        ValueShape::Format(&ADDRESS_FORMAT), "an address such as 127.0.0.1:8080", parse_socket_address;
    /// A field with the permissions of a file, such as `0660`.
    pub struct FileModeField: u32 =
        ValueShape::Format(&FILE_MODE_FORMAT), "permissions such as 0660", parse_file_mode;
    /// A field with a network such as `192.0.2.0/24`, or with a single address.
    pub struct NetworkField: IpNet =
        ValueShape::Format(&NETWORK_FORMAT), "a network such as 192.0.2.0/24", parse_network;
    /// A field with the name of a claim of a signed token.
    pub struct ClaimField: String = ValueShape::Text, "the name of a claim";
    /// A field with the name of a header field, which becomes lower case.
    pub struct HeaderNameField: HeaderName =
        ValueShape::Format(&HEADER_NAME_FORMAT), "the name of a header", |text| {
            parse_header_name(text).map_err(|message| ValueError { message, help: None, offset: None })
        };
}

/// A field with an IP address and a port, or with a Unix socket such as `unix:/run/tollgate.sock`.
pub struct ListenAddressField;

impl FieldReader for ListenAddressField {
    type Value = Located<Address>;
    const SHAPE: ValueShape = ValueShape::Format(&LISTEN_ADDRESS_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Located<Address>> {
        let is_unix = |text: &str| text.starts_with(UNIX_PREFIX);
        let value = match node.scalar().is_some_and(is_unix) {
            true => Address::Unix(cx.read_scalar(node, "a Unix socket", parse_listen_path)?),
            false => Address::Tcp(SocketAddressField::read(cx, node)?),
        };
        Some(Located {
            value,
            location: node.location,
        })
    }
}

/// A field with a network of peers that are trusted to name the client; `unix` stands for all peers on Unix sockets. A
/// network of all addresses causes a warning.
pub struct PeersField;

impl FieldReader for PeersField {
    type Value = PeerNetwork;
    const SHAPE: ValueShape = ValueShape::Format(&PEERS_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<PeerNetwork> {
        if node.scalar() == Some("unix") {
            return Some(PeerNetwork::Unix);
        }
        let network = NetworkField::read(cx, node)?;
        if network.prefix_len() == 0 {
            let message =
                format!("`{network}` believes everyone: any client can claim to be anyone");
            let help = "name the networks of your proxies";
            cx.warn(node.location, message, Some(help.into()));
        }
        Some(network.into())
    }
}

impl LoadContext {
    /// Reads a duration such as `10s`, from `min` to `max`, both included.
    pub(super) fn read_duration(
        &mut self,
        node: &Node,
        min: Duration,
        max: Duration,
    ) -> Option<Duration> {
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

    /// Reads a size such as `64MiB` in bytes, from `min` to `max`, both included.
    pub(super) fn read_size(&mut self, node: &Node, min: u64, max: u64) -> Option<usize> {
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
}

fn parse_rate(text: &str) -> Result<Rate, ValueError> {
    text.parse::<Rate>().map_err(|error| ValueError {
        message: format!("`{text}` is not a rate: {error}"),
        help: suggest_rate(text),
        offset: None,
    })
}

fn parse_socket_address(text: &str) -> Result<SocketAddr, ValueError> {
    text.trim().parse::<SocketAddr>().map_err(|_| {
        let last_part = text.rsplit(':').next();
        let port = last_part.and_then(|part| part.trim().parse::<u16>().ok());
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
}

/// Parses permissions: three octal digits, with or without a `0` before them. Permissions that begin with 0 need it.
fn parse_file_mode(text: &str) -> Result<u32, ValueError> {
    let digits = text.strip_prefix('0').unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok();
    // The conversion accepts a `+` before the digits.
    let is_mode = digits.len() == 3 && !digits.starts_with('+');
    mode.filter(|_| is_mode).ok_or_else(|| {
        let help = "write three octal digits: `0660` lets the user and the group connect, `0666` everybody";
        ValueError::new(format!("`{text}` is not permissions of a file"), help)
    })
}

/// Parses a network, or a single address as the network of that address. A network with bits behind its prefix is a
/// mistake.
pub(in crate::policy) fn parse_network(text: &str) -> Result<IpNet, ValueError> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let parsed: IpNet = text.parse().map_err(|_| {
        let help = "write a network such as `203.0.113.0/24` or `2001:db8::/32`, or one address";
        ValueError::new(format!("`{text}` is not an IP network"), help)
    })?;
    if parsed.addr() != parsed.network() {
        let message = format!("`{text}` has bits set behind its prefix");
        let network = parsed.trunc();
        let address = parsed.addr();
        let help = format!("write `{network}` for the network or `{address}` for the address");
        return Err(ValueError::new(message, help));
    }
    Ok(parsed)
}

/// Parses the path of a Unix socket on which the gateway listens. A path with a `:` is a mistake.
fn parse_listen_path(text: &str) -> Result<Arc<Path>, ValueError> {
    let path = parse_unix_path(text)?;
    // A handover passes the paths to the next process in one variable, separated by `:`.
    if path.as_os_str().as_bytes().contains(&b':') {
        let message = format!("the path of `{text}` has a `:`");
        return Err(ValueError::new(message, "choose a path without it"));
    }
    Ok(path)
}

/// Parses the path of a Unix socket, written `unix:/run/app.sock` or `unix:///run/app.sock`. The path has at most
/// [`MAX_UNIX_PATH_BYTES`].
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

/// Parses a name that the user chooses, by the rule for names of limits, whatever it names. Messages call the named
/// thing `kind`, for instance "a limit".
pub(super) fn parse_name(text: &str, kind: &str) -> Result<LimitName, ValueError> {
    LimitName::new(text).map_err(|_| {
        let help = "use 1 to 64 letters, digits, `-` or `_`, starting with a letter";
        ValueError::new(format!("`{text}` is not a name for {kind}"), help)
    })
}

/// Parses the name of an identity, which is built in or defined in the gateway file, but not `preflight`.
pub(super) fn parse_identity(name: &str) -> Result<Identity, ValueError> {
    parse_identity_or(name, &[])
}

/// Parses the name of an identity as [`parse_identity`] does. The help about an unknown name suggests the names of
/// identities, and `words`, which the caller accepts as well.
pub(super) fn parse_identity_or(
    name: &str,
    words: &[&'static str],
) -> Result<Identity, ValueError> {
    if name == PREFLIGHT {
        let help = "write for instance `for: { preflight: absent }`";
        return Err(ValueError::new("`preflight` has its place in `for`", help));
    }
    let all_names = Identity::all().map(Identity::as_str);
    let key_names = all_names.filter(|name| *name != PREFLIGHT);
    Identity::find(name).ok_or_else(|| unknown_word(name, key_names.chain(words.iter().copied())))
}

/// Parses the name of a header field, which becomes lower case. The error is a message.
pub(super) fn parse_header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(text.trim()).map_err(|_| format!("`{text}` is not the name of a header"))
}

/// Suggests the short form of a rate whose unit is spelled out, such as `5 per 15 minutes`. For
/// units of the calendar it suggests `quota`. `None` if the text is no such rate.
fn suggest_rate(text: &str) -> Option<String> {
    let (quota, window) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    // nginx writes `5r/m`.
    let quota = quota
        .trim_end()
        .trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = window
        .trim()
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim();
    let unit_count = window.trim().strip_suffix(unit)?.trim();
    let letter = match unit.to_ascii_lowercase().as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => "w",
        "month" | "months" | "mo" => {
            return Some(format!(
                "for months of the calendar write `quota: {}/month`; `30d` is near",
                quota.trim()
            ));
        }
        "quarter" | "year" => {
            return Some(format!(
                "for windows of the calendar write `quota: {}/{unit}`",
                quota.trim()
            ));
        }
        _ => return None,
    };
    let suggestion = format!("{}/{unit_count}{letter}", quota.trim());
    (suggestion != text && suggestion.parse::<Rate>().is_ok())
        .then(|| format!("write `{suggestion}`"))
}

/// Parses a duration as files write it, such as `10s`, `200ms`, `1m`, `1h` or `2d`.
///
/// # Errors
///
/// A message for operators, if the text is no duration.
pub fn parse_duration_text(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| match error.help {
        Some(help) => format!("{}: {help}", error.message),
        None => error.message,
    })
}

/// Parses a duration such as `10s`, `200ms`, `1m`, `1h` or `2d`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    let trimmed = text.trim();
    let digit_count = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digit_count);
    let unit_millis: u64 = match unit.trim() {
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
        .and_then(|number| number.checked_mul(unit_millis));
    total_millis.map(Duration::from_millis).ok_or_else(|| {
        let help = "write a whole number and ms, s, m, h or d, for instance `10s`";
        ValueError::new(format!("`{text}` is not a duration"), help)
    })
}

/// Parses a size such as `64MiB`, and returns bytes. `kB`, `KB`, `MB` and `GB` are powers of 1000; `K`, `KiB` and the
/// like are powers of 1024.
fn parse_size(text: &str) -> Result<u64, ValueError> {
    let trimmed = text.trim();
    let digit_count = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digit_count);
    let unit_bytes: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        // Stands for an unknown unit.
        _ => 0,
    };
    let size = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit_bytes));
    size.filter(|_| unit_bytes > 0).ok_or_else(|| {
        let help = "write a whole number and KiB, MiB or GiB, for instance `64MiB`";
        ValueError::new(format!("`{text}` is not a size"), help)
    })
}

/// Formats a duration as files write it, in the largest unit of which it is a multiple. Parts of a millisecond are
/// lost.
pub(in crate::policy) fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ]
    .into_iter()
    .find(|(unit_millis, _)| millis >= *unit_millis && millis.is_multiple_of(*unit_millis))
    .map_or_else(
        || format!("{millis}ms"),
        |(unit_millis, unit)| format!("{}{unit}", millis / unit_millis),
    )
}

/// Formats a size in bytes as files write it, in the largest unit of which it is a multiple.
pub(in crate::policy) fn format_size(bytes: u64) -> String {
    [
        (1u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ]
    .into_iter()
    .find(|(unit_bytes, _)| bytes >= *unit_bytes && bytes.is_multiple_of(*unit_bytes))
    .map_or_else(
        || format!("{bytes}B"),
        |(unit_bytes, unit)| format!("{}{unit}", bytes / unit_bytes),
    )
}
