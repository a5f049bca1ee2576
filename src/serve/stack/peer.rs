//! The other end of a client's connection.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::base::clock::Nanos;
use crate::base::telemetry::{Label, Metric};
use crate::identity::ConnectionPeer;
use crate::net::proxy::Ends;
use crate::net::tls::config::Offer;
use crate::net::{PeerAddress, Socket, Subject};
use crate::route::host;
use crate::serve::worker::guard::{Guard, Phase};
use crate::serve::worker::state::Worker;

/// The client side of one connection.
pub struct Peer {
    /// The other end, as far as it is believed.
    pub remote: PeerAddress,
    /// Its address, IPv4-mapped IPv6 folded.
    pub ip: IpAddr,
    /// The same as text.
    pub address: String,
    /// Both ends of the connection.
    pub ends: Ends,
    /// The connection's deadlines.
    pub guard: Rc<Guard>,
    /// The client speaks under TLS.
    pub secure: bool,
    /// The subject of the client's certificate.
    pub subject: Option<Subject>,
    /// The server name of the client's handshake.
    server_name: Option<ServerName>,
    /// How long it may be unused; as it was when the connection began, for a reload reaches new ones.
    pub idle: Duration,
    /// How long a request's head may take; the same.
    pub header: Duration,
    /// The worker that serves it.
    pub worker: Rc<Worker>,
    forwarded: RefCell<(Vec<u8>, Bytes)>,
}

/// The server name of a handshake (RFC 6066 section 3) in the form of [`host`], and the certificates it chose from.
struct ServerName {
    name: Box<str>,
    offer: Offer,
}

impl Peer {
    /// Who has made a connection, over `stream` by an `offer` of TLS.
    pub fn new(
        (remote, ends): (PeerAddress, Ends),
        (stream, offer): (&Socket, Option<&Offer>),
        guard: Rc<Guard>,
        worker: &Rc<Worker>,
    ) -> Rc<Peer> {
        let timeouts = &worker.generation().ruleset.timeouts;
        let ip = remote.ip();
        let name = stream.server_name().and_then(host::canonical_name);
        let server_name = name.zip(offer).map(|(name, offer)| ServerName {
            name: name.into(),
            offer: offer.clone(),
        });
        Rc::new(Peer {
            remote,
            ip,
            address: ip.to_string(),
            ends,
            guard,
            secure: offer.is_some(),
            subject: stream.subject(),
            server_name,
            idle: timeouts.idle,
            header: timeouts.header,
            worker: worker.clone(),
            forwarded: RefCell::default(),
        })
    }

    /// The connection, as identities are found by it.
    pub fn connection(&self) -> ConnectionPeer<'_> {
        ConnectionPeer {
            peer: self.remote,
            subject: self.subject.as_ref(),
        }
    }

    /// Whether a request for this host belongs on the connection: whether the certificate that its client was shown is for
    /// it. Clients that asked for no name are not held to one, nor are trusted proxies, which may ask for one of their own.
    #[inline]
    pub fn serves(&self, host: &str) -> bool {
        let Some(server_name) = &self.server_name else {
            return true;
        };
        let rest = host.as_bytes().strip_prefix(server_name.name.as_bytes());
        matches!(rest, Some([] | [b':', ..])) || self.covers(server_name, host)
    }

    #[cold]
    fn covers(&self, server_name: &ServerName, host: &str) -> bool {
        let proxies = &self.worker.generation().ruleset.identity.ip.trusted_proxies;
        let is_proxy = proxies.iter().any(|net| net.contains(self.remote));
        let ServerName { name, offer } = server_name;
        is_proxy || offer.covers(name, host::without_port(host))
    }

    /// The scheme that the client used.
    pub fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// This hop's element of `Forwarded`, kept while the connection asks for the same host.
    pub fn forwarded(&self, host: &[u8]) -> Bytes {
        let (known, element) = &mut *self.forwarded.borrow_mut();
        if element.is_empty() || known != host {
            let node = match self.ip {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("\"[{ip}]\""),
            };
            let parts = [
                b"for=",
                node.as_bytes(),
                b";host=\"",
                host,
                b"\";proto=",
                self.scheme().as_bytes(),
            ];
            *element = parts.concat().into();
            *known = host.to_vec();
        }
        element.clone()
    }

    /// A response is over: the client has until the idle deadline for its next request.
    pub fn response_ended(&self) {
        self.guard.enter(Phase::Idle, self.idle);
    }

    /// Time as of the worker's last tick.
    pub fn coarse_now(&self) -> Nanos {
        self.worker.guards.coarse_now()
    }

    /// The counter of one kind of failure of one upstream.
    pub fn failures(&self, metric: Metric, upstream: &str, reason: &str) -> metrics::Counter {
        let labels = [(Label::Upstream, upstream), (Label::Reason, reason)];
        self.worker
            .registry
            .worker_counter(self.worker.number, metric, &labels)
    }
}
