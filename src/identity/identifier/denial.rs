//! Decides whether lists of `deny` and `allow` refuse a client. Ambiguous values decide nothing here: the caller refuses
//! requests with them, because the lists depend on these identities.

use std::fmt;
use std::sync::Arc;

use super::{ClientIdentity, Identifier};
use crate::identity::custom_value::IdentityValue;
use crate::limit::{
    AccessEffect, AccessList, AccessLists, ClientCondition, Identity, IdentityTest,
};

/// The refusal of a client by a list.
#[derive(Clone, Debug)]
pub struct Denial {
    /// The list that refuses the client.
    pub list: Arc<AccessList>,
    /// The part of the list that decided.
    part: ListPart,
}

/// The part of a list that refuses a client.
#[derive(Clone, Debug)]
enum ListPart {
    /// The entry of `deny` whose network has the client's address, as the file wrote it.
    Network(Arc<str>),
    /// The networks of `allow`, none of which has the client's address.
    NoNetwork,
    /// The condition with this index, which the client meets in `deny`, or does not meet in `allow`.
    Condition(usize),
}

/// Which identities of a client are found already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentificationStage {
    /// Those of the head. The body may add others, and changes none but the plan.
    Head,
    /// All that the request has.
    Whole,
}

impl Denial {
    /// The identity of an `allow` that the client does not meet, other than its address; `None` for any other denial.
    pub fn unmet_identity(&self) -> Option<Identity> {
        match (self.list.effect, &self.part) {
            (AccessEffect::Allow, ListPart::Condition(index)) => {
                let condition = self.list.conditions.get(*index)?;
                Some(condition.identity)
            }
            _ => None,
        }
    }
}

/// Names the list and the entry for operators: `deny at tollgate.yaml:12 has ip 203.0.113.0/24`.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccessList { effect, origin, .. } = &*self.list;
        let verb = match effect {
            AccessEffect::Deny => "denies",
            AccessEffect::Allow => "admits only",
        };
        write!(f, "`{}` at {origin} {verb} ", effect.as_str())?;
        match &self.part {
            ListPart::Network(entry) => write!(f, "ip {entry}"),
            ListPart::NoNetwork => f.write_str("the networks that it lists"),
            ListPart::Condition(index) => match self.list.conditions.get(*index) {
                Some(condition) => write!(f, "{condition}"),
                None => Ok(()),
            },
        }
    }
}

impl Identifier {
    /// The first of the lists that refuses the client for its address. A client that has made its address unclear is not
    /// refused: see [`ClientIdentity::is_ip_disputed`]. One that came over a Unix socket is in no network.
    pub fn find_address_denial(
        &self,
        lists: &AccessLists,
        client: &ClientIdentity,
    ) -> Option<Denial> {
        if client.is_ip_disputed {
            return None;
        }
        lists.iter().find_map(|list| {
            let networks = list.networks.as_ref()?;
            let entry = match client.is_ip_unclear {
                true => None,
                false => networks.find(client.ip),
            };
            let part = match (list.effect, entry) {
                (AccessEffect::Deny, Some(entry)) => ListPart::Network(entry.clone()),
                (AccessEffect::Allow, None) => ListPart::NoNetwork,
                _ => return None,
            };
            Some(Denial {
                list: list.clone(),
                part,
            })
        })
    }

    /// The first of the lists that refuses the client for another identity than its address. At the stage
    /// [`IdentificationStage::Head`], only what no body can change refuses it.
    pub fn find_identity_denial(
        &self,
        lists: &AccessLists,
        client: &ClientIdentity,
        stage: IdentificationStage,
    ) -> Option<Denial> {
        lists.iter().find_map(|list| {
            let refuses = |condition: &ClientCondition| match list.effect {
                _ if is_ambiguous(client, condition.identity) => false,
                AccessEffect::Deny => {
                    let is_final = stage == IdentificationStage::Whole || is_settled(condition);
                    is_final && self.meets(condition, client)
                }
                AccessEffect::Allow => {
                    stage == IdentificationStage::Whole && !self.meets(condition, client)
                }
            };
            let index = list.conditions.iter().position(refuses)?;
            Some(Denial {
                list: list.clone(),
                part: ListPart::Condition(index),
            })
        })
    }
}

/// Whether a client that meets the condition by its head meets it whatever the body has. A key in the body may bring another
/// plan than the default.
fn is_settled(condition: &ClientCondition) -> bool {
    let needs_value = !matches!(
        condition.test,
        IdentityTest::Absent | IdentityTest::NoneOf(_)
    );
    needs_value && condition.identity != Identity::Plan
}

fn is_ambiguous(client: &ClientIdentity, identity: Identity) -> bool {
    match identity {
        Identity::Custom(custom) => client.custom_value(custom) == Some(&IdentityValue::Ambiguous),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::Fields;
    use crate::identity::{ConnectionPeer, Keyer, Settings};
    use crate::limit::NetworkTable;
    use crate::net::{PeerAddress, PeerNetwork};

    const LOCAL: &str = "127.0.0.0/8";

    /// Whether a list with this network refuses a client, and whether the client's address is disputed.
    fn refuses(
        effect: AccessEffect,
        network: &str,
        trusts_unix: bool,
        forwarded: &[(&str, &[u8])],
    ) -> (bool, bool) {
        let mut settings = Settings::default();
        if trusts_unix {
            settings.ip.trusted_proxies = vec![PeerNetwork::Unix];
        }
        let identifier = Identifier::new(settings, Keyer::new([0; 16]));
        let networks = vec![(network.parse().unwrap(), 0)];
        let list = AccessList {
            effect,
            origin: String::new(),
            is_silent: false,
            networks: Some(NetworkTable::new(vec![network.into()], networks)),
            conditions: Vec::new(),
        };
        let lists = AccessLists::from_iter([Arc::new(list)]);
        let mut fields = Fields::default();
        for (name, value) in forwarded {
            fields.add(name, value);
        }
        let connection = ConnectionPeer {
            peer: PeerAddress::Unix,
            subject: None,
            ja4: None,
        };
        let client = identifier.identify_by_address(connection, &fields);
        let denial = identifier.find_address_denial(&lists, &client);
        (denial.is_some(), client.is_ip_disputed)
    }

    /// The address that stands for such clients is 127.0.0.1, which no list means.
    #[test]
    fn a_client_on_a_unix_socket_is_in_no_network() {
        use AccessEffect::{Allow, Deny};
        let from_local: &[(&str, &[u8])] = &[("x-forwarded-for", b"127.0.0.1")];
        for trusts_unix in [false, true] {
            assert_eq!(refuses(Deny, LOCAL, trusts_unix, &[]), (false, false));
            assert_eq!(refuses(Allow, LOCAL, trusts_unix, &[]), (true, false));
            let denied = refuses(Deny, LOCAL, trusts_unix, from_local);
            assert_eq!(denied, (trusts_unix, false));
            let allowed = refuses(Allow, LOCAL, trusts_unix, from_local);
            assert_eq!(allowed, (!trusts_unix, false));
            let unreadable: &[(&str, &[u8])] = &[("x-forwarded-for", b"unknown")];
            let (is_denied, is_disputed) = refuses(Deny, LOCAL, trusts_unix, unreadable);
            assert_eq!((is_denied, is_disputed), (false, trusts_unix));
        }
    }
}
