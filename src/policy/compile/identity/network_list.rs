//! Reads lists of networks that an identity by networks, `deny` or `allow` names.

use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;

use super::super::super::context::LoadContext;
use super::super::super::decode::{ValueError, parse_network};
use super::super::super::source::Files;
use super::super::super::tree::{Located, SourceLocation};
use super::super::expiry::{EXPIRY_HELP, parse_expiry};
use super::super::files::read_list_file;
use crate::base::clock::Clock;
use crate::identity::embedded_ipv4::{Nat64Prefix, counts_as_ipv4, untranslated_network};

/// Maximum number of mistaken lines of one file; reading stops at this one. A file of another kind would have a mistake
/// in each line.
const MAX_REPORTED_LINES: usize = 5;

/// The network as addresses of clients are compared with it: that of mapped or translated addresses is one of IPv4. Warns of
/// a network that no client's address is in.
pub(in super::super) fn counted_network(
    cx: &mut LoadContext,
    location: SourceLocation,
    network: IpNet,
    nat64: &[Nat64Prefix],
) -> IpNet {
    let network = untranslated_network(network, nat64);
    if counts_as_ipv4(network) {
        let message = format!(
            "no client is in `{network}`: addresses of 6to4 and Teredo count as the IPv4 address inside them"
        );
        cx.warn(location, message, Some("write the network of IPv4".into()));
    }
    network
}

/// Reads a file with one network in each line, with or without `until` and a time; `#` begins a comment. Networks whose time
/// has come are left out, and lines with a mistake, which are reported. The result is empty if the file cannot be read, and
/// ends at the mistake with number [`MAX_REPORTED_LINES`].
pub(in super::super) fn read_networks(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    file: &Located<String>,
) -> Vec<IpNet> {
    let Some(text) = read_list_file(cx, files, base, file, "the networks") else {
        return Vec::new();
    };
    let now = Clock::system().wall();
    let mut networks = Vec::new();
    let mut ended_count = 0;
    let mut mistakes = Vec::new();
    for (line_index, line) in text.lines().enumerate() {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        match parse_entry(entry) {
            Ok((_, Some(ends_at))) if ends_at <= now => ended_count += 1,
            Ok((network, _)) => networks.push(network),
            Err(error) => {
                mistakes.push((line_index, line, entry, error));
                if mistakes.len() == MAX_REPORTED_LINES {
                    break;
                }
            }
        }
    }
    // A network that ends makes the watch reload the files, as if its line were gone.
    files.record_ended_entries(ended_count);
    if !mistakes.is_empty() {
        let name = base.join(&file.value).display().to_string();
        let file_number = cx.sources.add(&name, text.clone());
        for (line_index, line, entry, error) in mistakes {
            let chars_before = line
                .find(entry)
                .map_or(0, |offset| line[..offset].chars().count());
            let location = SourceLocation {
                file: file_number,
                line: u32::try_from(line_index + 1).unwrap_or(u32::MAX),
                column: u32::try_from(chars_before + 1).unwrap_or(u32::MAX),
                width: u32::try_from(entry.chars().count()).unwrap_or(1),
                further_lines: 0,
            };
            cx.error(location, error.message, error.help);
        }
    }
    networks
}

/// Parses a network, and the time since the Unix epoch at which it ends, if it has one.
fn parse_entry(entry: &str) -> Result<(IpNet, Option<Duration>), ValueError> {
    let mut words = entry.split_whitespace();
    let network = words.next().unwrap_or_default();
    let network = parse_network(network)?;
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Ok((network, None)),
        (Some("until"), Some(time), None) => match parse_expiry(time) {
            Some(ends_at) => Ok((network, Some(ends_at))),
            None => {
                let message = format!("`{time}` is neither a day nor a time");
                Err(ValueError::new(message, EXPIRY_HELP))
            }
        },
        _ => {
            let help = "write one network, alone or as `203.0.113.7 until 2027-01-31T12:00:00Z`";
            Err(ValueError::new("this line has more than a network", help))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entry: &str, expected: &str) {
        let parsed = match parse_entry(entry) {
            Ok((network, None)) => network.to_string(),
            Ok((network, Some(ends_at))) => format!("{network} until {}", ends_at.as_secs()),
            Err(error) => error.message,
        };
        assert_eq!(parsed, expected, "{entry}");
    }

    #[test]
    fn entries() {
        check("192.0.2.0/24", "192.0.2.0/24");
        check(
            "192.0.2.7 until 1970-01-02T00:00:30Z",
            "192.0.2.7/32 until 86430",
        );
        check(
            "2001:db8::/32  until\t1970-01-01",
            "2001:db8::/32 until 86400",
        );
        check(
            "192.0.2.7 until tomorrow",
            "`tomorrow` is neither a day nor a time",
        );
        for more in [
            "192.0.2.7 until",
            "192.0.2.7 192.0.2.8",
            "192.0.2.7 until 2027-01-31 12:00",
        ] {
            check(more, "this line has more than a network");
        }
    }
}
