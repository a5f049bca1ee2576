//! A plain request changed by chance, in the ways in which readings of requests are known to differ.

mod authorization;
mod bodies;
mod claims;
mod credentials;
mod encodings;
mod numbers;
mod parts;
mod routes;

use crate::dimension::{Dimension, Victim};
use crate::draft::Draft;
use crate::random::Random;

/// One kind of change: its name, and what makes it.
type Change = (&'static str, fn(&mut Draft, &Victim, &mut Random));

/// A request of a client, changed in one to four ways.
pub fn mutate(victim: &Victim, random: &mut Random) -> Draft {
    let mut draft = victim.plain(random);
    let own = match victim.dimension {
        Dimension::OwnBody if random.once_in(3) => numbers::BODY,
        Dimension::OwnPath if random.once_in(3) => numbers::PATH,
        Dimension::OwnClaim if random.once_in(3) => authorization::USER,
        Dimension::OwnClaim => claims::CHANGES,
        Dimension::Email | Dimension::OwnBody => bodies::CHANGES,
        Dimension::Bearer => authorization::BEARER,
        Dimension::User => authorization::USER,
        Dimension::Cookie | Dimension::OwnCookie => credentials::COOKIE,
        Dimension::Query | Dimension::OwnQuery => credentials::QUERY,
        Dimension::Header | Dimension::OwnHeader => credentials::HEADER,
        Dimension::Host => routes::HOST,
        Dimension::Path | Dimension::OwnPath => routes::PATH,
        Dimension::Method => routes::METHOD,
        Dimension::Address | Dimension::OwnNetwork => routes::ADDRESS,
    };
    for _ in 0..1 + random.below(2) {
        change(&mut draft, own, victim, random);
    }
    draft.render();
    // What changes bytes comes last, and leaves what was changed before as it is most times.
    let has_body = matches!(victim.dimension, Dimension::Email | Dimension::OwnBody);
    if has_body && random.below(3) > 0 {
        change(&mut draft, encodings::CHANGES, victim, random);
    }
    if random.once_in(4) {
        change(&mut draft, EVERYWHERE, victim, random);
    }
    draft
}

fn change(draft: &mut Draft, changes: &[Change], victim: &Victim, random: &mut Random) {
    let (kind, change) = random.of(changes);
    draft.kinds.push(kind);
    change(draft, victim, random);
}

/// What may be put anywhere.
const JUNK: &[&[u8]] = &[
    b" ",
    b"\t",
    b"+",
    b"%20",
    b"%00",
    b"\0",
    b"\"",
    b"'",
    b"\\",
    b"\\u0000",
    b",",
    b";",
    b"&",
    b"=",
    b"[]",
    b"[",
    b"]",
    b".",
    b"%",
    b"%2",
    b"%zz",
    b"%u0065",
    b"\xa0",
    b"\xc2\xa0",
    b"\x85",
    b"\x0b",
    b"\x0c",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xe2\x80\x8b",
    b"%ef%bb%bf",
    b"%C2%AD",
    b"/",
    b"//",
    b"/.",
    b"?",
    b"#",
    b":",
    b"@",
    b"{",
    b"}",
    b"/**/",
    b"\r\n",
    b"\n",
    b"x",
    b"=?",
];

const EVERYWHERE: &[Change] = &[
    ("junk in a field", |draft, _, random| {
        if !draft.fields.is_empty() {
            let which = random.below(draft.fields.len());
            junk(&mut draft.fields[which].1, random);
        }
    }),
    ("junk in the body", |draft, _, random| {
        if !draft.body.is_empty() {
            junk(&mut draft.body, random);
        }
    }),
    ("junk in the target", |draft, _, random| {
        match &mut draft.query {
            Some(query) if random.once_in(2) => junk(query, random),
            _ => junk(&mut draft.path, random),
        }
    }),
    ("target spelled otherwise", |draft, victim, random| {
        let dimensions = [Dimension::Email, Dimension::OwnBody, Dimension::Host];
        if dimensions.contains(&victim.dimension) {
            change(draft, routes::PATH, victim, random);
        }
    }),
    ("chunked", |draft, _, _| {
        draft.chunked = !draft.body.is_empty()
    }),
    ("a field of no account", |draft, victim, random| {
        let name = random.of(&[
            "x-forwarded-host",
            "forwarded",
            "x-forwarded-for",
            "x-original-url",
            "x-host",
            "expect-ct",
        ]);
        let value = format!("{}{}", random.word(), victim.name);
        draft.add(name, value);
    }),
];

fn junk(text: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(text.len() + 1);
    let new = random.of(JUNK);
    if random.once_in(3) && at < text.len() {
        text.splice(at..at + 1, new.iter().copied());
    } else {
        text.splice(at..at, new.iter().copied());
    }
}

/// Some of the bytes as percent escapes, of either case.
fn percent(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in text {
        match random.below(6) {
            0 => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            1 => out.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out
}

/// Some letters in the other case.
fn other_case(text: &[u8], random: &mut Random) -> Vec<u8> {
    let flip = |byte: &u8| match random.once_in(3) {
        true if byte.is_ascii_alphabetic() => byte ^ 0x20,
        _ => *byte,
    };
    text.iter().map(flip).collect()
}

/// A blank of some kind, or something that is taken for one.
fn blank(random: &mut Random) -> &'static [u8] {
    random.of(&[
        b" " as &[u8],
        b"  ",
        b"\t",
        b" \t",
        b"\xa0",
        b"\xc2\xa0",
        b"\x85",
        b"\x0b",
        b"\x0c",
        b"+",
        b"%20",
        b"\0",
    ])
}
