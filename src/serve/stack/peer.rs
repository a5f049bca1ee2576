//! The client's end of one connection: its address, its certificate and its deadlines. All requests of the connection share
//! this value, which depends on no single request.

use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::base::clock::Nanos;
use crate::base::telemetry::{Label, Metric, WorkerCounter};
use crate::identity::ConnectionPeer;
use crate::net::proxy_protocol::ConnectionAddresses;
use crate::net::tls::listener_tls::ListenerTls;
use crate::net::{PeerAddress, Subject};
use crate::policy::ListenerRole;
use crate::route::{TlsFact, canonical_host};
use crate::serve::worker::deadlines::{Deadlines, Phase};
use crate::serve::worker::worker_state::WorkerState;

/// How long clients may remember that HTTP/3 is served: a day, the default of RFC 7838 section 3.1.
const ALT_SVC_SECONDS: u32 = 86_400;

/// The client's end of one connection.
pub struct Peer {
    /// The address of the client, or of the proxy before the gateway. An address from a trusted PROXY header replaces it.
    pub remote: PeerAddress,
    /// The IP address of `remote`; an IPv4-mapped IPv6 address as IPv4.
    pub ip: IpAddr,
    /// The text of `ip`, which is formatted once for all requests.
    pub ip_text: String,
    /// The index of the listener that the client connected to.
    pub listener_index: usize,
    /// What the gateway does with the requests of that listener.
    pub role: ListenerRole,
    /// The addresses of both ends of the connection.
    pub addresses: ConnectionAddresses,
    /// The deadlines of the connection. Requests over HTTP/2 and HTTP/3 have others of their own.
    pub deadlines: Rc<Deadlines>,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
    /// Whether the client came by QUIC, so that it speaks HTTP/3.
    pub is_quic: bool,
    /// The version of TLS, as `TLSv1.3`; `None` without TLS.
    pub tls_version: Option<&'static str>,
    /// See [`HandshakeFacts::tls_cipher`].
    tls_cipher: Option<&'static str>,
    /// The subject of the client's verified certificate, if it has sent one.
    pub subject: Option<Subject>,
    /// The JA4 fingerprint of the TLS handshake, if some identity comes from it.
    pub ja4: Option<Arc<str>>,
    /// The server name of the TLS handshake; `None` if the client sent none that is valid.
    server_name: Option<ServerName>,
    /// The longest time without a request, as configured when the connection began.
    pub idle_timeout: Duration,
    /// The longest time for the head of a request, as configured when the connection began.
    pub header_timeout: Duration,
    /// The worker that serves the connection.
    pub worker: Rc<WorkerState>,
    /// The `Forwarded` element of the last request that was forwarded.
    last_forwarded_element: RefCell<ForwardedElement>,
    /// See [`Peer::alt_svc`]; unset before the first response with it.
    alt_svc: OnceCell<Box<str>>,
}

/// The gateway's element of the `Forwarded` field, for requests that name one host.
#[derive(Default)]
struct ForwardedElement {
    /// The host that the requests name.
    host: Vec<u8>,
    /// The text of the element; empty before the first request.
    text: Bytes,
}

/// The server name of a handshake (RFC 6066 section 3) in its canonical form, and the certificates offered for it.
struct ServerName {
    name: Box<str>,
    listener_tls: ListenerTls,
}

/// What the handshake of a connection says of its client.
pub struct HandshakeFacts<'a> {
    /// The TLS configuration of the listener; `None` without TLS.
    pub listener_tls: Option<&'a ListenerTls>,
    /// See [`Socket::server_name`](crate::net::Socket::server_name).
    pub server_name: Option<&'a str>,
    /// See [`Peer::tls_version`].
    pub tls_version: Option<&'static str>,
    /// The cipher suite by its name at IANA; `None` without TLS, and over QUIC, which does not tell it.
    pub tls_cipher: Option<&'static str>,
    /// See [`Peer::subject`].
    pub subject: Option<Subject>,
    /// See [`Peer::ja4`].
    pub ja4: Option<Arc<str>>,
    /// See [`Peer::is_quic`].
    pub is_quic: bool,
}

