//! [`DateLine`]: the `Date` field of responses that have none, which a worker makes anew each second.

use std::time::{Duration, UNIX_EPOCH};

/// Before the value.
const NAME: &str = "date: ";
/// Behind the value: the end of the line, and the empty line that ends a head.
const END: &str = "\r\n\r\n";

/// The `Date` field, as the last lines of a head of HTTP/1.1, which are copied in one piece.
#[derive(Debug)]
pub struct DateLine(String);

impl DateLine {
    /// The field for this wall time, in the format of RFC 9110 section 5.6.7.
    pub fn new(wall: Duration) -> DateLine {
        let date = httpdate::fmt_http_date(UNIX_EPOCH + wall);
        DateLine(format!("{NAME}{date}{END}"))
    }

    /// The value of the field.
    pub fn value(&self) -> &str {
        &self.0[NAME.len()..self.0.len() - END.len()]
    }

    /// The line of the field, and the empty line that ends the head.
    pub fn as_last_lines(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_head() {
        let line = DateLine::new(Duration::from_secs(784_111_777));
        assert_eq!(line.value(), "Sun, 06 Nov 1994 08:49:37 GMT");
        let expected = b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
        assert_eq!(line.as_last_lines(), expected);
    }
}
