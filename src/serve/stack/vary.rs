//! Says in `Vary` on which fields of the request a response depends (RFC 9110 section 12.5.5).

use crate::http::head::Fields;

/// Adds the name of a field of the request to `Vary`, unless the upstream says so already. The name is in lower case.
pub(super) fn add_name(fields: &mut Fields, name: &str) {
    let is_stated = fields.all("vary").any(|value| {
        let mut names = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        names.any(|stated| stated == b"*" || stated.eq_ignore_ascii_case(name.as_bytes()))
    });
    if !is_stated {
        fields.add("vary", name.as_bytes());
    }
}
