//! Cookies, queries and fields with a credential that is spelled otherwise, stands beside others, or stands
//! elsewhere.

use super::{Change, blank, bodies, other_case, percent};
use crate::draft::{Draft, Media, Pair};
use crate::random::Random;

pub const COOKIE: &[Change] = &[
    ("escaped", |draft, _, random| {
        cookie(draft, |name, value| pair(name, &percent(value, random)));
    }),
    ("quoted", |draft, _, random| {
        let octal = |byte: &u8| match random.below(5) {
            0 => format!("\\{byte:03o}"),
            1 => format!("\\{}", char::from(*byte)),
            2 => format!("%{byte:02x}"),
            _ => char::from(*byte).to_string(),
        };
        cookie(draft, |name, value| {
            let value: String = value.iter().map(octal).collect();
            pair(name, format!("\"{value}\"").as_bytes())
        });
    }),
    ("quoted by half", |draft, _, random| {
        let quote = random.of(&[b"\"" as &[u8], b"'", b"%22"]);
        cookie(draft, |name, value| match value.len() % 2 {
            0 => pair(name, &[quote, value].concat()),
            _ => pair(name, &[value, quote].concat()),
        });
    }),
    ("as JSON", |draft, _, random| {
        let first = |value: &[u8]| format!("\\u{:04x}", value[0]);
        cookie(draft, |name, value| {
            let rest = String::from_utf8_lossy(&value[1..]).into_owned();
            let text = match random.below(3) {
                0 => format!("j:\"{}{rest}\"", char::from(value[0])),
                1 => format!("j:%22{}{rest}%22", char::from(value[0])),
                _ => format!("j:\"{}{rest}\"", first(value)),
            };
            pair(name, text.as_bytes())
        });
    }),
    ("odd name", |draft, _, random| {
        cookie(draft, |_, value| pair(&cookie_name(random), value));
    }),
    ("odd name and another", |draft, _, random| {
        let other = random.word();
        cookie(draft, |name, value| {
            let (own, decoy) = (
                pair(&cookie_name(random), value),
                pair(name, other.as_bytes()),
            );
            match random.once_in(2) {
                true => [&own[..], b"; ", &decoy].concat(),
                false => [&decoy[..], b"; ", &own].concat(),
            }
        });
    }),
    ("another of an odd name", |draft, _, random| {
        let other = random.word();
        cookie(draft, |name, value| {
            let (own, decoy) = (
                pair(name, value),
                pair(&cookie_name(random), other.as_bytes()),
            );
            let between = random.of(&[
                b"; " as &[u8],
                b";",
                b",",
                b" ",
                b";;",
                b"; ; ",
                b"&",
                b"\t;",
                b";\t",
            ]);
            match random.once_in(2) {
                true => [&own[..], between, &decoy].concat(),
                false => [&decoy[..], between, &own].concat(),
            }
        });
    }),
    ("two fields", |draft, _, random| {
        let own = draft.fields[0].1.clone();
        let other = format!("sid={}", random.word()).into_bytes();
        let name = random.of(&["cookie", "Cookie", "cookie2", "COOKIE"]);
        let (first, second) = if random.once_in(2) {
            (own, other)
        } else {
            (other, own)
        };
        draft.fields[0].1 = first;
        draft.add(name, second);
    }),
    ("blanks", |draft, _, random| {
        cookie(draft, |name, value| {
            [
                name,
                blank(random),
                b"=",
                blank(random),
                value,
                blank(random),
            ]
            .concat()
        });
    }),
    ("attributes", |draft, _, random| {
        let more = random.of(&[
            "$Version=1; ",
            "$Path=/; ",
            "path=/; ",
            "expires=x, y; ",
            "=x; ",
            "sid; ",
            "x; ",
        ]);
        draft.fields[0].1.splice(0..0, more.bytes());
    }),
    ("something behind", |draft, _, random| {
        let more = random.of(&[
            "=", "=x", ",x", " x", "\"x\"", "%00", "%00x", "\\", "%", "%zz", "+", "%20",
        ]);
        cookie(draft, |name, value| {
            pair(name, &[value, more.as_bytes()].concat())
        });
    }),
];

