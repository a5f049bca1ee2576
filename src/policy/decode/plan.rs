//! Reads one plan of the section `plans`: its factor on limits and its priority.

use super::super::context::LoadContext;
use super::super::section::{Named, RequiredField, Section, section};
use super::super::tree::{Located, MapKey, Node};
use super::ValueError;
use super::field::WholeNumberField;
use super::scalar::{PriorityField, parse_name};

/// Maximum factor of a plan. `check` reports a limit that the factor of a plan makes too large for its counters.
const MAX_PLAN_FACTOR: u64 = 1000;

section! {
    /// What a plan gives the requests that have it.
    pub struct PlanFields, table PLAN_TABLE = "a plan", "What a plan gives.";
    plan_factor("multiply"): RequiredField<WholeNumberField<u32, 1, MAX_PLAN_FACTOR>> = 1,
        "What limits with `plans: true` are multiplied by.", "10";
    priority: PriorityField,
        "What is shed last under pressure, on routes whose policy does not say. Default: normal.", "critical";
}

/// A plan and its name.
pub type PlanConfig = Named<PlanFields>;

/// Reads the plan that is written under `key`. An invalid name is reported, but kept. `None` if `node` is no map, which
/// is reported too.
pub fn read_plan(cx: &mut LoadContext, key: &MapKey, node: &Node) -> Option<PlanConfig> {
    if let Err(ValueError { message, help, .. }) = parse_name(&key.text, "a plan") {
        cx.error(key.location, message, help);
    }
    let fields = PLAN_TABLE.open_named(cx, node, key)?;
    let name = Located {
        value: key.text.clone(),
        location: key.location,
    };
    Some(Named {
        name,
        fields: PlanFields::read_fields(cx, &fields),
    })
}
