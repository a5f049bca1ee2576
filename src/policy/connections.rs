//! The section `connections` of the gateway file, which bounds the connections of clients. The running gateway uses it
//! as it is.

use super::decode::WholeNumberField;
use super::section::section;

section! {
    /// How many connections clients may have.
    #[derive(Copy)]
    pub struct Connections, table CONNECTIONS_TABLE = "`connections`", "How many connections clients may have.";
    total: WholeNumberField<usize, 1, 10_000_000>,
        "In all; further ones wait to be accepted. Default: as many as the process has descriptors for, one more for each kept for its upstream.", "50000";
    per_ip: WholeNumberField<usize, 1, 10_000_000>,
        "From one address, grouped as `identity.ip.group` says; further ones are closed. Trusted proxies are not bounded. Default: no bound.", "200";
}
