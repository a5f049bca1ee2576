//! Hosts, paths, methods and addresses that are spelled otherwise.

use super::{Change, blank, bodies, other_case, percent};
use crate::draft::{Draft, Media, Pair};
use crate::random::Random;

pub const HOST: &[Change] = &[
    ("case", |draft, _, random| {
        draft.host = other_case(&draft.host, random)
    }),
    ("port", |draft, _, random| {
        let port = random.of(&[
            ":80", ":", ":080", ":443", ":99999", ":0", ":x", ":80:80", ": 80", ":8080",
        ]);
        draft.host.extend_from_slice(port.as_bytes());
    }),
    ("dots", |draft, _, random| {
        draft.host = random
            .of(&[
                "a.test.",
                "a.test..",
                ".a.test",
                "a..test",
                "a.test.:80",
                "a\u{3002}test",
                "a\u{ff0e}test",
            ])
            .into();
    }),
    ("something behind", |draft, _, random| {
        let more = random.of(&[
            ",", ", ", ";", "'", "(x)", "!", "$", "&x", "=", "*", "+", "~", "_", "-", "%20", " ",
            "/", "\\", "#", "?",
        ]);
        let other = random.word();
        draft.host.extend_from_slice(more.as_bytes());
        if random.once_in(2) {
            draft.host.extend_from_slice(other.as_bytes());
        }
    }),
    ("something before", |draft, _, random| {
        let more = random.of(&[
            "b.test,", "b.test, ", "x@", "x:y@", "http://", "//", " ", "%20", "*.", "b.test;", "\"",
        ]);
        draft.host.splice(0..0, more.bytes());
    }),
    ("escaped", |draft, _, random| {
        draft.host = percent(&draft.host, random)
    }),
    ("absolute target", |draft, _, random| {
        draft.origin = random
            .of(&[
                "http://a.test",
                "http://A.TEST",
                "http://a.test:80",
                "http://a.test.",
                "http://b.test",
                "http://a.test,b",
                "https://a.test",
                "http://a.test:",
                "http://x@a.test",
                "http://",
            ])
            .into();
        if random.once_in(2) {
            draft.host = random.of(&["b.test", "a.test", "a.test,b"]).into();
        }
    }),
    ("announced", |draft, _, random| {
        let name = random.of(&[
            "x-forwarded-host",
            "X-Forwarded-Host",
            "x_forwarded_host",
            "forwarded",
            "x-host",
            "x-original-host",
            "x-forwarded-server",
            "x-http-host-override",
            "x.forwarded.host",
            "X_Forwarded-Host",
        ]);
        let value = random.of(&[
            "a.test",
            "a.test, b.test",
            "b.test, a.test",
            "host=a.test",
            "for=x;host=\"a.test\"",
            "a.test:80",
        ]);
        draft.host = random.of(&["b.test", "b.test:80"]).into();
        draft.add(name, value);
    }),
    ("another host first", |draft, _, random| {
        let name = random.of(&["host", "Host", "HOST"]);
        let value = random.of(&["a.test", "b.test"]);
        draft.host = random.of(&["a.test", "b.test"]).into();
        draft.add(name, value);
    }),
    ("punycode", |draft, _, random| {
        draft.host = random
            .of(&[
                "xn--a.test",
                "a.xn--test",
                "\u{ff41}.test",
                "a.te\u{17f}t",
                "a.\u{2c6d}est",
            ])
            .into();
    }),
];

