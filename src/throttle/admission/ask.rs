//! A request as limits see it.

use std::sync::Arc;

use crate::base::clock::Nanos;
use crate::identity::{Identifier, Who};
use crate::limit::Rule;
use crate::limit::pressure::Pressure;

/// One request, as far as limits care.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// The limits it meets.
    pub rules: &'a [Arc<Rule>],
    /// Who asks.
    pub who: &'a Who,
    /// Turns who asks into keys.
    pub identifier: &'a Identifier,
    /// When.
    pub now: Nanos,
    /// What elastic limits may lend of; nothing where nothing is known to be spare.
    pub pressure: Option<&'a Pressure>,
    /// Units that it holds of limits on cost until its cost is known, by their place among `rules`; of others as many
    /// as the rule says.
    pub reserved: &'a [(usize, u32)],
}
