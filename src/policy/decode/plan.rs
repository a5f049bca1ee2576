//! Reads one plan of the section `plans`.

use super::super::context::LoadContext;
use super::super::model::{Located, PlanConfig};
use super::super::table::{Table, ValueShape, optional, required, words};
use super::super::tree::{MapKey, Node};
use super::ValueError;
use super::route::PRIORITY_WORDS;
use super::scalar::parse_name;

/// Maximum factor of a plan. Together with the largest quota it bounds what a limit may count.
const MAX_MULTIPLY: u64 = 1000;

pub static PLAN_TABLE: Table = Table {
    name: "a plan",
    doc: "What a plan gives.",
    fields: &[
        required(
            "multiply",
            ValueShape::WholeNumber(1, MAX_MULTIPLY),
            "What limits with `plans: true` are multiplied by.",
            "10",
        ),
        optional(
            "priority",
            ValueShape::Words(&words(&PRIORITY_WORDS)),
            "What is shed last under pressure, on routes whose policy does not say. Default: normal.",
            "critical",
        ),
    ],
};

/// Reads the plan that is written under `key`.
pub fn read_plan(cx: &mut LoadContext, key: &MapKey, node: &Node) -> Option<Located<PlanConfig>> {
    if let Err(ValueError { message, help, .. }) = parse_name(&key.text, "a plan") {
        cx.error(key.location, message, help);
    }
    let fields = PLAN_TABLE.open_named(cx, node, key)?;
    let multiply = fields
        .get("multiply")
        .and_then(|node| cx.read_count(node, MAX_MULTIPLY))
        .unwrap_or(1);
    Some(Located {
        value: PlanConfig {
            name: key.text.clone(),
            multiply,
            priority: fields
                .get("priority")
                .and_then(|node| cx.read_word(node, &PRIORITY_WORDS))
                .map(|priority| priority.value),
        },
        location: key.location,
    })
}
