//! Checks the header field in which trusted peers name the user or the plan of a request.

use super::super::super::context::LoadContext;
use super::super::super::table::MapFields;

/// Reports `header` without `from`, because any client could then claim any user or plan.
pub(super) fn check_trusted_peers(cx: &mut LoadContext, fields: &MapFields<'_>) {
    if !fields.has("from") {
        let message = "`header` needs `from`: the peers that may set it";
        let help = "for instance `from: [192.0.2.0/24]`; from everyone else the header is removed";
        cx.error(fields.location_of("header"), message, Some(help.into()));
    }
}
