//! Clients that another proxy names by entries of a descriptor, each a key and a value. The proxy is trusted: nothing is
//! verified, and values are taken as they are.

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::smallvec;

use super::{ClientIdentity, Identifier};
use crate::identity::custom_value::{CustomValue, IdentityValue};
use crate::identity::key::Domain;
use crate::identity::user_name;
use crate::limit::{Fingerprint, Identity};

/// The keys of entries with the client's address, the first choice first.
pub const ADDRESS_KEYS: [&str; 2] = ["ip", "remote_address"];

impl Identifier {
    /// The client that these entries name. The key of an entry is the name of the identity; others are left out. Of a key
    /// that occurs several times the first value counts.
    ///
    /// Without an entry of [`ADDRESS_KEYS`] the client has the address `peer`, which is unclear.
    pub fn client_of_entries(&self, entries: &[(&str, &str)], peer: IpAddr) -> ClientIdentity {
        let address = ADDRESS_KEYS.iter().find_map(|name| {
            let mut entries = entries.iter();
            let (_, text) = entries.find(|(key, _)| key == name)?;
            text.parse::<IpAddr>().ok()
        });
        let counted_address =
            address.map(|address| self.settings.ip.counted_address(address.to_canonical()));
        let mut client = ClientIdentity::new(counted_address.unwrap_or(peer));
        client.is_ip_unclear = address.is_none();
        client.plan = self.settings.plan.default_index;
        for (key, text) in entries {
            let Some(identity) = Identity::find(key) else {
                continue;
            };
            match identity {
                Identity::Ip => {}
                Identity::Plan => client.plan = self.settings.plan.index_of(text).or(client.plan),
                _ if client.has(identity) => {}
                Identity::User => client.user = Some(self.entry_name(text)),
                Identity::Token => client.token = Some(self.hash_token(text)),
                Identity::Email => {
                    let hash = self.hash_email(text);
                    client.email = Some(hash.unwrap_or_else(|| self.hash_entry(text)));
                }
                Identity::Custom(identity) => {
                    let value = match user_name::parse(text) {
                        Some(name) => IdentityValue::Names(smallvec![name]),
                        None => IdentityValue::Hash(self.hash_entry(text)),
                    };
                    client.custom.push(CustomValue { identity, value });
                }
            }
        }
        client
    }

    /// The name in an entry; a text that is no name, such as an empty one, becomes the digits of its hash.
    fn entry_name(&self, text: &str) -> Arc<str> {
        let hash = || format!("#{:032x}", self.hash_entry(text).0).into();
        user_name::parse(text).unwrap_or_else(hash)
    }

    fn hash_entry(&self, text: &str) -> Fingerprint {
        self.keyer.fingerprint(Domain::Custom, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::identity::{Keyer, Settings};
    use crate::limit::{CustomIdentity, KeySpec};

    #[test]
    fn entries_are_identities_by_their_name() {
        let identifier = Identifier::new(Settings::default(), Keyer::new([7; 16]));
        let path = CustomIdentity::define("entry-path").unwrap();
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let client = |entries: &[(&str, &str)]| identifier.client_of_entries(entries, peer);
        let key = |entries: &[(&str, &str)], identity: Identity| {
            identifier.key(&client(entries), &KeySpec::from(&[identity]))
        };
        let by_path = |value: &str| key(&[("entry-path", value)], Identity::Custom(path)).unwrap();
        assert_eq!(by_path("/a"), by_path("/a"));
        assert_ne!(by_path("/a"), by_path("/b"));
        // An empty or a long value is a value too, and another one than none.
        assert_ne!(by_path(""), by_path(" "));
        assert_ne!(by_path(&"a".repeat(300)), by_path(&"a".repeat(301)));
        assert_eq!(key(&[("other", "x")], Identity::Custom(path)), None);
        let address = client(&[("remote_address", "::ffff:192.0.2.7")]);
        assert_eq!(address.ip.to_string(), "192.0.2.7");
        assert!(!address.is_ip_unclear);
        let no_address = client(&[("remote_address", "192.0.2.0/24")]);
        assert!(no_address.is_ip_unclear && no_address.ip == peer);
        assert_eq!(client(&[("user", "alice")]).user.as_deref(), Some("alice"));
        for text in ["", "no address"] {
            assert!(key(&[("email", text)], Identity::Email).is_some());
            assert!(key(&[("user", text)], Identity::User).is_some());
            assert!(key(&[("token", text)], Identity::Token).is_some());
        }
    }
}
