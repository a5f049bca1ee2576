//! The peer of a connection: what the gateway knows about a client before its first request.

use std::net::IpAddr;

use crate::net::{PeerAddress, Subject};

/// The client or proxy at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionPeer<'a> {
    /// The address of the other end, which may be a proxy's.
    pub peer: PeerAddress,
    /// The subject of the client certificate, if the peer presented one that verified.
    pub subject: Option<&'a Subject>,
}

/// A peer without a client certificate.
impl From<IpAddr> for ConnectionPeer<'_> {
    fn from(peer: IpAddr) -> Self {
        ConnectionPeer {
            peer: peer.into(),
            subject: None,
        }
    }
}
