//! Identifies a client by its address alone, before any credential is read.

use super::Identifier;
use crate::http::head::Fields;
use crate::identity::{ClientIdentity, ConnectionPeer, ip};

impl Identifier {
    /// The client's address, with the default plan and no other identity.
    pub fn identify_by_address<'a>(
        &self,
        connection: impl Into<ConnectionPeer<'a>>,
        fields: &Fields,
    ) -> ClientIdentity {
        let connection = connection.into();
        let address = ip::client_address(&self.trusted_proxies, connection.peer, fields);
        let mut client = ClientIdentity::new(self.settings.ip.counted_address(address.ip));
        client.is_ip_unclear = address.is_unclear;
        client.is_ip_disputed = address.is_unclear
            && self.trusted_proxies.contains(connection.peer)
            && (fields.contains(ip::X_FORWARDED_FOR) || fields.contains(ip::FORWARDED));
        client.plan = self.settings.plan.default_index;
        client
    }
}
