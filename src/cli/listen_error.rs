//! Creates the errors of addresses that cannot be bound, with advice for the operator. Nothing is bound here.

use std::io;
use std::net::SocketAddr;

use crate::app::Error;
use crate::net::Address;

/// Returns the error of an address for clients that cannot be bound, because a passed socket with another address
/// occupies its port.
pub fn passed_socket_differs(address: SocketAddr, passed_address: SocketAddr) -> Error {
    let cause = io::Error::other(format!(
        "the passed socket on {passed_address} occupies the port but does not fit; \
         write `listen: \"{passed_address}\"`, or `ListenStream={address}` in the unit of the socket"
    ));
    Error::Listen {
        address: address.into(),
        cause,
    }
}

/// Returns the error of a failed bind, with advice if the address is in use. `setting` is the field of the gateway file
/// with the address.
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
