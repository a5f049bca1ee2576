//! Body fields whose names, values or company are spelled otherwise. They are written before the body is.

use super::{Change, blank, other_case, parts};
use crate::dimension::Victim;
use crate::draft::{Draft, Media, Pair};
use crate::random::Random;

pub const CHANGES: &[Change] = &[
    ("twice", |draft, _, random| {
        let decoy = Pair::of("email", address(random));
        insert(draft, decoy, random);
    }),
    ("another of an odd name", |draft, _, random| {
        let decoy = Pair::of(odd_name(draft.media, random), address(random));
        insert(draft, decoy, random);
    }),
    ("odd name", |draft, _, random| rename(draft, random)),
    ("odd name and another", |draft, _, random| {
        rename(draft, random);
        let decoy = Pair::of("email", address(random));
        insert(draft, decoy, random);
    }),
    ("escaped", |draft, _, random| {
        let media = draft.media;
        own(draft, |pair| {
            pair.value = spelled(media, &pair.value, random)
        });
    }),
    ("name escaped", |draft, _, random| {
        let media = draft.media;
        own(draft, |pair| pair.name = spelled(media, &pair.name, random));
    }),
    ("case", |draft, _, random| {
        own(draft, |pair| pair.value = other_case(&pair.value, random))
    }),
    ("letters like it", |draft, victim, random| {
        let value = letters_like(&victim.name, random);
        own(draft, |pair| pair.value = value.into());
    }),
    ("blanks", |draft, _, random| {
        let blank = match draft.media {
            _ if random.once_in(3) => blank(random),
            Media::Json => random.of(JSON_BLANKS).as_bytes(),
            Media::Form => random.of(FORM_BLANKS).as_bytes(),
            Media::Multipart => random.of(&["\r\n", "\n", " ", "\u{2003}"]).as_bytes(),
        };
        own(draft, |pair| {
            pair.value = match random.once_in(2) {
                true => [blank, &pair.value].concat(),
                false => [&pair.value[..], blank].concat(),
            }
        });
    }),
    ("list", |draft, _, random| {
        let media = draft.media;
        let decoy = address(random);
        own(draft, |pair| match media {
            Media::Json => {
                let value = String::from_utf8_lossy(&pair.value).into_owned();
                pair.bare = true;
                pair.value = match random.below(3) {
                    0 => format!("[\"{value}\"]"),
                    1 => format!("[[\"{value}\"]]"),
                    _ => format!("[\"{value}\",\"{decoy}\"]"),
                }
                .into();
            }
            Media::Form | Media::Multipart => {
                pair.name = random
                    .of(&["email[]", "email[0]", "email[][]", "email[1]"])
                    .into()
            }
        });
    }),
    ("list and another", |draft, _, random| {
        let decoy = address(random);
        let name = if draft.media == Media::Json {
            "email"
        } else {
            "email[]"
        };
        own(draft, |pair| pair.name = name.into());
        insert(draft, Pair::of(name, decoy), random);
    }),
    ("nested", |draft, _, random| {
        let decoy = Pair {
            bare: draft.media == Media::Json,
            ..match draft.media {
                Media::Json => Pair::of("a", format!("{{\"email\":\"{}\"}}", address(random))),
                _ => Pair::of("a[email]", address(random)),
            }
        };
        insert(draft, decoy, random);
    }),
    ("in the query", |draft, victim, random| {
        let name = random.of(&["email", "email", "Email", "+email", "email[]", "e%6dail"]);
        draft.add_query(format!("{name}={}", victim.name).as_bytes());
        match random.below(4) {
            0 => draft.pairs.clear(),
            1 => own(draft, |pair| pair.name = b"mail".to_vec()),
            2 => own(draft, |pair| pair.value = address(random).into()),
            _ => own(draft, |pair| pair.value.clear()),
        }
    }),
    ("decoy in the query", |draft, _, random| {
        let decoy = format!("email={}", address(random));
        draft.add_query(decoy.as_bytes());
    }),
    ("decoy in a value", |draft, _, random| {
        let decoy = address(random);
        let value = match draft.media {
            Media::Json => format!("&email={decoy}"),
            Media::Form => format!("{{\"email\":\"{decoy}\"}}"),
            Media::Multipart => {
                format!("\r\n--XX\r\ncontent-disposition: form-data; name=\"email\"\r\n\r\n{decoy}")
            }
        };
        insert(draft, Pair::of("a", value), random);
    }),
    ("odd JSON", |draft, _, random| {
        draft.media = Media::Json;
        let (name, value) = random.of(&[
            ("a", "NaN"),
            ("a", "-Infinity"),
            ("a", "01"),
            ("a", "'x'"),
            ("a", "undefined"),
            ("a", "1/**/"),
            ("a", "1//\n"),
            ("a", "+1"),
            ("a", "0x1"),
            ("a", "\"\\ud800\""),
            ("a", "\"\t\""),
            ("a", "1e9999"),
            ("a", "\"\\x41\""),
            ("a", "\"\\\n\""),
            ("__proto__", "{\"email\":\"x@y.de\"}"),
            ("a", "1,"),
            ("a", "{}"),
            ("\\ud800", "1"),
            ("a", "[1,]"),
            ("a", "\"\\u00\""),
            ("a", "nul"),
            ("json_class", "\"String\""),
        ]);
        let decoy = Pair {
            bare: true,
            ..Pair::of(name, value)
        };
        insert(draft, decoy, random);
    }),
    ("deep JSON", |draft, _, random| {
        draft.media = Media::Json;
        let deep = random.of(&[90, 130, 520]);
        let decoy = Pair {
            bare: true,
            ..Pair::of("a", format!("{}{}", "[".repeat(deep), "]".repeat(deep)))
        };
        insert(draft, decoy, random);
    }),
    ("many fields", |draft, _, random| {
        let many = random.of(&[90, 300, 1_005]);
        let at = if random.once_in(2) {
            0
        } else {
            draft.pairs.len()
        };
        let filler = (0..many).map(|i| Pair::of(format!("f{i}"), "x"));
        draft.pairs.splice(at..at, filler);
    }),
    ("long filler", |draft, _, random| {
        let length = random.of(&[8_000, 70_000, 110_000]);
        let at = if random.once_in(2) {
            0
        } else {
            draft.pairs.len()
        };
        draft.pairs.insert(at, Pair::of("f", "x".repeat(length)));
    }),
    ("separator", |draft, _, random| {
        draft.media = Media::Form;
        draft.separator = random
            .of(&[
                ";", "&&", "&;", ";&", "; ", "&amp;", "\n", "&\r\n", "%26", "\0", ",",
            ])
            .into();
        if random.once_in(2) {
            let decoy = Pair::of("email", address(random));
            insert(draft, decoy, random);
        }
    }),
    ("odd part", parts::odd_part),
    ("part of a file", parts::part_of_a_file),
    ("another type", another_type),
    ("another charset", |draft, _, random| {
        draft.media = random.of(&[Media::Form, Media::Multipart, Media::Json]);
        let charset = random.of(&["utf-7", "utf-16", "\"utf-7\"", "latin1", "cp037"]);
        let content_type = format!("{}; charset={charset}", draft.media.content_type());
        draft.content_type = Some(content_type.into());
        if random.once_in(4) {
            insert(draft, Pair::of("_charset_", charset), random);
        }
        let plus = if draft.media == Media::Form {
            "%2B"
        } else {
            "+"
        };
        own(draft, |pair| {
            match random.once_in(2) || pair.value.is_empty() {
                true => pair.name = format!("{plus}AGU-mail").into(),
                false => {
                    let first = format!("{plus}AHM-").into_bytes();
                    pair.value.splice(..1, first);
                }
            }
        });
        insert(draft, Pair::of("email", address(random)), random);
    }),
    ("parts in a part", parts::parts_in_a_part),
    ("in a cookie", |draft, victim, random| {
        let name = random.of(&["email", "Email", "email[]", "e%6dail"]);
        draft.add("cookie", format!("a=b; {name}={}", victim.name));
        match random.below(3) {
            0 => draft.pairs.clear(),
            1 => own(draft, |pair| pair.name = b"mail".to_vec()),
            _ => own(draft, |pair| pair.value = address(random).into()),
        }
    }),
];

