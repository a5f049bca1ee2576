//! Rules of a section, and what they do.

use super::acl_test::RuleCondition;
use super::syntax::ConfigLine;
use crate::import::report::Origin;

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Requests get this status.
    Deny(u16),
    /// The rules behind it in its phase do not hold.
    Allow,
    /// HAProxy answers itself.
    Return {
        /// The status.
        status: u16,
        /// The body; empty for none.
        body: String,
        /// Its media type.
        content_type: String,
    },
    /// Clients are sent elsewhere.
    Redirect {
        /// The target, as policies have it.
        to: String,
        /// The status.
        status: u16,
    },
    /// Requests are counted in a table.
    Track {
        /// The number of `sc0`, `sc1` and so on.
        counter: usize,
        /// The expression that is the key.
        key: String,
        /// The table, if another one than that of the section.
        table: Option<String>,
    },
    /// A header field of requests is set, or removed without a value.
    Header(String, Option<String>),
    /// A header field changes in a way that is not written; `None` stands for any field.
    Field(Option<String>),
    /// Servers get this host.
    Host(String),
    /// The begin of the path is taken off, and something is put before the rest.
    Path {
        /// The begin that is taken off; empty for none.
        strip: String,
        /// What is put before the rest; empty for nothing.
        prefix: String,
        /// The index of the paths that it holds for.
        paths: usize,
        /// Whether other paths may have the begin in their middle.
        is_open: bool,
    },
    /// Something that has no counterpart, and that must not be lost.
    Refuse(&'static str),
}

/// When a rule is looked at. The order is that of HAProxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RulePhase {
    /// `tcp-request connection`
    Connection,
    /// `tcp-request session`
    Session,
    /// `tcp-request content`
    Content,
    /// Pages of HAProxy itself.
    Page,
    /// `http-request`
    Request,
    /// `redirect`
    Redirect,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct SectionRule {
    /// When it is looked at.
    pub phase: RulePhase,
    /// What it does.
    pub action: RuleAction,
    /// For which requests.
    pub condition: RuleCondition,
    /// Where it stands.
    pub origin: Origin,
    /// What stands there.
    pub text: String,
}

/// The index of the `if` or `unless` of a line, or the number of its words.
pub fn condition_start(line: &ConfigLine, first: usize) -> usize {
    let is_keyword = |word: &String| word == "if" || word == "unless";
    let offset = line.rest(first).iter().position(is_keyword);
    offset.map_or(line.words.len(), |offset| first + offset)
}

/// A condition that always holds.
pub fn always() -> RuleCondition {
    vec![Vec::new()]
}
