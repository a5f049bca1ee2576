//! `bind`: where a frontend is reached.

use std::net::SocketAddr;

use super::notes;
use super::syntax::ConfigLine;
use crate::import::model::ListenerDraft;
use crate::import::report::{Concern, ImportReport};

/// Maximum number of addresses of a frontend.
const MAX_ADDRESSES: usize = 200;

/// An address of a frontend.
#[derive(Clone, Debug)]
pub struct BindAddress {
    /// The listener, without a name.
    pub listener: ListenerDraft,
    /// Whether clients speak TLS.
    pub is_tls: bool,
    /// Its port; `None` for a Unix socket.
    pub port: Option<u16>,
}

/// Options with a value that change nothing here.
const OPTIONS_WITH_VALUE: [&str; 25] = [
    "alpn",
    "npn",
    "ciphers",
    "ciphersuites",
    "curves",
    "ecdhe",
    "sigalgs",
    "client-sigalgs",
    "ssl-min-ver",
    "ssl-max-ver",
    "id",
    "name",
    "nice",
    "process",
    "thread",
    "proto",
    "backlog",
    "tcp-ut",
    "mss",
    "shards",
    "severity-output",
    "tls-ticket-keys",
    "ocsp-update",
    "crt-ignore-err",
    "ca-ignore-err",
];
/// Options without a value that change nothing here.
const FLAGS: [&str; 15] = [
    "v4v6",
    "tfo",
    "defer-accept",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tlsv13",
    "force-tlsv12",
    "force-tlsv13",
    "no-tls-tickets",
    "prefer-client-ciphers",
    "allow-0rtt",
    "no-alpn",
    "generate-certificates",
];

/// Reads a `bind`. Addresses that have no counterpart are reported, and are not there. `proxies` are peers that a rule
/// expects a header of the PROXY protocol from.
pub fn read_bind(
    line: &ConfigLine,
    proxies: &[String],
    report: &mut ImportReport,
) -> Vec<BindAddress> {
    let (at, text) = (line.origin, &line.text);
    let mut read = Vec::new();
    if line.has_variable || line.is_conditional {
        report.left(at, Concern::Routing, text, notes::VARIABLE);
        return read;
    }
    let options = match read_options(line, report) {
        Ok(options) => options,
        Err(reason) => {
            report.left(at, Concern::Routing, text, &reason);
            return read;
        }
    };
    report.taken(at, Concern::Routing, text, "");
    for address in line.word(1).split(',').take(MAX_ADDRESSES) {
        let Some((address, port)) = listen_address(address) else {
            let note = "it is no address with one port; write one under `listen`";
            report.left(at, Concern::Routing, text, note);
            continue;
        };
        let proxy_protocol = match options.accepts_proxy {
            true => vec!["0.0.0.0/0".into(), "::/0".into()],
            false => proxies.to_vec(),
        };
        read.push(BindAddress {
            listener: ListenerDraft {
                name: String::new(),
                address,
                certificates: options.certificates.clone(),
                proxy_protocol: match port {
                    Some(_) => proxy_protocol,
                    None if proxy_protocol.is_empty() => proxy_protocol,
                    None => vec!["unix".into()],
                },
                origin: at,
            },
            is_tls: options.is_tls,
            port,
        });
    }
    read
}

/// The addresses of a `bind` that have a counterpart, whether they are opened or not.
pub fn bind_addresses(line: &ConfigLine) -> impl Iterator<Item = String> {
    let words = line.word(1).split(',').take(MAX_ADDRESSES);
    words.filter_map(|text| listen_address(text).map(|(address, _)| address))
}

#[derive(Default)]
struct BindOptions {
    is_tls: bool,
    accepts_proxy: bool,
    certificates: Vec<(String, String)>,
}

