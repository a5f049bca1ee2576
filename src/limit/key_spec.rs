//! What a limit counts by: the parts that make up its key. Each part is an identity, or the first of several that the
//! client has, as in `key: [user or ip, email]`. A key without parts is the same for every client.

use std::fmt;

use smallvec::SmallVec;

use super::{Identity, IdentitySet};

/// The word in policies for a key that is the same for every client.
pub const EVERYONE: &str = "everyone";

/// The parts of a limit's key. Parts that a client does not have are left out of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    parts: Vec<KeyPart>,
}

/// One part of a key: the first of its identities that the client has. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart(SmallVec<[Identity; 2]>);

impl KeySpec {
    /// The key that is the same for every client.
    pub fn everyone() -> KeySpec {
        KeySpec { parts: Vec::new() }
    }

    /// A key of these parts; without parts, the key that is the same for every client.
    pub fn new(parts: Vec<KeyPart>) -> KeySpec {
        KeySpec { parts }
    }

    /// Whether the key is the same for every client.
    pub fn is_everyone(&self) -> bool {
        self.parts.is_empty()
    }

    /// The parts, in the order of the policy.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// All identities that any client may be counted by.
    pub fn identities(&self) -> impl Iterator<Item = Identity> {
        self.parts.iter().flat_map(|part| part.0.iter().copied())
    }

    /// Whether some client may be counted by this identity.
    pub fn has(&self, identity: Identity) -> bool {
        self.identities().any(|own| own == identity)
    }

    /// Whether a client that lacks the identity lacks a part of the key.
    pub fn needs(&self, identity: Identity) -> bool {
        self.parts.iter().any(|part| *part == identity.into())
    }

    /// Whether the identity is the whole key of every client.
    pub fn is_only(&self, identity: Identity) -> bool {
        matches!(self.parts.as_slice(), [part] if *part == identity.into())
    }

    /// Whether both keys have the same parts, in any order.
    pub fn is_same(&self, other: &KeySpec) -> bool {
        let is_in_other = |part: &KeyPart| other.parts.contains(part);
        self.parts.len() == other.parts.len() && self.parts.iter().all(is_in_other)
    }

    /// The identities that make up the key of a client; `has` says which ones it has.
    pub fn select(&self, has: impl Fn(Identity) -> bool) -> IdentitySet {
        let mut selected = IdentitySet::default();
        for part in &self.parts {
            if let Some(identity) = part.0.iter().copied().find(|identity| has(*identity)) {
                selected.insert(identity);
            }
        }
        selected
    }

    /// The parts as policies write them; `everyone` for a key without parts.
    pub fn part_names(&self) -> Vec<String> {
        match self.is_everyone() {
            true => vec![EVERYONE.to_owned()],
            false => self.parts.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&[Identity]> for KeySpec {
    fn from(identities: &[Identity]) -> KeySpec {
        KeySpec::new(identities.iter().copied().map(KeyPart::from).collect())
    }
}

impl<const N: usize> From<&[Identity; N]> for KeySpec {
    fn from(identities: &[Identity; N]) -> KeySpec {
        identities.as_slice().into()
    }
}

/// Writes the key as sentences name it: `ip and (user or token)`.
impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.part_names();
        let needs_brackets = |name: &&String| names.len() > 1 && name.contains(' ');
        let names = names.iter().map(|name| match needs_brackets(&name) {
            true => format!("({name})"),
            false => name.clone(),
        });
        f.write_str(&names.collect::<Vec<_>>().join(" and "))
    }
}

impl KeyPart {
    /// A part of which a client is counted by the first identity that it has. `None` without identities.
    pub fn first_of(identities: &[Identity]) -> Option<KeyPart> {
        (!identities.is_empty()).then(|| KeyPart(identities.into()))
    }

    /// The identities, the first choice first.
    pub fn identities(&self) -> &[Identity] {
        &self.0
    }
}

impl From<Identity> for KeyPart {
    fn from(identity: Identity) -> KeyPart {
        KeyPart(SmallVec::from_slice(&[identity]))
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|identity| identity.as_str()).collect();
        f.write_str(&names.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_of(identities: &[Identity]) -> KeyPart {
        KeyPart::first_of(identities).unwrap()
    }

    #[test]
    fn clients_are_counted_by_the_first_identity_of_each_part_that_they_have() {
        use Identity::{Email, Ip, Plan, Token, User};
        let check = |parts: &[&[Identity]], client: &[Identity], expected: &[Identity]| {
            let spec = KeySpec::new(parts.iter().map(|part| first_of(part)).collect());
            let selected = spec.select(|identity| client.contains(&identity));
            let expected: IdentitySet = expected.iter().copied().collect();
            assert_eq!(selected, expected, "{spec}");
        };
        check(&[&[User, Ip]], &[Ip, User], &[User]);
        check(&[&[User, Ip]], &[Ip], &[Ip]);
        check(&[&[User, Token]], &[Ip], &[]);
        check(&[&[User, Token], &[Ip]], &[Ip, Token], &[Ip, Token]);
        check(&[&[User, Ip], &[Ip]], &[Ip], &[Ip]);
        check(&[&[Plan], &[Email]], &[Ip, Email], &[Email]);
        check(&[], &[Ip], &[]);
    }

    #[test]
    fn names() {
        use Identity::{Ip, Token, User};
        let check = |parts: Vec<KeyPart>, sentence: &str, names: &[&str]| {
            let spec = KeySpec::new(parts);
            assert_eq!(spec.to_string(), sentence);
            assert_eq!(spec.part_names(), names);
        };
        check(vec![], "everyone", &["everyone"]);
        check(vec![Ip.into(), User.into()], "ip and user", &["ip", "user"]);
        check(vec![first_of(&[User, Ip])], "user or ip", &["user or ip"]);
        check(
            vec![first_of(&[User, Token]), Ip.into()],
            "(user or token) and ip",
            &["user or token", "ip"],
        );
    }
}
