//! A query as tokens.

use super::error::Error;
use super::number;

/// A part of a query, and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryToken {
    /// Bytes before it.
    pub at: usize,
    /// What it is.
    pub kind: TokenKind,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    /// A number, and how it was written.
    Number(f64, String),
    /// A span in milliseconds, and how it was written.
    Duration(i64, String),
    /// A text without its quotes, and how it was written.
    Text(String, String),
    /// A name or a keyword.
    Word(String),
    /// An operator or a bracket.
    Sign(&'static str),
    /// Behind the last one.
    End,
}

/// Longer ones first.
const SIGNS: [&str; 23] = [
    "==", "!=", "=~", "!~", "<=", ">=", "(", ")", "{", "}", "[", "]", ",", "=", "<", ">", "+", "-",
    "*", "/", "%", "^", "@",
];

impl TokenKind {
    /// As errors name it.
    pub fn describe(&self) -> String {
        match self {
            TokenKind::Number(_, text) => format!("number {}", quoted(text)),
            TokenKind::Duration(_, text) => format!("duration {}", quoted(text)),
            TokenKind::Text(_, text) => format!("string {}", quoted(text)),
            TokenKind::Word(text) => match text.to_ascii_lowercase().as_str() {
                keyword @ ("and" | "or" | "unless") => format!("<op:{keyword}>"),
                keyword @ ("by" | "without" | "on" | "ignoring" | "group_left" | "group_right"
                | "bool" | "offset") => format!("<{keyword}>"),
                _ => format!("identifier {}", quoted(text)),
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
                other => format!("<op:{other}>"),
            },
            TokenKind::End => String::from("end of input"),
        }
    }
}

fn quoted(text: &str) -> String {
    if text.chars().count() > 10 {
        let begin: String = text.chars().take(10).collect();
        return format!("{begin:?}...");
    }
    format!("{text:?}")
}

/// All tokens of a query; the last one is its end.
pub fn tokens(query: &str) -> Result<Vec<QueryToken>, Error> {
    let (mut found, mut at, mut bracket) = (Vec::new(), 0, false);
    while let Some(letter) = query[at..].chars().next() {
        let rest = &query[at..];
        let begin = at;
        let kind = match letter {
            ' ' | '\t' | '\n' | '\r' => {
                at += 1;
                continue;
            }
            '#' => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '"' | '\'' | '`' => {
                let (text, length) = text(rest).map_err(|why| Error::parse(query, at, why))?;
                at += length;
                TokenKind::Text(text, rest[..length].to_owned())
            }
            ':' if bracket => {
                at += 1;
                TokenKind::Sign(":")
            }
            _ if letter.is_ascii_digit() || is_fraction(rest) => {
                let run = numeral(rest);
                at += run.len();
                if let Some(value) = number::literal(run) {
                    TokenKind::Number(value, run.to_owned())
                } else if let Some(span) = number::duration(run) {
                    TokenKind::Duration(span, run.to_owned())
                } else {
                    let why = format!("bad number or duration syntax: {run:?}");
                    return Err(Error::parse(query, begin, &why));
                }
            }
            _ if letter.is_ascii_alphabetic() || matches!(letter, '_' | ':') => {
                let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
                let length = rest.find(|c| !inside(c)).unwrap_or(rest.len());
                at += length;
                word(&rest[..length])
            }
            _ => {
                let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) else {
                    let why = format!("unexpected character: {letter:?}");
                    return Err(Error::parse(query, at, &why));
                };
                at += sign.len();
                bracket = (bracket || sign == "[") && sign != "]";
                TokenKind::Sign(sign)
            }
        };
        found.push(QueryToken { at: begin, kind });
    }
    let (at, kind) = (query.len(), TokenKind::End);
    found.push(QueryToken { at, kind });
    Ok(found)
}

fn word(text: &str) -> TokenKind {
    match number::literal(text) {
        Some(value) => TokenKind::Number(value, text.to_owned()),
        None => TokenKind::Word(text.to_owned()),
    }
}

fn is_fraction(rest: &str) -> bool {
    let mut bytes = rest.bytes();
    bytes.next() == Some(b'.') && bytes.next().is_some_and(|byte| byte.is_ascii_digit())
}

/// What may be a number or a span at the beginning of a text, with the sign of an exponent.
fn numeral(rest: &str) -> &str {
    let bytes = rest.as_bytes();
    let inside = |at: usize| match bytes[at] {
        byte if byte.is_ascii_alphanumeric() => true,
        b'.' | b'_' => true,
        b'+' | b'-' => {
            let digits = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
            matches!(bytes[at - 1], b'e' | b'E') && bytes[..at - 1].iter().all(digits)
        }
        _ => false,
    };
    let end = (1..bytes.len()).find(|at| !inside(*at));
    &rest[..end.unwrap_or(rest.len())]
}

/// What a quoted text says, and its bytes with the quotes.
fn text(rest: &str) -> Result<(String, usize), &'static str> {
    const OPEN: &str = "unterminated quoted string";
    let mut letters = rest.char_indices();
    let (_, quote) = letters.next().ok_or(OPEN)?;
    let mut bytes = Vec::new();
    loop {
        let (at, letter) = letters.next().ok_or(OPEN)?;
        match letter {
            _ if letter == quote => {
                let text = String::from_utf8(bytes).map_err(|_| "invalid UTF-8 rune")?;
                return Ok((text, at + 1));
            }
            '\n' if quote != '`' => return Err(OPEN),
            '\\' if quote != '`' => escaped(&mut letters, quote, &mut bytes)?,
            _ => bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
}

fn escaped(
    letters: &mut std::str::CharIndices<'_>,
    quote: char,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let (_, letter) = letters.next().ok_or("escape sequence not terminated")?;
    let mut digits = |first: u32, count: usize, base: u32| {
        (0..count).try_fold(first, |value, _| {
            let digit = letters.next()?.1.to_digit(base)?;
            value.checked_mul(base)?.checked_add(digit)
        })
    };
    let wrong = "unknown escape sequence";
    let wide = |value: u32, out: &mut Vec<u8>| {
        let letter =
            char::from_u32(value).ok_or("escape sequence is an invalid Unicode code point")?;
        out.extend(letter.encode_utf8(&mut [0; 4]).bytes());
        Ok(())
    };
    let byte = match letter {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        _ if letter == quote => quote as u8,
        '0'..='7' => {
            let first = letter.to_digit(8).ok_or(wrong)?;
            u8::try_from(digits(first, 2, 8).ok_or(wrong)?).map_err(|_| wrong)?
        }
        'x' => u8::try_from(digits(0, 2, 16).ok_or(wrong)?).map_err(|_| wrong)?,
        'u' => return wide(digits(0, 4, 16).ok_or(wrong)?, out),
        'U' => return wide(digits(0, 8, 16).ok_or(wrong)?, out),
        _ => return Err(wrong),
    };
    out.push(byte);
    Ok(())
}
