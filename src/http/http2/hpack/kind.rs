//! The fields that HTTP/2 treats by their names, and which names and values are sound.

/// What a field means to HTTP/2 itself: RFC 9113 sections 8.2 and 8.3, RFC 8441 section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol`
    Protocol,
    /// `:status`
    Status,
    /// `host`
    Host,
    /// `cookie`, which may come in crumbs.
    Cookie,
    /// `content-length`
    Length,
    /// `te`
    Te,
    /// One of a connection of HTTP/1.1.
    Connection,
    /// Any other.
    Regular,
    /// It has a name or a value that no field has.
    Malformed,
}

impl FieldKind {
    /// By its name.
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
            _ if is_name(name) => FieldKind::Regular,
            _ => FieldKind::Malformed,
        }
    }

    pub(super) fn with(self, value: &[u8]) -> FieldKind {
        if is_value(value) {
            self
        } else {
            FieldKind::Malformed
        }
    }
}

const fn is_name(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        // Tokens without capitals: RFC 9110 section 5.6.2.
        let sound = matches!(name[at], b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+'
            | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        if !sound {
            return false;
        }
        at += 1;
    }
    !name.is_empty()
}

/// No control characters, and no blanks at the ends.
fn is_value(value: &[u8]) -> bool {
    let control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !blank(value.first()) && !blank(value.last()) && !value.iter().any(control)
}
