//! `Authorization` with a token that is spelled otherwise, stands beside others, or says what only some libraries
//! take.

use super::{Change, blank, percent};
use crate::dimension::Victim;
use crate::draft::Draft;
use crate::random::Random;
use crate::token;

pub const BEARER: &[Change] = &[
    ("scheme", scheme),
    ("blanks behind the scheme", |draft, _, random| {
        authorization(draft, |credential| {
            [b"Bearer", blank(random), blank(random), credential].concat()
        });
    }),
    ("something behind", behind),
    ("something before", before),
    ("quoted", quoted),
    ("escaped", |draft, _, random| {
        authorization(draft, |credential| {
            [b"Bearer ", &percent(credential, random)[..]].concat()
        });
    }),
    ("twice", twice),
    ("list", list),
    ("no scheme", |draft, _, _| {
        authorization(draft, <[u8]>::to_vec)
    }),
    ("in another place", elsewhere),
    ("blanks around the value", |draft, _, random| {
        if let Some(value) = draft.field("authorization") {
            *value = [blank(random), value, blank(random)].concat();
        }
    }),
];

pub const USER: &[Change] = &[
    ("scheme", scheme),
    ("something behind", behind),
    ("something before", before),
    ("quoted", quoted),
    ("twice", twice),
    ("list", list),
    ("no scheme", |draft, _, _| {
        authorization(draft, <[u8]>::to_vec)
    }),
    ("blanks behind the scheme", |draft, _, random| {
        authorization(draft, |credential| {
            [b"Bearer", blank(random), credential].concat()
        });
    }),
    ("without an end", |draft, victim, _| {
        forge(
            draft,
            token::HEAD,
            format!("{{\"sub\":\"{}\"}}", victim.name),
        );
    }),
    ("just ended", |draft, victim, random| {
        let end = token::now() - 1 - random.below(50) as u64;
        forge(
            draft,
            token::HEAD,
            format!("{{\"sub\":\"{}\",\"exp\":{end}}}", victim.name),
        );
    }),
    ("not yet", |draft, victim, random| {
        let (now, ahead) = (token::now(), random.below(50) as u64);
        let claims = format!(
            "{{\"sub\":\"{}\",\"nbf\":{},\"exp\":{}}}",
            victim.name,
            now + ahead,
            now + 900
        );
        forge(draft, token::HEAD, claims);
    }),
    ("blanks around the name", |draft, victim, random| {
        let blank = random.of(&[
            " ", "\\t", "\\u00a0", "\\u2003", "\\u0000", "\\u200b", "\\n",
        ]);
        let (before, after) = if random.once_in(2) {
            (blank, "")
        } else {
            ("", blank)
        };
        claims(
            draft,
            &format!("\"sub\":\"{before}{}{after}\"", victim.name),
        );
    }),
    ("escapes in the name", |draft, victim, _| {
        let first = victim.name.as_bytes()[0];
        claims(
            draft,
            &format!("\"s\\u0075b\":\"\\u{first:04x}{}\"", &victim.name[1..]),
        );
    }),
    ("name twice", |draft, victim, random| {
        let (own, other) = (
            format!("\"sub\":\"{}\"", victim.name),
            format!("\"sub\":\"{}\"", random.word()),
        );
        let (a, b) = if random.once_in(2) {
            (own, other)
        } else {
            (other, own)
        };
        claims(draft, &format!("{a},{b}"));
    }),
    ("name in a list", |draft, victim, _| {
        claims(draft, &format!("\"sub\":[\"{}\"]", victim.name))
    }),
    ("claims of no account", |draft, victim, random| {
        let more = random.of(&[
            "\"aud\":\"x\"",
            "\"iss\":\"x\"",
            "\"iat\":99999999999",
            "\"exp\":1.0e12",
            "\"nbf\":\"x\"",
            "\"crit\":[]",
        ]);
        claims(draft, &format!("\"sub\":\"{}\",{more}", victim.name));
    }),
    ("another head", |draft, victim, random| {
        let head = random.of(&[
            "{\"alg\":\"HS384\",\"typ\":\"JWT\"}",
            "{\"alg\":\"HS512\",\"typ\":\"JWT\"}",
            "{\"alg\":\"HS256\"}",
            "{\"alg\":\"HS256\",\"typ\":\"at+jwt\",\"kid\":\"x\"}",
            "{\"typ\":\"JWT\",\"alg\":\"HS256\",\"alg\":\"HS256\"}",
            "{\"alg\":\"HS256\",\"crit\":[\"exp\"]}",
            "{\"alg\":\"HS256\",\"jku\":\"x\",\"b64\":true}",
            " {\"alg\" : \"HS256\"}\n",
            "{\"alg\":\"HS256\",\"typ\":7}",
        ]);
        let claims = format!(
            "{{\"sub\":\"{}\",\"exp\":{}}}",
            victim.name,
            token::now() + 900
        );
        forge(draft, head, claims);
    }),
    ("another spelling of base64", |draft, _, random| {
        authorization(draft, |credential| {
            let mut text = [b"Bearer ", credential].concat();
            match random.below(4) {
                0 => text.extend_from_slice(b"="),
                1 => text.extend_from_slice(b"=="),
                // The last letter of 32 bytes has two bits of no account.
                2 => {
                    let last = text.last_mut();
                    if let Some(last) =
                        last.filter(|last| last.is_ascii_lowercase() && **last < b'z')
                    {
                        *last += 1;
                    }
                }
                _ => text.iter_mut().for_each(|byte| {
                    *byte = match *byte {
                        b'-' => b'+',
                        b'_' => b'/',
                        other => other,
                    }
                }),
            }
            text
        });
    }),
];

