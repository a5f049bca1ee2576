//! Files that the gateway file names, with what editors and shells leave in them.

use std::fs;
use std::path::Path;

use tollgate::policy;
use tollgate::policy::source::MemoryFiles;

use crate::common::certificate::Certificate;

/// What the gateway file says of a file, the file, and whose bytes are right in it.
fn named_files() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let (own, authority) = (Certificate::of(&["localhost"]), Certificate::of(&["ca"]));
    let two = format!("{}{}", own.pem, authority.pem);
    let listen = "listen: { address: 127.0.0.1:0, tls: { cert: own.pem, key: own.key }, client_roots: clients.pem }\n";
    let shop =
        "upstreams: { shop: { servers: [https://127.0.0.1:9001], tls: { roots: roots.pem } } }\n";
    let admin = "admin: { address: 127.0.0.1:0, token_file: admin.token }\n";
    let push = "record: { push: [{ to: otlp, url: https://a:4318/v1/metrics, token_file: push.token, ca: ca.pem }] }\n";
    let bytes = |text: &str| text.as_bytes().to_vec();
    vec![
        (listen, "own.pem", bytes(&own.pem)),
        (listen, "own.key", bytes(&own.key)),
        (listen, "clients.pem", bytes(&two)),
        (shop, "roots.pem", bytes(&two)),
        (admin, "admin.token", bytes("0123456789abcdef")),
        (
            "admin: { address: 127.0.0.1:0, tokens: operators.yaml }\n",
            "operators.yaml",
            bytes("alice: { token: 0123456789abcdef, rights: admin }\n"),
        ),
        (push, "push.token", bytes("sesame")),
        (push, "ca.pem", bytes(&two)),
        (
            "identity: { user: { jwt: sub, secret: jwt.secret } }\n",
            "jwt.secret",
            bytes("sesame-0123456789-0123456789-0123456789"),
        ),
        (
            "identity: { user: { jwt: sub, jwks: jwks.json } }\n",
            "jwks.json",
            fs::read("examples/identity/jwks.json").expect("a key set"),
        ),
        (
            "identity: { user: { jwt: sub, key: public.pem } }\n",
            "public.pem",
            fs::read("src/identity/jwt/vectors/p256.pem").expect("a key"),
        ),
        (
            "identity: { user: { api_keys: keys.yaml } }\n",
            "keys.yaml",
            bytes("sesame: alice\n"),
        ),
    ]
}

/// Loads with these files, one of them as it is `changed`.
fn load_changed(
    gateway: &str,
    all: &[(&'static str, &'static str, Vec<u8>)],
    (name, changed): (&str, Option<Vec<u8>>),
) -> Result<policy::LoadedConfig, policy::DiagnosticReport> {
    let mut text = String::from(gateway);
    for (field, usual) in [
        ("listen:", "listen: 127.0.0.1:0\n"),
        ("upstreams:", "upstreams: { shop: http://127.0.0.1:9001 }\n"),
    ] {
        if !gateway.starts_with(field) {
            text.push_str(usual);
        }
    }
    let route = "match: /**\nupstream: shop\n";
    let mut memory = MemoryFiles::new([("tollgate.yaml", &*text), ("policies/a.yaml", route)]);
    for (_, name, bytes) in all {
        memory.0.insert((*name).into(), bytes.clone());
    }
    match changed {
        Some(bytes) => memory.0.insert(name.into(), bytes),
        None => memory.0.remove(Path::new(name)),
    };
    policy::load_from(&memory, Path::new("tollgate.yaml"))
}

/// Editors and shells leave marks, blanks and line ends; each is taken off everywhere, or is a mistake with its line.
#[test]
fn files_of_keys_are_read_in_one_way() {
    let all = named_files();
    for (gateway, name, right) in &all {
        let with = |before: &[u8], after: &[u8]| [before, right, after].concat();
        for changed in [
            right.clone(),
            with(b"", b"\n"),
            with(b"", b"\r\n\r\n"),
            with(b"\n", b" \n"),
            with(b"\xef\xbb\xbf", b""),
            with(b"\xef\xbb\xbf", b"\r\n"),
        ] {
            let loaded = load_changed(gateway, &all, (name, Some(changed.clone())));
            let loaded = loaded.unwrap_or_else(|report| panic!("{name}: {report}"));
            assert_eq!(loaded.warnings, [], "{name}");
        }
        let text = String::from_utf8(right.clone()).expect("text");
        let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for changed in [
            [&[0xff, 0xfe], &*utf_16].concat(),
            utf_16.clone(),
            with(b"", b"\0"),
            Vec::new(),
            b"\xef\xbb\xbf".to_vec(),
            b" \r\n".to_vec(),
        ] {
            let said = load_changed(gateway, &all, (name, Some(changed.clone())));
            let said = said.expect_err(name).to_string();
            assert!(said.ends_with("1 mistake\n"), "{changed:?} {said}");
            assert!(said.contains(name), "{changed:?} {said}");
        }
    }
}

