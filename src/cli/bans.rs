//! The command `tollgate bans`: lists the bans of a running gateway, or prints the banned networks as a file that nftables
//! or ipset loads as a whole.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::ValueEnum;
use ipnet::IpNet;
use serde_json::Value;

use super::admin_client::AdminAddress;
use super::ban::fetch_bans;
use super::output;
use super::terminal::{format_seconds, render_columns, replace_control_chars};

/// Most entries of a set of ipset: more than there can be bans.
const MAX_SET_ENTRIES: usize = 65_536;

/// The longest timeout of an entry that ipset takes, in seconds.
const MAX_IPSET_TIMEOUT: u64 = 2_147_483;

/// The longest name of a set of ipset has 31 bytes; the gateway adds up to five.
const MAX_SET_NAME_BYTES: usize = 26;

#[derive(clap::Args)]
pub struct Arguments {
    /// Print the JSON of the gateway.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print the banned networks for a firewall, without those banned by another identity.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Name of the table of nftables with the sets `banned4` and `banned6`, or of the sets of ipset before `4` and `6`.
    #[arg(long, default_value = "tollgate", requires = "format")]
    set: String,
    #[command(flatten)]
    admin: AdminAddress,
}

/// The firewall that reads the networks.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// For `nft -f`: replaces the content of two sets.
    Nft,
    /// For `ipset restore`: replaces two sets.
    Ipset,
    /// One network in each line.
    Plain,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let (response, bans) = match fetch_bans(&arguments.admin) {
        Ok(response) => response,
        Err(error) => return error.print(),
    };
    if arguments.json {
        return output::exit_code(output::print_line(response), ExitCode::SUCCESS);
    }
    let text = match arguments.format {
        None => render_table(&bans),
        Some(_) if !is_set_name(&arguments.set) => {
            let message = "--set takes letters, digits, `-` and `_`, at most 26 of them";
            return output::CommandError::mistake(message).print();
        }
        Some(format) => render_networks(format, &arguments.set, &banned_networks(&bans)),
    };
    output::exit_code(output::print(text), ExitCode::SUCCESS)
}

/// A banned network, and the seconds until its ban ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BannedNetwork {
    network: IpNet,
    seconds: u64,
}

/// Whether nftables and ipset take the name in any place.
fn is_set_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    name.bytes().all(is_allowed)
        && name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic())
        && name.len() <= MAX_SET_NAME_BYTES
}

/// The banned networks in ascending order, without those inside of others: nftables takes no sets that overlap. A ban that
/// outlives the one around it is there again once that has ended.
fn banned_networks(bans: &[Value]) -> Vec<BannedNetwork> {
    let parse = |ban: &Value| {
        let text = ban["key"].as_str()?.strip_prefix("ip=")?;
        let single_address = || text.parse::<std::net::IpAddr>().map(IpNet::from);
        Some(BannedNetwork {
            network: text.parse().or_else(|_| single_address()).ok()?,
            // Firewalls take no seconds at all for an entry that never ends.
            seconds: ban["left"].as_f64()?.ceil().max(1.0) as u64,
        })
    };
    let mut networks: Vec<BannedNetwork> = bans.iter().filter_map(parse).collect();
    // A network comes after the ones around it.
    networks.sort_by_key(|banned| (banned.network.network(), banned.network.prefix_len()));
    let mut outer_networks: Vec<BannedNetwork> = Vec::new();
    for banned in networks {
        let last = outer_networks.last();
        if !last.is_some_and(|last| last.network.contains(&banned.network)) {
            outer_networks.push(banned);
        }
    }
    outer_networks
}

/// A line for each ban: what is banned, for how long, how often that was hit, and by whom and why.
fn render_table(bans: &[Value]) -> String {
    let rows = bans.iter().map(|ban| {
        let text_of = |name: &str| replace_control_chars(ban[name].as_str().unwrap_or_default());
        [
            text_of("key"),
            format_seconds(ban["left"].as_f64().unwrap_or_default()),
            ban["hits"].to_string(),
            text_of("by"),
            text_of("reason"),
        ]
    });
    let titles = ["key", "left", "hits", "by", "reason"];
    render_columns(titles, &rows.collect::<Vec<_>>())
}

