//! What a connection says about its client before the first request.

use std::net::IpAddr;

use crate::net::{PeerAddress, Subject};

/// The far end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionPeer<'a> {
    /// The address of the far end.
    pub peer: PeerAddress,
    /// The subject of its client certificate, if it presented one that verified.
    pub subject: Option<&'a Subject>,
}

impl From<IpAddr> for ConnectionPeer<'_> {
    fn from(peer: IpAddr) -> Self {
        ConnectionPeer {
            peer: peer.into(),
            subject: None,
        }
    }
}
