//! Numbers that are spelled otherwise, in a body and as a part of the path.

use super::{Change, bodies};
use crate::dimension::Victim;
use crate::draft::{Draft, Media, Pair};
use crate::random::Random;

pub const BODY: &[Change] = &[
    ("number in JSON", |draft, _, random| {
        draft.media = Media::Json;
        bodies::own(draft, |pair| {
            pair.bare = true;
            let more = random.of(&["", ".0", "e0", "E+0", ".00e0", " ", "\n", "0e-1"]);
            pair.value.extend_from_slice(more.as_bytes());
        });
    }),
    ("number in a list", |draft, _, random| {
        draft.media = Media::Json;
        bodies::own(draft, |pair| {
            pair.bare = true;
            let (open, close) =
                random.of(&[("[", "]"), ("[[", "]]"), ("[null,", "]"), ("[", ",{}]")]);
            pair.value = [open.as_bytes(), &pair.value, close.as_bytes()].concat();
        });
    }),
    ("number and another", |draft, _, random| {
        draft.media = Media::Json;
        bodies::own(draft, |pair| pair.bare = true);
        let other = random.of(&["null", "true", "0", "[]", "{}", "\"\""]);
        let other = Pair {
            bare: true,
            ..Pair::of("email", other)
        };
        bodies::insert(draft, other, random);
    }),
    ("spelled number", |draft, _, random| {
        let before = random.of(BEFORE);
        bodies::own(draft, |pair| spell(&mut pair.value, before, random));
    }),
];

pub const PATH: &[Change] = &[(
    "spelled number",
    |draft: &mut Draft, victim: &Victim, random: &mut Random| {
        let mut number = victim.name.clone().into_bytes();
        spell(&mut number, random.of(BEFORE), random);
        draft.path = [b"/items/", &number[..]].concat();
    },
)];

const BEFORE: &[&str] = &["0", "00", "+", "+0", "%2B", "%2b0", "%30", "-", " ", "%20"];

/// Another spelling of a number: something before it, a digit of another script, or an underscore in it.
fn spell(number: &mut Vec<u8>, before: &str, random: &mut Random) {
    let digit = number.iter().position(u8::is_ascii_digit);
    match (random.below(4), digit) {
        (0, Some(at)) => {
            let zero = random.of(&['\u{660}', '\u{6f0}', '\u{966}', '\u{ff10}', '\u{1d7ce}']);
            let other = char::from_u32(u32::from(zero) + u32::from(number[at] - b'0'));
            let mut text = [0; 4];
            let text = other.unwrap_or(zero).encode_utf8(&mut text).as_bytes();
            let escaped = text
                .iter()
                .map(|byte| format!("%{byte:02x}"))
                .collect::<String>();
            let text = if random.once_in(2) {
                text
            } else {
                escaped.as_bytes()
            };
            number.splice(at..=at, text.iter().copied());
        }
        (1, Some(at)) => {
            number.insert(at + 1, b'_');
        }
        _ => {
            number.splice(0..0, before.bytes());
        }
    }
}
