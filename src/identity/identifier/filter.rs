//! Decides whether a limit applies to a client, by the conditions of the limit's `for` and of its rates by plan.

use super::{ClientIdentity, Identifier};
use crate::identity::custom_value::IdentityValue;
use crate::limit::{ClientCondition, ClientFilter, Identity, IdentityTest};

impl Identifier {
    /// Whether the filter selects the client.
    #[inline]
    pub fn selects(&self, filter: &ClientFilter, client: &ClientIdentity) -> bool {
        filter.is_empty()
            || (filter.conditions.iter()).all(|condition| self.meets(condition, client))
    }

    /// Whether the client's identity passes the test of the condition.
    pub(super) fn meets(&self, condition: &ClientCondition, client: &ClientIdentity) -> bool {
        let identity = condition.identity;
        match &condition.test {
            IdentityTest::Present => client.has(identity),
            IdentityTest::Absent => !client.has(identity),
            IdentityTest::OneOf(values) => self.has_value_among(client, identity, values),
            IdentityTest::NoneOf(values) => !self.has_value_among(client, identity, values),
            IdentityTest::InNetwork(networks) => {
                // A client must not evade the limit by an unclear address.
                client.is_ip_unclear || networks.iter().any(|network| network.contains(&client.ip))
            }
        }
    }

    /// Whether one of the client's values of this identity is among `values`; true if its value is ambiguous.
    fn has_value_among(
        &self,
        client: &ClientIdentity,
        identity: Identity,
        values: &[String],
    ) -> bool {
        if let Identity::Custom(custom) = identity {
            return match client.custom_value(custom) {
                Some(IdentityValue::Names(names)) => {
                    (names.iter()).any(|name| values.iter().any(|value| **value == **name))
                }
                // A client must not evade a limit for certain values by an ambiguous one.
                Some(IdentityValue::Ambiguous) => true,
                Some(IdentityValue::Hash(_)) | None => false,
            };
        }
        let client_value = self.comparable_text(client, identity);
        client_value.is_some_and(|client_value| values.iter().any(|value| value == client_value))
    }

    /// The client's user or plan as text; `None` for other identities, and if the client has none.
    fn comparable_text<'c>(
        &'c self,
        client: &'c ClientIdentity,
        identity: Identity,
    ) -> Option<&'c str> {
        match identity {
            Identity::User => client.user.as_deref(),
            Identity::Plan => {
                let plans = &self.settings.plan.plans;
                client
                    .plan
                    .and_then(|index| plans.get(index))
                    .map(|plan| plan.name.as_str())
            }
            Identity::Ip | Identity::Token | Identity::Email | Identity::Custom(_) => None,
        }
    }
}
