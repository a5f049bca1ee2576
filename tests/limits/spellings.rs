//! Values of identities of one's own that upstreams read in several spellings: all of them count as one, or get 400.

use serde_json::json;

use crate::Site;
use crate::common::Upstream;
use crate::custom::{FILES, IDENTITY, token};
use crate::protocols::over_both;

/// Sends requests with these fields to a site with one limit, and compares their statuses.
#[track_caller]
fn check(limit: &str, requests: &[(&str, u16)]) {
    let start = || Site::with_files(IDENTITY, "", &[limit], Upstream::plain(), FILES);
    over_both(start, |site| {
        for (number, (fields, status)) in requests.iter().enumerate() {
            let response = site.get(fields);
            assert_eq!(response.status(), *status, "request {number}: {fields}");
        }
    });
}

/// A server that parses a number takes `007` for `7`. Each spelling had a limit of its own.
#[test]
fn a_number_counts_as_one_however_it_is_spelled() {
    check(
        "per-device: { key: device, rate: 1/m }",
        &[
            ("x-device-id: 7\r\n", 200),
            ("x-device-id: 007\r\n", 429),
            ("x-device-id: +7\r\n", 429),
            ("x-device-id: 0_7\r\n", 429),
            ("x-device-id: 7.0\r\n", 429),
            ("x-device-id: 7e0\r\n", 429),
            ("x-device-id: 0x7\r\n", 429),
            ("x-device-id: 0 7\r\n", 429),
            ("x-device-id: 7.5\r\n", 200),
            ("x-device-id: -7\r\n", 200),
            ("x-device-id: 70\r\n", 200),
            ("x-device-id: 07x\r\n", 200),
            ("x-device-id: \u{667}\r\n", 400),
            ("x-device-id: 1\u{ff17}\r\n", 400),
        ],
    );
    check(
        "old-devices: { key: ip, rate: 1/m, for: { device: [\"007\"] } }",
        &[
            ("x-device-id: 7\r\n", 200),
            ("x-device-id: 0007\r\n", 429),
            ("x-device-id: 8\r\n", 200),
        ],
    );
}

/// Upstreams cut blanks, unpack lists of one, and read `7.0` as `7`. Such claims did not count.
#[test]
fn a_claim_counts_as_upstreams_read_it() {
    let org = |id: serde_json::Value| token(&json!({ "org": { "id": id } }));
    let acme = org(json!("acme"));
    let with_blank = org(json!("acme "));
    let in_list = org(json!(["acme"]));
    let in_lists = org(json!([["acme"]]));
    let long = org(json!("a".repeat(300)));
    let beside = org(json!(["acme", "\u{200b}b"]));
    let number = org(json!(7));
    let float = org(json!(7.0));
    let fraction = org(json!(7.5));
    let large = org(json!(9_007_199_254_740_992.0));
    let truth = org(json!(true));
    let empty = org(json!(""));
    check(
        "per-tenant: { key: tenant, rate: 1/m }",
        &[
            (&acme, 200),
            (&in_list, 429),
            (&with_blank, 400),
            (&in_lists, 400),
            (&long, 400),
            (&beside, 400),
            (&number, 200),
            (&float, 429),
            (&fraction, 400),
            (&large, 400),
            (&truth, 400),
            (&empty, 200),
            (&empty, 200),
        ],
    );
}
