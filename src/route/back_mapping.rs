//! Maps what a response says of the upstream's own place to the place that the client knows: URLs in `Location`,
//! `Content-Location` and `Refresh`, and the path and the domain of cookies. It is the way back of `path_change.rs`.
//!
//! An absolute URL of the upstream's own becomes a path, so that the scheme and the host of the client's request hold on.
//! No mapped value begins with two slashes, so none leads to another host. Everything that is not understood stays as it
//! is: URLs of other hosts, relative references, dot segments, backslashes, blanks, control characters and other bytes
//! than UTF-8.

use std::net::IpAddr;

use super::canonical_host::{canonical_host, canonical_name, split_port, without_port};
use super::path_change::PathChange;

/// The default ports of `http` and `https`.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// How the responses on a route are mapped back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackMapping {
    /// From the upstream's path to the client's.
    to_client: PathChange,
    /// The servers of the upstream that are not Unix sockets.
    servers: Box<[ServerOrigin]>,
}

/// The place of a server, as the gateway file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOrigin {
    /// Whether requests to it use TLS.
    pub is_tls: bool,
    /// The host in canonical form.
    pub name: Box<str>,
    /// The port.
    pub port: u16,
}

/// What the upstream was told of the place of one request.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedPlace<'a> {
    /// The value of `Host`.
    pub host: &'a str,
    /// The value of `X-Forwarded-Host`: the client's host. `None` if the client named none.
    pub client_host: Option<&'a str>,
    /// Whether the client uses `https`, by `X-Forwarded-Proto`.
    pub is_tls: bool,
}

impl BackMapping {
    /// The mapping for requests whose path is changed by `path_change`, and which go to these servers.
    pub fn new(path_change: &PathChange, servers: Box<[ServerOrigin]>) -> BackMapping {
        BackMapping {
            to_client: path_change.inverse(),
            servers,
        }
    }

    /// The client's form of a URL or a path; `None` if it stays as it is.
    pub fn map_url(&self, url: &[u8], place: ForwardedPlace<'_>) -> Option<String> {
        let url = std::str::from_utf8(url).ok()?;
        let is_unclear = |byte: u8| byte.is_ascii_control() || matches!(byte, b' ' | b'\\');
        if url.bytes().any(is_unclear) {
            return None;
        }
        let (scheme, after_scheme) = match url.strip_prefix("//") {
            Some(after_slashes) => (None, after_slashes),
            None if url.starts_with('/') => return self.map_target(url, ""),
            None => {
                let (scheme, after_scheme) = url.split_once("://")?;
                (Some(scheme), after_scheme)
            }
        };
        let is_tls = match scheme {
            None => place.is_tls,
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => false,
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => true,
            Some(_) => return None,
        };
        let authority_end = after_scheme.find(['/', '?', '#']);
        let (authority, target) =
            after_scheme.split_at(authority_end.unwrap_or(after_scheme.len()));
        let host = canonical_host(authority)?;
        let (name, port) = split_port(&host);
        let is_client_host = port.is_none() && place.client_host == Some(name);
        let mut servers = self.servers.iter();
        // An upstream may send clients from `http` to `https`. A path would bring them back to it for ever.
        let is_upgrade = is_tls
            && !place.is_tls
            && place
                .client_host
                .is_some_and(|host| without_port(host) == name)
            && port.is_none_or(|port| port == DEFAULT_PORTS[1]);
        let is_known_scheme =
            is_tls == place.is_tls || servers.any(|server| server.is_tls == is_tls);
        if !is_upgrade && is_known_scheme && self.is_own(name, port, is_tls, place) {
            return self.map_target(target, "");
        }
        if is_client_host {
            return self.map_target(target, &url[..url.len() - target.len()]);
        }
        None
    }

    /// The client's form of the value of `Refresh`, whose URL is found as the HTML Standard finds it (section 4.2.5.3);
    /// `None` if it stays as it is.
    pub fn map_refresh(&self, value: &[u8], place: ForwardedPlace<'_>) -> Option<String> {
        let value = std::str::from_utf8(value).ok()?;
        if value.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        let is_time = |c: char| c.is_ascii_digit() || c == '.';
        let after_time = value.trim_start_matches(is_time);
        let after_blanks = after_time.trim_ascii_start();
        let rest = after_blanks
            .strip_prefix([';', ','])
            .unwrap_or(after_blanks);
        if after_time.len() == value.len() || rest.len() == after_time.len() {
            return None;
        }
        let rest = rest.trim_ascii_start();
        let name = rest
            .get(..3)
            .filter(|name| name.eq_ignore_ascii_case("url"));
        let after_name = name.and_then(|_| rest[3..].trim_ascii_start().strip_prefix('='));
        let rest = after_name.map_or(rest, str::trim_ascii_start);
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let url_and_end = quote.map_or(rest, |_| &rest[1..]);
        let url_length = quote.and_then(|quote| url_and_end.find(quote));
        let (url, end) = url_and_end.split_at(url_length.unwrap_or(url_and_end.len()));
        let mapped = self.map_url(url.as_bytes(), place)?;
        // A quote that comes from `strip` would end the URL.
        if quote.is_some_and(|quote| mapped.contains(quote)) {
            return None;
        }
        let begin = &value[..value.len() - url_and_end.len()];
        Some(format!("{begin}{mapped}{end}"))
    }

