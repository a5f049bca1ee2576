//! What a limit counts by: alternatives, and all clients together.

use tollgate::base::clock::Nanos;

use crate::Site;
use crate::common::Upstream;

const BY_KEY: &str =
    "identity:\n  ip: { trusted_proxies: [127.0.0.0/8] }\n  token: { header: x-api-key }\n";

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

/// An IPv6 client has many networks of 64 bits, so the networks around it have budgets as with `key: ip`.
#[test]
fn a_client_counted_by_its_address_gains_nothing_from_other_networks() {
    let limits = [
        "per-ip: { key: ip, rate: 1/m }",
        "per-caller: { key: token or ip, rate: 1/m }",
    ];
    for limit in limits {
        let site = Site::start(BY_KEY, &[limit], Upstream::plain());
        let statuses = (0..6).map(|network| {
            let fields = format!("x-forwarded-for: 2001:db8:0:{network:x}::1\r\n");
            site.get(&fields).status()
        });
        let statuses: Vec<u16> = statuses.collect();
        assert_eq!(statuses, [200, 200, 200, 200, 429, 429], "{limit}");
    }
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

#[test]
fn a_route_can_do_without_a_limit_of_the_gateway_file() {
    let gateway =
        "limits:\n  per-ip: { key: ip, rate: 1/h }\n  whole: { key: everyone, rate: 3/h }\n";
    let policies = [
        ("all", "match: /**\nupstream: up\n"),
        (
            "free",
            "match: /free/**\nupstream: up\nlimits: { per-ip: off }\n",
        ),
    ];
    let site = Site::with_policies(gateway, &policies, Upstream::plain(), &[]);
    for (path, status) in [
        ("/free/a", 200),
        ("/free/b", 200),
        ("/a", 200),
        ("/a", 429),
        ("/free/a", 429),
    ] {
        assert_eq!(site.get_path(path, "").status(), status, "{path}");
    }
}

#[test]
fn a_policy_may_have_several_matches_and_hosts() {
    let policies = [
        ("all", "match: /**\nupstream: up\n"),
        (
            "items",
            "match: [GET /items/**, \"POST,GET /old-items\"]\nhost: [a.test, \"*.b.test\"]\nupstream: up\nlimits: { whole: { key: everyone, rate: 4/h } }\n",
        ),
    ];
    let site = Site::with_policies("", &policies, Upstream::plain(), &[]);
    for (host, path, status) in [
        ("a.test", "/items/1", 200),
        ("x.b.test", "/items/1", 200),
        ("x.b.test", "/old-items", 200),
        ("other.test", "/items/1", 200),
        ("a.test", "/other", 200),
        ("a.test", "/old-items", 200),
        ("x.b.test", "/items", 429),
        ("other.test", "/items", 200),
    ] {
        let mut client = site.gateway.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        assert_eq!(client.answer().status(), status, "{host}{path}");
    }
    let text = site.gateway.app.metrics();
    let requests: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("tollgate_requests_total{route=\"items\""))
        .collect();
    let counted = requests.iter().map(|line| line.rsplit(' ').next().unwrap());
    let counted: u32 = counted.map(|number| number.parse::<u32>().unwrap()).sum();
    assert_eq!(counted, 5, "{requests:?}");
}

const USERS: &str = "\
identity:
  user: { header: x-user, from: [127.0.0.0/8] }
  plan: { header: x-plan, from: [127.0.0.0/8] }
  token: { header: x-api-key }
plans: { free: { multiply: 1 }, trial: { multiply: 1 }, gold: { multiply: 5 } }
";

/// Whether a limit of one request holds for clients that send these fields.
#[track_caller]
fn check_clients(condition: &str, clients: &[(&str, bool)]) {
    let limit = format!("one: {{ key: everyone, for: {condition}, rate: 1/h }}");
    for (fields, is_limited) in clients {
        let site = Site::start(USERS, &[&limit], Upstream::plain());
        let statuses = [site.get(fields).status(), site.get(fields).status()];
        let expected = if *is_limited { 429 } else { 200 };
        assert_eq!(statuses, [200, expected], "{condition}: {fields}");
    }
}

#[test]
fn a_limit_holds_for_the_clients_that_it_names() {
    let ann = "x-user: ann\r\n";
    check_clients("{ user: absent }", &[("", true), (ann, false)]);
    check_clients("{ user: present }", &[("", false), (ann, true)]);
    let others = "x-user: bob\r\n";
    check_clients(
        "{ user: [ann, eve] }",
        &[(ann, true), (others, false), ("", false)],
    );
    check_clients("{ user: ann }", &[(ann, true), (others, false)]);
    check_clients(
        "{ user: [absent] }",
        &[("", false), ("x-user: absent\r\n", true)],
    );
    check_clients(
        "{ token: present }",
        &[("", false), ("x-api-key: k\r\n", true)],
    );
    check_clients(
        "{ plan: [free, trial] }",
        &[
            ("x-plan: free\r\n", true),
            ("x-plan: trial\r\n", true),
            ("x-plan: gold\r\n", false),
            ("", false),
        ],
    );
    check_clients("{ ip: 127.0.0.0/8 }", &[("", true)]);
    check_clients("{ ip: \"::ffff:127.0.0.0/104\" }", &[("", true)]);
    check_clients("{ ip: [192.0.2.0/24, 2001:db8::/32] }", &[("", false)]);
    check_clients(
        "{ user: absent, token: present }",
        &[
            ("", false),
            ("x-api-key: k\r\n", true),
            ("x-user: ann\r\nx-api-key: k\r\n", false),
        ],
    );
}

#[test]
fn a_bad_credential_does_not_escape_a_limit_for_users() {
    let gateway = "identity:\n  user: { api_keys: keys.yaml }\n  token: { header: x-api-key }\n";
    let limits = [
        "signed-in: { key: ip, for: { user: present }, rate: 1/h }",
        "anonymous: { key: ip, for: { user: absent }, rate: 1/h }",
    ];
    let files = [("keys.yaml", "right: { user: ann }\n")];
    let site = Site::with_files(gateway, "", &limits, Upstream::plain(), &files);
    let statuses = |fields: &str| [site.get(fields).status(), site.get(fields).status()];
    assert_eq!(statuses("x-api-key: right\r\n"), [200, 429]);
    assert_eq!(
        statuses("x-api-key: wrong\r\n"),
        [401, 429],
        "counted as anonymous"
    );
    assert_eq!(statuses(""), [429, 429]);
}

#[test]
fn each_plan_has_its_own_rates() {
    let limit = "per-user: { key: user, rate: { gold: unlimited, trial: [2/s, 3/h], else: 1/h } }";
    let site = Site::start(USERS, &[limit], Upstream::plain());
    let statuses = |fields: &str| [(); 5].map(|()| site.get(fields).status());
    let check = |plan: &str, expected: [u16; 5]| {
        let fields = format!("x-user: of-{plan}\r\nx-plan: {plan}\r\n");
        assert_eq!(statuses(&fields), expected, "{plan}");
    };
    check("gold", [200; 5]);
    check("trial", [200, 200, 429, 429, 429]);
    check("free", [200, 429, 429, 429, 429]);
    assert_eq!(statuses("x-user: none\r\n"), [200, 429, 429, 429, 429]);
    site.pass(Nanos::from_secs(1));
    check("trial", [200, 429, 429, 429, 429]);
    let response = site.get("x-user: of-free\r\nx-plan: free\r\n");
    assert_eq!(
        response.field("ratelimit-policy"),
        Some("\"per-user\";q=1;w=3600")
    );
    assert_eq!(site.decisions("per-user"), [5, 0, 16, 0]);
}
