//! Splits the text of a query into tokens, for `parser.rs`. Errors have the texts of the lexer of Prometheus. The
//! parser decides which orders of tokens are queries, and bounds the length of the text.

use super::error::Error;
use super::number;

/// A token and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryToken {
    /// The number of bytes of the query before the token.
    pub offset: usize,
    /// The kind of the token.
    pub kind: TokenKind,
}

/// The kind of a token, with its value. The spelling is kept if errors quote it.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    /// A number, and its spelling.
    Number(f64, String),
    /// A duration in milliseconds, and its spelling.
    Duration(i64, String),
    /// A text without its quotes, and its spelling.
    Text(String, String),
    /// A name or a keyword.
    Word(String),
    /// An operator, a bracket, a comma, or a colon in square brackets.
    Sign(&'static str),
    /// The end of the query.
    End,
}

/// All signs but `:`, which is one only in square brackets. Longer signs come before the signs that they begin with.
const SIGNS: [&str; 23] = [
    "==", "!=", "=~", "!~", "<=", ">=", "(", ")", "{", "}", "[", "]", ",", "=", "<", ">", "+", "-",
    "*", "/", "%", "^", "@",
];

impl TokenKind {
    /// Describes the token as errors of Prometheus do.
    pub fn describe(&self) -> String {
        match self {
            TokenKind::Number(_, text) => format!("number {}", quote_spelling(text)),
            TokenKind::Duration(_, text) => format!("duration {}", quote_spelling(text)),
            TokenKind::Text(_, text) => format!("string {}", quote_spelling(text)),
            TokenKind::Word(text) => match text.to_ascii_lowercase().as_str() {
                keyword @ ("and" | "or" | "unless") => format!("<op:{keyword}>"),
                keyword @ ("by" | "without" | "on" | "ignoring" | "group_left" | "group_right"
                | "bool" | "offset") => format!("<{keyword}>"),
                _ => format!("identifier {}", quote_spelling(text)),
            },
            TokenKind::Sign(sign) => match *sign {
                "(" => String::from("left parenthesis '('"),
                ")" => String::from("right parenthesis ')'"),
                "{" => String::from("left brace '{'"),
                "}" => String::from("right brace '}'"),
                "[" => String::from("left bracket '['"),
                "]" => String::from("right bracket ']'"),
                "," => String::from("\",\""),
                "=" => String::from("\"=\""),
                ":" => String::from("\":\""),
                operator => format!("<op:{operator}>"),
            },
            TokenKind::End => String::from("end of input"),
        }
    }
}

/// The most characters of a token that an error quotes, as in Prometheus.
const MAX_QUOTED_CHARS: usize = 10;

/// Quotes a spelling for an error, cut to [`MAX_QUOTED_CHARS`].
fn quote_spelling(text: &str) -> String {
    if text.chars().count() > MAX_QUOTED_CHARS {
        let start: String = text.chars().take(MAX_QUOTED_CHARS).collect();
        return format!("{start:?}...");
    }
    format!("{text:?}")
}

/// Splits a query into tokens. The last one is [`TokenKind::End`].
///
/// # Errors
///
/// Fails at a character, number or text that is no token.
pub fn tokenize(query: &str) -> Result<Vec<QueryToken>, Error> {
    let mut tokens = Vec::new();
    let mut next_offset = 0;
    let mut is_in_brackets = false;
    while let Some(next_char) = query[next_offset..].chars().next() {
        let unread_text = &query[next_offset..];
        let offset = next_offset;
        let kind = match next_char {
            ' ' | '\t' | '\n' | '\r' => {
                next_offset += 1;
                continue;
            }
            '#' => {
                next_offset += unread_text.find('\n').unwrap_or(unread_text.len());
                continue;
            }
            '"' | '\'' | '`' => {
                let (text, length) =
                    unquote(unread_text).map_err(|why| Error::parse(query, offset, why))?;
                next_offset += length;
                TokenKind::Text(text, unread_text[..length].to_owned())
            }
            // A colon in brackets separates the parts of a subquery. Elsewhere it is part of a name.
            ':' if is_in_brackets => {
                next_offset += 1;
                TokenKind::Sign(":")
            }
            _ if next_char.is_ascii_digit() || is_fraction(unread_text) => {
                let numeral = numeral_at_start(unread_text);
                next_offset += numeral.len();
                if let Some(value) = number::parse_literal(numeral) {
                    TokenKind::Number(value, numeral.to_owned())
                } else if let Some(duration) = number::parse_duration_ms(numeral) {
                    TokenKind::Duration(duration, numeral.to_owned())
                } else {
                    let why = format!("bad number or duration syntax: {numeral:?}");
                    return Err(Error::parse(query, offset, &why));
                }
            }
            _ if next_char.is_ascii_alphabetic() || matches!(next_char, '_' | ':') => {
                let is_word_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
                let length = unread_text
                    .find(|c| !is_word_char(c))
                    .unwrap_or(unread_text.len());
                next_offset += length;
                word_or_number(&unread_text[..length])
            }
            _ => {
                let Some(sign) = SIGNS.into_iter().find(|sign| unread_text.starts_with(sign))
                else {
                    let why = format!("unexpected character: {next_char:?}");
                    return Err(Error::parse(query, offset, &why));
                };
                next_offset += sign.len();
                is_in_brackets = (is_in_brackets || sign == "[") && sign != "]";
                TokenKind::Sign(sign)
            }
        };
        tokens.push(QueryToken { offset, kind });
    }
    let (offset, kind) = (query.len(), TokenKind::End);
    tokens.push(QueryToken { offset, kind });
    Ok(tokens)
}

