//! The client's address: the connection's peer, or what trusted proxies say of it, walked from the
//! right. Grouped by prefix before it is counted.
//!
//! - A peer that is not trusted is the client, whatever its headers say.
//! - Behind a trusted peer, `X-Forwarded-For` (all lines, in order) is read from the right: each proxy
//!   wrote the address it saw, so the first address that is not a trusted proxy is the client.
//! - What cannot be read (`unknown`, `_hidden`, garbage, nothing) ends the walk at the last trusted
//!   hop: whatever stands further left may be the client's own invention.
//! - `Forwarded` (RFC 7239) is read the same way where there is no `X-Forwarded-For`. Where both are
//!   there, a proxy may have written one and let the client's other pass, so both walks must name the
//!   same client; else it is the peer.
//! - IPv6 addresses in which an IPv4 address is written are that, the peer's and the settings' too: see
//!   [`super::embedded`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::embedded::{self, Nat64};
use crate::http::head::Fields;
use crate::net::{PeerAddress, PeerNetwork};

/// `X-Forwarded-For`.
pub const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// `Forwarded`.
pub const FORWARDED: &str = "forwarded";

/// Most hops that are walked; a longer chain ends at the last of these.
const MAX_HOPS: usize = 64;

/// The networks around an IPv6 client that get budgets of their own: prefix length, and how many
/// times the client's quota.
pub const PARENTS: [(u8, u32); 3] = [(56, 4), (48, 16), (32, 256)];

/// How a client's address is found and grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Peers whose `X-Forwarded-For` and `Forwarded` are believed.
    pub trusted_proxies: Vec<PeerNetwork>,
    /// Leading bits of an IPv4 address that make one client, 8 to 32.
    pub ipv4: u8,
    /// Leading bits of an IPv6 address that make one client, 32 to 128.
    pub ipv6: u8,
    /// Whether the /56, /48 and /32 around an IPv6 client have budgets too.
    pub parents: bool,
    /// Prefixes behind which translators write IPv4 addresses.
    pub nat64: Vec<Nat64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            trusted_proxies: Vec::new(),
            ipv4: 32,
            ipv6: 64,
            parents: true,
            nat64: vec![Nat64::well_known()],
        }
    }
}

impl Settings {
    /// The network that is one client. Shown as `203.0.113.7/32` or `2001:db8::/64`.
    pub fn group(&self, ip: IpAddr) -> IpNet {
        match self.counted(ip) {
            IpAddr::V4(ip) => network(IpAddr::V4(ip), self.ipv4),
            IpAddr::V6(ip) => network(IpAddr::V6(ip), self.ipv6),
        }
    }

    /// The address as which a client is counted: an IPv4 address where one is written in it.
    pub fn counted(&self, ip: IpAddr) -> IpAddr {
        embedded::counted(ip, &self.nat64)
    }
}

/// The network of `length` bits around `ip`, its other bits zero; a length beyond the address's own
/// is the address.
pub fn network(ip: IpAddr, length: u8) -> IpNet {
    match ip {
        IpAddr::V4(ip) => {
            let length = length.min(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpNet::new_assert(Ipv4Addr::from_bits(ip.to_bits() & mask).into(), length)
        }
        IpAddr::V6(ip) => {
            let length = length.min(128);
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpNet::new_assert(Ipv6Addr::from_bits(ip.to_bits() & mask).into(), length)
        }
    }
}

/// Peers that are believed.
#[derive(Clone, Debug, Default)]
pub struct TrustedPeers {
    networks: Box<[PeerNetwork]>,
    nat64: Box<[Nat64]>,
}

impl TrustedPeers {
    /// Believes addresses in these networks, whichever way they are written.
    pub fn new(networks: &[PeerNetwork], nat64: &[Nat64]) -> TrustedPeers {
        let folded = |network: &PeerNetwork| match network {
            PeerNetwork::Ip(network) => embedded::translated_network(*network, nat64).into(),
            PeerNetwork::Unix => PeerNetwork::Unix,
        };
        TrustedPeers {
            networks: networks.iter().map(folded).collect(),
            nat64: nat64.into(),
        }
    }

    /// Whether this peer is believed.
    pub fn contains(&self, peer: impl Into<PeerAddress>) -> bool {
        let peer = match peer.into() {
            PeerAddress::Ip(ip) => embedded::translated(ip, &self.nat64).into(),
            PeerAddress::Unix => PeerAddress::Unix,
        };
        self.networks.iter().any(|network| network.contains(peer))
    }
}

/// Who is at the far end of a chain of proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// The address; that of a trusted proxy when the chain does not say.
    pub ip: IpAddr,
    /// The address is not the client's own: the proxies' field names nobody, so the address is that of the last
    /// proxy. Or it is [`UNIX_STAND_IN`](crate::net::address::UNIX_STAND_IN), which stands for all clients of Unix sockets.
    pub unclear: bool,
}

