//! The network that counts as one client, and the networks around it that have budgets of their own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use smallvec::SmallVec;

/// Leading bits of an IPv4 address that make one client by default: the whole address.
pub const IPV4_PREFIX_LENGTH: u8 = 32;

/// Leading bits of an IPv6 address that make one client by default.
pub const IPV6_PREFIX_LENGTH: u8 = 64;

/// A kind of network around IPv6 clients that has a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentPrefix {
    /// The prefix length of the network.
    pub length: u8,
    /// The budget of the network, as a multiple of one client's quota.
    pub budget_factor: u32,
}

/// The networks around an IPv6 client that have budgets of their own, the nearest first. A client may own a whole /48
/// or, as a provider, a /32. So the budgets bound what such a client gains with many addresses.
pub const PARENT_PREFIXES: [ParentPrefix; 3] = [
    ParentPrefix {
        length: 56,
        budget_factor: 4,
    },
    ParentPrefix {
        length: 48,
        budget_factor: 16,
    },
    ParentPrefix {
        length: 32,
        budget_factor: 256,
    },
];

/// The network of `length` bits around `ip`. A length beyond that of the address means the address alone.
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

/// The bytes of a network that are hashed: its prefix length, then its address.
pub(crate) fn network_bytes(network: IpNet) -> SmallVec<[u8; 24]> {
    let mut bytes = SmallVec::new();
    bytes.push(network.prefix_len());
    match network.addr() {
        IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
    }
    bytes
}
