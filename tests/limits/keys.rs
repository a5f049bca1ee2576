//! What a limit counts by: alternatives, and all clients together.

use crate::Site;
use crate::common::Upstream;

const BY_KEY: &str = "identity:\n  ip: { trusted_proxies: [127.0.0.0/8] }\n  token: { header: x-api-key }\n";

/// Sends requests with these fields, and compares their statuses.
#[track_caller]
fn check(limits: &[&str], requests: &[(&str, u16)]) {
    let site = Site::start(BY_KEY, limits, Upstream::plain());
    for (number, (fields, status)) in requests.iter().enumerate() {
        let response = site.get(fields);
        assert_eq!(response.status(), *status, "request {number}: {fields}");
    }
}

#[test]
fn a_client_is_counted_by_the_first_identity_that_it_has() {
    let with_key = "x-api-key: k1\r\nx-forwarded-for: 192.0.2.1\r\n";
    let key_elsewhere = "x-api-key: k1\r\nx-forwarded-for: 192.0.2.2\r\n";
    let other_key = "x-api-key: k2\r\nx-forwarded-for: 192.0.2.1\r\n";
    let without_key = "x-forwarded-for: 192.0.2.1\r\n";
    check(
        &["per-caller: { key: token or ip, rate: 2/m }"],
        &[
            (with_key, 200),
            (key_elsewhere, 200),
            (with_key, 429),
            (other_key, 200),
            (without_key, 200),
            (without_key, 200),
            (without_key, 429),
            ("x-forwarded-for: 192.0.2.3\r\n", 200),
        ],
    );
}

#[test]
fn alternatives_are_one_part_of_a_longer_key() {
    let one = "x-api-key: k1\r\nx-forwarded-for: 192.0.2.1\r\n";
    let moved = "x-api-key: k1\r\nx-forwarded-for: 192.0.2.2\r\n";
    check(
        &["per-pair: { key: [token, ip], rate: 1/m }"],
        &[(one, 200), (moved, 200), (one, 429), (moved, 429)],
    );
}

#[test]
fn everyone_is_counted_together() {
    check(
        &["whole-route: { key: everyone, rate: 3/m }"],
        &[
            ("x-forwarded-for: 192.0.2.1\r\n", 200),
            ("x-forwarded-for: 192.0.2.2\r\nx-api-key: k1\r\n", 200),
            ("x-forwarded-for: 2001:db8::1\r\n", 200),
            ("x-forwarded-for: 192.0.2.3\r\nx-api-key: k2\r\n", 429),
        ],
    );
}
