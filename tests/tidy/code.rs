//! What of a Rust file is code: comments and the contents of strings become spaces, lines stay.

/// `source` with comments and the contents of literals blanked out, byte for byte in its place.
pub fn code_of(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (length, blank) = match rest {
            [b'/', b'/', ..] => (line(rest), true),
            [b'/', b'*', ..] => (block(rest), true),
            [b'"', ..] => (text(rest), true),
            [b'r', b'"' | b'#', ..] if !in_word(bytes, at) => match raw(rest) {
                Some(length) => (length, true),
                None => (1, false),
            },
            [b'\'', b'\\', ..] => (quote(rest), true),
            [b'\'', _, b'\'', ..] => (3, true),
            _ => (1, false),
        };
        let end = (at + length).min(bytes.len());
        if blank {
            code[at..end]
                .iter_mut()
                .filter(|byte| **byte != b'\n')
                .for_each(|byte| *byte = b' ');
        }
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Whether the byte at `at` continues a word; a byte string's `b` does not.
fn in_word(bytes: &[u8], at: usize) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let Some(before) = at.checked_sub(1) else {
        return false;
    };
    let prefix = bytes[before] == b'b' && !before.checked_sub(1).is_some_and(|i| word(&bytes[i]));
    word(&bytes[before]) && !prefix
}

fn line(rest: &[u8]) -> usize {
    rest.iter()
        .position(|&byte| byte == b'\n')
        .unwrap_or(rest.len())
}

/// A block comment; they nest.
fn block(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn text(rest: &[u8]) -> usize {
    closing(rest, b'"')
}

fn quote(rest: &[u8]) -> usize {
    closing(rest, b'\'')
}

/// Up to and with the next `end` that no backslash escapes.
fn closing(rest: &[u8], end: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == end => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// A raw string; nothing when `r#` begins a raw identifier.
fn raw(rest: &[u8]) -> Option<usize> {
    let marks = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + marks) != Some(&b'"') {
        return None;
    }
    let end = [b"\"".as_slice(), &vec![b'#'; marks]].concat();
    let body = marks + 2;
    let found = rest[body..]
        .windows(end.len())
        .position(|window| window == end);
    Some(found.map_or(rest.len(), |position| body + position + end.len()))
}

#[cfg(test)]
mod tests {
    use super::code_of;

    #[test]
    fn comments_and_literals_are_blank() {
        let check = |source: &str, expected: &str| {
            assert_eq!(
                code_of(source)
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" "),
                expected
            );
        };
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check(r#"f("a \" // b", c)"#, "f( , c)");
        check(r##"f(r#"a " b"#, c)"##, "f( , c)");
        check(r##"f(br"a", c)"##, "f(b , c)");
        check("r#type: &'a str, '\\'', '\"', b", "r#type: &'a str, , , b");
        check("for_r\"x\"", "for_r");
        check("\"unclosed", "");
    }

    #[test]
    fn lines_stay_where_they_are() {
        assert_eq!(code_of("\"a\nb\"\n/* c\n*/ d").lines().count(), 4);
    }
}
