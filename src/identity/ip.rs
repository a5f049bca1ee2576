//! The client's address: the connection's peer, or what trusted proxies say of it, walked from the
//! right. Grouped by prefix before it is counted.

use ipnet::IpNet;

/// How a client's address is found and grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Peers whose `X-Forwarded-For` and `Forwarded` are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Leading bits of an IPv4 address that make one client, 8 to 32.
    pub ipv4: u8,
    /// Leading bits of an IPv6 address that make one client, 32 to 128.
    pub ipv6: u8,
    /// Whether the /56, /48 and /32 around an IPv6 client have budgets too.
    pub parents: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { trusted_proxies: Vec::new(), ipv4: 32, ipv6: 64, parents: true }
    }
}
