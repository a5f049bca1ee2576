//! Who a client says it is, by address: strangers are believed in nothing, and behind a trusted proxy an
//! address is one however it is spelled.

use crate::case::{Asker, Site};
use crate::common::{Gateway, write};
use crate::recorder::Recorder;
use tollgate::base::clock::Clock;

const ONE: (&str, &str) = (
    "all",
    "match: /**\nupstream: up\nlimits: { one: { key: ip, rate: 1/h } }\n",
);
const TRUSTS: &str = "identity: { ip: { trusted_proxies: [127.0.0.0/8, 10.0.0.0/8] } }\n";

/// Fields by which somebody somewhere says an address.
pub const CLAIMS: [&str; 26] = [
    "x-forwarded-for: {}",
    "X-Forwarded-For: {}, {}",
    "x-forwarded-for: {}\r\nx-forwarded-for: {}",
    "x_forwarded_for: {}",
    "x-forwarded: for={}",
    "forwarded: for={}",
    "forwarded: for=\"{}:80\";by={}",
    "forwarded-for: {}",
    "x-real-ip: {}",
    "x-client-ip: {}",
    "client-ip: {}",
    "x-cluster-client-ip: {}",
    "true-client-ip: {}",
    "cf-connecting-ip: {}",
    "fastly-client-ip: {}",
    "x-azure-clientip: {}",
    "x-envoy-external-address: {}",
    "x-originating-ip: {}",
    "x-remote-ip: {}",
    "x-remote-addr: {}",
    "remote-addr: {}",
    "x-host: {}",
    "via: 1.1 {}",
    "proxy-client-ip: {}",
    "wl-proxy-client-ip: {}",
    "connection: x-forwarded-for\r\nx-forwarded-for: {}",
];

fn status(site: &Site, fields: &str) -> u16 {
    let mut asker = site.connect();
    asker.send(format!("GET /a HTTP/1.1\r\nhost: t\r\n{fields}\r\n\r\n"));
    asker.answer(false).unwrap().status()
}

#[test]
fn strangers() {
    let site = Site::start(
        "identity: { ip: { trusted_proxies: [10.0.0.0/8] } }\n",
        &[ONE],
    );
    assert_eq!(status(&site, "x: y"), 200);
    for (number, claim) in CLAIMS.iter().enumerate() {
        for address in [
            format!("203.0.113.{number}"),
            "10.0.0.1".into(),
            "127.0.0.1".into(),
        ] {
            let fields = claim.replace("{}", &address);
            assert_eq!(status(&site, &fields), 429, "{fields}");
        }
    }
    assert_eq!(site.recorder.count(), 1);
}

/// Each spelling is the address before it.
#[test]
fn spellings_of_an_address() {
    let cases = [
        ("203.0.113.9", "203.0.113.9:80"),
        ("203.0.113.9", "203.0.113.9:_x"),
        ("203.0.113.9", "\"203.0.113.9\""),
        ("203.0.113.9", "::ffff:203.0.113.9"),
        ("203.0.113.9", "::FFFF:203.0.113.9"),
        ("203.0.113.9", "::ffff:cb00:7109"),
        ("203.0.113.9", "0:0:0:0:0:ffff:cb00:7109"),
        ("203.0.113.9", "[::ffff:203.0.113.9]:80"),
        ("203.0.113.9", "[::ffff:203.0.113.9%eth0]"),
        ("203.0.113.9", "6.6.6.6, 203.0.113.9"),
        ("203.0.113.9", "6.6.6.6,\t203.0.113.9 "),
        ("203.0.113.9", "10.0.0.9, 203.0.113.9, 10.0.0.1"),
        ("203.0.113.9", "\", 203.0.113.9"),
        ("203.0.113.9", "6.6.6.6\r\nx-forwarded-for: 203.0.113.9"),
        ("203.0.113.9", "203.0.113.9\r\nx-forwarded-for: 10.0.0.1"),
        ("203.0.113.9", "203.0.113.9\r\nforwarded: for=203.0.113.9"),
        ("2001:db8::1", "2001:DB8::1"),
        ("2001:db8::1", "[2001:db8::1]:80"),
        ("2001:db8::1", "2001:0db8:0000::0.0.0.1"),
        ("2001:db8::1", "2001:db8::1%1"),
        ("2001:db8::1", "2001:db8::1%eth1"),
        // One client has all of its /64.
        ("2001:db8::1", "2001:db8::2"),
        ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"),
        ("fe80::1", "fe80::1%a"),
    ];
    for (address, spelling) in cases {
        let site = Site::start(TRUSTS, &[ONE]);
        assert_eq!(status(&site, &format!("x-forwarded-for: {address}")), 200);
        let fields = format!("x-forwarded-for: {spelling}");
        assert_eq!(status(&site, &fields), 429, "{address} is {spelling}");
        assert_eq!(
            status(&site, "x-forwarded-for: 198.51.100.1"),
            200,
            "another"
        );
    }
}