/// The networks as a file for a firewall. Loaded as a whole, it replaces what was loaded before. Entries end by themselves,
/// also if no file comes any more.
fn render_networks(format: Format, set: &str, networks: &[BannedNetwork]) -> String {
    let is_v4 = |banned: &&BannedNetwork| matches!(banned.network, IpNet::V4(_));
    let (v4, v6): (Vec<_>, Vec<_>) = networks.iter().partition(is_v4);
    let mut text = String::new();
    match format {
        Format::Plain => {
            for banned in networks {
                let _ = writeln!(text, "{}", banned.network);
            }
        }
        Format::Nft => {
            let _ = writeln!(text, "add table inet {set}");
            for (version, networks) in [(4, v4), (6, v6)] {
                let _ = writeln!(
                    text,
                    "add set inet {set} banned{version} {{ type ipv{version}_addr; flags interval, timeout; }}\n\
                     flush set inet {set} banned{version}"
                );
                for BannedNetwork { network, seconds } in networks {
                    let _ = writeln!(
                        text,
                        "add element inet {set} banned{version} {{ {network} timeout {seconds}s }}"
                    );
                }
            }
        }
        Format::Ipset => {
            for (version, family, networks) in [(4, "inet", v4), (6, "inet6", v6)] {
                let name = format!("{set}{version}");
                for name in [&name, &format!("{name}-new")] {
                    let _ = writeln!(
                        text,
                        "create {name} hash:net family {family} maxelem {MAX_SET_ENTRIES} timeout 0 -exist"
                    );
                }
                let _ = writeln!(text, "flush {name}-new");
                for BannedNetwork { network, seconds } in networks {
                    let seconds = seconds.min(MAX_IPSET_TIMEOUT);
                    let _ = writeln!(text, "add {name}-new {network} timeout {seconds} -exist");
                }
                let _ = writeln!(text, "swap {name}-new {name}\ndestroy {name}-new");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bans() -> Vec<Value> {
        [
            ("ip=192.0.2.7", 10.2),
            ("ip=192.0.2.0/24", 60.0),
            ("user=alice", 5.0),
            ("ip=2001:db8::/64", 1e7),
            ("ip=198.51.100.1", 3.0),
            ("ip=203.0.113.1", 0.0),
        ]
        .map(
            |(key, left)| json!({ "key": key, "left": left, "hits": 2, "by": "ann", "reason": "" }),
        )
        .to_vec()
    }

    #[test]
    fn networks_inside_of_others_are_left_out() {
        let networks = banned_networks(&bans());
        let texts: Vec<String> = networks
            .iter()
            .map(|banned| format!("{} {}", banned.network, banned.seconds))
            .collect();
        let expected = [
            "192.0.2.0/24 60",
            "198.51.100.1/32 3",
            "203.0.113.1/32 1",
            "2001:db8::/64 10000000",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn firewalls_get_files_that_replace_the_ones_before() {
        let networks = banned_networks(&bans());
        let nft = render_networks(Format::Nft, "gate", &networks);
        let expected = "add table inet gate\n\
            add set inet gate banned4 { type ipv4_addr; flags interval, timeout; }\n\
            flush set inet gate banned4\n\
            add element inet gate banned4 { 192.0.2.0/24 timeout 60s }\n\
            add element inet gate banned4 { 198.51.100.1/32 timeout 3s }\n\
            add element inet gate banned4 { 203.0.113.1/32 timeout 1s }\n\
            add set inet gate banned6 { type ipv6_addr; flags interval, timeout; }\n\
            flush set inet gate banned6\n\
            add element inet gate banned6 { 2001:db8::/64 timeout 10000000s }\n";
        assert_eq!(nft, expected);
        let ipset = render_networks(Format::Ipset, "gate", &networks);
        let added: Vec<&str> = ipset
            .lines()
            .filter(|line| line.starts_with("add"))
            .collect();
        let expected = [
            "add gate4-new 192.0.2.0/24 timeout 60 -exist",
            "add gate4-new 198.51.100.1/32 timeout 3 -exist",
            "add gate4-new 203.0.113.1/32 timeout 1 -exist",
            "add gate6-new 2001:db8::/64 timeout 2147483 -exist",
        ];
        assert_eq!(added, expected);
        let plain = render_networks(Format::Plain, "gate", &networks);
        assert_eq!(
            plain,
            "192.0.2.0/24\n198.51.100.1/32\n203.0.113.1/32\n2001:db8::/64\n"
        );
    }

    #[test]
    fn names_of_sets_are_words() {
        for (name, expected) in [
            ("tollgate", true),
            ("a-b_1", true),
            ("", false),
            ("1a", false),
            ("a b", false),
            ("a;flush", false),
            ("abcdefghijklmnopqrstuvwxyza", false),
        ] {
            assert_eq!(is_set_name(name), expected, "{name}");
        }
    }
}
