//! The header field `traceparent` of W3C Trace Context, level 2: <https://www.w3.org/TR/trace-context-2/>.

use std::fmt;

use aws_lc_rs::rand;

/// The id of a trace, which all its spans share.
pub type TraceId = [u8; 16];
/// The id of a span.
pub type SpanId = [u8; 8];

/// The flag that says that the sender records its span.
const SAMPLED_FLAG: u8 = 1;
/// The flag that says that the last seven bytes of the trace id are random. Other flags have no meaning yet, and are
/// not passed on.
const RANDOM_FLAG: u8 = 2;

/// Bytes of a value of version 00.
const VALUE_BYTES: usize = 55;
/// The version that the specification rules out.
const INVALID_VERSION: u8 = 0xff;

/// A valid value of `traceparent`: the trace and the span that caused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not all zero.
    pub trace_id: TraceId,
    /// The span; not all zero.
    pub span_id: SpanId,
    flags: u8,
}

impl TraceParent {
    /// A new trace with a first span, which is sampled. `None` if the system has no random numbers.
    pub fn new_sampled() -> Option<TraceParent> {
        Some(TraceParent {
            trace_id: random_id()?,
            span_id: random_id()?,
            flags: SAMPLED_FLAG | RANDOM_FLAG,
        })
    }

    /// Parses a value. `None` if it is malformed. Of a later version the part that version 00 has is read.
    pub fn parse(value: &[u8]) -> Option<TraceParent> {
        let (known, extension) = value.split_at_checked(VALUE_BYTES)?;
        let [version] = parse_hex(&known[..2])?;
        let is_valid_length = match version {
            0 => extension.is_empty(),
            INVALID_VERSION => false,
            _ => matches!(extension, [] | [b'-', ..]),
        };
        if !is_valid_length || [known[2], known[35], known[52]] != *b"---" {
            return None;
        }
        let [flags] = parse_hex(&known[53..])?;
        Some(TraceParent {
            trace_id: parse_hex(&known[3..35]).filter(|id| *id != TraceId::default())?,
            span_id: parse_hex(&known[36..52]).filter(|id| *id != SpanId::default())?,
            flags: flags & (SAMPLED_FLAG | RANDOM_FLAG),
        })
    }

    /// Whether the sender records its span.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED_FLAG != 0
    }

    /// The flags, as they are passed on.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// The same trace with another span.
    #[must_use]
    pub fn with_span(self, span_id: SpanId, is_sampled: bool) -> TraceParent {
        TraceParent {
            span_id,
            flags: self.flags & RANDOM_FLAG | u8::from(is_sampled),
            ..self
        }
    }
}

/// The value of the field, in version 00.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace_id = u128::from_be_bytes(self.trace_id);
        let span_id = u64::from_be_bytes(self.span_id);
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", self.flags)
    }
}

/// A random id that is not all zero. `None` if the system has no random numbers.
pub fn random_id<const N: usize>() -> Option<[u8; N]> {
    let mut id = [0; N];
    while id == [0; N] {
        rand::fill(&mut id).ok()?;
    }
    Some(id)
}

/// Parses `2 * N` hexadecimal digits in lower case; `None` for other text.
fn parse_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// Checks which value is passed on for this one; `None` if a new trace begins.
    #[track_caller]
    fn check(value: &str, expected: Option<&str>) {
        let parsed = TraceParent::parse(value.as_bytes()).map(|parent| parent.to_string());
        assert_eq!(parsed.as_deref(), expected, "{value}");
    }

    #[test]
    fn valid_values_are_read() {
        check(VALID, Some(VALID));
        let with_flags = |flags: &str| format!("{}{flags}", &VALID[..53]);
        check(&with_flags("00"), Some(&with_flags("00")));
        check(&with_flags("03"), Some(&with_flags("03")));
        // Flags without a meaning are not passed on.
        check(&with_flags("ff"), Some(&with_flags("03")));
        // A later version may have more behind a dash.
        let later = VALID.replacen("00", "cc", 1);
        check(&later, Some(VALID));
        check(&format!("{later}-what-the-future-brings"), Some(VALID));
    }

    #[test]
    fn malformed_values_are_not() {
        for length in 0..VALID.len() {
            check(&VALID[..length], None);
        }
        check(&format!("{VALID}-00"), None);
        check(&format!("{VALID} "), None);
        check(&VALID.replacen("00", "ff", 1), None);
        check(&VALID.replacen("00", "cc", 1).replace("-01", "-01x"), None);
        check(&VALID.to_uppercase(), None);
        check(
            &VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            None,
        );
        check(&VALID.replace("b7ad6b7169203331", &"0".repeat(16)), None);
        for at in 0..VALID.len() {
            for byte in ["g", " ", "A", "\"", "_"] {
                check(&format!("{}{byte}{}", &VALID[..at], &VALID[at + 1..]), None);
            }
        }
    }

    #[test]
    fn a_new_trace_is_sampled_and_random() {
        let (one, other) = (TraceParent::new_sampled(), TraceParent::new_sampled());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(one.is_sampled() && one.to_string().ends_with("-03"));
        assert!(one.trace_id != other.trace_id && one.span_id != other.span_id);
        let child = one.with_span(other.span_id, false);
        assert!(!child.is_sampled() && child.to_string().ends_with("-02"));
        assert_eq!(child.trace_id, one.trace_id);
    }
}
