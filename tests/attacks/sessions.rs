//! Sessions and keys that servers read in many spellings: all of them are one client.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::case::Site;
use crate::limits::{FEW, admitted, over_connections};

/// Laravel decrypts a cookie whatever stands around its `iv` and `value`, and UUIDs have many spellings.
#[test]
fn by_spellings_of_one_session() {
    let by_token = "match: /**\nupstream: up\nlimits: { few: { key: token, rate: 5/h } }\n";
    let session = r#"{"iv":"AAAAAAAAAAAAAAAAAAAAAA==","value":"+/==","mac":"","tag":"x"}"#;
    let sealed = |json: &str| STANDARD.encode(json).replace('=', "%3D");
    let plain = sealed(session);
    let sessions = [
        plain.clone(),
        plain.replace("%3D", ""),
        format!("%20{}%20{}", &plain[..7], &plain[7..]),
        format!("{}!{}.{}", &plain[..7], &plain[7..9], &plain[9..]),
        format!("\"{plain}\""),
        sealed(r#"{"value":"+/","tag":"y","iv":"AAAAAAAAAAAAAAAAAAAAAA"}"#),
        sealed(r#" {"x":{},"\u0069v":"AAAA AAAAAAAAAAAAAAAAAA==","value":"+w="}"#),
    ];
    let site = Site::start(
        "identity: { token: { cookie: sid } }\n",
        &[("all", by_token)],
    );
    for _ in 0..3 {
        over_connections(
            &site,
            sessions
                .each_ref()
                .map(|value| format!("GET /a HTTP/1.1\r\nhost: t\r\ncookie: sid={value}\r\n\r\n")),
        );
    }
    admitted(&site, FEW);
    let uuids = [
        "01234567-89ab-cdef-0123-456789abcdef",
        "0123urn:4567-89ab-cdef-0123-456789abcdefuuid:",
        "urn:uuid:{01234567-89AB-cdef-0123-456789abcdef}",
        "0123-4567-89ab-cdef-0123-4567-89ab-cdef",
        "{0x01234567,0x89ab,0xcdef,{0x01,0x23,0x45,0x67,0x89,0xab,0xcd,0xef}}",
        "--------------------01234567-89ab-cdef-0123-456789abcdef",
        "1234567-89ab-cdef-123-456789abcdef",
    ];
    let site = Site::start(
        "identity: { token: { header: x-key } }\n",
        &[("all", by_token)],
    );
    for _ in 0..3 {
        over_connections(
            &site,
            uuids.map(|uuid| format!("GET /a HTTP/1.1\r\nhost: t\r\nx-key: {uuid}\r\n\r\n")),
        );
    }
    admitted(&site, FEW);
}
