//! Requests that `/metrics` counts by the values of identities.

use crate::Site;
use crate::common::Upstream;
use crate::protocols::over_both;

const GATEWAY: &str = "\
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  token: { header: x-api-key }
  user: { api_keys: keys.yaml }
  plan: { api_keys: true, metrics: true }
  tenant: { api_keys: true, metrics: true }
  place: { networks: { office: [192.0.2.0/24], lab: 198.51.100.0/24 }, metrics: true }
  unseen: { networks: { office: [192.0.2.0/24] } }
plans: { free: { multiply: 1 }, gold: { multiply: 3 } }
";

/// The series of the metric, with their counts.
fn series(site: &Site) -> Vec<String> {
    let text = site.gateway.app.metrics();
    let name = "tollgate_identity_requests_total";
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    lines.map(|line| line.replace('"', "")).collect()
}

/// Whether the series are these, in any order, as soon as all requests have ended.
#[track_caller]
fn check_series(site: &Site, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    let mut seen = Vec::new();
    for _ in 0..2_000 {
        seen = series(site);
        seen.sort_unstable();
        if seen == expected {
            return;
        }
        std::thread::yield_now();
    }
    assert_eq!(seen, expected);
}

#[test]
fn requests_are_counted_by_values_that_the_operator_writes() {
    let files = [(
        "keys.yaml",
        "first-key: { user: ann, tenant: acme, plan: gold }\nsecond-key: bob\n",
    )];
    // No limit counts by an identity of one's own.
    let limit = "per-ip: { key: ip, rate: 2/m }";
    let start = || Site::with_files(GATEWAY, "", &[limit], Upstream::plain(), &files);
    over_both(start, |site| {
        let office = "x-forwarded-for: 192.0.2.1\r\n";
        let key = format!("{office}x-api-key: first-key\r\n");
        assert_eq!(site.get(&key).status(), 200);
        assert_eq!(site.get(office).status(), 200);
        assert_eq!(site.get(office).status(), 429);
        let elsewhere = "x-forwarded-for: 203.0.113.1\r\nx-api-key: second-key\r\n";
        assert_eq!(site.get(elsewhere).status(), 200);
        // A client cannot choose a value, nor add one.
        let unclear = format!("{office}forwarded: for=198.51.100.1\r\nx-api-key: no-key\r\n");
        site.get(&unclear);
        check_series(
            site,
            &[
                "{identity=place,value=office,route=all,outcome=admitted} 2",
                "{identity=place,value=office,route=all,outcome=refused} 1",
                "{identity=plan,value=gold,route=all,outcome=admitted} 1",
                "{identity=tenant,value=acme,route=all,outcome=admitted} 1",
            ],
        );
    });
}

#[test]
fn further_values_are_one_series() {
    let mut keys = String::new();
    for number in 0..1_100 {
        keys += &format!("key-{number}: {{ user: ann, tenant: t{number:04} }}\n");
    }
    let gateway = "\
identity:
  token: { header: x-api-key }
  user: { api_keys: keys.yaml }
  tenant: { api_keys: true, metrics: true }
";
    let limit = "per-ip: { key: ip, rate: 1000/m }";
    let site = Site::with_files(
        gateway,
        "",
        &[limit],
        Upstream::plain(),
        &[("keys.yaml", &*keys)],
    );
    for number in [0, 999, 1_000, 1_099] {
        let key = format!("x-api-key: key-{number}\r\n");
        assert_eq!(site.get(&key).status(), 200);
    }
    check_series(
        &site,
        &[
            "{identity=tenant,value=t0000,route=all,outcome=admitted} 1",
            "{identity=tenant,value=t0999,route=all,outcome=admitted} 1",
            "{identity=tenant,value=other,route=all,outcome=admitted} 2",
        ],
    );
}

#[test]
fn nothing_is_counted_without_the_word() {
    let gateway = GATEWAY.replace(", metrics: true", "");
    let files = [(
        "keys.yaml",
        "first-key: { user: ann, tenant: acme, plan: gold }\n",
    )];
    let limit = "per-tenant: { key: tenant, rate: 9/m }";
    let site = Site::with_files(&gateway, "", &[limit], Upstream::plain(), &files);
    assert_eq!(site.get("x-api-key: first-key\r\n").status(), 200);
    assert_eq!(series(&site), [""; 0]);
}
