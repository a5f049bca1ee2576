//! Who a request comes from as far as its address tells. Looks at no credential.

use super::Identifier;
use crate::http::head::Fields;
use crate::identity::{Connection, Who, ip};

impl Identifier {
    /// What [`Identifier::identify`] finds out without credentials.
    pub fn client<'a>(&self, connection: impl Into<Connection<'a>>, fields: &Fields) -> Who {
        let client = ip::client(&self.trusted, connection.into().peer, fields);
        let mut who = Who::new(self.settings.ip.counted(client.ip));
        who.ip_unclear = client.unclear;
        who.plan = self.settings.plan.default;
        who
    }
}