/// Writes the value of `authorization` anew from its credential.
fn authorization(draft: &mut Draft, write: impl FnOnce(&[u8]) -> Vec<u8>) {
    if let Some(value) = draft.field("authorization") {
        let begins = value
            .iter()
            .position(|byte| *byte == b' ')
            .map_or(0, |at| at + 1);
        *value = write(&value[begins..]);
    }
}

fn scheme(draft: &mut Draft, _: &Victim, random: &mut Random) {
    let scheme = random.of(&[
        "bearer",
        "BEARER",
        "bEaReR",
        "Token",
        "JWT",
        "Basic",
        "Bearer:",
        "Bearer,",
        "Bearer=",
        "xBearer",
        "Bearer Bearer",
        "Bearer\0",
        "\"Bearer\"",
        "Digest",
        "token=",
        "Bearer\u{a0}",
    ]);
    authorization(draft, |credential| {
        [scheme.as_bytes(), b" ", credential].concat()
    });
}

fn behind(draft: &mut Draft, _: &Victim, random: &mut Random) {
    let more = random.of(&[
        " ", ",", ";", ", ", "\t", "\"", "=", "=?", "%20", " ,", "\0", "\u{a0}", "~", ".",
    ]);
    let other = random.word();
    let other = if random.once_in(3) { "" } else { &other };
    authorization(draft, |credential| {
        [b"Bearer ", credential, more.as_bytes(), other.as_bytes()].concat()
    });
}

fn before(draft: &mut Draft, _: &Victim, random: &mut Random) {
    let other = random.word();
    let between = random.of(&[" ", ",", ", ", ";", ":", " Bearer ", ", Bearer ", "=", "\t"]);
    authorization(draft, |credential| {
        [b"Bearer ", other.as_bytes(), between.as_bytes(), credential].concat()
    });
}

fn quoted(draft: &mut Draft, _: &Victim, random: &mut Random) {
    let (open, close) = random.of(&[
        ("\"", "\""),
        ("'", "'"),
        ("<", ">"),
        ("\"", ""),
        ("token=\"", "\""),
        ("token=", ""),
    ]);
    authorization(draft, |credential| {
        [b"Bearer ", open.as_bytes(), credential, close.as_bytes()].concat()
    });
}

fn twice(draft: &mut Draft, _: &Victim, random: &mut Random) {
    let other = random.of(&["Bearer x", "Basic eDp5", "", "Bearer", "Negotiate x"]);
    let name = random.of(&[
        "authorization",
        "Authorization",
        "AUTHORIZATION",
        "proxy-authorization",
    ]);
    match random.once_in(2) {
        true => draft.add(name, other),
        false => draft.fields.insert(0, (name.into(), other.into())),
    }
}

fn list(draft: &mut Draft, _: &Victim, random: &mut Random) {
    let other = random.of(&["Basic eDp5", "Bearer x", "x", "Negotiate"]);
    let first = random.once_in(2);
    authorization(draft, |credential| match first {
        true => [b"Bearer ", credential, b", ", other.as_bytes()].concat(),
        false => [other.as_bytes(), b", Bearer ", credential].concat(),
    });
}

fn elsewhere(draft: &mut Draft, victim: &Victim, random: &mut Random) {
    let (name, prefix) = random.of(&[
        ("x-authorization", "Bearer "),
        ("Authorization", "bearer "),
        ("authorization", "Bearer  "),
        ("x-access-token", ""),
        ("authentication", "Bearer "),
    ]);
    draft.fields.clear();
    draft.add(name, format!("{prefix}{}", victim.name));
}

/// A token with these claims and an end.
pub(super) fn claims(draft: &mut Draft, text: &str) {
    let end = token::now() + 900;
    forge(draft, token::HEAD, format!("{{{text},\"exp\":{end}}}"));
}

pub(super) fn forge(draft: &mut Draft, head: &str, claims: String) {
    let token = token::signed(head, &claims);
    if let Some(value) = draft.field("authorization") {
        *value = format!("Bearer {token}").into();
    }
}
