//! Claims of a verified token, nested and spelled otherwise.

use super::Change;
use super::authorization::{claims, forge};
use crate::dimension::Victim;
use crate::draft::Draft;
use crate::token;

pub const CHANGES: &[Change] = &[
    ("escapes", |draft, victim, random| {
        let first = victim.name.as_bytes()[0];
        let value = format!("\"\\u{first:04x}{}\"", &victim.name[1..]);
        let text = match random.below(3) {
            0 => format!("\"o\\u0072g\":{{\"id\":{value}}}"),
            1 => format!("\"org\":{{\"\\u0069d\":{value}}}"),
            _ => format!("\"org\\u002eid\":{value}"),
        };
        organisation(draft, &text);
    }),
    ("name with a dot", |draft, victim, random| {
        let (own, other) = (&victim.name, random.word());
        let text = match random.below(3) {
            0 => format!("\"org.id\":\"{own}\""),
            1 => format!("\"org.id\":\"{own}\",\"org\":{{\"id\":\"{other}\"}}"),
            _ => format!("\"org\":{{\"id\":\"{other}\"}},\"org.id\":\"{own}\""),
        };
        organisation(draft, &text);
    }),
    ("twice", |draft, victim, random| {
        let own = format!("\"id\":\"{}\"", victim.name);
        let other = format!("\"id\":\"{}\"", random.word());
        let (a, b) = if random.once_in(2) {
            (own, other)
        } else {
            (other, own)
        };
        let text = match random.once_in(2) {
            true => format!("\"org\":{{{a},{b}}}"),
            false => format!("\"org\":{{{a}}},\"org\":{{{b}}}"),
        };
        organisation(draft, &text);
    }),
    ("list", |draft, victim, random| {
        let list = match random.below(3) {
            0 => format!("[\"{}\"]", victim.name),
            1 => format!("[[\"{}\"]]", victim.name),
            _ => format!("[{}]", number(victim)),
        };
        organisation(draft, &format!("\"org\":{{\"id\":{list}}}"));
    }),
    ("number", |draft, victim, random| {
        let more = random.of(&["", ".0", "e0", ".00", "E+0"]);
        organisation(
            draft,
            &format!("\"org\":{{\"id\":{}{more}}}", number(victim)),
        );
    }),
    ("blanks around the name", |draft, victim, random| {
        let blank = random.of(&[
            " ", "\\t", "\\u00a0", "\\u2003", "\\u0000", "\\n", "\\u200b",
        ]);
        let name = match random.once_in(2) {
            true => format!("{blank}{}", victim.name),
            false => format!("{}{blank}", victim.name),
        };
        organisation(draft, &format!("\"org\":{{\"id\":\"{name}\"}}"));
    }),
    ("company", |draft, victim, random| {
        let more = random.of(&[
            "\"org\":null",
            "\"org\":[]",
            "\"ORG\":{\"id\":\"x\"}",
            "\"org.ID\":\"x\"",
            "\"x\":{\"org\":{\"id\":\"x\"}}",
            "\"org\":\"x\"",
        ]);
        let own = format!("\"org\":{{\"id\":\"{}\"}}", victim.name);
        match random.once_in(2) {
            true => organisation(draft, &format!("{own},{more}")),
            false => organisation(draft, &format!("{more},{own}")),
        }
    }),
    ("around the claims", |draft, victim, random| {
        let (before, after) = random.of(&[
            ("\u{feff}", ""),
            (" ", "\n"),
            ("", "{}"),
            ("[", "]"),
            ("", "\0"),
            ("/**/", ""),
            ("", ","),
        ]);
        let end = token::now() + 900;
        let own = &victim.name;
        let text = format!("{{\"sub\":\"u\",\"org\":{{\"id\":\"{own}\"}},\"exp\":{end}}}");
        forge(draft, token::HEAD, format!("{before}{text}{after}"));
    }),
];

/// A token of some user with these claims beside its name.
fn organisation(draft: &mut Draft, text: &str) {
    claims(draft, &format!("\"sub\":\"u\",{text}"));
}

/// The victim's name as a JSON value: bare if it is a number.
fn number(victim: &Victim) -> String {
    match victim.name.parse::<u64>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("\"{}\"", victim.name),
    }
}
