//! What is given to the proof of a user: parts of the request, and the condition under which its credential is checked.

use crate::base::clock::Nanos;
use crate::http::head::Fields;
use crate::identity::{ClientIdentity, ConnectionPeer, FieldValue};

/// The condition under which a credential that no cache knows is checked. To check is to verify the signature of a token,
/// or to look for an API key in the file of API keys.
#[derive(Clone, Copy)]
pub struct CheckCondition<'c> {
    /// The current time, for the bound on failed signatures of an address.
    pub now: Nanos,
    /// Says whether the limits by ip admit a check for this client.
    pub may_check: &'c dyn Fn(&ClientIdentity) -> bool,
}

/// The parts of a request by which its user may be proven.
pub(super) struct ProofInput<'r> {
    /// The peer of the connection, with its certificate.
    pub(super) connection: ConnectionPeer<'r>,
    /// The header fields.
    pub(super) fields: &'r Fields,
    /// The credential that [`Settings::token_sources`](crate::identity::Settings::token_sources) name.
    pub(super) credential: &'r FieldValue<'r>,
    /// The condition under which an unknown credential is checked, and the client as far as its address identifies it.
    /// Without a condition every credential is checked.
    pub(super) check_condition: Option<(&'r ClientIdentity, &'r CheckCondition<'r>)>,
}

impl ProofInput<'_> {
    /// Whether a credential that no cache knows may be checked.
    pub(super) fn may_check(&self) -> bool {
        self.check_condition
            .is_none_or(|(client, condition)| (condition.may_check)(client))
    }
}