    /// The client's form of the value of `Set-Cookie`; `None` if it stays as it is. A cookie whose name begins with
    /// `__Host-` stays, because browsers accept it with `Path=/` only.
    pub fn map_cookie(&self, value: &[u8], place: ForwardedPlace<'_>) -> Option<String> {
        let value = std::str::from_utf8(value).ok()?;
        let has_host_prefix = value
            .get(..HOST_PREFIX.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(HOST_PREFIX));
        if has_host_prefix || value.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        let mut attributes = value.split(';');
        let mut mapped = attributes.next()?.to_owned();
        // Browsers obey the last domain.
        let mut domains = attributes.clone().rev();
        let last_domain = domains.find_map(|text| attribute(text, "domain"));
        let is_own_domain = last_domain.is_some_and(|domain| self.is_own_domain(domain, place));
        for text in attributes {
            if is_own_domain && attribute(text, "domain").is_some() {
                continue;
            }
            mapped.push(';');
            let path = attribute(text, "path");
            match path.and_then(|path| Some((path, self.map_cookie_path(path)?))) {
                Some((path, mapped_path)) => {
                    mapped.push_str(text.trim_ascii_end().strip_suffix(path)?);
                    mapped.push_str(&mapped_path);
                }
                None => mapped.push_str(text),
            }
        }
        (mapped != value).then_some(mapped)
    }

    /// The client's form of a path with its query and fragment, behind `begin`. An empty path is the root.
    fn map_target(&self, target: &str, begin: &str) -> Option<String> {
        let (path, end) = target.split_at(target.find(['?', '#']).unwrap_or(target.len()));
        let path = if path.is_empty() { "/" } else { path };
        let path = self.map_path(path)?;
        Some(format!("{begin}{path}{end}"))
    }

    /// The client's form of a path; `None` if it is not below what is put before paths, or if it is unclear where it leads.
    fn map_path(&self, path: &str) -> Option<String> {
        let rest = self.to_client.rest(path).ok()?;
        let prefix = &self.to_client.prefix;
        Some(match prefix.is_empty() && rest.is_empty() {
            true => "/".to_owned(),
            false => format!("{prefix}{rest}"),
        })
    }

    /// The client's form of a cookie's path. One that holds for all that the upstream gets holds for the whole route.
    fn map_cookie_path(&self, path: &str) -> Option<String> {
        let PathChange { strip, prefix } = &self.to_client;
        if is_root_in_cookie_path(strip, path) {
            return Some(if prefix.is_empty() { "/" } else { prefix }.to_owned());
        }
        let is_unclear = |c: char| c.is_whitespace() || c == '\\';
        match path.starts_with('/') && !path.contains(is_unclear) {
            true => self.map_path(path),
            false => None,
        }
    }

    /// Whether a host and a port are the upstream's own as it was told, or those of one of its servers. Servers also name
    /// themselves by the host of the request and their own port.
    fn is_own(
        &self,
        name: &str,
        port: Option<u16>,
        is_tls: bool,
        place: ForwardedPlace<'_>,
    ) -> bool {
        let used_port = port.unwrap_or(DEFAULT_PORTS[usize::from(is_tls)]);
        let is_told_place = |told: &str| {
            let (told_name, told_port) = split_port(told);
            let is_told_port = match told_port {
                None => port.is_none() || used_port == DEFAULT_PORTS[usize::from(is_tls)],
                Some(told_port) => used_port == told_port,
            };
            told_name == name && (is_told_port || self.has_server(|own| own.port == used_port))
        };
        is_told_place(place.host)
            || place.client_host.is_some_and(is_told_place)
            || self.has_server(|server| *server.name == *name && server.port == used_port)
    }

    /// Whether a cookie's domain is the upstream's own and would not hold for the client's host.
    fn is_own_domain(&self, domain: &str, place: ForwardedPlace<'_>) -> bool {
        let Some(domain) = canonical_name(domain.strip_prefix('.').unwrap_or(domain)) else {
            return false;
        };
        let is_below = |host: &str| is_same_or_below(without_port(host), &domain);
        !place.client_host.is_some_and(is_below)
            && (is_below(place.host) || self.has_server(|server| is_below(&server.name)))
    }

    fn has_server(&self, is_meant: impl Fn(&ServerOrigin) -> bool) -> bool {
        self.servers.iter().any(is_meant)
    }
}

/// The begin of the names of cookies that must have `Path=/` and no domain, in any case.
const HOST_PREFIX: &str = "__Host-";

/// The value of an attribute of a cookie; `None` if it has another name or no value.
fn attribute<'c>(text: &'c str, name: &str) -> Option<&'c str> {
    let (own_name, value) = text.split_once('=')?;
    let is_named = own_name.trim_ascii().eq_ignore_ascii_case(name);
    is_named.then(|| value.trim_ascii())
}

/// Whether a name is the domain or below it. An address has no names above it.
fn is_same_or_below(name: &str, domain: &str) -> bool {
    let begin = name.strip_suffix(domain);
    begin.is_some_and(|begin| {
        begin.is_empty() || (begin.ends_with('.') && name.parse::<IpAddr>().is_err())
    })
}

/// Whether a cookie with this path is sent for `root` and everything below (RFC 6265 section 5.1.4). `root` is whole
/// segments, or empty.
fn is_root_in_cookie_path(root: &str, cookie_path: &str) -> bool {
    let root = if root.is_empty() { "/" } else { root };
    let rest = root.strip_prefix(cookie_path);
    cookie_path.starts_with('/')
        && rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('/') || cookie_path.ends_with('/')
        })
}

#[cfg(test)]
mod tests;
