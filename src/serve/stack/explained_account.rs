//! The account of a key with credits, as explanations show it: its orders, and who has made the last one.

use std::time::Duration;

use serde_json::{Value, json};

use crate::operator::OperatorEntry;

/// The orders of an account of credits, and who has made the last one. Times are in seconds since 1970.
pub(super) fn describe_account(account: &OperatorEntry) -> Value {
    let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
    let Some(terms) = account.credit_terms() else {
        return Value::Null;
    };
    let orders = terms.orders.iter();
    let orders =
        orders.map(|order| json!({ "id": order.id, "add": order.units, "at": seconds(order.at) }));
    json!({
        "by": account.by,
        "reason": account.reason,
        "earlier": { "add": terms.earlier.units, "orders": terms.earlier.count },
        "orders": orders.collect::<Vec<_>>(),
    })
}

/// Adds the last order of an account to the text about its limit.
pub(super) fn render_account(out: &mut String, account: &Value) {
    let last = account["orders"]
        .as_array()
        .and_then(|orders| orders.last());
    if let Some(order) = last {
        let [id, by] = [&order["id"], &account["by"]].map(|text| text.as_str().unwrap_or_default());
        let add = &order["add"];
        *out += &format!(" with an account, last order {id} of {add} credits by {by}");
        if let Some(reason) = account["reason"]
            .as_str()
            .filter(|reason| !reason.is_empty())
        {
            *out += &format!(" ({reason})");
        }
    }
}