/// Reads what follows the address.
///
/// # Errors
///
/// Why the address cannot be opened without letting in more clients.
fn read_options(line: &ConfigLine, report: &mut ImportReport) -> Result<BindOptions, String> {
    let (at, text) = (line.origin, &line.text);
    let mut options = BindOptions::default();
    let mut words = line.rest(2).iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "ssl" => options.is_tls = true,
            "accept-proxy" => options.accepts_proxy = true,
            "crt" => {
                let path = words.next().unwrap_or("");
                let is_file = path.rsplit('/').next().is_some_and(|name| name.contains('.'));
                if !is_file || path.chars().any(char::is_control) {
                    return Err("only a file is a certificate here; write `tls: [{ cert, key }]` for each file of the folder".into());
                }
                let note = format!("write the private key of {path} into {path}.key, if it is not there");
                report.changed(at, Concern::Routing, text, &note);
                options.certificates.push((path.to_owned(), format!("{path}.key")));
            }
            "verify" => match words.next() {
                Some("required") => return Err(
                    "clients must show a certificate: write `client_roots` and the listener by hand, with `require`".into(),
                ),
                Some("optional") => {
                    let note = "clients are not asked for a certificate; write `client_roots`";
                    report.changed(at, Concern::Routing, text, note);
                }
                _ => {}
            },
            "mode" | "user" | "group" | "uid" | "gid" | "level" => {
                words.next();
                let note = "a socket has the mode 0660 here; write `mode` beside its address";
                report.changed(at, Concern::Routing, text, note);
            }
            "strict-sni" => {
                let note = "clients that name no host get the first certificate";
                report.changed(at, Concern::Routing, text, note);
            }
            "ca-file" | "crl-file" => {
                words.next();
            }
            "maxconn" => {
                words.next();
                let note = "a bound for one listener has no counterpart; write `connections: { total: N }`";
                report.left(at, Concern::Limits, text, note);
            }
            "interface" | "namespace" | "transparent" | "accept-netscaler-cip" | "crt-list"
            | "v6only" => {
                return Err(format!("`{word}` has no counterpart, so the address is not opened"));
            }
            _ if OPTIONS_WITH_VALUE.contains(&word) => {
                words.next();
            }
            _ if FLAGS.contains(&word) => {}
            _ => return Err(format!("`{word}` is not read, so the address is not opened")),
        }
    }
    match options.is_tls && options.certificates.is_empty() {
        true => Err("it has no certificate".into()),
        false => {
            if !options.is_tls {
                options.certificates.clear();
            }
            Ok(options)
        }
    }
}

/// An address with its port: `:80`, `*:80`, `[::]:80`, `:::80`, `ipv4@127.0.0.1:80`, `/run/x.sock`.
fn listen_address(text: &str) -> Option<(String, Option<u16>)> {
    let socket = text.strip_prefix("unix@").unwrap_or(text);
    if socket.starts_with('/') {
        let is_path = !socket.ends_with('/')
            && socket.len() <= 107
            && !socket.contains([':', '%'])
            && !socket.contains("//");
        let is_plain = socket.chars().all(|c| c.is_ascii_graphic());
        return (is_path && is_plain).then(|| (format!("unix:{socket}"), None));
    }
    let (family, rest) = match text.split_once('@') {
        Some(("ipv4", rest)) => ("0.0.0.0", rest),
        Some(("ipv6", rest)) => ("[::]", rest),
        Some(_) => return None,
        None => ("0.0.0.0", text),
    };
    let (host, port) = rest.rsplit_once(':')?;
    let host = match host {
        "" | "*" => family.to_owned(),
        "::" => "[::]".to_owned(),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        host => host.to_owned(),
    };
    let address: SocketAddr = format!("{host}:{port}").parse().ok()?;
    (address.port() > 0).then(|| (address.to_string(), Some(address.port())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_frontends() {
        for (text, expected) in [
            (":80", Some("0.0.0.0:80")),
            ("*:80", Some("0.0.0.0:80")),
            ("[::]:80", Some("[::]:80")),
            (":::80", Some("[::]:80")),
            ("ipv6@:80", Some("[::]:80")),
            ("127.0.0.1:80", Some("127.0.0.1:80")),
            ("unix@/run/a.sock", Some("unix:/run/a.sock")),
            (":8000-8010", None),
            ("abns@x", None),
            ("fd@3", None),
            ("a.example:80", None),
        ] {
            let read = listen_address(text).map(|(address, _)| address);
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
