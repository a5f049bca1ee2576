//! Why an address cannot be listened on, and what to do about it.

use std::io;
use std::net::SocketAddr;

use crate::app::Error;
use crate::net::Address;

/// A passed socket occupies the port of a `listen` that it does not fit.
pub fn passed_socket_differs(address: SocketAddr, passed: SocketAddr) -> Error {
    let cause = io::Error::other(format!(
        "the passed socket on {passed} occupies the port but does not fit; \
         write `listen: \"{passed}\"`, or `ListenStream={address}` in the unit of the socket"
    ));
    Error::Listen {
        address: address.into(),
        cause,
    }
}

/// Adds to a failed bind what the operator can do about it.
pub fn cannot_listen(address: &Address, setting: &str, cause: io::Error) -> Error {
    let cause = match cause.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(
            cause.kind(),
            format!(
                "address in use: another process, perhaps another gateway, listens there; \
                 stop it, or choose another address with `{setting}`"
            ),
        ),
        _ => cause,
    };
    Error::Listen {
        address: address.clone(),
        cause,
    }
}
