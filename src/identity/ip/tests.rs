//! Addresses behind proxies, honest and forged.

use super::*;

fn trusted() -> TrustedPeers {
    let networks = ["10.0.0.0/8", "::ffff:192.168.0.0/112", "fd00::/8"];
    let networks = networks.map(|text| PeerNetwork::Ip(text.parse().unwrap()));
    TrustedPeers::new(&networks, &[Nat64Prefix::well_known()])
}

/// `lines` are header lines as they are written; the expected address is the client's.
#[track_caller]
fn check(peer: &str, lines: &[&str], expected: &str) {
    let mut fields = Fields::default();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        fields.add(name, value.as_bytes());
    }
    let client = client_address(&trusted(), peer.parse::<IpAddr>().unwrap(), &fields).ip;
    assert_eq!(
        client,
        expected.parse::<IpAddr>().unwrap(),
        "{peer} {lines:?}"
    );
}

const PROXY: &str = "10.0.0.1";

#[test]
fn untrusted_peers_are_clients() {
    for line in [
        "X-Forwarded-For: 1.1.1.1",
        "Forwarded: for=1.1.1.1",
        "X-Forwarded-For: 10.0.0.9",
    ] {
        check("203.0.113.9", &[line], "203.0.113.9");
        check("::ffff:203.0.113.9", &[line], "203.0.113.9");
        check("2001:db8::1", &[line], "2001:db8::1");
    }
}

#[test]
fn forwarded_for_from_the_right() {
    let check =
        |value: &str, expected| check(PROXY, &[&format!("X-Forwarded-For: {value}")], expected);
    check("1.1.1.1", "1.1.1.1");
    check("6.6.6.6, 1.1.1.1", "1.1.1.1");
    check("6.6.6.6,1.1.1.1,10.0.0.2", "1.1.1.1");
    check("1.1.1.1, 192.168.0.5, fd00::1", "1.1.1.1");
    check("10.0.0.3, 10.0.0.2", "10.0.0.3");
    // A hop that cannot be read ends the walk at the last trusted hop.
    check("", PROXY);
    check("1.1.1.1,", PROXY);
    check("1.1.1.1, unknown", PROXY);
    check("1.1.1.1, _hidden, 10.0.0.2", "10.0.0.2");
    check("1.1.1.1, 1.1.1, 10.0.0.2", "10.0.0.2");
    check("1.1.1.1, 01.1.1.1", PROXY);
    check("é", PROXY);
    check(&["10.0.0.2"; 200].join(","), "10.0.0.2");
    check(&format!("1.1.1.1{}", ",10.0.0.2".repeat(64)), "10.0.0.2");
}

#[test]
fn addresses_as_proxies_write_them() {
    let check = |node: &str, expected: &str| {
        check(PROXY, &[&format!("X-Forwarded-For: {node}")], expected);
    };
    check("1.1.1.1:443", "1.1.1.1");
    check("1.1.1.1:_hidden", "1.1.1.1");
    check("\"1.1.1.1:443\"", "1.1.1.1");
    check("2001:db8::1", "2001:db8::1");
    check("[2001:db8::1]", "2001:db8::1");
    check("[2001:db8::1]:443", "2001:db8::1");
    check("\"[2001:db8::1]:443\"", "2001:db8::1");
    check("[fe80::1%eth0]:443", "fe80::1");
    check("fe80::1%25", "fe80::1");
    check("::ffff:1.1.1.1", "1.1.1.1");
    check("[::ffff:101:101]:80", "1.1.1.1");
    check("::ffff:10.0.0.2", "10.0.0.2");
    for garbage in [
        "1.1.1.1:",
        "1.1.1.1:x",
        "1.1.1.1:123456",
        "1.1.1.1:80:80",
        "[1.1.1.1]",
        "[2001:db8::1",
        "2001:db8::1]",
        "[2001:db8::1]x",
        "[2001:db8::1]:",
        "fe80::1%",
        "fe80::1%a b",
        "\"1.1.1.1",
        "1.1.1.1\"",
        "'1.1.1.1'",
        "1.1.1.1/32",
        "0x1.1.1.1",
        "16843009",
        "localhost",
        "1.1.1.1 1.1.1.1",
    ] {
        check(garbage, PROXY);
    }
}