pub const QUERY: &[Change] = &[
    ("behind `;` in the path", |draft, victim, random| {
        let more = format!(";key={}&x=", victim.name);
        draft.path.extend_from_slice(more.as_bytes());
        let other = random.once_in(2).then(|| format!("key={}", random.word()));
        draft.query = other.map(Into::into);
    }),
    ("escaped", |draft, victim, random| {
        draft.query = Some([b"key=", &percent(victim.name.as_bytes(), random)[..]].concat());
    }),
    ("odd name", |draft, victim, random| {
        draft.query = Some(pair(&query_name(random), victim.name.as_bytes()));
    }),
    ("odd name and another", |draft, victim, random| {
        let own = pair(&query_name(random), victim.name.as_bytes());
        both(draft, own, pair(b"key", random.word().as_bytes()), random);
    }),
    ("another of an odd name", |draft, victim, random| {
        let decoy = pair(&query_name(random), random.word().as_bytes());
        both(draft, pair(b"key", victim.name.as_bytes()), decoy, random);
    }),
    ("twice", |draft, victim, random| {
        let decoy = pair(b"key", random.word().as_bytes());
        both(draft, pair(b"key", victim.name.as_bytes()), decoy, random);
    }),
    ("separators", |draft, victim, random| {
        let between = random.of(&[";", "&&", "?", "&amp;", "%26", "&;", ";&", ",", "|"]);
        let (own, other) = (format!("key={}", victim.name), random.word());
        draft.query = Some(match random.below(3) {
            0 => format!("a={other}{between}{own}").into(),
            1 => format!("{own}{between}{other}").into(),
            _ => format!("{own}{between}key={other}").into(),
        });
    }),
    ("something behind", |draft, victim, random| {
        let more = random.of(&[
            "%00", "%00x", "+", "%20", "%0a", "=", "=x", "#x", "%", "%zz", "%C2%A0",
        ]);
        draft.query = Some(format!("key={}{more}", victim.name).into());
    }),
    ("in the body", |draft, victim, random| {
        draft.method = random
            .of(&["POST", "POST", "PUT", "PATCH", "DELETE"])
            .into();
        draft.query = random
            .once_in(2)
            .then(|| format!("key={}", random.word()).into());
        draft.media = random.of(&[Media::Form, Media::Form, Media::Multipart, Media::Json]);
        draft.pairs = vec![Pair::of("a", "b"), Pair::of("key", &*victim.name)];
    }),
    ("spelled otherwise in the body", |draft, victim, random| {
        draft.method = b"POST".to_vec();
        draft.media = random.of(&[Media::Form, Media::Multipart]);
        let value = match draft.media {
            Media::Form => percent(victim.name.as_bytes(), random),
            _ => victim.name.clone().into(),
        };
        draft.query = random
            .once_in(3)
            .then(|| format!("key={}", random.word()).into());
        draft.pairs = vec![Pair::of(query_name(random), value)];
        if random.once_in(3) {
            let at = random.below(2);
            draft.pairs.insert(at, Pair::of("key", random.word()));
        }
    }),
    ("decoy in the body", |draft, _, random| {
        draft.method = b"POST".to_vec();
        draft.media = random.of(&[Media::Form, Media::Multipart]);
        draft.pairs = vec![Pair::of(query_name(random), random.word())];
    }),
    ("in a body of another type", |draft, victim, random| {
        draft.method = b"POST".to_vec();
        draft.query = None;
        draft.pairs = vec![Pair::of("key", &*victim.name)];
        bodies::another_type(draft, victim, random);
    }),
    ("in a long body", |draft, victim, random| {
        draft.method = b"POST".to_vec();
        draft.query = Some(format!("key={}", random.word()).into());
        draft.media = random.of(&[Media::Form, Media::Multipart]);
        let filler = "x".repeat(random.of(&[60_000, 1_000_000, 1_100_000]));
        draft.pairs = vec![Pair::of("f", filler), Pair::of("key", &*victim.name)];
    }),
    ("another charset", |draft, victim, random| {
        draft.content_type = Some(
            random
                .of(&[
                    "text/plain; charset=utf-7",
                    "application/x-www-form-urlencoded; charset=\"utf-7\"",
                    "image/png; x=y; charset=UTF-7",
                    "text/plain; charset=cp037",
                ])
                .into(),
        );
        let own = pair(b"%2BAGs-ey", victim.name.as_bytes());
        both(draft, own, pair(b"key", random.word().as_bytes()), random);
    }),
    ("in a cookie", |draft, victim, random| {
        let name = random.of(&["key", "KEY", "k%65y", "key[]", " key"]);
        draft.add("cookie", format!("a=b; {name}={}", victim.name));
        draft.query = random
            .once_in(2)
            .then(|| format!("key={}", random.word()).into());
    }),
    ("absolute target", |draft, _, random| {
        draft.origin = random
            .of(&[
                "http://a.test",
                "http://b.test",
                "HTTP://a.test:80",
                "https://a.test",
            ])
            .into();
    }),
];

