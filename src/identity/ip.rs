//! Finds the client's address, which is the connection's peer or comes from trusted proxies, and groups addresses by
//! prefix before they are counted.
//!
//! - A peer that is not trusted is the client, whatever its header fields say.
//! - Behind a trusted peer, all lines of `X-Forwarded-For` are walked from the right. Each proxy added the address
//!   that it saw, so the first address that is not a trusted proxy's is the client's.
//! - An unreadable address (`unknown`, `_hidden`, garbage, nothing) ends the walk at the last trusted hop, because
//!   the client may have invented everything further left.
//! - `Forwarded` (RFC 7239) is walked in the same way if there is no `X-Forwarded-For`. If a request has both, a proxy
//!   may have written one of them, and passed on the other as the client sent it. So both walks must find the same
//!   client. If they do not, the peer counts as the client, and the address is unclear.
//! - An IPv6 address with an embedded IPv4 address counts as that address, also in the settings: see
//!   [`super::embedded_ipv4`].

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::client_network::{IPV4_PREFIX_LENGTH, IPV6_PREFIX_LENGTH};
use super::embedded_ipv4::{self, Nat64Prefix};
use crate::http::head::Fields;
use crate::net::{PeerAddress, PeerNetwork};

pub use super::client_network::{PARENT_PREFIXES, ParentPrefix, network};

/// The field to which each proxy appends the address of its peer; no standard defines it.
pub const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The field of RFC 7239, to which each proxy appends an element with the address of its peer.
pub const FORWARDED: &str = "forwarded";

/// Largest number of hops that are walked, to bound the work. In a longer chain of trusted hops, the last hop that is
/// walked is the client.
const MAX_HOPS: usize = 64;

/// Digits of the largest port, 65535.
const MAX_PORT_DIGITS: usize = 5;

/// How a client's address is found and grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Peers whose `X-Forwarded-For` and `Forwarded` count.
    pub trusted_proxies: Vec<PeerNetwork>,
    /// Leading bits of an IPv4 address that make one client, 8 to 32.
    pub ipv4_prefix_length: u8,
    /// Leading bits of an IPv6 address that make one client, 32 to 128.
    pub ipv6_prefix_length: u8,
    /// Whether the /56, /48 and /32 around an IPv6 client have budgets too.
    pub has_parent_budgets: bool,
    /// Prefixes behind which translators embed IPv4 addresses.
    pub nat64_prefixes: Vec<Nat64Prefix>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            trusted_proxies: Vec::new(),
            ipv4_prefix_length: IPV4_PREFIX_LENGTH,
            ipv6_prefix_length: IPV6_PREFIX_LENGTH,
            has_parent_budgets: true,
            nat64_prefixes: vec![Nat64Prefix::well_known()],
        }
    }
}

impl Settings {
    /// The network that counts as one client, such as `203.0.113.7/32` or `2001:db8::/64`.
    pub fn client_network(&self, ip: IpAddr) -> IpNet {
        match self.counted_address(ip) {
            IpAddr::V4(ip) => network(IpAddr::V4(ip), self.ipv4_prefix_length),
            IpAddr::V6(ip) => network(IpAddr::V6(ip), self.ipv6_prefix_length),
        }
    }

    /// The address by which a client is counted: the embedded IPv4 address, if `ip` has one.
    pub fn counted_address(&self, ip: IpAddr) -> IpAddr {
        embedded_ipv4::counted_address(ip, &self.nat64_prefixes)
    }
}

/// The peers that may set certain header fields, such as `X-Forwarded-For`.
#[derive(Clone, Debug, Default)]
pub struct TrustedPeers {
    /// The networks, with IPv4 ones in place of those of mapped and translated addresses.
    networks: Box<[PeerNetwork]>,
    /// Prefixes behind which translators embed IPv4 addresses.
    nat64_prefixes: Box<[Nat64Prefix]>,
}

impl TrustedPeers {
    /// Trusts the addresses in these networks, also where they are embedded in IPv6 addresses.
    pub fn new(networks: &[PeerNetwork], nat64_prefixes: &[Nat64Prefix]) -> TrustedPeers {
        let untranslated = |network: &PeerNetwork| match network {
            PeerNetwork::Ip(network) => {
                embedded_ipv4::untranslated_network(*network, nat64_prefixes).into()
            }
            PeerNetwork::Unix => PeerNetwork::Unix,
        };
        TrustedPeers {
            networks: networks.iter().map(untranslated).collect(),
            nat64_prefixes: nat64_prefixes.into(),
        }
    }

    /// Whether the peer is in one of the networks.
    pub fn contains(&self, peer: impl Into<PeerAddress>) -> bool {
        let peer = match peer.into() {
            PeerAddress::Ip(ip) => {
                embedded_ipv4::untranslated_address(ip, &self.nat64_prefixes).into()
            }
            PeerAddress::Unix => PeerAddress::Unix,
        };
        self.networks.iter().any(|network| network.contains(peer))
    }
}

/// The address of the client at the far end of a chain of proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// The client's address; that of the last trusted proxy if the chain does not name the client.
    pub ip: IpAddr,
    /// Whether the address may not be the client's own. It is then that of a proxy, or
    /// [`UNIX_STAND_IN`](crate::net::address::UNIX_STAND_IN), which stands for all clients of Unix sockets.
    pub is_unclear: bool,
}

