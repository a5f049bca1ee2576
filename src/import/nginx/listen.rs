//! `listen` and `server_name`: where a server of nginx is reached.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::syntax::Directive;
use crate::import::model::ListenerDraft;
use crate::import::names::UniqueNames;
use crate::import::report::{Concern, ImportReport, Origin};
use crate::route::pattern::HostPattern;

/// An address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// An IP address with a port, or `unix:` and a path.
    pub address: String,
    /// Whether clients speak TLS.
    pub is_tls: bool,
    /// Whether the server is the default one there.
    pub is_default: bool,
    /// Whether clients begin with a header of the PROXY protocol.
    pub has_proxy_protocol: bool,
    /// Where it stands.
    pub origin: Origin,
}

/// The hosts of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// Hosts as policies have them.
    pub hosts: Vec<String>,
    /// Whether a name stands for hosts that have no counterpart.
    pub has_left: bool,
    /// The first name, without its `*` or dot.
    pub first: String,
}

/// Reads a `listen`; `None` if it has no counterpart, which is reported.
pub fn read_listen(
    directive: &Directive,
    has_certificate: bool,
    report: &mut ImportReport,
) -> Option<ListenAddress> {
    let (at, text) = (directive.origin, directive.text());
    let has = |word: &str| directive.arguments.iter().any(|argument| argument == word);
    let address = match listen_address(directive.argument(0)) {
        Some(address) => address,
        None => {
            report.left(
                at,
                Concern::Routing,
                &text,
                "it is no address with a port; write one under `listen`",
            );
            return None;
        }
    };
    if has("quic") {
        let note = "HTTP/3 is a field of a listener with TLS: write `http3: true` there";
        report.left(at, Concern::Routing, &text, note);
        return None;
    }
    if has("ssl") && !has_certificate {
        report.left(at, Concern::Routing, &text, "the server has no certificate");
        return None;
    }
    report.taken(at, Concern::Routing, &text, "");
    Some(ListenAddress {
        address,
        is_tls: has("ssl"),
        is_default: has("default_server") || has("default"),
        has_proxy_protocol: has("proxy_protocol"),
        origin: at,
    })
}

/// The address at which `listen` makes its server the default one.
pub fn default_at(directive: &Directive) -> Option<String> {
    let mut words = directive.arguments.iter();
    words
        .any(|word| matches!(&**word, "default_server" | "default"))
        .then(|| listen_address(directive.argument(0)))
        .flatten()
}

/// An address of `listen` with its port: `80`, `*:80`, `[::]:80`, `127.0.0.1`, `unix:/path`.
fn listen_address(text: &str) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let is_path = path.starts_with('/')
            && !path.ends_with('/')
            && path.len() <= 107
            && !path.contains(':');
        return (is_path && path.chars().all(|c| c.is_ascii_graphic()))
            .then(|| format!("unix:{path}"));
    }
    if let Ok(port) = text.parse::<u16>() {
        return (port > 0).then(|| format!("0.0.0.0:{port}"));
    }
    let text = text
        .replace('*', "0.0.0.0")
        .replace("localhost", "127.0.0.1");
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() > 0).then(|| address.to_string());
    }
    let ip: IpAddr = text.trim_matches(['[', ']']).parse().ok()?;
    Some(SocketAddr::new(ip, 80).to_string())
}

/// The address of a server without `listen`.
pub fn default_address(origin: Origin) -> ListenAddress {
    ListenAddress {
        address: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 80).to_string(),
        is_tls: false,
        is_default: false,
        has_proxy_protocol: false,
        origin,
    }
}

/// Reads all `server_name` of a server.
pub fn read_names<'d>(
    directives: impl Iterator<Item = &'d Directive>,
    report: &mut ImportReport,
) -> ServerNames {
    let mut names = ServerNames::default();
    for directive in directives {
        let (at, text) = (directive.origin, directive.text());
        report.taken(at, Concern::Routing, &text, "");
        for name in &directive.arguments {
            if name == "_" || name.is_empty() || name == "--" {
                continue;
            }
            let hosts = match name.strip_prefix('.') {
                Some(below) => vec![below.to_owned(), format!("*.{below}")],
                None => vec![name.clone()],
            };
            let is_valid =
                |host: &String| HostPattern::parse(host).is_ok_and(|host| host != HostPattern::Any);
            if name.starts_with('~') || !hosts.iter().all(is_valid) {
                names.has_left = true;
                let note = format!(
                    "`{}` has no counterpart; write the hosts that it stands for under `host`",
                    crate::import::report::printable(name, 60)
                );
                report.left(at, Concern::Routing, &text, &note);
                continue;
            }
            if names.first.is_empty() {
                names.first = name.trim_start_matches(['*', '.']).to_owned();
            }
            for host in hosts {
                if !names.hosts.contains(&host) {
                    names.hosts.push(host);
                }
            }
        }
    }
    names
}

/// The listeners of all servers.
#[derive(Debug, Default)]
pub struct ListenerTable {
    listeners: Vec<ListenerDraft>,
    /// The index of the default server at each address.
    defaults: HashMap<String, (usize, bool)>,
    /// The addresses of each server.
    sets: Vec<Vec<String>>,
}

