//! The peer of a connection: what the connection itself shows about a client, before any request.

use std::net::IpAddr;
use std::sync::Arc;

use crate::net::{PeerAddress, Subject};

/// The client or proxy at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionPeer<'a> {
    /// The address of the other end, which may be a proxy's.
    pub peer: PeerAddress,
    /// The subject of the client certificate; `None` if the peer presented none that verified.
    pub subject: Option<&'a Subject>,
    /// The JA4 fingerprint of the peer's TLS handshake; `None` without TLS, or if no identity comes from it.
    pub ja4: Option<&'a Arc<str>>,
}

/// A peer of which only the address matters: without a client certificate and a fingerprint.
impl From<IpAddr> for ConnectionPeer<'_> {
    fn from(peer: IpAddr) -> Self {
        ConnectionPeer {
            peer: peer.into(),
            subject: None,
            ja4: None,
        }
    }
}
