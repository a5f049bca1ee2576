//! Reads the bytes of a file as text, in the same way for all files that people write. No message shows any of
//! the text.

/// What is wrong with a file, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, from 1.
    pub line: u32,
    /// What is wrong.
    pub message: &'static str,
    /// What to do about it.
    pub help: &'static str,
}

const AS_UTF_8: &str = "save it as UTF-8";

/// The bytes of a file of text, PEM for instance, without a byte order mark.
///
/// # Errors
///
/// UTF-16, and NUL bytes, which are in UTF-16 without a mark, in UTF-32 and in binary files.
pub fn bytes(mut bytes: Vec<u8>) -> Result<Vec<u8>, TextError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(wrong(&[], "the file is UTF-16", AS_UTF_8));
    }
    if let Some(at) = memchr::memchr(0, &bytes) {
        let message = "the file has a NUL byte: it is UTF-16 or no text";
        return Err(wrong(&bytes[..at], message, AS_UTF_8));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

/// The text of a file without a byte order mark.
///
/// # Errors
///
/// As [`bytes`], and where it is not UTF-8.
pub fn text(raw: Vec<u8>) -> Result<String, TextError> {
    String::from_utf8(bytes(raw)?).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        wrong(before, "the file is not UTF-8", AS_UTF_8)
    })
}

/// The secret that is all of a file's text, without the blanks and line ends around it.
///
/// # Errors
///
/// An empty file, several lines, control characters, and marks around it that are not seen.
pub fn secret(text: &str) -> Result<&str, TextError> {
    let alone = "write the secret alone into it, on one line";
    let all = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let start = text.find(all).unwrap_or(0);
    if all.is_empty() {
        return Err(wrong(&[], "the file is empty", alone));
    }
    let control = all.find(char::is_control);
    if let Some(at) = control {
        let (before, rest) = (&text.as_bytes()[..start + at], &all[at..]);
        return Err(if rest.starts_with(['\n', '\r']) {
            wrong(before, "the secret has more than one line", alone)
        } else {
            let message = "the secret has a control character";
            wrong(before, message, "write a secret of printable characters")
        });
    }
    let unseen = |c: char| c.is_whitespace() || matches!(c, '\u{200b}' | '\u{feff}');
    if all.starts_with(unseen) || all.ends_with(unseen) {
        let message = "the secret has a blank at its beginning or end that is not ASCII";
        return Err(wrong(&text.as_bytes()[..start], message, "remove it"));
    }
    Ok(all)
}

/// `before` is what stands before the mistake.
fn wrong(before: &[u8], message: &'static str, help: &'static str) -> TextError {
    let lines = before.iter().filter(|byte| **byte == b'\n').count();
    TextError {
        line: u32::try_from(lines + 1).unwrap_or(u32::MAX),
        message,
        help,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected`: the secret, or the line of the mistake and some of its words.
    #[track_caller]
    fn check(file: &[u8], expected: Result<&str, (u32, &str)>) {
        let read = text(file.to_vec());
        let read = read.and_then(|text| secret(&text).map(str::to_owned));
        match (read, expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read, expected),
            (Err(wrong), Err((line, words))) => {
                assert_eq!(wrong.line, line, "{wrong:?}");
                assert!(wrong.message.contains(words), "{wrong:?}");
            }
            (read, expected) => panic!("{read:?} is not {expected:?} of {file:?}"),
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