impl Peer {
    /// The client at the other end of a connection.
    pub fn new(
        remote: PeerAddress,
        (listener_index, role): (usize, ListenerRole),
        addresses: ConnectionAddresses,
        facts: HandshakeFacts<'_>,
        deadlines: Rc<Deadlines>,
        worker: &Rc<WorkerState>,
    ) -> Rc<Peer> {
        let timeouts = &worker.generation().ruleset.timeouts;
        let ip = remote.ip();
        let name = facts.server_name.and_then(canonical_host::canonical_name);
        let server_name = name
            .zip(facts.listener_tls)
            .map(|(name, listener_tls)| ServerName {
                name: name.into(),
                listener_tls: listener_tls.clone(),
            });
        Rc::new(Peer {
            remote,
            listener_index,
            role,
            ip,
            ip_text: ip.to_string(),
            addresses,
            deadlines,
            is_tls: facts.listener_tls.is_some(),
            is_quic: facts.is_quic,
            tls_version: facts.tls_version,
            tls_cipher: facts.tls_cipher,
            subject: facts.subject,
            ja4: facts.ja4,
            server_name,
            idle_timeout: timeouts.idle,
            header_timeout: timeouts.header,
            worker: worker.clone(),
            last_forwarded_element: RefCell::default(),
            alt_svc: OnceCell::new(),
        })
    }

    /// The facts about the connection that the client's identities may depend on.
    pub fn connection_peer(&self) -> ConnectionPeer<'_> {
        ConnectionPeer {
            peer: self.remote,
            subject: self.subject.as_ref(),
            ja4: self.ja4.as_ref(),
        }
    }

    /// Whether the certificate that the client was shown covers this host. Any host counts as covered for clients that
    /// sent no valid server name, and for trusted proxies, which may send a name of their own.
    #[inline]
    pub fn covers_host(&self, host: &str) -> bool {
        let Some(server_name) = &self.server_name else {
            return true;
        };
        let after_name = host.as_bytes().strip_prefix(server_name.name.as_bytes());
        matches!(after_name, Some([] | [b':', ..])) || self.covers_by_certificate(server_name, host)
    }

    /// Whether the certificate for the server name covers this other host, or the client is a trusted proxy.
    #[cold]
    fn covers_by_certificate(&self, server_name: &ServerName, host: &str) -> bool {
        let proxies = &self.worker.generation().ruleset.identity.ip.trusted_proxies;
        let is_proxy = proxies.iter().any(|net| net.contains(self.remote));
        let ServerName { name, listener_tls } = server_name;
        is_proxy || listener_tls.covers(name, canonical_host::without_port(host))
    }

    /// A fact about the TLS connection; `None` without TLS, and if the client has not sent it.
    pub fn tls_fact(&self, fact: TlsFact) -> Option<&str> {
        let subject = self.subject.as_ref();
        match fact {
            TlsFact::Version => self.tls_version,
            TlsFact::Cipher => self.tls_cipher,
            TlsFact::Name => Some(&*self.server_name.as_ref()?.name),
            TlsFact::Ja4 => self.ja4.as_deref(),
            TlsFact::Subject => {
                let name = subject.map(|subject| &*subject.distinguished_name);
                name.filter(|name| !name.is_empty())
            }
            TlsFact::San => subject?.alternative_name.as_deref(),
        }
    }

    /// Whether the peer is a proxy that asks whether it may serve a request.
    #[inline]
    pub fn is_check(&self) -> bool {
        self.role == ListenerRole::Check
    }

    /// The scheme of the client's requests.
    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// The value of `Alt-Svc`: HTTP/3 is served at the port that the client has connected to.
    pub fn alt_svc(&self) -> &str {
        self.alt_svc.get_or_init(|| {
            let port = self.addresses.local.port();
            format!("h3=\":{port}\"; ma={ALT_SVC_SECONDS}").into()
        })
    }

    /// The gateway's element of the `Forwarded` field. It is built once for as long as requests name the same host.
    pub fn forwarded_element(&self, host: &[u8]) -> Bytes {
        let last_element = &mut *self.last_forwarded_element.borrow_mut();
        if last_element.text.is_empty() || last_element.host != host {
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
            last_element.text = parts.concat().into();
            last_element.host = host.to_vec();
        }
        last_element.text.clone()
    }

    /// Starts the idle timeout, within which the client must send its next request.
    pub fn enter_idle(&self) {
        self.deadlines.enter_phase(Phase::Idle, self.idle_timeout);
    }

    /// The time of the worker's last tick, which costs no system call.
    pub fn coarse_now(&self) -> Nanos {
        self.worker.deadline_clock.coarse_now()
    }

    /// The counter of this worker for one kind of failure of one upstream.
    pub fn failure_counter(&self, metric: Metric, upstream: &str, reason: &str) -> WorkerCounter {
        let labels = [(Label::Upstream, upstream), (Label::Reason, reason)];
        self.worker
            .registry
            .worker_counter(self.worker.number, metric, &labels)
    }
}