/// All of NAT64 was one client, and so were all clients of one Teredo server; a 6to4 site was 65,536.
#[test]
fn addresses_with_one_of_ipv4_inside() {
    let forms = [
        "{}",
        "::ffff:{}",
        "64:ff9b::{}",
        "2001:db8:64::{}",
        "[64:ff9b::{}]:443",
    ];
    let trusts = TRUSTS.replace("] }", "], nat64: [64:ff9b::/96, 2001:db8:64::/96] }");
    let site = Site::start(&trusts, &[ONE]);
    for client in ["192.0.2.1", "198.51.100.7", "203.0.113.9"] {
        let mut expected = 200;
        for form in forms {
            for field in ["x-forwarded-for: {}", "forwarded: for=\"[{}]\""] {
                let address = form.replace("{}", client);
                let quoted = field.starts_with("forwarded");
                if quoted && (!address.contains(':') || address.starts_with('[')) {
                    continue;
                }
                let fields = field.replace("{}", &address);
                assert_eq!(status(&site, &fields), expected, "{fields}");
                expected = 429;
            }
        }
    }
    let tunnels = [
        ("192.0.2.33", ["2002:c000:221::1", "2002:c000:221:ffff::1"]),
        (
            "192.0.2.45",
            [
                "2001:0:4136:e378:8000:63bf:3fff:fdd2",
                "2001:0:1:2:3:4:3fff:fdd2",
            ],
        ),
    ];
    for (client, forms) in tunnels {
        assert_eq!(status(&site, &format!("x-forwarded-for: {client}")), 200);
        for form in forms {
            let fields = format!("x-forwarded-for: {form}");
            assert_eq!(status(&site, &fields), 429, "{fields}");
        }
    }
    // A trusted proxy behind a translator is the same proxy; one that only says so by 6to4 is not.
    let through = |proxy: &str| format!("x-forwarded-for: 203.0.113.77, {proxy}");
    assert_eq!(status(&site, &through("64:ff9b::127.0.0.2")), 200);
    assert_eq!(status(&site, &through("64:ff9b::127.0.0.3")), 429);
    assert_eq!(status(&site, &through("2002:7f00:2::1")), 200);
    assert_eq!(status(&site, "x-forwarded-for: 203.0.113.77"), 429);
}

/// What names nobody, or two, is the last proxy that can be told: all of these share its budget.
#[test]
fn what_names_nobody() {
    let site = Site::start(TRUSTS, &[ONE]);
    assert_eq!(status(&site, "x: y"), 200);
    for (number, claim) in [
        "x-forwarded-for: ",
        "x-forwarded-for: {},",
        "x-forwarded-for: {}, unknown",
        "x-forwarded-for: {}, _{}",
        "x-forwarded-for: {} {}",
        "x-forwarded-for: {};{}",
        "x-forwarded-for: {}/32",
        "x-forwarded-for: 0{}",
        "x-forwarded-for: 0x{}",
        "x-forwarded-for: {}.1",
        "x-forwarded-for: {}:",
        "x-forwarded-for: {}:80:80",
        "x-forwarded-for: [{}]",
        "x-forwarded-for: [::1",
        "x-forwarded-for: ::1%",
        "x-forwarded-for: ::{}::",
        "x-forwarded-for: 16909060",
        "x-forwarded-for: localhost",
        "x-forwarded-for: http://{}",
        "x-forwarded-for: '{}'",
        "x-forwarded-for: {}\u{b2}",
        "forwarded: for={}, for=unknown",
        "forwarded: for={};for={}",
        "forwarded: for=\"{}",
        "forwarded: {}",
        "x-forwarded-for: {}\r\nforwarded: for=198.51.100.7",
    ]
    .iter()
    .enumerate()
    {
        let fields = claim.replace("{}", &format!("203.0.113.{number}"));
        assert_eq!(status(&site, &fields), 429, "{fields}");
    }
    assert_eq!(site.recorder.count(), 1);
}

/// A listener for both families: the same peer is the same over both.
#[test]
fn peers_over_both_families() {
    let recorder = Recorder::start();
    let folder = tempfile::tempdir().unwrap();
    write(&folder, recorder.address, "workers: 1\n", &[ONE]);
    let path = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("listen: 127.0.0.1:0", "listen: \"[::]:0\""),
    )
    .unwrap();
    let gateway = Gateway::start_in(folder, Clock::system());
    let port = gateway.address.port();
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let mut asker = Asker::connect(([127, 0, 0, 1], port).into());
        asker.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
        statuses.push(asker.answer(false).unwrap().status());
    }
    assert_eq!(statuses, [200, 429]);
    let seen = recorder.take().requests.remove(0);
    assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"]);
}