const JSON_BLANKS: &[&str] = &[
    "\\u0020", "\\t", "\\u000b", "\\f", "\\r\\n", "\\u00a0", "\\u0085", "\\ufeff", "\\u2003",
    "\\u3000", "\\u0000", "\\u001f", "\\u2028", "\u{3000}",
];

const FORM_BLANKS: &[&str] = &[
    "+",
    "%20",
    "%09",
    "%0b",
    "%0c",
    "%0d%0a",
    "%c2%a0",
    "%C2%85",
    "%ef%bb%bf",
    "%e2%80%83",
    "%E3%80%80",
    "%00",
    "%1f",
    "%e2%80%a8",
    "%85",
    "%a0",
];

pub fn another_type(draft: &mut Draft, _: &Victim, random: &mut Random) {
    draft.content_type = Some(
        random
            .of(&[
                "application/x-www-form-urlencoded",
                "application/json",
                "multipart/form-data; boundary=XX",
                "text/plain",
                "",
                "application/X-WWW-Form-Urlencoded",
                "application/x-www-form-urlencoded;charset=utf-8",
                "application/x-www-form-urlencoded ; x=y",
                "application/x-www-form-urlencoded, application/json",
                "application/json, application/x-www-form-urlencoded",
                "text/json",
                "application/vnd.api+json",
                "application/json;",
                "application/jsonp",
                "*/*",
                "application/x-www-form-urlencoded\t",
                "multipart/form-data; boundary=\"XX\"",
                "Multipart/Form-Data; Boundary=XX",
                "multipart/form-data; boundary=XX; boundary=YY",
                "multipart/form-data; boundary=YY; boundary=XX",
                "multipart/mixed; boundary=XX",
                "multipart/form-data;boundary=XX",
                "multipart/form-data",
                "multipart/form-data; boundary=XX, x",
                "multipart/form-data; x=\"; boundary=YY\"; boundary=XX",
                "multipart/form-data; boundary*=utf-8''XX",
                "text/plain; application/json",
                "application/octet-stream",
                "application/xml",
                "image/png",
                "text/x-json",
                "application/x-ndjson",
                "application/jsonrequest",
                "multipart/related; boundary=XX",
            ])
            .into(),
    );
    match random.below(4) {
        0 => draft.media = Media::Json,
        1 => draft.media = Media::Form,
        _ => {}
    }
    if draft.content_type.as_deref() == Some(b"") && random.once_in(2) {
        draft.content_type = None;
        // A body without a type: written here, or its own type would be added.
        draft.render();
        draft.content_type = None;
    }
}

