//! Finds the name of the most specific network that an address is in, among many networks.
//!
//! Nested networks are cut into ranges that do not overlap, so that one binary search finds the name.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Networks with names. `policy/compile/identity/` bounds their number by the sizes of files, and in a binary table by the
/// number of ranges.
#[derive(Clone, Debug)]
pub struct NetworkTable {
    names: Vec<Arc<str>>,
    v4: Ranges,
    v6: Ranges,
}

/// Ranges in ascending order. Each begins at its address, ends before the next one, and has the name with its index.
type Ranges = Vec<(u128, Option<usize>)>;

impl NetworkTable {
    /// A table of these networks, each with the index of its name among `names`. Of equal networks the last one counts.
    pub fn new(names: Vec<Arc<str>>, mut networks: Vec<(IpNet, usize)>) -> NetworkTable {
        // A network comes after the ones around it.
        networks.sort_by_key(|(network, _)| (bits(network.network()), network.prefix_len()));
        let of_version = |is_v4: bool| {
            let networks = networks.iter().map(|(network, name)| (*network, *name));
            ranges(networks.filter(move |(network, _)| network.addr().is_ipv4() == is_v4))
        };
        NetworkTable {
            v4: of_version(true),
            v6: of_version(false),
            names,
        }
    }

    /// The name of the most specific network around this address; `None` if no network is around it. The caller replaces
    /// an IPv6 address that stands for an IPv4 address: here it would be searched among networks of IPv6.
    pub fn find(&self, ip: IpAddr) -> Option<&Arc<str>> {
        let ranges = match ip {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        };
        let after = ranges.partition_point(|(start, _)| *start <= bits(ip));
        let (_, name) = ranges.get(after.checked_sub(1)?)?;
        self.names.get((*name)?)
    }
}

/// Cuts networks, in ascending order and the outer ones first, into ranges.
fn ranges(networks: impl Iterator<Item = (IpNet, usize)>) -> Ranges {
    let mut ranges = Ranges::new();
    // The networks around the current address, the outermost first: their last addresses and names.
    let mut around: Vec<(u128, usize)> = Vec::new();
    for (network, name) in networks {
        let start = bits(network.network());
        close_before(Some(start), &mut around, &mut ranges);
        begin_range(&mut ranges, start, Some(name));
        around.push((bits(network.broadcast()), name));
    }
    close_before(None, &mut around, &mut ranges);
    ranges
}

/// Ends the networks that end before `start`, or all of them.
fn close_before(start: Option<u128>, around: &mut Vec<(u128, usize)>, ranges: &mut Ranges) {
    while let Some((last, _)) = around.last().copied()
        && start.is_none_or(|start| last < start)
    {
        around.pop();
        if let Some(next) = last.checked_add(1) {
            begin_range(ranges, next, around.last().map(|(_, name)| *name));
        }
    }
}

/// Begins a range. It replaces one that begins at the same address.
fn begin_range(ranges: &mut Ranges, start: u128, name: Option<usize>) {
    match ranges.last_mut() {
        Some((last_start, last_name)) if *last_start == start => *last_name = name,
        _ => ranges.push((start, name)),
    }
}

/// The address as a number: of 32 bits for IPv4, of 128 for IPv6.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(networks: &[&str]) -> NetworkTable {
        let names = networks.iter().map(|text| Arc::from(*text)).collect();
        let networks = networks.iter().map(|text| text.parse().unwrap());
        NetworkTable::new(names, networks.zip(0..).collect())
    }

    #[test]
    fn the_most_specific_network_names_an_address() {
        let table = table(&[
            "203.0.113.0/24",
            "203.0.113.64/26",
            "203.0.113.127/32",
            "2001:db8::/32",
            "2001:db8:1::/48",
            "255.255.255.0/24",
        ]);
        let check = |ip: &str, expected: Option<&str>| {
            let found = table.find(ip.parse().unwrap());
            assert_eq!(found.map(|name| &**name), expected, "{ip}");
        };
        check("203.0.112.255", None);
        check("203.0.113.0", Some("203.0.113.0/24"));
        check("203.0.113.64", Some("203.0.113.64/26"));
        check("203.0.113.127", Some("203.0.113.127/32"));
        check("203.0.113.128", Some("203.0.113.0/24"));
        check("203.0.114.0", None);
        check("255.255.255.255", Some("255.255.255.0/24"));
        check("2001:db8:1:2::3", Some("2001:db8:1::/48"));
        check("2001:db8:2::", Some("2001:db8::/32"));
        check("2001:db9::", None);
        check("::cb00:7100", None);
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_of_all_networks_finds(
            written in proptest::collection::vec((any::<u8>(), 24u8..=32), 0..12),
            last_byte in any::<u8>(),
        ) {
            let network = |(byte, length)| super::super::super::ip::network([192, 0, 2, byte].into(), length);
            let networks: Vec<IpNet> = written.into_iter().map(network).collect();
            let texts: Vec<String> = networks.iter().map(ToString::to_string).collect();
            let table = table(&texts.iter().map(String::as_str).collect::<Vec<_>>());
            let ip = IpAddr::from([192, 0, 2, last_byte]);
            let around = networks.iter().filter(|network| network.contains(&ip));
            let nearest = around.max_by_key(|network| network.prefix_len());
            prop_assert_eq!(
                table.find(ip).map(|name| name.to_string()),
                nearest.map(ToString::to_string)
            );
        }
    }
}
