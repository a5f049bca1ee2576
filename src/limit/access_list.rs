//! The lists of clients that `deny` refuses and `allow` admits, as in `deny: { ip: [203.0.113.0/24], country: [XX] }`.
//! Nothing here decides about a client: `identity/identifier/denial.rs` does.

use std::fmt;
use std::sync::Arc;

use super::{ClientCondition, Identity, NetworkTable};

/// One `deny` or `allow` of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    /// Whether the list refuses clients or admits them.
    pub effect: AccessEffect,
    /// The file and the line of the list, such as `tollgate.yaml:12`.
    pub origin: String,
    /// Whether a client that the list refuses gets no response.
    pub is_silent: bool,
    /// The networks under `ip`, each with what the file wrote: a network, or the name of a file of networks. `None` if the
    /// list does not name the address.
    pub networks: Option<NetworkTable>,
    /// What the list names under other identities, in the order of the files.
    pub conditions: Vec<ClientCondition>,
}

/// What a list does with the clients on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessEffect {
    /// A client is refused if any entry matches.
    Deny,
    /// A client is refused unless an entry matches for each identity that the list names.
    Allow,
}

impl AccessEffect {
    /// The name of the field in the files.
    pub fn as_str(self) -> &'static str {
        match self {
            AccessEffect::Deny => "deny",
            AccessEffect::Allow => "allow",
        }
    }
}

impl AccessList {
    /// The part of the list about other identities; `None` if the list names the address only.
    pub fn identity_part(&self) -> Option<AccessList> {
        (!self.conditions.is_empty()).then(|| AccessList {
            networks: None,
            effect: self.effect,
            origin: self.origin.clone(),
            is_silent: self.is_silent,
            conditions: self.conditions.clone(),
        })
    }
}

/// Describes the list as a sentence without its subject: `denies ip 203.0.113.0/24 or blocked.txt, or country XX`.
impl fmt::Display for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, separator) = match self.effect {
            AccessEffect::Deny => ("denies", ", or "),
            AccessEffect::Allow => ("denies all but", ", and "),
        };
        let networks = self.networks.as_ref().map(|networks| {
            let names: Vec<&str> = networks.names().iter().map(|name| &**name).collect();
            format!("ip {}", names.join(" or "))
        });
        let conditions = self.conditions.iter().map(ToString::to_string);
        let parts: Vec<String> = networks.into_iter().chain(conditions).collect();
        write!(f, "{verb} {}", parts.join(separator))?;
        if self.is_silent {
            f.write_str(", without a response")?;
        }
        Ok(())
    }
}

/// The lists that hold for a request. A client is refused if any of them refuses it.
#[derive(Clone, Debug, Default)]
pub struct AccessLists(Box<[Arc<AccessList>]>);

impl AccessLists {
    /// Whether no list refuses any client.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lists: those of the gateway file first, those of the policy last.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<AccessList>> {
        self.0.iter()
    }

    /// Whether one of the lists has networks.
    pub fn has_networks(&self) -> bool {
        self.iter().any(|list| list.networks.is_some())
    }

    /// The identities that the lists name, without the address.
    pub fn identities(&self) -> impl Iterator<Item = Identity> {
        let conditions = self.iter().flat_map(|list| &list.conditions);
        conditions.map(|condition| condition.identity)
    }

    /// Whether each list of `other` is one of these. Lists with the same text in two files differ.
    pub fn covers(&self, other: &AccessLists) -> bool {
        other.iter().all(|list| self.has(list))
    }

    /// These lists, and those of `other` that are not among them.
    pub fn combined_with(&self, other: &AccessLists) -> AccessLists {
        let further_lists = other.iter().filter(|list| !self.has(list));
        self.iter().chain(further_lists).cloned().collect()
    }

    fn has(&self, list: &Arc<AccessList>) -> bool {
        self.iter().any(|own| Arc::ptr_eq(own, list))
    }
}

impl FromIterator<Arc<AccessList>> for AccessLists {
    fn from_iter<I: IntoIterator<Item = Arc<AccessList>>>(lists: I) -> AccessLists {
        AccessLists(lists.into_iter().collect())
    }
}