/// The pair with the client's address: the first that is not called otherwise.
pub fn own(draft: &mut Draft, change: impl FnOnce(&mut Pair)) {
    let is_own = |pair: &&mut Pair| {
        pair.value.starts_with(b"skif")
            || pair.value.first().is_some_and(u8::is_ascii_digit)
            || pair.name == b"email"
    };
    if let Some(pair) = draft.pairs.iter_mut().find(is_own) {
        change(pair);
    }
}

fn rename(draft: &mut Draft, random: &mut Random) {
    let name = odd_name(draft.media, random);
    own(draft, |pair| pair.name = name);
}

/// Before the others or behind them.
pub fn insert(draft: &mut Draft, pair: Pair, random: &mut Random) {
    match random.once_in(2) {
        true => draft.pairs.insert(0, pair),
        false => draft.pairs.push(pair),
    }
}

/// Somebody else's.
pub fn address(random: &mut Random) -> String {
    format!("r{}@y.de", random.word())
}

/// Some characters as escapes of the media type.
fn spelled(media: Media, text: &[u8], random: &mut Random) -> Vec<u8> {
    match media {
        Media::Form => super::percent(text, random),
        Media::Json => {
            let each = text.iter().map(|byte| match random.below(5) {
                0 => format!("\\u{byte:04x}"),
                1 => format!("\\u{byte:04X}"),
                _ => char::from(*byte).to_string(),
            });
            each.collect::<String>().into()
        }
        Media::Multipart => {
            let at = random.below(text.len());
            let escape = random.of(&[b"\\" as &[u8], b"\"", b"%65", b"&#101;"]);
            [&text[..at], escape, &text[at..]].concat()
        }
    }
}

/// Names that some readers take for `email`.
fn odd_name(media: Media, random: &mut Random) -> Vec<u8> {
    let name = match media {
        Media::Form => random.of(&[
            "+email",
            "%20email",
            "email+",
            "email[]",
            "email[0]",
            "email[x]",
            "email%00",
            "email%00x",
            "Email",
            "EMAIL",
            "%65mail",
            "e%6dAil",
            "email[",
            "email]",
            "email.",
            "%0aemail",
            "%09email",
            "email%20",
            "email%5B%5D",
            "email%5b",
            "%EF%BB%BFemail",
            "[email]",
            "user[email]",
            "email;x",
            "x;email",
            "%00email",
            "em%C2%ADail",
            "%A0email",
            "email=",
            "\nemail",
            "email%0d",
            "%0Demail",
            "email[%00]",
            "%0b%0cemail",
        ]),
        Media::Json => random.of(&[
            "Email",
            "EMAIL",
            "\\u0065mail",
            "e\\u006dail",
            "email\\u0000",
            " email",
            "email ",
            "email[]",
            "\\u0045mail",
            "email\\u00ad",
            "\\ufeffemail",
            "e\\/mail",
            "email.",
            "\\u0130mail",
            "em\\u0061il",
            "user.email",
            "\\temail",
        ]),
        Media::Multipart => random.of(&[
            "Email",
            "email[]",
            "email[0]",
            " email",
            "email ",
            "email\\",
            "e%6dail",
            "email\0",
            "email[",
            "email.",
            "\\email",
            "em\\ail",
            "email;x",
            "\u{feff}email",
            "email%00",
            "\temail",
            "'email'",
            "email\u{a0}",
            "+email",
            "e\\155ail",
        ]),
    };
    name.into()
}

/// The same account to who compares in NFKC and without case.
fn letters_like(name: &str, random: &mut Random) -> String {
    let (from, to) = random.of(&[
        ("k", "\u{212a}"),
        ("s", "\u{17f}"),
        ("s", "\u{ff53}"),
        ("if", "i\u{ff46}"),
        ("k", "\u{ff2b}"),
        ("@", "\u{ff20}"),
        (".", "\u{ff0e}"),
        ("de", "d\u{212f}"),
        ("x", "\u{2179}"),
        ("i", "\u{2139}"),
        ("de", "\u{ff24}E"),
        ("if", "\u{1d422}f"),
        ("k", "\u{24da}"),
        ("@", "\u{fe6b}"),
        (".de", "\u{3002}de"),
        ("i", "i\u{34f}"),
        ("i", "i\u{ad}"),
        ("f", "f\u{200b}"),
    ]);
    name.replacen(from, to, 1)
}