/// It may be the secret itself that stands in the place of its file's name.
#[test]
fn what_may_be_a_secret_is_not_shown() {
    let all = named_files();
    for (gateway, name, _) in &all {
        let hides = ![
            "own.pem",
            "clients.pem",
            "roots.pem",
            "ca.pem",
            "jwks.json",
            "public.pem",
        ]
        .contains(name);
        // A second mistake on the same line, which is on record before.
        let wrong = gateway.replacen("{ ", "{ iss: 1, ", 1);
        let quoted = gateway.replace(&format!(": {name}"), &format!(": \"{name}\""));
        for gateway in [gateway, &*wrong, &*quoted] {
            let said = load_changed(gateway, &all, (name, None)).expect_err(name);
            let said = said.to_string();
            assert_eq!(said.contains(name), !hides, "{said}");
            assert!(said.contains("it does not exist"), "{said}");
        }
    }
}

/// Nor where it is no name of a file at all, beside other mistakes of its line.
#[test]
fn what_is_no_name_of_a_file_is_not_shown() {
    let all = named_files();
    let shown = [
        "own.pem",
        "clients.pem",
        "roots.pem",
        "ca.pem",
        "jwks.json",
        "public.pem",
    ];
    for (gateway, name, _) in all.iter().filter(|(_, name, _)| !shown.contains(name)) {
        for instead in [
            "[sesame]",
            "{ sesame: sesame }",
            "\"sesame\\nsesame\"",
            "[sesame, \"sesame\"]",
        ] {
            let wrong = gateway.replace(&format!(": {name}"), &format!(": {instead}"));
            assert_ne!(&wrong, gateway);
            for wrong in [wrong.replacen("{ ", "{ iss: 1, ", 1), wrong] {
                let said = load_changed(&wrong, &all, (name, None)).expect_err(name);
                assert!(!said.to_string().contains("sesame"), "{said}");
            }
        }
    }
}

/// A mark before the first certificate, or another one, and the parser takes it for a comment.
#[test]
fn no_certificate_is_left_out() {
    let all = named_files();
    for (gateway, name, right) in all.iter().filter(|(_, name, _)| name.ends_with(".pem")) {
        if *name == "public.pem" {
            continue;
        }
        let text = String::from_utf8(right.clone()).expect("text");
        let second = format!("{text}\u{200b}{}", Certificate::of(&["b"]).pem);
        let trusted = Certificate::of(&["c"])
            .pem
            .replace("CERTIFICATE", "TRUSTED CERTIFICATE");
        for changed in [second, format!("{text}{trusted}")] {
            let said = load_changed(gateway, &all, (name, Some(changed.into_bytes())));
            let said = said.expect_err(name).to_string();
            assert!(said.contains("certificates"), "{said}");
            assert!(said.contains("can be read"), "{said}");
        }
    }
}

#[test]
fn secrets_that_are_too_short_are_refused() {
    let all = named_files();
    let gateway = "identity: { user: { jwt: sub, secret: jwt.secret } }\n";
    for (secret, right) in [
        (&b"0123456789abcdef0123456789abcdef"[..], true),
        (b"0123456789abcdef0123456789abcde", false),
        (b"0123456789abcdef0123456789abcde\n\n", false),
        (b"  0123456789abcdef0123456789abcd  ", false),
        (b"0123456789abcdef\n0123456789abcdef\n", false),
        (b"0123456789abcdef\x1b0123456789abcdef\n", false),
        (
            b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            false,
        ),
    ] {
        let loaded = load_changed(gateway, &all, ("jwt.secret", Some(secret.to_vec())));
        assert_eq!(loaded.is_ok(), right, "{secret:?} {loaded:?}");
        let Err(report) = loaded else { continue };
        let said = report.to_string();
        assert!(!said.contains("0123456789abcd"), "{said}");
        let pem = secret.starts_with(b"-----");
        assert_eq!(said.contains("write `key:` instead"), pem, "{said}");
    }
}
