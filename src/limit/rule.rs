//! A limit as a policy names it: which key it counts by, what uses it up, whom it spares.

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use super::texts::{Once, Texts};
use super::{Bound, OnError, Reserve, Sharing};
use crate::cost;
use crate::pressure::Condition;

/// The one word that a limit is called by everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// Why a text is not a limit's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit's name is 1 to 64 letters, digits, `-` or `_`, starting with a letter")]
pub struct NameError;

impl Name {
    /// Checks that `text` can stand in headers, logs and metrics unquoted.
    pub fn new(text: &str) -> Result<Name, NameError> {
        let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
        let plain = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if starts && plain && text.len() <= 64 {
            Ok(Name(text.into()))
        } else {
            Err(NameError)
        }
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the gateway can know about who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// The client's address, grouped by prefix.
    Ip,
    /// Who the request proves to be.
    User,
    /// The credential it carries, proven or not.
    Token,
    /// An address in the body.
    Email,
    /// The plan it is on.
    Plan,
}

impl Identity {
    /// All of them, in the order in which they are documented.
    pub const ALL: [Identity; 5] = [
        Identity::Ip,
        Identity::User,
        Identity::Token,
        Identity::Email,
        Identity::Plan,
    ];

    /// As policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Identity::Ip => "ip",
            Identity::User => "user",
            Identity::Token => "token",
            Identity::Email => "email",
            Identity::Plan => "plan",
        }
    }
}

/// What uses a limit up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// Every admitted request, one unit.
    All,
    /// Responses whose status is in the range, one unit each.
    Status {
        /// Lowest status that counts.
        from: u16,
        /// Highest status that counts.
        to: u16,
    },
    /// The number in this header or trailer field of the response.
    CostHeader(http::HeaderName),
    /// The last number at this path of the response's body.
    CostJson(cost::Path),
}

impl Count {
    /// Whether use is known only when the response is there.
    pub fn needs_response(&self) -> bool {
        !matches!(self, Count::All)
    }

    /// Whether a request uses as many units as its response says.
    pub fn is_cost(&self) -> bool {
        matches!(self, Count::CostHeader(_) | Count::CostJson(_))
    }
}

impl Rule {
    /// Whether it counts a request that the gateway answers itself. Such a request needs no permit, and no upstream says
    /// what it costs.
    pub fn counts_own_responses(&self) -> bool {
        !self.count.is_cost() && self.limit.rate().is_some()
    }
}

/// What clients are told of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclose {
    /// Headers and refusals name it.
    All,
    /// Headers and refusals keep silent about it.
    None,
}

/// One limit of the running policies.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The word it is called by.
    pub name: Name,
    /// Its place among the limits of the running policies; see `policy::Ruleset::rules`.
    pub index: usize,
    /// Where it is written, `policies/api.yaml:4`.
    pub origin: String,
    /// What tells its counters apart from those of other limits: the name, and the route's name
    /// too where `per: route` or a route's own limit separates.
    pub scope: String,
    /// What it is counted by; of a list the parts that are there make one key.
    pub key: Vec<Identity>,
    /// What it holds requests to.
    pub limit: Bound,
    /// Its algorithm is written: no other number changes it.
    pub algorithm_is_written: bool,
    /// What uses it up.
    pub count: Count,
    /// What a request holds until its cost is known; one unit without it.
    pub reserve: Option<Reserve>,
    /// While what an elastic limit lends.
    pub condition: Option<Condition>,
    /// Whether plans multiply it.
    pub plans: bool,
    /// Counts and reports without refusing.
    pub shadow: bool,
    /// Addresses it does not apply to.
    pub exempt: Vec<IpNet>,
    /// What clients are told.
    pub disclose: Disclose,
    /// How gateways with one store share it.
    pub sharing: Sharing,
    /// What holds while the store cannot be asked.
    pub on_store_error: OnError,
    /// What is said of it.
    pub texts: Once<Texts>,
}

impl Rule {
    /// A rule that no file wrote: every request counts, clients are told, nobody is spared. `index`
    /// is its place in the list that admission is made with.
    pub fn new(name: Name, index: usize, key: &[Identity], limit: impl Into<Bound>) -> Rule {
        let limit = limit.into();
        Rule {
            sharing: limit.rate().map_or(Sharing::Local, Sharing::default_for),
            on_store_error: OnError::Local,
            texts: Once::default(),
            index,
            origin: String::new(),
            scope: name.as_str().to_owned(),
            name,
            key: key.to_vec(),
            limit,
            algorithm_is_written: false,
            count: Count::All,
            reserve: None,
            condition: None,
            plans: false,
            shadow: false,
            exempt: Vec::new(),
            disclose: Disclose::All,
        }
    }
}