impl ListenerTable {
    /// Adds the addresses of the next server, with its certificates.
    pub fn add(
        &mut self,
        addresses: &[ListenAddress],
        certificates: &[(String, String)],
        proxies: &[String],
    ) {
        let server = self.sets.len();
        let mut set: Vec<String> = addresses
            .iter()
            .map(|listen| listen.address.clone())
            .collect();
        set.sort_unstable();
        set.dedup();
        self.sets.push(set);
        for listen in addresses {
            let default = self
                .defaults
                .entry(listen.address.clone())
                .or_insert((server, listen.is_default));
            if listen.is_default && !default.1 {
                *default = (server, true);
            }
            let known = self
                .listeners
                .iter_mut()
                .find(|known| known.address == listen.address);
            let listener = match known {
                Some(known) => known,
                None => {
                    self.listeners.push(ListenerDraft {
                        address: listen.address.clone(),
                        origin: listen.origin,
                        ..ListenerDraft::default()
                    });
                    match self.listeners.last_mut() {
                        Some(listener) => listener,
                        None => continue,
                    }
                }
            };
            if listen.is_tls {
                for pair in certificates
                    .iter()
                    .filter(|pair| !listener.certificates.contains(pair))
                    .cloned()
                    .collect::<Vec<_>>()
                {
                    listener.certificates.push(pair);
                }
            }
            if listen.has_proxy_protocol && listener.proxy_protocol.is_empty() {
                listener.proxy_protocol =
                    match (listen.address.starts_with("unix:"), proxies.is_empty()) {
                        (true, _) => vec!["unix".into()],
                        (false, true) => vec!["0.0.0.0/0".into(), "::/0".into()],
                        (false, false) => proxies.to_vec(),
                    };
            }
        }
    }

    /// Marks an address whose default server is left, so that no other server takes its hosts.
    pub fn leave_default(&mut self, address: String) {
        self.defaults.insert(address, (usize::MAX, true));
    }

    /// Whether the server is the default one at all of its addresses.
    pub fn is_default(&self, server: usize) -> bool {
        let set = self.sets.get(server).map_or(&[][..], Vec::as_slice);
        set.iter().all(|address| {
            self.defaults
                .get(address)
                .is_some_and(|(default, _)| *default == server)
        })
    }

    /// Whether the server is the default one at some of its addresses.
    pub fn is_partly_default(&self, server: usize) -> bool {
        self.defaults
            .values()
            .any(|(default, _)| *default == server)
    }

    /// Whether some address of the server speaks TLS, and whether some does not.
    pub fn tls_kinds(&self, server: usize) -> (bool, bool) {
        let set = self.sets.get(server).map_or(&[][..], Vec::as_slice);
        let mut kinds = (false, false);
        for listener in self
            .listeners
            .iter()
            .filter(|listener| set.contains(&listener.address))
        {
            match listener.certificates.is_empty() {
                true => kinds.1 = true,
                false => kinds.0 = true,
            }
        }
        kinds
    }

    /// Whether any listener speaks TLS.
    pub fn has_tls(&self) -> bool {
        self.listeners
            .iter()
            .any(|listener| !listener.certificates.is_empty())
    }

    /// Joins `0.0.0.0:80` and `[::]:80`: a socket for all IPv6 addresses takes IPv4 too. Returns whether there were such.
    pub fn join_families(&mut self) -> bool {
        let ipv6_addresses: Vec<String> = self
            .listeners
            .iter()
            .filter(|listener| listener.address.starts_with("[::]:"))
            .map(|listener| listener.address.clone())
            .collect();
        let mut has_joined = false;
        for ipv6 in ipv6_addresses {
            let ipv4 = ipv6.replace("[::]:", "0.0.0.0:");
            let is_ipv4 = |listener: &ListenerDraft| listener.address == ipv4;
            let Some(index) = self.listeners.iter().position(is_ipv4) else {
                continue;
            };
            has_joined = true;
            let other = self.listeners.remove(index);
            for listener in self
                .listeners
                .iter_mut()
                .filter(|listener| listener.address == ipv6)
            {
                let own = std::mem::take(&mut listener.certificates);
                listener.certificates = other.certificates.clone();
                let is_new = |pair: &(String, String)| !other.certificates.contains(pair);
                listener.certificates.extend(own.into_iter().filter(is_new));
                listener.origin = other.origin.min(listener.origin);
                if listener.proxy_protocol.is_empty() {
                    listener.proxy_protocol.clone_from(&other.proxy_protocol);
                }
            }
            if let Some(default) = self.defaults.remove(&ipv4) {
                self.defaults.insert(ipv6.clone(), default);
            }
            for set in &mut self.sets {
                for address in set.iter_mut().filter(|address| **address == ipv4) {
                    address.clone_from(&ipv6);
                }
                set.sort_unstable();
                set.dedup();
            }
        }
        has_joined
    }

    /// Names the listeners where servers have different ones.
    pub fn name_listeners(&mut self) {
        if self.sets.windows(2).all(|pair| pair.first() == pair.last()) {
            return;
        }
        let mut names = UniqueNames::default();
        for listener in &mut self.listeners {
            let address = listener.address.trim_start_matches("0.0.0.0:");
            let address = address.trim_start_matches("[::]:");
            let hint = match address.parse::<u16>() {
                Ok(port) => format!("port-{port}"),
                Err(_) => format!("at-{address}"),
            };
            listener.name = names.name(&hint, "listener");
        }
    }

    /// The names of the listeners of a server; empty if no listener has a name.
    pub fn names_of(&self, server: usize) -> Vec<String> {
        let set = self.sets.get(server).map_or(&[][..], Vec::as_slice);
        let own = self
            .listeners
            .iter()
            .filter(|listener| set.contains(&listener.address));
        own.map(|listener| listener.name.clone())
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// The listeners, as the gateway file has them.
    pub fn into_listeners(self) -> Vec<ListenerDraft> {
        self.listeners
    }
}
