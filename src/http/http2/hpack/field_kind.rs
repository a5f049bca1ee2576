//! Sorts fields by what they mean to HTTP/2, and checks that names and values are valid.
//!
//! It does not decide whether a field may stand in a request: `serve/http2/head.rs` does.

/// What a field means to HTTP/2 itself: RFC 9113 sections 8.2 and 8.3, RFC 8441 section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// The pseudo-header field `:method`.
    Method,
    /// The pseudo-header field `:scheme`.
    Scheme,
    /// The pseudo-header field `:authority`.
    Authority,
    /// The pseudo-header field `:path`.
    Path,
    /// The pseudo-header field `:protocol`.
    Protocol,
    /// The pseudo-header field `:status`.
    Status,
    /// The header field `host`.
    Host,
    /// The header field `cookie`, which may be split into several fields.
    Cookie,
    /// The header field `content-length`.
    Length,
    /// The header field `te`.
    Te,
    /// A field about an HTTP/1.1 connection, which HTTP/2 forbids.
    Connection,
    /// Any other valid field.
    Regular,
    /// A field with an invalid name or value, also a pseudo-header field with another name.
    Malformed,
}

impl FieldKind {
    /// The kind that a field of this name has if its value is valid: see [`FieldKind::with_value`]. A name in upper
    /// case is invalid.
    pub const fn of(name: &[u8]) -> FieldKind {
        match name {
            b":method" => FieldKind::Method,
            b":scheme" => FieldKind::Scheme,
            b":authority" => FieldKind::Authority,
            b":path" => FieldKind::Path,
            b":protocol" => FieldKind::Protocol,
            b":status" => FieldKind::Status,
            b"host" => FieldKind::Host,
            b"cookie" => FieldKind::Cookie,
            b"content-length" => FieldKind::Length,
            b"te" => FieldKind::Te,
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding"
            | b"upgrade" => FieldKind::Connection,
            _ if is_valid_name(name) => FieldKind::Regular,
            _ => FieldKind::Malformed,
        }
    }

    /// Returns this kind if `value` is valid, else [`FieldKind::Malformed`].
    pub fn with_value(self, value: &[u8]) -> FieldKind {
        if is_valid_value(value) {
            self
        } else {
            FieldKind::Malformed
        }
    }
}

/// Whether the name is a token (RFC 9110 section 5.6.2) without upper-case letters.
const fn is_valid_name(name: &[u8]) -> bool {
    let mut index = 0;
    while index < name.len() {
        let is_valid = matches!(name[index], b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*'
            | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        if !is_valid {
            return false;
        }
        index += 1;
    }
    !name.is_empty()
}

/// Whether the value has no control characters but tabs, and no spaces or tabs at its ends.
fn is_valid_value(value: &[u8]) -> bool {
    let is_control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first()) && !is_blank(value.last()) && !value.iter().any(is_control)
}