#[test]
fn forwarded() {
    let check = |value: &str, expected| check(PROXY, &[&format!("Forwarded: {value}")], expected);
    check("for=1.1.1.1", "1.1.1.1");
    check(
        "For=\"[2001:db8::1]:80\";proto=http;by=10.0.0.1",
        "2001:db8::1",
    );
    check(
        "for=6.6.6.6, proto=https; FOR = 1.1.1.1 , for=10.0.0.2",
        "1.1.1.1",
    );
    check("for=1.1.1.1;;proto=http;", "1.1.1.1");
    check("for=1.1.1.1;host=\"a,b;for=6.6.6.6\"", "1.1.1.1");
    check("for=1.1.1.1;host=\"a\\\",for=6.6.6.6\"", "1.1.1.1");
    // A quote that the client left open hides nothing that the proxy wrote.
    check("for=\", for=1.1.1.1", "1.1.1.1");
    check("for=\"6.6.6.6\\\", for=1.1.1.1, for=10.0.0.2", "1.1.1.1");
    for stop in [
        "for=unknown",
        "for=_x",
        "proto=http",
        "for=6.6.6.6;for=6.6.6.7",
        "for",
        "for=",
        "",
        "for=\"6.6.6.6",
        "6.6.6.6",
        ";",
    ] {
        check(&format!("for=1.1.1.1, {stop}"), PROXY);
        check(&format!("for=1.1.1.1, {stop}, for=10.0.0.2"), "10.0.0.2");
    }
}

#[test]
fn several_lines_and_both_headers() {
    check(
        PROXY,
        &["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 1.1.1.1"],
        "1.1.1.1",
    );
    check(
        PROXY,
        &["X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 10.0.0.2"],
        "1.1.1.1",
    );
    check(
        PROXY,
        &["Forwarded: for=\"6.6.6.6", "Forwarded: for=1.1.1.1"],
        "1.1.1.1",
    );
    check(
        PROXY,
        &[
            "X-Forwarded-For: 6.6.6.6, 1.1.1.1",
            "Forwarded: for=1.1.1.1",
        ],
        "1.1.1.1",
    );
    check(
        PROXY,
        &["X-Forwarded-For: 6.6.6.6", "Forwarded: for=1.1.1.1"],
        PROXY,
    );
    check(
        PROXY,
        &["X-Forwarded-For: 1.1.1.1", "Forwarded: for=6.6.6.6"],
        PROXY,
    );
    check(PROXY, &[], PROXY);
    check("::ffff:10.0.0.1", &["X-Forwarded-For: 1.1.1.1"], "1.1.1.1");
    check(
        "::ffff:192.168.0.1",
        &["X-Forwarded-For: 1.1.1.1"],
        "1.1.1.1",
    );
}

#[test]
fn groups() {
    let check = |ipv4_prefix_length, ipv6_prefix_length, ip: &str, expected: &str| {
        let settings = Settings {
            ipv4_prefix_length,
            ipv6_prefix_length,
            ..Settings::default()
        };
        assert_eq!(
            settings.client_network(ip.parse().unwrap()).to_string(),
            expected,
            "{ip}"
        );
    };
    check(32, 64, "203.0.113.9", "203.0.113.9/32");
    check(24, 64, "203.0.113.9", "203.0.113.0/24");
    check(24, 64, "::ffff:203.0.113.9", "203.0.113.0/24");
    check(32, 64, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64");
    check(32, 128, "2001:db8::1", "2001:db8::1/128");
    check(32, 32, "2001:db8:1::1", "2001:db8::/32");
    // Out of the documented range, but never a panic.
    check(0, 0, "203.0.113.9", "0.0.0.0/0");
    check(0, 0, "2001:db8::1", "::/0");
    check(255, 255, "203.0.113.9", "203.0.113.9/32");
    check(255, 255, "2001:db8::1", "2001:db8::1/128");
}