pub const HEADER: &[Change] = &[
    ("blanks", |draft, _, random| {
        let value = &mut draft.fields[0].1;
        *value = match random.below(3) {
            0 => [blank(random), value].concat(),
            1 => [&value[..], blank(random)].concat(),
            _ => [blank(random), value, blank(random)].concat(),
        };
    }),
    ("twice", |draft, _, random| {
        let name = random.of(&["x-api-key", "X-API-KEY", "x_api_key", "X-Api_Key"]);
        let other = random.word().into_bytes();
        let own = draft.fields[0].1.clone();
        match random.below(3) {
            0 => draft.add(name, other),
            1 => draft.fields.insert(0, (name.into(), other)),
            _ => draft.add(name, own),
        }
    }),
    ("odd name", |draft, _, random| {
        draft.fields[0].0 = random
            .of(&[
                "X-API-KEY",
                "x_api_key",
                "x-api_key",
                "X-Api-Key",
                "x.api.key",
                "http-x-api-key",
            ])
            .into();
    }),
    ("odd name and another", |draft, _, random| {
        draft.fields[0].0 = random.of(&["x_api_key", "x-api_key", "X_API-KEY"]).into();
        let other = random.word();
        draft.add("x-api-key", other);
    }),
    ("list", |draft, _, random| {
        let other = random.word();
        let value = &mut draft.fields[0].1;
        *value = match random.below(3) {
            0 => [&value[..], b", ", other.as_bytes()].concat(),
            1 => [other.as_bytes(), b",", value].concat(),
            _ => [&value[..], b","].concat(),
        };
    }),
    ("named in connection", |draft, _, random| {
        let value = random.of(&["x-api-key", "close, X-Api-Key", "keep-alive,x-api-key"]);
        draft.add("connection", value);
    }),
];

fn pair(name: &[u8], value: &[u8]) -> Vec<u8> {
    [name, b"=", value].concat()
}

/// Writes the cookie anew.
fn cookie(draft: &mut Draft, write: impl FnOnce(&[u8], &[u8]) -> Vec<u8>) {
    let value = &mut draft.fields[0].1;
    let Some(begins) = value.windows(4).position(|at| at == b"sid=") else {
        return;
    };
    let new = write(b"sid", &value[begins + 4..]);
    value.truncate(begins);
    value.extend_from_slice(&new);
}

fn cookie_name(random: &mut Random) -> Vec<u8> {
    let name = random.of(&[
        "Sid",
        "SID",
        "s%69d",
        " sid",
        "sid ",
        "sid[",
        "sid[]",
        "sid[0]",
        "sid%00",
        "sid%00x",
        "+sid",
        "%20sid",
        "sid.x",
        "\"sid\"",
        "$sid",
        "\tsid",
        "sid\u{a0}",
        "sid\0",
        "%73id",
        "__Host-sid",
        "sid%5b%5d",
    ]);
    other_case_seldom(name.as_bytes(), random)
}

fn query_name(random: &mut Random) -> Vec<u8> {
    let name = random.of(&[
        "Key",
        "KEY",
        "k%65y",
        "+key",
        "%20key",
        "key[]",
        "key[0]",
        "key%5B%5D",
        "key[x]",
        "key%00",
        "key%00x",
        "key+",
        "key.",
        "key[",
        "key]",
        "[key]",
        "%0akey",
        "%09key",
        "x[key]",
        "ke%79%20",
        "?key",
        "&key",
        ";key",
        "%EF%BB%BFkey",
        "key%5B",
    ]);
    other_case_seldom(name.as_bytes(), random)
}

fn other_case_seldom(text: &[u8], random: &mut Random) -> Vec<u8> {
    match random.once_in(8) {
        true => other_case(text, random),
        false => text.to_vec(),
    }
}

fn both(draft: &mut Draft, own: Vec<u8>, decoy: Vec<u8>, random: &mut Random) {
    draft.query = Some(match random.once_in(2) {
        true => [&own[..], b"&", &decoy].concat(),
        false => [&decoy[..], b"&", &own].concat(),
    });
}
