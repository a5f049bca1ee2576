//! Decodes the bytes of files that people write: configuration, keys, secrets and certificates. All of them may begin
//! with a byte order mark, and none may be UTF-16. No error shows any of the text, which may be a secret.

/// Why the bytes of a file are not the expected text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line of the mistake, from 1.
    pub line: u32,
    /// What is wrong with the text.
    pub message: &'static str,
    /// What the user can do.
    pub help: &'static str,
}

const UTF_8_HELP: &str = "save it as UTF-8";

/// The byte order mark in UTF-8.
const UTF_8_MARK: &[u8] = b"\xef\xbb\xbf";

/// The byte order marks of UTF-16, in both orders.
const UTF_16_MARKS: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];

/// Removes the byte order mark from the bytes of a text file, for instance of a PEM file.
///
/// # Errors
///
/// The file is UTF-16, or has NUL bytes. These occur in UTF-16 without a mark, in UTF-32 and in binary files.
pub fn strip_byte_order_mark(mut bytes: Vec<u8>) -> Result<Vec<u8>, TextError> {
    if UTF_16_MARKS.iter().any(|mark| bytes.starts_with(mark)) {
        return Err(error_after(&[], "the file is UTF-16", UTF_8_HELP));
    }
    if let Some(offset) = memchr::memchr(0, &bytes) {
        let message = "the file has a NUL byte: it is UTF-16 or no text";
        return Err(error_after(&bytes[..offset], message, UTF_8_HELP));
    }
    if bytes.starts_with(UTF_8_MARK) {
        bytes.drain(..UTF_8_MARK.len());
    }
    Ok(bytes)
}

/// Decodes the bytes of a text file, and removes its byte order mark.
///
/// # Errors
///
/// The errors of [`strip_byte_order_mark`], and bytes that are not UTF-8.
pub fn decode_utf8(bytes: Vec<u8>) -> Result<String, TextError> {
    String::from_utf8(strip_byte_order_mark(bytes)?).map_err(|error| {
        let valid_bytes = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        error_after(valid_bytes, "the file is not UTF-8", UTF_8_HELP)
    })
}

/// Trims a text that consists of one secret: removes the ASCII blanks and line ends around it.
///
/// # Errors
///
/// The text is empty, or has several lines, control characters, or invisible characters around the secret.
pub fn trim_secret(text: &str) -> Result<&str, TextError> {
    let one_line_help = "write the secret alone into it, on one line";
    let secret = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let start = text.find(secret).unwrap_or(0);
    if secret.is_empty() {
        return Err(error_after(&[], "the file is empty", one_line_help));
    }
    if let Some(offset) = secret.find(char::is_control) {
        let bytes_before = &text.as_bytes()[..start + offset];
        return Err(if secret[offset..].starts_with(['\n', '\r']) {
            error_after(
                bytes_before,
                "the secret has more than one line",
                one_line_help,
            )
        } else {
            let message = "the secret has a control character";
            error_after(
                bytes_before,
                message,
                "write a secret of printable characters",
            )
        });
    }
    let is_invisible = |c: char| c.is_whitespace() || matches!(c, '\u{200b}' | '\u{feff}');
    if secret.starts_with(is_invisible) || secret.ends_with(is_invisible) {
        let message = "the secret has a blank at its beginning or end that is not ASCII";
        return Err(error_after(&text.as_bytes()[..start], message, "remove it"));
    }
    Ok(secret)
}

/// Builds the error of a mistake that directly follows `bytes_before`, from which its line is counted.
fn error_after(bytes_before: &[u8], message: &'static str, help: &'static str) -> TextError {
    let full_lines = bytes_before.iter().filter(|byte| **byte == b'\n').count();
    TextError {
        line: u32::try_from(full_lines + 1).unwrap_or(u32::MAX),
        message,
        help,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects the secret, or an error with this line and these words.
    #[track_caller]
    fn check(file: &[u8], expected: Result<&str, (u32, &str)>) {
        let text = decode_utf8(file.to_vec());
        let secret = text.and_then(|text| trim_secret(&text).map(str::to_owned));
        match (secret, expected) {
            (Ok(secret), Ok(expected)) => assert_eq!(secret, expected),
            (Err(error), Err((line, words))) => {
                assert_eq!(error.line, line, "{error:?}");
                assert!(error.message.contains(words), "{error:?}");
            }
            (secret, expected) => panic!("{secret:?} is not {expected:?} of {file:?}"),
        }
    }

    #[test]
    fn secrets() {
        for file in [
            "s\u{e9}cret key",
            "s\u{e9}cret key\n",
            "s\u{e9}cret key\r\n\r\n",
            " \t s\u{e9}cret key \n",
            "\n\ns\u{e9}cret key",
            "\u{feff}s\u{e9}cret key\r\n",
            "\u{feff}\ns\u{e9}cret key",
        ] {
            check(file.as_bytes(), Ok("s\u{e9}cret key"));
        }
        check(b"", Err((1, "empty")));
        check(b"\xef\xbb\xbf \r\n", Err((1, "empty")));
        check(b"\none\ntwo", Err((2, "more than one line")));
        check(b"one\rtwo", Err((1, "more than one line")));
        check(b"one\x1btwo", Err((1, "control character")));
        check("one\u{85}two".as_bytes(), Err((1, "control character")));
        check(b"\n\xffone", Err((2, "not UTF-8")));
        check(b"\xff\xfeo\0n\0e\0", Err((1, "UTF-16")));
        check(b"\xfe\xff\0o\0n\0e", Err((1, "UTF-16")));
        check(b"o\0n\0e\0", Err((1, "NUL")));
        check(b"\0\0\xfe\xff", Err((1, "NUL")));
        for file in ["\u{a0}one", "one\u{3000}\n", "\n\u{feff}one", "one\u{200b}"] {
            let line = if file.starts_with('\n') { 2 } else { 1 };
            check(file.as_bytes(), Err((line, "not ASCII")));
        }
    }
}
