//! `deny` and `allow`: who is refused, before what, and what clients and operators see of it.

use std::io::Read;
use std::path::Path;

use serde_json::Value;
use tollgate::policy;

use crate::Site;
use crate::common::child::Server;
use crate::common::{Message, Upstream, assert_contains, http2, wait_until, write};
use crate::folders::explained;
use crate::protocols::{Request, over_both};

const PROXY: &str = "identity:\n  ip: { trusted_proxies: [127.0.0.0/8] }\n";
pub const ALL: &str = "match: /**\nupstream: up\n";
const KEYS: &str = "ann-key: { user: ann, plan: free, team: red }\n\
    bob-key: { user: bob, plan: gold, team: blue }\n";

pub fn site_with(gateway: &str, policies: &[(&str, &str)], files: &[(&str, &str)]) -> Site {
    let gateway = format!("{PROXY}{gateway}");
    Site::with_policies(&gateway, policies, Upstream::plain(), files)
}

pub fn from(ip: &str) -> String {
    format!("x-forwarded-for: {ip}\r\n")
}

#[track_caller]
fn assert_denied(site: &Site, answer: &Message, what: &str) {
    assert_eq!(answer.status(), 403, "{what}");
    let types = ["content-type", "cache-control"].map(|name| answer.field(name));
    let expected = [Some("application/problem+json"), Some("no-store")];
    assert_eq!(types, expected, "{what}");
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["detail"], "This client is not allowed here.", "{what}");
    assert!(
        site.upstream.drain().is_empty(),
        "{what}: the server has it"
    );
}

pub fn count(site: &Site, route: &str, outcome: &str) -> u64 {
    let series = format!("tollgate_requests_total{{route=\"{route}\",outcome=\"{outcome}\"}} ");
    let text = site.gateway.app.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(&series));
    line.map_or(0, |value| value.parse().unwrap())
}

/// On one connection, on which a proxy forwards for clients in turn.
#[test]
fn a_denied_address_gets_nothing_and_uses_up_nothing() {
    let lists = "deny: { ip: [203.0.113.0/24, \"::ffff:198.51.100.0/120\", 2001:db8:bad::/48] }\n\
        limits: { per-ip: { key: ip, rate: 2/h }, all: { key: everyone, rate: 4/h } }\n";
    let start = || site_with(lists, &[("all", "match: GET /a/**\nupstream: up\n")], &[]);
    over_both(start, |site| {
        let mut client = site.open();
        for ip in [
            "203.0.113.0",
            "203.0.113.255",
            "::ffff:203.0.113.7",
            "64:ff9b::203.0.113.7",
            "198.51.100.9",
            "2001:db8:bad:1::1",
        ] {
            let fields = from(ip);
            for path in ["/a/x", "/nowhere", "/a/%zz"] {
                let answer = client.exchange(Request::get(path, &fields));
                assert_denied(site, &answer, &format!("{path} from {ip}"));
            }
        }
        assert_eq!(count(site, "none", "denied"), 18);
        assert_eq!(site.decisions("per-ip"), [0; 4]);
        for (ip, path, status) in [
            ("203.0.114.0", "/a/x", 200),
            ("198.51.101.9", "/nowhere", 404),
            ("2001:db8:bae::1", "/a/x", 200),
            ("203.0.114.0", "/a/x", 200),
            ("203.0.114.0", "/a/x", 429),
        ] {
            let answer = client.exchange(Request::get(path, &from(ip)));
            assert_eq!(answer.status(), status, "{path} from {ip}");
        }
        assert_eq!(count(site, "none", "denied"), 18);
    });
}

/// Which of two fields a proxy wrote is not known, so the client may have written the other.
#[test]
fn an_unclear_address_is_no_way_around_a_list() {
    let lists = [
        "",
        "deny: { ip: 203.0.113.0/24 }\n",
        "allow: { ip: 192.0.2.0/24 }\n",
    ];
    let unclear = "x-forwarded-for: 203.0.113.7\r\nforwarded: for=192.0.2.1\r\n";
    for (number, in_gateway) in lists.iter().enumerate() {
        for in_policy in &lists[number.min(1)..] {
            let policy = format!("{ALL}{in_policy}");
            let site = site_with(in_gateway, &[("all", &policy)], &[]);
            let is_free = in_gateway.is_empty() && in_policy.is_empty();
            let expected = if is_free { 200 } else { 400 };
            assert_eq!(
                site.get(unclear).status(),
                expected,
                "{in_gateway}{in_policy}"
            );
        }
    }
}

