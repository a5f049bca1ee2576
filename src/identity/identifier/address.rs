//! Who a request comes from as far as its address tells. Looks at no credential.

use super::Identifier;
use crate::http::head::Fields;
use crate::identity::{ClientIdentity, ConnectionPeer, ip};

impl Identifier {
    /// What [`Identifier::identify`] finds out without credentials.
    pub fn client<'a>(
        &self,
        connection: impl Into<ConnectionPeer<'a>>,
        fields: &Fields,
    ) -> ClientIdentity {
        let client = ip::client(&self.trusted, connection.into().peer, fields);
        let mut who = ClientIdentity::new(self.settings.ip.counted(client.ip));
        who.ip_unclear = client.unclear;
        who.plan = self.settings.plan.default;
        who
    }
}