pub const PATH: &[Change] = &[
    ("case", |draft, _, random| {
        draft.path = other_case(&draft.path, random)
    }),
    ("escaped", |draft, _, random| {
        let rest = percent(&draft.path[1..], random);
        draft.path.splice(1.., rest);
    }),
    ("end", |draft, _, random| {
        let more = random.of(&[
            "/",
            "//",
            "/.",
            "/..",
            "/x/..",
            "/./",
            ";",
            ";x",
            ";x=y",
            ";/",
            "%2F",
            "%2f",
            "%2F/",
            ".",
            "..",
            "%2e",
            "%20",
            "+",
            "%00",
            "%0a",
            ".json",
            ".xml",
            ".html",
            ".php",
            "/index.php",
            "/x",
            "/x/y",
            "%3B",
            "%3Bx",
            "%3F",
            "%23",
            ":",
            "::$DATA",
            "~",
            "*",
            "\\",
            "%5c",
            "/%5c",
        ]);
        draft.path.extend_from_slice(more.as_bytes());
    }),
    ("begin", |draft, _, random| {
        let more = random.of(&[
            "/",
            "//",
            "/.",
            "/./",
            "/x/..",
            "/x/../",
            "/%2e",
            "/%2e%2e",
            "/..",
            "/;",
            "/;x",
            "/;x/..",
            "/%2F",
            "/%2f..",
            "\\",
            "/\\",
            "/%5c",
            "/x/%2e%2e",
            "/index.php",
            "/x;y/..",
            "/.//",
        ]);
        draft.path.splice(0..0, more.bytes());
    }),
    ("middle", |draft, _, random| {
        let more = random.of(&["/", "/.", "/x/..", "%2F", ";x", "%00", "\\", "%5C", "/%2e"]);
        let last = draft
            .path
            .iter()
            .rposition(|byte| *byte == b'/')
            .unwrap_or(0);
        draft.path.splice(last..last, more.bytes());
    }),
    ("slash", |draft, _, random| {
        let slash = random.of(&[
            "%2F", "%2f", "\\", "%5c", "//", "/./", "%252F", "/;/", "%C0%AF",
        ]);
        let path = String::from_utf8_lossy(&draft.path).into_owned();
        draft.path = format!("/{}", path[1..].replace('/', slash)).into();
    }),
    ("query", |draft, _, random| {
        draft.query = Some(
            random
                .of(&["", "x", "?", "/login", "_format=json", "x=/report"])
                .into(),
        );
    }),
    ("a path in the query", |draft, _, random| {
        let folder = random.of(&["/", "//", "/index.php", "/index.php/"]);
        let path = std::mem::replace(&mut draft.path, folder.into());
        let name = random.of(&[
            "",
            "/",
            "r=",
            "route=",
            "q=",
            "s=",
            "url=",
            "_url=",
            "rest_route=",
        ]);
        draft.query = Some([name.as_bytes(), &path].concat());
    }),
    ("a query behind `;`", |draft, _, random| {
        let more = random.of(&[";/x", ";x=y/z", ";_method=DELETE", ";x/../y"]);
        draft.path.extend_from_slice(more.as_bytes());
    }),
    ("default action", |draft, _, random| {
        let more = random.of(&["/index", "/INDEX", "/index/x", "/Index/x/y"]);
        draft.path.extend_from_slice(more.as_bytes());
    }),
    ("absolute target", |draft, _, random| {
        draft.origin = random
            .of(&["http://a.test", "http://b.test:80", "https://a.test"])
            .into();
    }),
    ("another target named", |draft, victim, random| {
        let name = random.of(&[
            "x-original-url",
            "x-rewrite-url",
            "x-original-uri",
            "x-forwarded-uri",
            "x-forwarded-prefix",
            "x-script-name",
        ]);
        let path = std::mem::replace(&mut draft.path, random.of(&["/", "/any", "/items"]).into());
        draft.add(
            name,
            if random.once_in(3) {
                victim.login.into()
            } else {
                path
            },
        );
    }),
    ("HEAD for GET", |draft, _, _| {
        if draft.method == b"GET" {
            draft.method = b"HEAD".to_vec();
        }
    }),
    ("odd item", |draft, _, random| {
        if draft.path.starts_with(b"/items/") {
            let id = random.of(&[
                ";", ";x", ";x=y", ";;", ";/", "%3B", "%3bx", ";.json", "%2F", "%2f", "x%2Fy",
                "\\", "x\\y", "%5c", ".", "..", "%2e", ".%2E", "x/..", "%20", "+", "~",
            ]);
            draft.path = format!("/items/{id}").into();
        }
    }),
    ("letters like it", |draft, _, random| {
        let path = String::from_utf8_lossy(&draft.path).into_owned();
        let (from, to) = random.of(&[
            ("i", "\u{131}"),
            ("s", "\u{17f}"),
            ("i", "%C4%B0"),
            ("s", "%C5%BF"),
            ("o", "%EF%BD%8F"),
            ("l", "%E2%85%BC"),
        ]);
        draft.path = path.replacen(from, to, 1).into();
    }),
];

pub const METHOD: &[Change] = &[
    ("override field", |draft, _, random| {
        let name = random.of(&[
            "X-HTTP-Method-Override",
            "x-http-method-override",
            "X-HTTP-Method",
            "X-Method-Override",
            "x_http_method_override",
            "X-Http_Method-Override",
            "HTTP-Method-Override",
            "x.http.method.override",
            "x-method",
        ]);
        let method = spelled_method(draft, random);
        draft.add(name, method);
    }),
    ("override in the query", |draft, _, random| {
        let method = spelled_method(draft, random);
        let name = override_name(random);
        draft.query = Some([name, b"=", &method].concat());
    }),
    ("override in a form", |draft, _, random| {
        let method = spelled_method(draft, random);
        let name = override_name(random);
        draft.media = random.of(&[Media::Form, Media::Multipart, Media::Json]);
        draft.pairs = vec![Pair::of("a", "b"), Pair::of(name, method)];
    }),
    (
        "override in a body of another type",
        |draft, victim, random| {
            let method = spelled_method(draft, random);
            draft.pairs = vec![Pair::of(override_name(random), method)];
            bodies::another_type(draft, victim, random);
        },
    ),
    ("override in a form and another", |draft, _, random| {
        let method = spelled_method(draft, random);
        draft.pairs = vec![Pair::of(override_name(random), method)];
        let at = random.below(2);
        let other = random.of(&["POST", "PUT", "", "x"]);
        draft
            .pairs
            .insert(at, Pair::of(override_name(random), other));
        draft.media = random.of(&[Media::Form, Media::Multipart, Media::Json]);
    }),
    ("override in a long form", |draft, _, random| {
        let method = spelled_method(draft, random);
        let filler = "x".repeat(random.of(&[60_000, 90_000, 1_100_000]));
        draft.pairs = vec![Pair::of("f", filler), Pair::of("_method", method)];
        draft.media = random.of(&[Media::Form, Media::Multipart]);
    }),
    ("case of the method", |draft, _, random| {
        draft.method = other_case(&draft.method, random)
    }),
    ("another method", |draft, _, random| {
        draft.method = random
            .of(&[
                "HEAD", "PUT", "PATCH", "OPTIONS", "QUERY", "PROPFIND", "TRACE", "DELETED",
            ])
            .into();
    }),
];

