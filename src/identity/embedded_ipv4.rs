//! Finds the IPv4 address that is embedded in an IPv6 address, because both addresses belong to the same client:
//!
//! - mapped addresses, `::ffff:192.0.2.1` (RFC 4291 section 2.5.5.2);
//! - translated addresses, `64:ff9b::192.0.2.1` (NAT64, RFC 6052): the whole IPv4 Internet would share one /64;
//! - 6to4 (RFC 3056): each IPv4 address has a /48, and so would have 65,536 budgets;
//! - Teredo (RFC 4380): all clients of one server would share one /64.
//!
//! 6to4 and Teredo decide only how a client is counted, never whether a proxy is trusted. The deprecated forms
//! `::192.0.2.1` and `::ffff:0:192.0.2.1`, which translators of RFC 6052 do not write, count as IPv6. The settings may
//! list the prefix of the first form, `::/96`, as that of a translator. They may not list the prefix of the second
//! form, whose ninth byte is not zero.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The prefix of a translator, behind which it embeds IPv4 addresses: RFC 6052 section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat64Prefix(Ipv6Net);

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of the byte of bits 64 to 71, which is always zero and no part of the IPv4 address: RFC 6052 section 2.2.
const RESERVED_BYTE: usize = 8;

/// Length of the prefix `::ffff:0:0/96` of mapped addresses.
const MAPPED_PREFIX_LENGTH: u8 = 96;

/// Why a network cannot be the prefix of a translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The network is one of IPv4.
    #[error("it is a network of IPv4")]
    NotIpv6,
    /// The prefix length is none of those in RFC 6052 section 2.2.
    #[error("its length is none of 32, 40, 48, 56, 64 and 96")]
    InvalidLength,
    /// Bits 64 to 71 are not zero: RFC 6052 section 2.2.
    #[error("its ninth byte is not zero")]
    NonzeroNinthByte,
}

impl Nat64Prefix {
    /// `64:ff9b::/96`, which every translator may use.
    pub fn well_known() -> Nat64Prefix {
        let prefix = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
        Nat64Prefix(Ipv6Net::new_assert(prefix, 96))
    }

    /// Accepts a network that may be the prefix of a translator, without its host bits.
    ///
    /// # Errors
    ///
    /// The network is one of IPv4, has a length that RFC 6052 does not have, or has a ninth byte that is not zero.
    pub fn new(network: IpNet) -> Result<Nat64Prefix, PrefixError> {
        let IpNet::V6(network) = network else {
            return Err(PrefixError::NotIpv6);
        };
        if !matches!(network.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96) {
            return Err(PrefixError::InvalidLength);
        }
        if network.network().octets()[RESERVED_BYTE] != 0 {
            return Err(PrefixError::NonzeroNinthByte);
        }
        Ok(Nat64Prefix(network.trunc()))
    }

    /// The embedded address; `None` if `ip` does not begin with this prefix, or its ninth byte is not zero. The bytes
    /// after the embedded address may be anything.
    fn embedded_address(self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        let octets = ip.octets();
        if !self.0.contains(&ip) || octets[RESERVED_BYTE] != 0 {
            return None;
        }
        let start = usize::from(self.0.prefix_len() / 8);
        let mut bytes = (start..16)
            .filter(|index| *index != RESERVED_BYTE)
            .map(|index| octets[index]);
        Some(Ipv4Addr::from_octets(
            [(); 4].map(|()| bytes.next().unwrap_or(0)),
        ))
    }

    /// The IPv4 network that is embedded in `network`. `None` if `network` is not behind this prefix. `None` also if
    /// the prefix of `network` has no bit of an IPv4 address behind this one.
    fn embedded_network(self, network: Ipv6Net) -> Option<IpNet> {
        let start_bit = self.0.prefix_len();
        let end_bit = network.prefix_len();
        // The bits of `RESERVED_BYTE` are no part of the IPv4 network.
        let reserved_bits = if start_bit < 72 {
            end_bit.clamp(64, 72) - 64
        } else {
            0
        };
        let length = end_bit
            .checked_sub(start_bit + reserved_bits)
            .filter(|length| *length > 0)?;
        let address = self.embedded_address(network.network())?;
        let embedded = Ipv4Net::new(address, length.min(32));
        embedded.ok().map(IpNet::V4)
    }
}

/// The embedded address of a mapped or translated address; any other address unchanged. The first of `prefixes` that
/// fits decides.
pub fn untranslated_address(ip: IpAddr, prefixes: &[Nat64Prefix]) -> IpAddr {
    let IpAddr::V6(ipv6) = ip.to_canonical() else {
        return ip.to_canonical();
    };
    let embedded = prefixes
        .iter()
        .find_map(|prefix| prefix.embedded_address(ipv6));
    embedded.map_or(ip, IpAddr::V4)
}

/// The IPv4 network of a network of mapped or translated addresses; any other network unchanged.
pub fn untranslated_network(network: IpNet, prefixes: &[Nat64Prefix]) -> IpNet {
    let IpNet::V6(ipv6) = network else {
        return network;
    };
    if let Some(length) = ipv6.prefix_len().checked_sub(MAPPED_PREFIX_LENGTH)
        && let Some(mapped) = ipv6.addr().to_ipv4_mapped()
    {
        return Ipv4Net::new(mapped, length).map_or(network, IpNet::V4);
    }
    let embedded = prefixes
        .iter()
        .find_map(|prefix| prefix.embedded_network(ipv6));
    embedded.unwrap_or(network)
}

