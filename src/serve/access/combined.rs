//! Writes the line of a request in the Combined Log Format of Apache:
//! `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`. `%l` is always `-`.
//!
//! Values are escaped as Apache escapes them, and blanks of the user too. So no client can end a value or a line.

use time::OffsetDateTime;

use super::client_text::{ClientText, field_text, protocol, referer};
use super::logged_target::logged_target;
use super::worker_log::WorkerLog;
use crate::serve::stack::request_context::RequestContext;

/// The end of a text that was cut.
const CUT_MARK: &str = "...";

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Writes the line of a request that has ended.
pub(super) fn write_line(out: &mut Vec<u8>, log: &WorkerLog, context: &RequestContext) {
    match context.connection_address() {
        Some(address) => out.extend_from_slice(address.as_bytes()),
        None => out.extend_from_slice(context.ip().to_string().as_bytes()),
    }
    out.extend_from_slice(b" - ");
    match context.user() {
        Some(user) => push_escaped(out, user, |byte| byte == b' '),
        None => out.push(b'-'),
    }
    log.push_second(out, context.arrived_at, push_date);
    push_request_line(out, context);
    // A request without a response has no status.
    match context.status() {
        0 => out.extend_from_slice(b" - "),
        status => push_digits(out, b" ", u64::from(status), b" "),
    }
    match context.sent_bytes() {
        0 => out.push(b'-'),
        bytes => push_digits(out, b"", bytes, b""),
    }
    push_quoted(out, referer(context));
    push_quoted(out, field_text(context, "user-agent"));
    out.push(b'\n');
}

/// Writes the date of a second since 1970 in UTC, as ` [27/Nov/2026:04:05:06 +0000]`. Years have at least four digits.
fn push_date(out: &mut Vec<u8>, second: u64) {
    let second = i64::try_from(second).unwrap_or(0);
    let date = OffsetDateTime::from_unix_timestamp(second).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let month = MONTHS[usize::from(u8::from(date.month()) - 1)];
    let (day, year) = (date.day(), date.year());
    let (hour, minute, second) = date.to_hms();
    let text = format!(" [{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000]");
    out.extend_from_slice(text.as_bytes());
}

/// Writes the request line as far as it was read; `-` if nothing was.
fn push_request_line(out: &mut Vec<u8>, context: &RequestContext) {
    out.extend_from_slice(b" \"");
    let method = context.method.as_ref().map(http::Method::as_str);
    let target = logged_target(context);
    let parts = [method, target.as_deref(), protocol(context)];
    let mut parts = parts.into_iter().flatten().peekable();
    if parts.peek().is_none() {
        out.push(b'-');
    }
    while let Some(part) = parts.next() {
        push_escaped(out, part, |_| false);
        if parts.peek().is_some() {
            out.push(b' ');
        }
    }
    out.push(b'"');
}

/// Writes a value in quotes, after a blank; `-` for none.
fn push_quoted(out: &mut Vec<u8>, value: Option<ClientText<'_>>) {
    out.extend_from_slice(b" \"");
    match value {
        Some(ClientText { text, is_cut }) => {
            push_escaped(out, &text, |_| false);
            out.extend_from_slice(if is_cut { CUT_MARK } else { "" }.as_bytes());
        }
        None => out.push(b'-'),
    }
    out.push(b'"');
}

/// Writes a number between two texts.
fn push_digits(out: &mut Vec<u8>, before: &[u8], number: u64, after: &[u8]) {
    out.extend_from_slice(before);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(after);
}

/// Writes a text with the escapes of Apache: a backslash before quotes and backslashes, `\n` and its like, and `\xHH` for
/// any other byte that is not printable ASCII. Bytes that `is_special` accepts become `\xHH` too.
fn push_escaped(out: &mut Vec<u8>, text: &str, is_special: impl Fn(u8) -> bool) {
    for byte in text.bytes() {
        let letter = match byte {
            b'"' | b'\\' => byte,
            b'\x08' => b'b',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            b'\x0b' => b'v',
            0x20..=0x7e if !is_special(byte) => {
                out.push(byte);
                continue;
            }
            _ => {
                let digits =
                    [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
                out.extend_from_slice(&[b'\\', b'x', digits[0], digits[1]]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut out = Vec::new();
        push_escaped(&mut out, text, |byte| byte == b' ');
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn values_are_escaped_as_by_apache() {
        check("plain/~[]'", "plain/~[]'");
        check("a\"b\\c", "a\\\"b\\\\c");
        check("\n\r\t\x08\x0b\x0c\0\x7f", "\\n\\r\\t\\b\\v\\x0c\\x00\\x7f");
        check("\u{e9}\u{2028}", "\\xc3\\xa9\\xe2\\x80\\xa8");
        check("a b", "a\\x20b");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let date = |second| {
            let mut out = Vec::new();
            push_date(&mut out, second);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(date(0), " [01/Jan/1970:00:00:00 +0000]");
        assert_eq!(date(951_827_696), " [29/Feb/2000:12:34:56 +0000]");
        assert_eq!(date(u64::MAX), " [01/Jan/1970:00:00:00 +0000]");
    }
}