/// The method of the draft, which becomes POST, as a value that overrides it.
fn spelled_method(draft: &mut Draft, random: &mut Random) -> Vec<u8> {
    let method = match draft.method.as_slice() {
        b"POST" if random.once_in(2) => return b"GET".to_vec(),
        b"POST" => random.of(&["PUT", "POST"]).into(),
        _ => std::mem::replace(&mut draft.method, b"POST".to_vec()),
    };
    match random.below(6) {
        0 => method.to_ascii_lowercase(),
        1 => other_case(&method, random),
        2 => [blank(random), &method].concat(),
        3 => [&method[..], blank(random)].concat(),
        4 => [
            &method[..],
            random.of(&[b"," as &[u8], b", GET", b"%00", b";"]),
        ]
        .concat(),
        _ => method,
    }
}

fn override_name(random: &mut Random) -> &'static [u8] {
    random.of(&[
        b"_method" as &[u8],
        b"_method",
        b"_method",
        b"_METHOD",
        b"+_method",
        b"_method[]",
        b".method",
        b"%5fmethod",
        b"_method%00",
        b" method",
        b"[method",
        b"[_method]",
    ])
}

pub const ADDRESS: &[Change] = &[
    ("blanks", |draft, _, random| {
        draft.fields[0].1 = [blank(random), &draft.fields[0].1, blank(random)].concat();
    }),
    ("list", |draft, _, random| {
        let other = format!("{}.7.7.7", 11 + random.below(80));
        let own = String::from_utf8_lossy(&draft.fields[0].1).into_owned();
        draft.fields[0].1 = match random.below(6) {
            0 => format!("{other}, {own}"),
            1 => format!("{own}, {other}"),
            2 => format!("{own},"),
            3 => format!(", {own}"),
            4 => format!("{own}, 127.0.0.1"),
            _ => format!("{own}, unknown"),
        }
        .into();
    }),
    ("spelled", |draft, _, random| {
        let own = String::from_utf8_lossy(&draft.fields[0].1).into_owned();
        let dotted = own.contains('.');
        draft.fields[0].1 = match random.below(7) {
            0 if dotted => format!("::ffff:{own}"),
            1 if dotted => format!("0:0:0:0:0:ffff:{own}"),
            2 if dotted => format!("{own}:1234"),
            3 if dotted => format!("0{own}"),
            4 if !dotted => format!("[{own}]:80"),
            4 | 5 => own.to_uppercase(),
            _ => format!("\"{own}\""),
        }
        .into();
    }),
    ("another field", |draft, victim, random| {
        let name = random.of(&[
            "x-real-ip",
            "forwarded",
            "client-ip",
            "x-client-ip",
            "true-client-ip",
            "cf-connecting-ip",
            "x_forwarded_for",
            "x-forwarded",
            "forwarded-for",
            "x.forwarded.for",
            "x-cluster-client-ip",
            "X-Forwarded-For",
        ]);
        let value = match name {
            "forwarded" => format!("for={}", victim.name),
            _ => victim.name.clone(),
        };
        let other = format!("{}.7.7.7", 11 + random.below(80));
        draft.fields[0].1 = other.into();
        draft.add(name, value);
    }),
    ("twice", |draft, _, random| {
        let other = format!("{}.7.7.7", 11 + random.below(80));
        match random.once_in(2) {
            true => draft.add("x-forwarded-for", other),
            false => draft
                .fields
                .insert(0, ("x-forwarded-for".into(), other.into())),
        }
    }),
    ("zone", |draft, _, random| {
        let zone = random.of(&["%1", "%eth0", "/32", "/64"]);
        draft.fields[0].1.extend_from_slice(zone.as_bytes());
    }),
];
