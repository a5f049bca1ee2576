//! Where a server is: the addresses that its name stands for, looked up again and again, and tried in
//! turn. Those known last stay while a name cannot be looked up. One for all workers.
//!
//! Bound: `MOST` addresses of a name.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::Server;

/// Addresses of one name that are looked at.
const MOST: usize = 64;

/// How often a name is looked up.
pub const AGAIN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub struct Addresses {
    host: String,
    port: u16,
    /// It is written as an address.
    fixed: bool,
    /// None before the first look.
    known: Mutex<Arc<[SocketAddr]>>,
    turn: AtomicUsize,
}

impl Addresses {
    /// Of a server, not looked up yet.
    pub fn new(server: &Server) -> Addresses {
        let literal = server.host.parse::<IpAddr>().ok();
        let known = literal.map(|ip| SocketAddr::new(ip, server.port));
        Addresses {
            host: server.host.clone(),
            port: server.port,
            fixed: known.is_some(),
            known: Mutex::new(known.into_iter().collect()),
            turn: AtomicUsize::new(0),
        }
    }

    /// Whether there is a name to look up.
    pub fn is_named(&self) -> bool {
        !self.fixed
    }

    /// Whether the name still stands for this address.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.fixed || self.known.lock().contains(&address)
    }

    /// Looks the name up.
    pub async fn look_up(&self) -> io::Result<Arc<[SocketAddr]>> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        let mut found: Vec<SocketAddr> = found.take(MOST).collect();
        found.dedup();
        if found.is_empty() {
            return Err(io::Error::other("the name stands for no address"));
        }
        self.learn(found);
        Ok(self.known.lock().clone())
    }

    /// Replaces what is known by what was found.
    pub(super) fn learn(&self, found: Vec<SocketAddr>) {
        let mut known = self.known.lock();
        // In the order they are in, which answers may change from one to the next.
        let same = known.len() == found.len() && found.iter().all(|one| known.contains(one));
        if !same {
            *known = found.into();
        }
    }

    /// Connects to the address whose turn it is, or else to the next.
    pub async fn connect(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut known = self.known.lock().clone();
        if known.is_empty() {
            known = self.look_up().await?;
        }
        let turn = self.turn.fetch_add(1, Relaxed);
        let mut last = None;
        for step in 0..known.len() {
            let address = known[turn.wrapping_add(step) % known.len()];
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::other("no address")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tests::server;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_a_name_stands_for_replaces_what_it_did() {
        let named = Addresses::new(&server("shop.internal", 80));
        assert!(named.is_named() && !named.has(address("10.0.0.1:80")));
        let two = vec![address("10.0.0.1:80"), address("10.0.0.2:80")];
        named.learn(two.clone());
        assert!(two.iter().all(|one| named.has(*one)));
        let before = named.known.lock().clone();
        named.learn(two.into_iter().rev().collect());
        assert_eq!(*named.known.lock(), before, "the order is no news");
        named.learn(vec![address("10.0.0.2:80"), address("10.0.0.3:80")]);
        assert!(!named.has(address("10.0.0.1:80")) && named.has(address("10.0.0.3:80")));
    }

    #[test]
    fn an_address_needs_no_look() {
        for host in ["127.0.0.1", "::1"] {
            let fixed = Addresses::new(&server(host, 80));
            assert!(!fixed.is_named() && fixed.known.lock().len() == 1);
        }
    }
}
