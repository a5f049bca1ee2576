//! The identities that limits may count clients by, and sets of them.

use smallvec::SmallVec;

use super::CustomIdentity;

/// What a limit may count clients by. A key is made of one or several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// The address of the client, grouped by prefix.
    Ip,
    /// The user whose proven credential the request carries.
    User,
    /// The credential of the request; only a verified one where the configuration has credentials verified.
    Token,
    /// An email address in the body, the query or a cookie.
    Email,
    /// The plan of the client.
    Plan,
    /// An identity that the gateway file defines, or `preflight`.
    Custom(CustomIdentity),
}

impl Identity {
    /// All identities that are not custom, in the order of the documentation.
    pub const BUILT_IN: [Identity; 5] = [
        Identity::Ip,
        Identity::User,
        Identity::Token,
        Identity::Email,
        Identity::Plan,
    ];

    /// The word in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Identity::Ip => "ip",
            Identity::User => "user",
            Identity::Token => "token",
            Identity::Email => "email",
            Identity::Plan => "plan",
            Identity::Custom(custom) => custom.as_str(),
        }
    }

    /// All identities that policies may name: those that are built in, then all custom ones of this process.
    pub fn all() -> impl Iterator<Item = Identity> + Clone {
        let built_in = Identity::BUILT_IN.into_iter();
        built_in.chain(CustomIdentity::all().map(Identity::Custom))
    }

    /// The identity of this name; `None` if it is neither built in nor defined.
    pub fn find(name: &str) -> Option<Identity> {
        Identity::all().find(|identity| identity.as_str() == name)
    }

    /// The number of the identity's bit in an [`IdentitySet`].
    fn bit_number(self) -> u32 {
        let bit_number = match self {
            Identity::Ip => 0,
            Identity::User => 1,
            Identity::Token => 2,
            Identity::Email => 3,
            Identity::Plan => 4,
            Identity::Custom(custom) => Identity::BUILT_IN.len() + custom.slot(),
        };
        bit_number as u32
    }
}

/// A set of identities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentitySet(u64);

impl IdentitySet {
    /// Adds an identity.
    pub fn insert(&mut self, identity: Identity) {
        self.0 |= 1 << identity.bit_number();
    }

    /// Whether the identity is in the set.
    pub fn contains(self, identity: Identity) -> bool {
        self.0 & (1 << identity.bit_number()) != 0
    }

    /// The identities of both sets.
    pub fn union(self, other: IdentitySet) -> IdentitySet {
        IdentitySet(self.0 | other.0)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set without the identities that are not custom.
    pub fn custom_only(self) -> IdentitySet {
        IdentitySet(self.0 >> Identity::BUILT_IN.len() << Identity::BUILT_IN.len())
    }

    /// The identities: first those that are not custom, then the others in the order of their names. The order is the same
    /// in every process.
    pub fn iter(self) -> impl Iterator<Item = Identity> {
        let custom = self.custom().into_iter().map(Identity::Custom);
        self.built_in().chain(custom)
    }

    /// The identities that are not custom, in the order of [`Identity::BUILT_IN`].
    pub fn built_in(self) -> impl Iterator<Item = Identity> {
        let built_in = Identity::BUILT_IN.into_iter();
        built_in.filter(move |identity| self.contains(*identity))
    }

    /// The custom identities, in the order of their names: the same in every process.
    pub fn custom(self) -> SmallVec<[CustomIdentity; 4]> {
        let mut identities = SmallVec::<[CustomIdentity; 4]>::new();
        // A bit for each slot of custom identities; the loop clears the lowest one each time.
        let mut slot_bits = self.0 >> Identity::BUILT_IN.len();
        while slot_bits != 0 {
            identities.extend(CustomIdentity::from_slot(
                slot_bits.trailing_zeros() as usize
            ));
            slot_bits &= slot_bits - 1;
        }
        identities.sort_unstable_by_key(|identity| identity.as_str());
        identities
    }
}

impl FromIterator<Identity> for IdentitySet {
    fn from_iter<I: IntoIterator<Item = Identity>>(identities: I) -> IdentitySet {
        let mut set = IdentitySet::default();
        identities
            .into_iter()
            .for_each(|identity| set.insert(identity));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_identities_of_a_set_are_in_the_order_of_their_names() {
        let custom = |name| CustomIdentity::define(name).unwrap();
        let (zone, account) = (custom("zone"), custom("account"));
        let set = [
            Identity::Custom(zone),
            Identity::Plan,
            Identity::Custom(account),
        ];
        let set: IdentitySet = set.into_iter().collect();
        assert_eq!(set.custom().as_slice(), [account, zone]);
        assert_eq!(set.built_in().collect::<Vec<_>>(), [Identity::Plan]);
        assert!(set.contains(Identity::Custom(zone)) && !set.contains(Identity::Ip));
        let custom_only = [account, zone].map(Identity::Custom);
        assert_eq!(set.custom_only(), custom_only.into_iter().collect());
        let all = [&[Identity::Plan], &custom_only[..]].concat();
        assert_eq!(set.iter().collect::<Vec<_>>(), all);
    }
}