/// The address by which a client is counted: the embedded IPv4 address if there is one, also of 6to4 and Teredo.
pub fn counted_address(ip: IpAddr, prefixes: &[Nat64Prefix]) -> IpAddr {
    let ip = untranslated_address(ip, prefixes);
    let IpAddr::V6(ipv6) = ip else {
        return ip;
    };
    match ipv6.segments() {
        // 6to4.
        [0x2002, high, low, ..] => IpAddr::V4(join_halves(high, low)),
        // Teredo inverts all bits, so that no router on the way rewrites the address: RFC 4380 section 4.
        [0x2001, 0, .., high, low] => IpAddr::V4(join_halves(!high, !low)),
        _ => ip,
    }
}

/// Whether each address of the network counts as the IPv4 address inside it, so that no client is in the network. That is
/// so for tunnels by 6to4 (RFC 3056) and Teredo (RFC 4380).
pub fn counts_as_ipv4(network: IpNet) -> bool {
    let IpNet::V6(ipv6) = network else {
        return false;
    };
    match ipv6.addr().segments() {
        [0x2002, ..] => ipv6.prefix_len() >= 16,
        [0x2001, 0, ..] => ipv6.prefix_len() >= 32,
        _ => false,
    }
}

/// The address with these upper and lower 16 bits.
fn join_halves(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Nat64Prefix> {
        let prefix = |text: &&str| Nat64Prefix::new(text.parse().unwrap()).unwrap();
        texts.iter().map(prefix).collect()
    }

    #[test]
    fn addresses_behind_prefixes() {
        // The table of RFC 6052 section 2.4.
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
            ("64:ff9b:1::/48", "64:ff9b:1:c000:2:2100::"),
            ("64:ff9b:1:abcd::/96", "64:ff9b:1:abcd::c000:221"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let actual = untranslated_address(address, &prefixes(&[prefix]));
            assert_eq!(actual.to_string(), "192.0.2.33", "{prefix}");
            // Another prefix does not match.
            assert_eq!(
                untranslated_address(address, &prefixes(&["2001:db9::/32"])),
                address
            );
        }
    }

    #[test]
    fn what_is_no_prefix() {
        let check = |text: &str, why| assert_eq!(Nat64Prefix::new(text.parse().unwrap()), Err(why));
        check("10.0.0.0/8", PrefixError::NotIpv6);
        check("64:ff9b::/95", PrefixError::InvalidLength);
        check("64:ff9b::/128", PrefixError::InvalidLength);
        check("64:ff9b:0:0:100::/96", PrefixError::NonzeroNinthByte);
    }

    #[test]
    fn who_is_counted() {
        let prefixes = [Nat64Prefix::well_known()];
        let check = |ip: &str, expected: &str| {
            let actual = counted_address(ip.parse().unwrap(), &prefixes);
            assert_eq!(actual.to_string(), expected, "{ip}");
            assert_eq!(counted_address(actual, &prefixes), actual, "{ip}");
        };
        check("192.0.2.33", "192.0.2.33");
        check("::ffff:192.0.2.33", "192.0.2.33");
        check("64:ff9b::c000:221", "192.0.2.33");
        check("2002:c000:221::1", "192.0.2.33");
        check("2002:c000:221:1:2:3:4:5", "192.0.2.33");
        // The example of RFC 4380 section 4: the server 65.54.227.120 is not the client.
        check("2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.45");
        for other in [
            "::1",
            "::c000:221",
            "::ffff:0:c000:221",
            "64:ff9b:1::c000:221",
            "64:ff9b::1:c000:221",
            "2001:db8::1",
            "2001:1::c000:221",
            "2003:c000:221::1",
        ] {
            check(other, &other.parse::<Ipv6Addr>().unwrap().to_string());
        }
    }

    #[test]
    fn networks() {
        let prefixes = prefixes(&["64:ff9b::/96", "2001:db8:100::/40"]);
        let check = |network: &str, expected: &str| {
            let actual = untranslated_network(network.parse().unwrap(), &prefixes);
            assert_eq!(actual.to_string(), expected, "{network}");
        };
        check("10.0.0.0/8", "10.0.0.0/8");
        check("::ffff:10.0.0.0/104", "10.0.0.0/8");
        check("64:ff9b::10.0.0.0/104", "10.0.0.0/8");
        check("64:ff9b::192.0.2.33/128", "192.0.2.33/32");
        check("2001:db8:10a::/48", "10.0.0.0/8");
        check("2001:db8:1c0:2::/64", "192.0.2.0/24");
        check("2001:db8:1c0:2::/70", "192.0.2.0/24");
        check("2001:db8:1c0:2:21::/80", "192.0.2.33/32");
        check("2001:db8:1c0:2:21::/128", "192.0.2.33/32");
        // The prefix of a translator stands for no IPv4 network: users who name it do not mean all of IPv4.
        check("64:ff9b::/96", "64:ff9b::/96");
        check("64:ff9b::/64", "64:ff9b::/64");
        check("2001:db8::/32", "2001:db8::/32");
    }
}
