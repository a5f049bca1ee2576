//! Finds the name of the most specific network that an address is in, among many networks.
//!
//! Nested networks are cut into ranges that do not overlap, so that one binary search finds the name.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Networks with names. `policy/compile/` bounds their number by the sizes of files, and in a binary table by the number of
/// ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkTable {
    names: Vec<Arc<str>>,
    v4: Ranges,
    v6: Ranges,
}

impl NetworkTable {
    /// A table of these networks, each with the index of its name among `names`. Of equal networks the last one counts.
    pub fn new(names: Vec<Arc<str>>, mut networks: Vec<(IpNet, usize)>) -> NetworkTable {
        // A network comes after the ones around it.
        networks.sort_by_key(|(network, _)| (bits(network.network()), network.prefix_len()));
        let mut table = NetworkTableBuilder::default();
        for (network, name_index) in networks {
            table.push(network, name_index);
        }
        table.finish(names)
    }

    /// The names, in the order in which they were given.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The name of the most specific network around this address; `None` if no network is around it. The caller replaces
    /// an IPv6 address that stands for an IPv4 address: here it would be searched among networks of IPv6.
    pub fn find(&self, ip: IpAddr) -> Option<&Arc<str>> {
        let ranges = match ip {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        };
        let after = ranges.partition_point(|(start, _)| *start <= bits(ip));
        let (_, name_index) = ranges.get(after.checked_sub(1)?)?;
        self.names.get((*name_index)?)
    }
}

/// Makes a table of networks that come in ascending order, the outer ones first. Each version of IP has an order of its
/// own.
#[derive(Debug, Default)]
pub struct NetworkTableBuilder {
    v4: RangesBuilder,
    v6: RangesBuilder,
}

impl NetworkTableBuilder {
    /// Adds a network with the index of its name. It must come after the networks around it.
    pub fn push(&mut self, network: IpNet, name_index: usize) {
        let ranges = match network {
            IpNet::V4(_) => &mut self.v4,
            IpNet::V6(_) => &mut self.v6,
        };
        ranges.push(network, name_index);
    }

    /// The number of ranges so far, of 32 bytes each. Neighbours of one name are one range.
    pub fn range_count(&self) -> usize {
        self.v4.ranges.len() + self.v6.ranges.len()
    }

    /// The table of the networks that were added. Their indexes are those of `names`; a network whose index is beyond the
    /// last name has none.
    pub fn finish(self, names: Vec<Arc<str>>) -> NetworkTable {
        NetworkTable {
            names,
            v4: self.v4.finish(),
            v6: self.v6.finish(),
        }
    }
}

/// Ranges in ascending order. Each begins at its address, ends before the next one, and has the name with its index.
/// The index is `None` between networks.
type Ranges = Vec<(u128, Option<usize>)>;

/// Cuts networks of one version into ranges.
#[derive(Debug, Default)]
struct RangesBuilder {
    ranges: Ranges,
    /// The networks around the current address, the outermost first: their last addresses, and the indexes of their
    /// names.
    around: Vec<(u128, usize)>,
}

impl RangesBuilder {
    fn push(&mut self, network: IpNet, name_index: usize) {
        let start = bits(network.network());
        self.close_before(Some(start));
        self.begin_range(start, Some(name_index));
        self.around.push((bits(network.broadcast()), name_index));
    }

    fn finish(mut self) -> Ranges {
        self.close_before(None);
        self.ranges.shrink_to_fit();
        self.ranges
    }

    /// Ends the networks that end before `start`; with `None` all of them.
    fn close_before(&mut self, start: Option<u128>) {
        while let Some((last, _)) = self.around.last().copied()
            && start.is_none_or(|start| last < start)
        {
            self.around.pop();
            if let Some(next) = last.checked_add(1) {
                let outer_name = self.around.last().map(|(_, name_index)| *name_index);
                self.begin_range(next, outer_name);
            }
        }
    }

    /// Begins a range. It replaces one that begins at the same address, and continues one of the same name.
    fn begin_range(&mut self, start: u128, name_index: Option<usize>) {
        let _ = self.ranges.pop_if(|(last_start, _)| *last_start == start);
        if self
            .ranges
            .last()
            .is_none_or(|(_, last_index)| *last_index != name_index)
        {
            self.ranges.push((start, name_index));
        }
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
            let name = table.find(ip.parse().unwrap());
            assert_eq!(name.map(|name| &**name), expected, "{ip}");
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
            let network = |(byte, length)| IpNet::new_assert([192, 0, 2, byte].into(), length).trunc();
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
