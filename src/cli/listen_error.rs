//! Why an address cannot be listened on, and what to do about it.

use std::io;
use std::net::SocketAddr;

use crate::app::Error;
use crate::net::Address;

/// The socket that holds an address was passed, and is another.
pub fn passed_socket_differs(address: SocketAddr, passed: SocketAddr) -> Error {
    let cause = io::Error::other(format!(
        "a socket on {passed} was passed, which holds the port and does not fit; \
         write `listen: \"{passed}\"`, or `ListenStream={address}` in the unit of the socket"
    ));
    Error::Listen {
        address: address.into(),
        cause,
    }
}

/// Why an address cannot be listened on.
pub fn cannot_listen(address: &Address, setting: &str, cause: io::Error) -> Error {
    let cause = match cause.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(
            cause.kind(),
            format!(
                "address in use: another process listens there, perhaps another gateway; \
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
