//! Reads `credits: true` of a limit, and reports the fields that have no meaning beside it. The store of the gateway file is
//! checked in `check/credits.rs`.

use super::super::super::context::LoadContext;
use super::super::super::table::MapFields;
use super::super::super::tree::{Located, SourceLocation};
use super::phrase::ThrottleConfig;
use super::{KeyPartConfig, LimitFields, OnStoreError, Sharing};

const NO_WINDOWS: &str = "credits have no windows: no time refills them";
const EACH_ROUTE: &str = "a key would have all of its credits on each route";
const ADD_A_RATE: &str =
    "remove it; for a pace beside the credits write another limit with a `rate`";

impl LimitFields {
    /// The location of `credits: true`; `None` for other limits.
    pub fn credits_location(&self) -> Option<SourceLocation> {
        let credits = self.credits.filter(|credits| credits.value)?;
        Some(credits.location)
    }

    /// Reports `credits: false`, and what a limit with credits cannot have beside them.
    pub(super) fn check_credits(&self, cx: &mut LoadContext, fields: &MapFields<'_>) {
        let Some(credits) = self.credits else { return };
        if !credits.value {
            let message = "a limit has credits or it has none, so `credits: false` limits nothing";
            let help = "write `credits: true`, or `rate`, `quota` or `concurrent` in its place";
            return cx.error(credits.location, message, Some(help.into()));
        }
        let is_soft = is_other(self.throttle, ThrottleConfig::Hard);
        let is_shared_loosely = is_other(self.sharing, Sharing::Strict);
        let is_open = self.on_store_error != OnStoreError::Closed;
        let multiplies = self.plans.is_some_and(|plans| plans.value);
        let is_each = self.routes.is_each();
        let exact_help =
            "remove it: the store is asked about each request, so that no credit is used twice";
        let mistakes = [
            ("zone", true, NO_WINDOWS, "remove `zone`"),
            ("starts", true, NO_WINDOWS, "remove `starts`"),
            ("align", true, NO_WINDOWS, "remove `align`"),
            (
                "algorithm",
                true,
                "credits are counted in one way only",
                "remove `algorithm`",
            ),
            (
                "burst",
                true,
                "credits may be used up at once, so they have no burst",
                ADD_A_RATE,
            ),
            ("delay", true, "credits hold no request back", ADD_A_RATE),
            (
                "throttle",
                is_soft,
                "nothing is admitted or lent above the credits of a key",
                "remove `throttle`, or write `hard`",
            ),
            ("while", true, "`while` is for elastic limits", "remove it"),
            (
                "at_most",
                true,
                "`at_most` is for elastic limits",
                "remove it",
            ),
            (
                "plans",
                multiplies,
                "plans do not multiply credits",
                "remove `plans`, and add the credits that each key has paid for",
            ),
            (
                "try",
                true,
                "`try` is a candidate for `rate`, and this limit has credits",
                "add a second limit with a `rate` and `mode: shadow`",
            ),
            (
                "sharing",
                is_shared_loosely,
                "gateways with one store share credits strictly",
                exact_help,
            ),
            (
                "on_store_error",
                is_open,
                "without the store used credits would be used again",
                "remove it, or write `closed`",
            ),
            (
                "ban",
                true,
                "customers without credits would be banned, also after they have paid",
                "remove `ban`, or move it to another limit with a `rate`",
            ),
            ("routes", is_each, EACH_ROUTE, "write `all` or `listed`"),
        ];
        for (field, is_mistake, message, help) in mistakes {
            if is_mistake && fields.has(field) {
                cx.error(fields.location_of(field), message, Some(help.into()));
            }
        }
        let parts = self.key.iter();
        for part in parts.filter(|part| part.value == KeyPartConfig::Route) {
            let help = "remove `route` from the key";
            cx.error(part.location, EACH_ROUTE, Some(help.into()));
        }
    }
}

/// Whether a field is written with another value.
fn is_other<V: Copy + PartialEq>(field: Option<Located<V>>, allowed: V) -> bool {
    field.is_some_and(|field| field.value != allowed)
}
