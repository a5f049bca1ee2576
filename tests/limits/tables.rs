//! Identities by the client's address from files: tables in the MaxMind DB format, lists of networks, and changes of both.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use tollgate::policy;

use crate::Site;
use crate::common::Upstream;
use crate::protocols::over_both;

const COUNTRIES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/tables/GeoLite2-Country-Test.mmdb"
);
const NUMBERS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/tables/GeoLite2-ASN-Test.mmdb"
);

/// Addresses of the tables: two British ones, two Japanese ones, and two of one network operator.
const BRITISH: [&str; 2] = ["81.2.69.160", "81.2.69.144"];
const JAPANESE: [&str; 2] = ["2001:218::1", "2001:240::1"];
const TELSTRA: [&str; 2] = ["1.128.0.0", "1.159.255.255"];
const UNLISTED: &str = "192.0.2.1";

fn from(ip: &str) -> String {
    format!("x-forwarded-for: {ip}\r\n")
}

fn site(limit: &str) -> Site {
    site_with(COUNTRIES, limit)
}

fn site_with(countries: &str, limit: &str) -> Site {
    let identity = format!(
        "identity:\n  ip: {{ trusted_proxies: [127.0.0.0/8] }}\n  \
         country: {{ table: {countries}, field: country.iso_code, forward: true }}\n  \
         asn: {{ table: {NUMBERS}, field: autonomous_system_number }}\n"
    );
    Site::start(&identity, &[limit], Upstream::plain())
}

/// Sends requests from these addresses to a site with one limit, and compares their statuses.
#[track_caller]
fn check(limit: &str, requests: &[(&str, u16)]) {
    over_both(
        || site(limit),
        |site| {
            for (number, (ip, status)) in requests.iter().enumerate() {
                let response = site.get(&from(ip));
                assert_eq!(response.status(), *status, "request {number}: {ip}");
            }
        },
    );
}

#[test]
fn a_limit_counts_by_a_table() {
    check(
        "per-country: { key: country, rate: 1/m }",
        &[
            (BRITISH[0], 200),
            (BRITISH[1], 429),
            (JAPANESE[0], 200),
            (JAPANESE[1], 429),
            (UNLISTED, 200),
            (UNLISTED, 200),
            // Forms of IPv6 that contain an address: mapped, NAT64 and 6to4.
            ("::ffff:81.2.69.160", 429),
            ("64:ff9b::81.2.69.160", 429),
            ("2002:5102:45a0::1", 429),
        ],
    );
    check(
        "per-operator: { key: asn, rate: 1/m }",
        &[(TELSTRA[0], 200), (TELSTRA[1], 429), (BRITISH[0], 200)],
    );
    check(
        "pair: { key: [asn, country], rate: 1/m }",
        &[(BRITISH[0], 200), (BRITISH[1], 429), (TELSTRA[0], 200)],
    );
}

#[test]
fn a_limit_is_for_what_a_table_says() {
    check(
        "british: { key: everyone, for: { country: [GB] }, rate: 1/m }",
        &[
            (BRITISH[0], 200),
            (BRITISH[1], 429),
            (JAPANESE[0], 200),
            (JAPANESE[1], 200),
        ],
    );
    check(
        "operator: { key: ip, for: { asn: [1221] }, rate: 1/m }",
        &[(TELSTRA[0], 200), (TELSTRA[0], 429), (BRITISH[0], 200)],
    );
    check(
        "unlisted: { key: everyone, for: { country: absent }, rate: 1/m }",
        &[(UNLISTED, 200), (BRITISH[0], 200), ("203.0.113.1", 429)],
    );
}

#[test]
fn an_unclear_address_is_refused() {
    let site = site("per-country: { key: country, rate: 9/m }");
    assert_eq!(site.get("x-forwarded-for: nobody\r\n").status(), 400);
    let fields = format!("{}{}", from(BRITISH[0]), "forwarded: for=192.0.2.9\r\n");
    assert_eq!(site.get(&fields).status(), 400);
}

#[test]
fn the_upstream_is_told_what_the_table_says() {
    let site = site("per-country: { key: country, rate: 9/m }");
    site.get(&format!("{}tollgate-country: XX\r\n", from(BRITISH[0])));
    assert_eq!(site.upstream.next().field("tollgate-country"), Some("GB"));
    site.get(&format!("{}tollgate-country: XX\r\n", from(UNLISTED)));
    assert_eq!(site.upstream.next().field("tollgate-country"), None);
}

/// Replaces a file as an editor does, and waits until the gateway's watch reports it.
fn replace_watched(site: &Site, path: &Path, content: &[u8]) {
    let (changes, changed) = channel();
    let _watch = policy::watch(
        site.gateway.app.config_path().to_owned(),
        site.gateway.app.fingerprint(),
        move || changes.send(()).unwrap(),
    );
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(&new, path).unwrap();
    changed.recv_timeout(Duration::from_mins(1)).unwrap();
    site.gateway.reload().unwrap();
}

#[test]
fn a_changed_list_of_networks_is_loaded() {
    let identity = "identity:\n  ip: { trusted_proxies: [127.0.0.0/8] }\n  place: { networks: { partner: partner.txt } }\n";
    let limit = "per-place: { key: place, rate: 1/m }";
    let list = "198.51.100.0/24\n203.0.113.7 until 2020-01-31\n203.0.113.8 until 2999-01-31T12:00:00Z # soon\n";
    let files = [("partner.txt", list)];
    let site = Site::with_files(identity, "", &[limit], Upstream::plain(), &files);
    let statuses = |ip: &str| [(); 2].map(|()| site.get(&from(ip)).status());
    assert_eq!(statuses("198.51.100.1"), [200, 429]);
    assert_eq!(statuses("203.0.113.1"), [200, 200]);
    assert_eq!(statuses("203.0.113.7"), [200, 200], "its time is over");
    assert_eq!(statuses("203.0.113.8"), [429, 429]);
    let path = site.gateway.folder.path().join("partner.txt");
    replace_watched(&site, &path, b"203.0.113.0/24\n");
    assert_eq!(statuses("198.51.100.1"), [200, 200]);
    assert_eq!(statuses("203.0.113.1"), [429, 429], "the budget stays");
}

#[test]
fn a_changed_table_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("country.mmdb");
    let table = std::fs::read(COUNTRIES).unwrap();
    std::fs::write(&path, &table).unwrap();
    let limit = "per-country: { key: country, rate: 1/m }";
    let site = site_with(path.to_str().unwrap(), limit);
    let status = |ip: &str| site.get(&from(ip)).status();
    assert_eq!([status(BRITISH[0]), status(BRITISH[1])], [200, 429]);
    // The byte before a text is its type and length.
    let mut renamed = table.clone();
    let at = table.windows(3).position(|bytes| bytes == b"\x42GB");
    renamed[at.unwrap()..][..3].copy_from_slice(b"\x42ZZ");
    replace_watched(&site, &path, &renamed);
    assert_eq!([status(BRITISH[0]), status(BRITISH[1])], [200, 429]);

    std::fs::write(&path, &table[..table.len() / 2]).unwrap();
    assert!(
        site.gateway.reload().is_err(),
        "a damaged table is a mistake"
    );
    assert_eq!(status(BRITISH[0]), 429, "and what was loaded stays");
}