/// The address of the client behind `peer`; the peer itself if it is not trusted or sent neither field. Reads no field
/// unless the peer is trusted, and allocates nothing.
pub fn client_address(
    trusted: &TrustedPeers,
    peer: impl Into<PeerAddress>,
    fields: &Fields,
) -> ClientAddress {
    let peer = peer.into();
    let peer_as_client = ClientAddress {
        ip: peer.ip(),
        is_unclear: peer == PeerAddress::Unix,
    };
    if !trusted.contains(peer) {
        return peer_as_client;
    }
    let by_x_forwarded_for = || {
        let lines = fields.all(X_FORWARDED_FOR).rev();
        let hops = lines
            .flat_map(|line| line.rsplit(|byte| *byte == b','))
            .map(parse_node);
        walk_hops(trusted, peer_as_client, hops)
    };
    let by_forwarded = || {
        let lines = fields.all(FORWARDED).rev();
        let hops = lines
            .flat_map(|line| ElementsFromRight::new(line, b','))
            .map(parse_forwarded_element);
        walk_hops(trusted, peer_as_client, hops)
    };
    match (fields.contains(X_FORWARDED_FOR), fields.contains(FORWARDED)) {
        (false, false) => peer_as_client,
        (true, false) => by_x_forwarded_for(),
        (false, true) => by_forwarded(),
        (true, true) => {
            let client = by_x_forwarded_for();
            if client == by_forwarded() {
                client
            } else {
                ClientAddress {
                    is_unclear: true,
                    ..peer_as_client
                }
            }
        }
    }
}

/// Walks from `peer` along the hops, the nearest first, up to the first one that is not trusted or not readable. It
/// walks over at most [`MAX_HOPS`]. A hop that is not readable is `None`. If the walk ends at such a hop, the hop
/// before it is the client, and the address is unclear.
fn walk_hops(
    trusted: &TrustedPeers,
    peer: ClientAddress,
    hops: impl Iterator<Item = Option<IpAddr>>,
) -> ClientAddress {
    let mut client = peer;
    for hop in hops.take(MAX_HOPS) {
        client = match hop {
            Some(ip) => ClientAddress {
                ip,
                is_unclear: false,
            },
            None => ClientAddress {
                is_unclear: true,
                ..client
            },
        };
        if client.is_unclear || !trusted.contains(client.ip) {
            break;
        }
    }
    client
}

/// The address in an element of `Forwarded`; `None` unless the element is readable and has exactly one `for` with an
/// address.
fn parse_forwarded_element(element: Option<&[u8]>) -> Option<IpAddr> {
    let mut address = None;
    for pair in ElementsFromRight::new(element?, b';') {
        let pair = pair?.trim_ascii();
        if pair.is_empty() {
            continue;
        }
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        if pair[..equals].trim_ascii().eq_ignore_ascii_case(b"for") {
            if address.is_some() {
                return None;
            }
            address = Some(parse_node(&pair[equals + 1..])?);
        }
    }
    address
}

/// Parses an address as proxies write it: with or without quotes, port and zone, and IPv6 with or without brackets. RFC
/// 7239, section 6 calls it a node. `None` for any other text.
fn parse_node(text: &[u8]) -> Option<IpAddr> {
    let mut text = text.trim_ascii();
    if let Some(inner) = text.strip_prefix(b"\"") {
        text = inner.strip_suffix(b"\"")?.trim_ascii();
    }
    let text = std::str::from_utf8(text).ok()?;
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let has_valid_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return if has_valid_port {
            parse_ipv6(address)
        } else {
            None
        };
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
    text.parse()
        .ok()
        .map(IpAddr::V4)
        .or_else(|| parse_ipv6(text))
}

/// Parses an IPv6 address with or without a zone, which is dropped. A mapped address becomes one of IPv4.
fn parse_ipv6(text: &str) -> Option<IpAddr> {
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

/// Whether the text is the digits of a port, or an obfuscated port such as `_name` (RFC 7239 section 6.3).
fn is_port(text: &str) -> bool {
    let is_number = text.len() <= MAX_PORT_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_obfuscated = text.starts_with('_') && text.bytes().all(|byte| byte.is_ascii_graphic());
    !text.is_empty() && (is_number || is_obfuscated)
}

/// Iterates from the right over the elements of a line, which separators outside quotes divide.
///
/// So a quote that a client opened and never closed cannot hide the elements that trusted proxies appended. An element
/// with a closing quote and no opening one is `None`, and the iteration ends with it.
struct ElementsFromRight<'h> {
    /// The text left of the last separator; `None` at the end of the iteration.
    remaining: Option<&'h [u8]>,
    separator: u8,
}

impl<'h> ElementsFromRight<'h> {
    fn new(line: &'h [u8], separator: u8) -> ElementsFromRight<'h> {
        ElementsFromRight {
            remaining: Some(line),
            separator,
        }
    }
}

impl<'h> Iterator for ElementsFromRight<'h> {
    type Item = Option<&'h [u8]>;

    fn next(&mut self) -> Option<Option<&'h [u8]>> {
        let line = self.remaining.take()?;
        let mut in_quotes = false;
        let mut end = line.len();
        while let Some(index) = end.checked_sub(1) {
            let byte = line[index];
            if byte == b'"' {
                let backslash_count = line[..index]
                    .iter()
                    .rev()
                    .take_while(|byte| **byte == b'\\')
                    .count();
                // A backslash before a quote makes it part of the quoted text.
                in_quotes = !in_quotes || backslash_count % 2 == 1;
            } else if byte == self.separator && !in_quotes {
                self.remaining = Some(&line[..index]);
                return Some(Some(&line[index + 1..]));
            }
            end = index;
        }
        Some((!in_quotes).then_some(line))
    }
}

#[cfg(test)]
mod tests;
