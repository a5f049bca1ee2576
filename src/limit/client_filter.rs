//! Which clients a limit is for, as in `for: { user: absent, plan: [free] }`. Nothing here decides whether a client is
//! selected: `identity/identifier/filter.rs` does.

use std::fmt;

use ipnet::IpNet;

use super::Identity;

/// Selects the clients that meet all conditions; without conditions, all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    /// The conditions, in the order of the policy.
    pub conditions: Vec<ClientCondition>,
}

/// A condition on one identity of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCondition {
    /// The identity that the condition is about.
    pub identity: Identity,
    /// What the client must have as this identity.
    pub test: IdentityTest,
}

/// What a client must have as an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityTest {
    /// Any value.
    Present,
    /// No value.
    Absent,
    /// One of these values, or an ambiguous one.
    OneOf(Vec<String>),
    /// No value, or only values other than these. An ambiguous value does not pass.
    NoneOf(Vec<String>),
    /// An address in one of these networks, or an unclear one.
    InNetwork(Vec<IpNet>),
}

impl ClientFilter {
    /// Whether there are no conditions, so that the filter selects all clients.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether a condition depends on the identity.
    pub fn has(&self, identity: Identity) -> bool {
        self.identities().any(|own| own == identity)
    }

    /// The identities on which conditions depend.
    pub fn identities(&self) -> impl Iterator<Item = Identity> {
        self.conditions.iter().map(|condition| condition.identity)
    }
}

/// Writes the filter as sentences name it: `user absent and plan free or trial`.
impl fmt::Display for ClientFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, condition) in self.conditions.iter().enumerate() {
            let separator = if index == 0 { "" } else { " and " };
            write!(f, "{separator}{condition}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ClientCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.identity.as_str())?;
        match &self.test {
            IdentityTest::Present => f.write_str(" present"),
            IdentityTest::Absent => f.write_str(" absent"),
            IdentityTest::OneOf(values) => write!(f, " {}", values.join(" or ")),
            IdentityTest::NoneOf(values) => write!(f, " other than {}", values.join(" or ")),
            IdentityTest::InNetwork(networks) => {
                let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
                write!(f, " {}", networks.join(" or "))
            }
        }
    }
}