/// Returns the token of a word. `Inf` and `NaN`, in any case, are numbers.
fn word_or_number(text: &str) -> TokenKind {
    match number::parse_literal(text) {
        Some(value) => TokenKind::Number(value, text.to_owned()),
        None => TokenKind::Word(text.to_owned()),
    }
}

/// Whether a text begins with a number such as `.5`.
fn is_fraction(unread_text: &str) -> bool {
    let mut bytes = unread_text.bytes();
    bytes.next() == Some(b'.') && bytes.next().is_some_and(|byte| byte.is_ascii_digit())
}

/// Returns the characters at the start of `unread_text` that may be a number or a duration. A sign belongs to them only
/// in an exponent, as in `1e-3`. `unread_text` must begin with an ASCII character.
fn numeral_at_start(unread_text: &str) -> &str {
    let bytes = unread_text.as_bytes();
    let continues_numeral = |index: usize| match bytes[index] {
        byte if byte.is_ascii_alphanumeric() => true,
        b'.' | b'_' => true,
        b'+' | b'-' => {
            let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
            matches!(bytes[index - 1], b'e' | b'E') && bytes[..index - 1].iter().all(is_digit)
        }
        _ => false,
    };
    let end = (1..bytes.len()).find(|index| !continues_numeral(*index));
    &unread_text[..end.unwrap_or(unread_text.len())]
}

/// Reads the quoted text at the start of `unread_text`. Returns its content, and its length in bytes with the quotes.
/// An error is the text that Prometheus has for it.
fn unquote(unread_text: &str) -> Result<(String, usize), &'static str> {
    const UNTERMINATED: &str = "unterminated quoted string";
    let mut chars = unread_text.char_indices();
    let (_, quote) = chars.next().ok_or(UNTERMINATED)?;
    let mut content = Vec::new();
    loop {
        let (index, next_char) = chars.next().ok_or(UNTERMINATED)?;
        match next_char {
            _ if next_char == quote => {
                let text = String::from_utf8(content).map_err(|_| "invalid UTF-8 rune")?;
                return Ok((text, index + 1));
            }
            '\n' if quote != '`' => return Err(UNTERMINATED),
            '\\' if quote != '`' => unescape(&mut chars, quote, &mut content)?,
            _ => content.extend(next_char.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
}

/// Reads an escape sequence after its backslash, and appends the bytes for which it stands to `out`. An error is the
/// text that Prometheus has for it.
fn unescape(
    chars: &mut std::str::CharIndices<'_>,
    quote: char,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    const UNKNOWN: &str = "unknown escape sequence";
    let (_, next_char) = chars.next().ok_or("escape sequence not terminated")?;
    // Reads digits that follow those of which `value_so_far` is made.
    let mut read_digits = |value_so_far: u32, digit_count: usize, base: u32| {
        (0..digit_count).try_fold(value_so_far, |value, _| {
            let digit = chars.next()?.1.to_digit(base)?;
            value.checked_mul(base)?.checked_add(digit)
        })
    };
    let push_char = |code_point: u32, out: &mut Vec<u8>| {
        let escaped_char =
            char::from_u32(code_point).ok_or("escape sequence is an invalid Unicode code point")?;
        out.extend(escaped_char.encode_utf8(&mut [0; 4]).bytes());
        Ok(())
    };
    let byte = match next_char {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        _ if next_char == quote => quote as u8,
        '0'..='7' => {
            let first_digit = next_char.to_digit(8).ok_or(UNKNOWN)?;
            u8::try_from(read_digits(first_digit, 2, 8).ok_or(UNKNOWN)?).map_err(|_| UNKNOWN)?
        }
        'x' => u8::try_from(read_digits(0, 2, 16).ok_or(UNKNOWN)?).map_err(|_| UNKNOWN)?,
        'u' => return push_char(read_digits(0, 4, 16).ok_or(UNKNOWN)?, out),
        'U' => return push_char(read_digits(0, 8, 16).ok_or(UNKNOWN)?, out),
        _ => return Err(UNKNOWN),
    };
    out.push(byte);
    Ok(())
}