/// The client behind `peer`. Looks at no header unless the peer is trusted, and allocates nothing.
pub fn client(
    trusted: &TrustedPeers,
    peer: impl Into<PeerAddress>,
    fields: &Fields,
) -> ClientAddress {
    let address = peer.into();
    let peer = ClientAddress {
        ip: address.ip(),
        unclear: address == PeerAddress::Unix,
    };
    if !trusted.contains(address) {
        return peer;
    }
    let by_list = || {
        let lines = fields.all(X_FORWARDED_FOR).rev();
        let hops = lines
            .flat_map(|line| line.rsplit(|byte| *byte == b','))
            .map(node);
        walk(trusted, peer, hops)
    };
    let by_forwarded = || {
        let lines = fields.all(FORWARDED).rev();
        let hops = lines
            .flat_map(|line| Elements::of(line, b','))
            .map(forwarded_for);
        walk(trusted, peer, hops)
    };
    match (fields.contains(X_FORWARDED_FOR), fields.contains(FORWARDED)) {
        (false, false) => peer,
        (true, false) => by_list(),
        (false, true) => by_forwarded(),
        (true, true) => {
            let client = by_list();
            if client == by_forwarded() {
                client
            } else {
                ClientAddress {
                    unclear: true,
                    ..peer
                }
            }
        }
    }
}

fn walk(
    trusted: &TrustedPeers,
    peer: ClientAddress,
    hops: impl Iterator<Item = Option<IpAddr>>,
) -> ClientAddress {
    let mut last = peer;
    for hop in hops.take(MAX_HOPS) {
        last = match hop {
            Some(ip) => ClientAddress { ip, unclear: false },
            None => ClientAddress {
                unclear: true,
                ..last
            },
        };
        if last.unclear || !trusted.contains(last.ip) {
            break;
        }
    }
    last
}

/// An element of `Forwarded`: the address of its one `for`.
fn forwarded_for(element: Option<&[u8]>) -> Option<IpAddr> {
    let mut found = None;
    for pair in Elements::of(element?, b';') {
        let pair = pair?.trim_ascii();
        if pair.is_empty() {
            continue;
        }
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        if pair[..equals].trim_ascii().eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(node(&pair[equals + 1..])?);
        }
    }
    found
}

/// An address as proxies write it: bare or quoted, with or without port and zone, an IPv6 address
/// with or without brackets.
fn node(text: &[u8]) -> Option<IpAddr> {
    let mut text = text.trim_ascii();
    if let Some(inner) = text.strip_prefix(b"\"") {
        text = inner.strip_suffix(b"\"")?.trim_ascii();
    }
    let text = std::str::from_utf8(text).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return if port_fits { six(address) } else { None };
    }
    if let Some((address, port)) = text.split_once(':')
        && !port.contains(':')
    {
        return if is_port(port) {
            address.parse().ok().map(IpAddr::V4)
        } else {
            None
        };
    }
    text.parse().ok().map(IpAddr::V4).or_else(|| six(text))
}

fn six(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, zone)) if zone.bytes().all(|byte| byte.is_ascii_graphic()) => address,
        Some(_) => return None,
        None => text,
    };
    address
        .parse::<Ipv6Addr>()
        .ok()
        .map(|ip| IpAddr::V6(ip).to_canonical())
}

/// A port's digits, or an obfuscated port (`_name`).
fn is_port(text: &str) -> bool {
    let digits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let hidden = text.starts_with('_') && text.bytes().all(|byte| byte.is_ascii_graphic());
    !text.is_empty() && (digits || hidden)
}

/// The parts of a header line between separators outside quotes, from the right.
///
/// Right to left on purpose: a quote that a client opened and never closed cannot swallow what trusted
/// proxies wrote to the right of it. A part whose quote does not open is nothing, and the last.
struct Elements<'h> {
    rest: Option<&'h [u8]>,
    separator: u8,
}

impl<'h> Elements<'h> {
    fn of(line: &'h [u8], separator: u8) -> Elements<'h> {
        Elements {
            rest: Some(line),
            separator,
        }
    }
}

impl<'h> Iterator for Elements<'h> {
    type Item = Option<&'h [u8]>;

    fn next(&mut self) -> Option<Option<&'h [u8]>> {
        let line = self.rest.take()?;
        let mut quoted = false;
        let mut end = line.len();
        while let Some(at) = end.checked_sub(1) {
            let byte = line[at];
            if byte == b'"' {
                let slashes = line[..at]
                    .iter()
                    .rev()
                    .take_while(|byte| **byte == b'\\')
                    .count();
                // Inside quotes a backslash makes a quote part of the text.
                quoted = !quoted || slashes % 2 == 1;
            } else if byte == self.separator && !quoted {
                self.rest = Some(&line[..at]);
                return Some(Some(&line[at + 1..]));
            }
            end = at;
        }
        Some((!quoted).then_some(line))
    }
}

#[cfg(test)]
mod tests;
