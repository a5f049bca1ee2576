//! Bodies that are written in another charset, packed, or begin and end with what only some readers skip.

use std::io::Write;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::Change;
use crate::draft::Draft;

pub const CHANGES: &[Change] = &[
    ("begins with", |draft, _, random| {
        let before = random.of(&[
            "\u{feff}", " ", "\r\n", "\t", "&", "=", ";", "\0", "?", "x&", "\u{a0}", "\u{b}",
            "\u{2003}", ")]}',\n", "/**/", "//\n", "[", "{}", "a=b\n", "\u{fffe}",
        ]);
        draft.body.splice(0..0, before.bytes());
    }),
    ("ends with", |draft, _, random| {
        let after = random.of(&[
            " ",
            "\r\n",
            "&",
            "\0",
            "{}",
            "x",
            "{\"email\":\"r@y.de\"}",
            "&email",
            "&email=",
            ";",
            "=",
            "]",
            ",",
            "&&",
            "\n--XX--",
            "/**/",
            "//",
            "\u{1a}",
            "%00",
            "&[email]=r@y.de",
        ]);
        draft.body.extend_from_slice(after.as_bytes());
    }),
    ("charset", |draft, _, random| {
        let name = random.of(&[
            "utf-7",
            "utf-16",
            "utf-16le",
            "utf-16be",
            "utf-32",
            "utf-32le",
            "iso-8859-1",
            "us-ascii",
            "utf8",
            "x",
            "cp037",
            "UTF-7",
        ]);
        name_charset(draft, name);
        draft.body = in_charset(&draft.body, name);
    }),
    ("charset in escapes", |draft, _, random| {
        // As Python's decoders of forms read them: the escapes first, then the charset.
        let name = random.of(&["utf-7", "utf-16le", "utf-16be", "cp037", "utf-16"]);
        name_charset(draft, name);
        let text = String::from_utf8_lossy(&draft.body).into_owned();
        let escaped = |part: &str| {
            in_charset(part.as_bytes(), name)
                .iter()
                .map(|byte| format!("%{byte:02x}"))
                .collect::<String>()
        };
        let pairs = text.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            format!("{}={}", escaped(name), escaped(value))
        });
        draft.body = pairs.collect::<Vec<_>>().join("&").into();
    }),
    ("charset not named", |draft, _, random| {
        let name = random.of(&["utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le"]);
        draft.body = in_charset(&draft.body, name);
    }),
    ("charset of no account", |draft, _, random| {
        let name = random.of(&[
            "utf-7",
            "utf-16",
            "utf-8",
            "UTF8",
            "\"utf-8\"",
            "iso-8859-1",
            "x",
            "",
            "utf-8; charset=utf-16",
        ]);
        name_charset(draft, name);
    }),
    ("packed", |draft, _, random| {
        let (name, body) = match random.below(4) {
            0 => (
                "deflate",
                written(
                    ZlibEncoder::new(Vec::new(), Compression::fast()),
                    &draft.body,
                    ZlibEncoder::finish,
                ),
            ),
            1 => (
                "deflate",
                written(
                    DeflateEncoder::new(Vec::new(), Compression::fast()),
                    &draft.body,
                    DeflateEncoder::finish,
                ),
            ),
            _ => (
                "gzip",
                written(
                    GzEncoder::new(Vec::new(), Compression::fast()),
                    &draft.body,
                    GzEncoder::finish,
                ),
            ),
        };
        draft.body = body;
        let name = if random.once_in(4) {
            name.to_uppercase()
        } else {
            name.to_owned()
        };
        draft.add("content-encoding", name);
    }),
    ("said to be packed", |draft, _, random| {
        let name = random.of(&[
            "identity",
            "gzip",
            "br",
            "x",
            "",
            "Identity",
            "deflate, gzip",
            "aws-chunked",
        ]);
        draft.add("content-encoding", name);
    }),
    ("cut", |draft, _, random| {
        let most = draft.body.len().min(6);
        let length = draft.body.len() - random.below(most + 1);
        draft.body.truncate(length);
    }),
    ("line ends", |draft, _, _| {
        let text = draft.body.iter().filter(|byte| **byte != b'\r');
        draft.body = text.copied().collect();
    }),
    ("another boundary", |draft, _, random| {
        let text = String::from_utf8_lossy(&draft.body).into_owned();
        let (from, to) = random.of(&[
            ("--XX\r\n", "--XX \r\n"),
            ("--XX--", "--XX"),
            ("--XX--\r\n", ""),
            ("--XX", "----XX"),
            ("--XX\r\n", "--XX\r\n\r\n"),
            ("--XX\r\n", "preamble\r\n--XX\r\n"),
        ]);
        draft.body = text.replacen(from, to, 1).into();
    }),
    ("type twice", |draft, _, random| {
        let other = random.of(&[
            "application/json",
            "application/x-www-form-urlencoded",
            "text/plain",
        ]);
        match random.once_in(2) {
            true => draft.add("content-type", other),
            false => draft.add("content_type", other),
        }
    }),
];

pub fn base64(text: &[u8]) -> String {
    BASE64_STANDARD.encode(text)
}

fn name_charset(draft: &mut Draft, name: &str) {
    let kind = draft.content_type.get_or_insert_default();
    kind.extend_from_slice(b"; charset=");
    kind.extend_from_slice(name.as_bytes());
}

/// ASCII text in another charset; what is the same in it stays as it is.
fn in_charset(text: &[u8], name: &str) -> Vec<u8> {
    let wide = |byte: &u8, length: usize, at: usize| {
        let mut unit = vec![0; length];
        unit[at] = *byte;
        unit
    };
    match &*name.to_ascii_lowercase() {
        "utf-7" => {
            // Each letter `a` as it may stand there: 0x0061 in base64.
            let each = text.iter().map(|byte| match byte {
                b'm' => b"+AG0-".to_vec(),
                b'@' => b"+AEA-".to_vec(),
                byte => vec![*byte],
            });
            each.flatten().collect()
        }
        "utf-16" => [b"\xff\xfe".to_vec(), in_charset(text, "utf-16le")].concat(),
        "utf-16le" => text.iter().flat_map(|byte| wide(byte, 2, 0)).collect(),
        "utf-16be" => text.iter().flat_map(|byte| wide(byte, 2, 1)).collect(),
        "utf-32" => [b"\xff\xfe\0\0".to_vec(), in_charset(text, "utf-32le")].concat(),
        "utf-32le" => text.iter().flat_map(|byte| wide(byte, 4, 0)).collect(),
        "cp037" => text.iter().map(|byte| ebcdic(*byte)).collect(),
        _ => text.to_vec(),
    }
}

/// Letters, digits and a few signs in IBM's code page 37.
fn ebcdic(byte: u8) -> u8 {
    match byte {
        b'a'..=b'i' => byte - b'a' + 0x81,
        b'j'..=b'r' => byte - b'j' + 0x91,
        b's'..=b'z' => byte - b's' + 0xa2,
        b'0'..=b'9' => byte - b'0' + 0xf0,
        b'@' => 0x7c,
        b'.' => 0x4b,
        other => other,
    }
}

fn written<W: Write>(
    mut to: W,
    text: &[u8],
    finish: impl FnOnce(W) -> std::io::Result<Vec<u8>>,
) -> Vec<u8> {
    to.write_all(text).unwrap();
    finish(to).unwrap()
}
