//! The section `connections` of the gateway file.

use super::collect::Cx;
use super::decode::Whole;
use super::section::{FieldReader, section};
use super::table::{Table, TableField, may};
use super::tree::Node;

section! {
    /// How many connections clients may have.
    #[derive(Copy)]
    pub struct Connections, table CONNECTIONS = "`connections`", "How many connections clients may have.";
    total: Whole<usize, 1, 10_000_000>,
        "In all; further ones wait to be accepted. Default: as many as the process has descriptors for, one more for each kept for its upstream.", "50000";
    per_ip: Whole<usize, 1, 10_000_000>,
        "From one address, grouped as `identity.ip.group` says; further ones are closed. Trusted proxies are not bounded. Default: no bound.", "200";
}
