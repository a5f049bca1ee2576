//! What ACLs test, and conditions of several of them.

use std::collections::HashMap;
use std::rc::Rc;

use ipnet::IpNet;

use crate::import::model::IdentityPlace;
use crate::route::pattern::{HostPattern, Pattern};

/// What one ACL tests.
#[derive(Clone, Debug)]
pub enum AclTest {
    /// It holds always, or never.
    Constant(bool),
    /// The path is matched by one of these, by their indexes in the table.
    Path(Vec<usize>),
    /// The host is one of these.
    Host(Vec<HostPattern>),
    /// The method is one of these.
    Method(Vec<String>),
    /// The connection has TLS.
    Tls,
    /// The port of the listener is one of these.
    Port(Vec<u16>),
    /// The address of the connection is in the list with this index.
    Address(usize),
    /// The request has something here.
    Present(IdentityPlace),
    /// A counter of a table is above a number.
    Rate(RateTest),
    /// It cannot be tested here; the text says why.
    Unknown(String),
}

/// What a counter is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateTest {
    /// The number of `sc0`, `sc1` and so on; `None` for the address of the connection.
    pub counter: Option<usize>,
    /// What is counted, as `http_req_rate`.
    pub what: String,
    /// The table that the test names.
    pub table: Option<String>,
    /// The largest number that is not above the bound; `None` if the comparison has no counterpart.
    pub most: Option<u64>,
    /// Whether the test holds above the bound, and not below.
    pub is_above: bool,
}

/// All tests of a configuration, with what they share.
#[derive(Debug, Default)]
pub struct AclTable {
    /// The tests.
    pub tests: Vec<AclTest>,
    /// Paths that tests name.
    pub paths: Vec<(String, Pattern)>,
    path_index: HashMap<String, usize>,
    /// Networks that tests name.
    pub lists: Vec<Vec<IpNet>>,
}

/// The ACLs of a section by name: a name that is there twice holds if either does.
pub type NamedAcls = HashMap<String, Rc<Vec<usize>>>;

/// An ACL in a condition: the tests of which one must hold, and whether that is negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclTerm {
    /// Indexes of tests.
    pub tests: Rc<Vec<usize>>,
    /// Whether none of them may hold.
    pub is_negated: bool,
}

/// Alternatives, in each of which all terms must hold.
pub type RuleCondition = Vec<Vec<AclTerm>>;

impl AclTable {
    /// The index of a path of a match; `None` if it is none.
    pub fn add_path(&mut self, text: &str) -> Option<usize> {
        if let Some(index) = self.path_index.get(text) {
            return Some(*index);
        }
        let pattern = Pattern::parse(text).ok()?;
        let index = self.paths.len();
        self.paths.push((text.to_owned(), pattern));
        self.path_index.insert(text.to_owned(), index);
        Some(index)
    }

    /// Adds a test, and returns its index.
    pub fn add(&mut self, test: AclTest) -> usize {
        self.tests.push(test);
        self.tests.len() - 1
    }
}
