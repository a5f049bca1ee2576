//! The section `plans`.

use super::super::collect::Cx;
use super::super::model::{Located, PlanConfig};
use super::super::table::{Table, ValueShape, may, must, words};
use super::super::tree::{MapKey, Node};
use super::ValueError;
use super::leaf::parse_name;
use super::route::PRIORITIES;

/// One plan.
pub static PLAN: Table = Table {
    name: "a plan",
    doc: "What a plan gives.",
    fields: &[
        must(
            "multiply",
            ValueShape::Whole(1, 1000),
            "What limits with `plans: true` are multiplied by.",
            "10",
        ),
        may(
            "priority",
            ValueShape::Words(&words(&PRIORITIES)),
            "What is shed last under pressure, on routes whose policy does not say. Default: normal.",
            "critical",
        ),
    ],
};

/// Reads the plan that is written under `key`.
pub fn plan(cx: &mut Cx, key: &MapKey, node: &Node) -> Option<Located<PlanConfig>> {
    if let Err(ValueError { message, help, .. }) = parse_name(&key.text, "a plan") {
        cx.error(key.place, message, help);
    }
    let fields = PLAN.open_as(cx, node, key)?;
    let multiply = fields
        .get("multiply")
        .and_then(|node| cx.whole(node, 1, 1000));
    let multiply = multiply
        .and_then(|many| u32::try_from(many.value).ok())
        .unwrap_or(1);
    Some(Located {
        value: PlanConfig {
            name: key.text.clone(),
            multiply,
            priority: fields
                .get("priority")
                .and_then(|node| cx.word(node, &PRIORITIES))
                .map(|priority| priority.value),
        },
        place: key.place,
    })
}