#[test]
fn a_body_of_a_denied_client_is_not_awaited() {
    let site = site_with("deny: { ip: 203.0.113.0/24 }\n", &[("all", ALL)], &[]);
    let mut client = site.gateway.connect();
    client.send(
        "POST /a HTTP/1.1\r\nhost: t\r\nx-forwarded-for: 203.0.113.1\r\n\
         expect: 100-continue\r\ncontent-length: 1000000\r\n\r\n",
    );
    assert_denied(&site, &client.answer(), "the head is enough");
}

#[test]
fn a_request_that_cannot_be_read_is_denied_too() {
    let gateway = "deny: { ip: 127.0.0.0/8 }\nlimits: { few: { key: ip, rate: 1/h } }\n";
    let site = Site::with_policies(gateway, &[("all", ALL)], Upstream::plain(), &[]);
    for _ in 0..3 {
        let mut client = site.gateway.connect();
        client.send("GET /a HTTP/1.1\r\nhost: t\r\nbad field: x\r\n\r\n");
        assert_denied(&site, &client.answer(), "its fields are malformed");
        assert!(client.rest().is_empty(), "the connection ends");
    }
    assert_eq!(count(&site, "none", "denied"), 3);
    assert_eq!(site.decisions("few"), [0; 4]);
}

#[test]
fn a_silent_list_closes_connections_and_resets_streams() {
    let lists = "access_log: access.log\ndeny: { ip: 203.0.113.0/24, silent: true }\n";
    let site = site_with(lists, &[("all", ALL)], &[]);
    let mut client = site.gateway.connect();
    client.send("GET /a HTTP/1.1\r\nhost: t\r\nx-forwarded-for: 192.0.2.1\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    client.send("GET /a HTTP/1.1\r\nhost: t\r\nx-forwarded-for: 203.0.113.1\r\n\r\n");
    let mut bytes = Vec::new();
    client.reader.read_to_end(&mut bytes).unwrap();
    assert!(bytes.is_empty(), "{}", String::from_utf8_lossy(&bytes));
    http2::run(async {
        let mut client = http2::Client::connect(site.gateway.address).await;
        let request = |ip: &str| {
            let request = http2::request("GET", "/a").header("x-forwarded-for", ip);
            request.body(()).unwrap()
        };
        let (denied, _) = client.begin(request("203.0.113.1"), true);
        let error = denied.await.unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
        let (served, _) = client.begin(request("192.0.2.1"), true);
        assert_eq!(served.await.unwrap().status(), 200, "other streams go on");
    });
    wait_until("both are counted", || count(&site, "none", "denied") == 2);
    assert_eq!(site.upstream.drain().len(), 2);
    let metrics = site.gateway.app.metrics();
    assert!(!metrics.contains("status=\"403\""), "no response counts");
    let log = site.gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let denied = "\"status\":0,\"outcome\":\"denied\"";
    wait_until("both are logged", || read().matches(denied).count() == 2);
}

#[test]
fn a_call_of_grpc_gets_permission_denied() {
    let site = site_with("deny: { ip: 203.0.113.0/24 }\n", &[("all", ALL)], &[]);
    let fields = from("203.0.113.1") + "content-type: application/grpc\r\n";
    let answer = site.get(&fields);
    let seen = (answer.status(), answer.field("grpc-status"));
    assert_eq!(seen, (200, Some("7")));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
}

/// Lists of the gateway file, of folders and of policies: all of them must let a client pass.
#[test]
fn lists_of_several_files_add_up() {
    let site = site_with(
        "deny: { ip: 203.0.113.1 }\nallow: { ip: [203.0.113.0/24, 192.0.2.0/24] }\n",
        &[
            (
                "shop/_defaults",
                "upstream: up\ndeny: { ip: 203.0.113.2 }\n",
            ),
            ("shop/inner/_defaults", "allow: { ip: 203.0.113.0/28 }\n"),
            ("shop/items", "match: /items\ndeny: { ip: 203.0.113.3 }\n"),
            (
                "shop/inner/stock",
                "match: /stock\nallow: { ip: 203.0.113.8/29 }\n",
            ),
            ("shopping", "match: /cart\nupstream: up\n"),
        ],
        &[],
    );
    for (ip, statuses) in [
        ("203.0.113.1", [403, 403, 403]),
        ("203.0.113.2", [403, 403, 200]),
        ("203.0.113.3", [403, 403, 200]),
        ("203.0.113.4", [200, 403, 200]),
        ("203.0.113.9", [200, 200, 200]),
        ("203.0.113.17", [200, 403, 200]),
        ("192.0.2.1", [200, 403, 200]),
        ("198.51.100.1", [403, 403, 403]),
    ] {
        let paths = ["/items", "/stock", "/cart"];
        let seen = paths.map(|path| site.get_path(path, &from(ip)).status());
        assert_eq!(seen, statuses, "{ip}");
    }
    assert_eq!(count(&site, "shop/items", "denied"), 2);
}

/// By another spelling of the path, or a method in a field, servers may find the route that denies.
#[test]
fn another_reading_of_a_request_is_no_way_around_a_list() {
    let site = site_with(
        "",
        &[
            ("all", ALL),
            (
                "admin",
                "match: /admin/**\nupstream: up\nallow: { ip: 192.0.2.0/24 }\n",
            ),
            (
                "delete",
                "match: DELETE /items/**\nupstream: up\ndeny: { ip: 203.0.113.0/24 }\n",
            ),
        ],
        &[],
    );
    let stranger = from("203.0.113.1");
    for path in ["/admin/x", "/ADMIN/x", "/a/../admin/x", "//admin/x"] {
        let status = site.get_path(path, &stranger).status();
        assert!([400, 403].contains(&status), "{path}: {status}");
        assert!(site.upstream.drain().is_empty(), "{path}");
    }
    let overriding = |fields: &str, body: &str| {
        let fields = format!("{stranger}{fields}");
        let request = Request {
            method: "POST",
            body: Some(body),
            ..Request::get("/items/1", &fields)
        };
        site.exchange(request).status()
    };
    assert_eq!(overriding("", "a=1"), 200);
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    assert_eq!(overriding(form, "_method=delete"), 403);
}

const OWN: &str = "  user: { api_keys: keys.yaml }\n  token: { header: x-api-key }\n  \
    plan: { api_keys: true }\n  team: { api_keys: true }\n  device: { header: x-device }\n  \
    tool: { body: tool }\n  email: { body: email }\n\
    plans: { free: { multiply: 1 }, gold: { multiply: 1 } }\n";

/// Requests of these fields and bodies, and the statuses that they get with these lists.
#[track_caller]
fn check(gateway: &str, policy: &str, requests: &[(&str, &str, u16)]) {
    let policy = format!("{ALL}{policy}");
    let gateway = format!("{OWN}{gateway}");
    let files = [("keys.yaml", KEYS)];
    let start = || site_with(&gateway, &[("all", &policy)], &files);
    over_both(start, |site| {
        let mut client = site.open();
        // Twice, because a connection remembers identities.
        for (fields, body, status) in requests.iter().chain(requests) {
            let form = "content-type: application/x-www-form-urlencoded\r\n";
            let all_fields = format!("{fields}{form}");
            let request = Request {
                method: "POST",
                body: Some(body),
                ..Request::get("/a", &all_fields)
            };
            let answer = client.exchange(request);
            assert_eq!(
                answer.status(),
                *status,
                "{gateway}{policy}: {fields}{body}"
            );
            let reached = site.upstream.drain().len();
            assert_eq!(reached, usize::from(*status == 200), "{fields}{body}");
            if *status != 200 {
                client = site.open();
            }
        }
    });
}

const ANN: &str = "x-api-key: ann-key\r\n";
const BOB: &str = "x-api-key: bob-key\r\n";

#[test]
fn clients_are_denied_by_any_identity() {
    let by_user = [(ANN, "", 403), (BOB, "", 200), ("", "", 200)];
    check("deny: { user: [ann, eve] }\n", "", &by_user);
    check("", "deny: { user: ann }\n", &by_user);
    check("", "deny: { team: red, plan: [free] }\n", &by_user);
    check(
        "",
        "deny: { token: present }\n",
        &[(ANN, "", 403), ("", "", 200)],
    );
    check(
        "deny: { user: absent }\n",
        "",
        &[(ANN, "", 200), ("", "", 403)],
    );
    let by_device = [
        ("x-device: seven\r\n", "", 200),
        ("x-device: 7\r\n", "", 403),
        ("x-device: 007\r\n", "", 403),
        ("x-device: +7\r\n", "", 403),
        ("x-device: 6\r\nx-device: 7\r\n", "", 400),
        ("x_device: 7\r\n", "", 200),
        ("", "", 200),
    ];
    check("deny: { device: [7, 8] }\n", "", &by_device);
    let by_tool = [
        ("", "tool=hammer", 403),
        ("", "tool=saw", 200),
        ("", "tool=saw&tool=hammer", 400),
        ("", "tool%5b%5d=hammer", 403),
        ("", "", 200),
    ];
    check("deny: { tool: hammer }\n", "", &by_tool);
    check(
        "",
        "deny: { tool: absent }\n",
        &[("", "tool=saw", 200), ("", "", 403)],
    );
    check(
        "",
        "deny: { email: present }\n",
        &[("", "email=a@b.example", 403), ("", "", 200)],
    );
}

/// Of several identities each must match, and one that is absent matches nothing.
#[test]
fn only_clients_that_match_in_everything_are_allowed() {
    let wrong = "x-api-key: nobody\r\n";
    let requests = [
        ("x-api-key: ann-key\r\nx-device: d\r\n", "", 200),
        ("x-api-key: ann-key\r\nx-device: e\r\n", "", 403),
        (ANN, "", 403),
        ("x-device: d\r\n", "", 403),
        (BOB, "", 403),
        (wrong, "", 401),
    ];
    check("allow: { user: [ann], device: [d] }\n", "", &requests);
    check("", "allow: { user: [ann], device: [d] }\n", &requests);
    check(
        "allow: { user: present }\n",
        "allow: { user: ann, device: d }\n",
        &requests,
    );
    check(
        "allow: { user: present }\n",
        "deny: { user: ann }\n",
        &[(ANN, "", 403), (BOB, "", 200)],
    );
}

#[test]
fn explain_names_the_list_and_its_entry() {
    let gateway = format!("{OWN}deny: {{ ip: [203.0.113.0/24, blocked.txt] }}\n");
    let policy = format!("{ALL}allow: {{ user: [ann, bob] }}\ndeny: {{ team: red }}\n");
    let files = [("keys.yaml", KEYS), ("blocked.txt", "198.51.100.0/24\n")];
    let site = site_with(&gateway, &[("all", &policy)], &files);
    for (fields, status, reason) in [
        (
            &[("x-forwarded-for", "203.0.113.9")][..],
            403,
            "`deny` at tollgate.yaml:17 denies ip 203.0.113.0/24",
        ),
        (
            &[("x-forwarded-for", "198.51.100.9")],
            403,
            "`deny` at tollgate.yaml:17 denies ip blocked.txt",
        ),
        (
            &[("x-api-key", "ann-key")],
            403,
            "`deny` at policies/all.yaml:4 denies team red",
        ),
        (
            &[],
            403,
            "`allow` at policies/all.yaml:3 admits only user ann or bob",
        ),
        (&[("x-api-key", "bob-key")], 200, ""),
    ] {
        let explanation = explained(&site, "/a", fields);
        assert_eq!(explanation["status"], status, "{explanation:#}");
        let seen = explanation["reason"].as_str().unwrap_or_default();
        let folder = format!("{}/", site.gateway.folder.path().display());
        assert_eq!(seen.replace(&folder, ""), reason, "{explanation:#}");
    }
    let described = policy::load(&site.gateway.folder.path().join("tollgate.yaml")).unwrap();
    let text = policy::describe(&described);
    assert_contains(
        &text,
        &[
            "on every request:\n  denies ip 203.0.113.0/24 or blocked.txt (",
            "  denies team red (",
            "  denies all but user ann or bob (",
        ],
    );
}

fn warnings(folder: &Path) -> String {
    let loaded = policy::load(&folder.join("tollgate.yaml")).unwrap();
    let warnings = loaded.warnings.iter().map(ToString::to_string);
    warnings.collect::<Vec<_>>().concat()
}

#[test]
fn lists_that_refuse_everyone_are_warned_of() {
    let policy = format!("{ALL}allow: {{ ip: ended.txt }}\n");
    let files = [("ended.txt", "192.0.2.0/24 until 2020-01-31\n")];
    let site = site_with("deny: { ip: [\"::/0\"] }\n", &[("all", &policy)], &files);
    assert_eq!(site.get(&from("192.0.2.1")).status(), 403);
    assert_contains(
        &warnings(site.gateway.folder.path()),
        &[
            "`::/0` denies every client with such an address",
            "the files have no network that holds now: every request gets 403",
        ],
    );
}

/// The list has as many networks as the public ones have, and is reloaded while connections are open.
#[test]
fn a_long_list_that_is_replaced_holds_for_open_connections() {
    let networks = 0..100_000_u32;
    let listed: String = networks
        .map(|number| {
            format!(
                "{}/32\n",
                std::net::Ipv4Addr::from_bits(0x7f01_0000 + 2 * number)
            )
        })
        .collect();
    let lists = "deny: { ip: blocked.txt }\nlimits: { few: { key: ip, rate: 1/h } }\n";
    let gateway = format!("identity: {{ ip: {{ trusted_proxies: [127.0.0.1] }} }}\n{lists}");
    let files = [("blocked.txt", &*listed)];
    let site = Site::with_policies(&gateway, &[("all", ALL)], Upstream::plain(), &files);
    let mut client = site.open();
    let mut statuses =
        |ips: [&str; 3]| ips.map(|ip| client.exchange(Request::get("/a", &from(ip))).status());
    let ips = ["127.1.0.2", "127.4.13.62", "127.1.0.3"];
    // The refusals of the limit are remembered, and do not hide the list.
    assert_eq!(statuses(ips), [403, 403, 200]);
    assert_eq!(statuses(ips), [403, 403, 429]);
    assert_eq!(statuses(ips), [403, 403, 429]);
    let path = site.gateway.folder.path().join("blocked.txt");
    std::fs::write(&path, "127.1.0.3\n127.1.0.2 until 2020-01-31\n").unwrap();
    site.gateway.reload().unwrap();
    assert_eq!(statuses(ips), [200, 200, 403]);
    std::fs::write(&path, "nonsense\n").unwrap();
    site.gateway.reload().unwrap_err();
    assert_eq!(statuses(ips), [429, 429, 403], "the running lists stay");
}

#[test]
fn a_changed_file_is_noticed_and_denials_are_logged() {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    let gateway = "admin: 127.0.0.1:0\naccess_log: stdout\ndeny: { ip: blocked.txt }\n";
    write(&folder, upstream.address, gateway, &[("all", ALL)]);
    std::fs::write(folder.path().join("blocked.txt"), "").unwrap();
    let server = Server::start(folder.path(), true);
    let mut client = server.connect();
    assert_eq!(client.get("/a").status(), 200);
    std::fs::write(folder.path().join("blocked.txt"), "127.0.0.0/8\n").unwrap();
    wait_until("the file is loaded", || client.get("/a").status() == 403);
    let lines = std::iter::from_fn(|| server.out.recv_timeout(crate::common::MAX_WAIT).ok());
    let lines = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let denied = lines
        .into_iter()
        .find(|line| line["status"] == 403)
        .unwrap();
    assert_eq!(
        (&denied["outcome"], &denied["reason"]),
        (&"denied".into(), &"denied".into())
    );
    let metrics = server.ask("GET", "/metrics", "").text();
    assert_contains(
        &metrics,
        &["tollgate_requests_total{route=\"none\",outcome=\"denied\"} 1\n"],
    );
}
