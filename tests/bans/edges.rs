//! Bans where no upstream answers: preflights, responses of routes, the path of usage, and guesses of credentials. Also bans
//! by what the body holds, and by what can be read in two ways.

use crate::common::child::Server;
use crate::common::{Upstream, wait_until, write};
use crate::{Site, from};

/// A gateway with these lines beside the address of its admin listener, and this policy.
fn site_with(gateway: &str, policy: &str) -> Site {
    let keys = "ann-key: { user: ann }\nbob-key: { user: bob }\n";
    site_with_keys(keys, gateway, policy)
}

/// The same with this file of API keys.
fn site_with_keys(keys: &str, gateway: &str, policy: &str) -> Site {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("keys.yaml"), keys).unwrap();
    let gateway = format!("admin: 127.0.0.1:0\n{gateway}");
    write(&folder, upstream.address, &gateway, &[("all", policy)]);
    let server = Server::start(folder.path(), true);
    Site {
        server,
        folder,
        upstream,
    }
}

fn status(site: &Site, method: &str, path: &str, fields: &str) -> u16 {
    let mut client = site.server.connect();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{fields}\r\n"
    ));
    client.answer().status()
}

/// The status of the response to a form.
fn status_of_form(site: &Site, body: &str) -> u16 {
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let length = body.len();
    let fields = format!("{form}content-length: {length}\r\n\r\n{body}");
    let mut client = site.server.connect();
    client.send(format!("POST /a HTTP/1.1\r\nhost: t\r\n{fields}"));
    client.answer().status()
}

const PROXIED: &str = "identity:\n  ip: { trusted_proxies: [127.0.0.0/8] }\n";

#[test]
fn what_the_gateway_answers_itself_is_refused_too() {
    let preflight = "origin: https://a.test\r\naccess-control-request-method: GET\r\n";
    for (gateway, policy, method, path, fields, free) in [
        (
            "",
            "match: GET /a\nupstream: up\ncors: { origins: '*' }\n",
            "OPTIONS",
            "/a",
            preflight,
            204,
        ),
        (
            "",
            "match: /**\nrespond: { status: 404 }\n",
            "GET",
            "/a",
            "",
            404,
        ),
        (
            "usage: /.well-known/limits\n",
            "match: /**\nupstream: up\n",
            "GET",
            "/.well-known/limits",
            "",
            200,
        ),
        ("", "match: /b\nupstream: up\n", "GET", "/none", "", 404),
    ] {
        let site = site_with(&format!("{PROXIED}{gateway}"), policy);
        let fields = format!("{fields}{}", from("192.0.2.7"));
        assert_eq!(status(&site, method, path, &fields), free, "{path}");
        site.ban_key("192.0.2.0/24");
        assert_eq!(status(&site, method, path, &fields), 429, "{path}");
        assert_eq!(site.unban("192.0.2.0/24").status(), 200);
        assert_eq!(status(&site, method, path, &fields), free, "{path}");
    }
}

/// Whoever guesses keys is counted, and is not told which user is banned.
#[test]
fn guesses_of_keys_end_in_429_of_the_limit_while_a_user_is_banned() {
    let gateway = "identity:\n  user: { api_keys: keys.yaml }\n  token: { header: x-key }\n\
        limits: { per-ip: { key: ip, rate: 3/h } }\n";
    let site = site_with(gateway, "match: /**\nupstream: up\nrequire: user\n");
    site.ban_key("user=ann");
    assert_eq!(status(&site, "GET", "/a", "x-key: ann-key\r\n"), 429);
    assert_eq!(
        site.bans()[0]["hits"],
        1,
        "by the ban, which no limit counts"
    );
    for expected in [401, 401, 401, 429, 429] {
        assert_eq!(status(&site, "GET", "/a", "x-key: guess\r\n"), expected);
    }
    assert_eq!(site.bans()[0]["hits"], 1);
}

/// A limit that refuses nobody bans nobody.
#[test]
fn a_limit_in_shadow_mode_bans_nobody() {
    let ban = "ban: { after: 1 refusal in 10m }";
    let gateway = format!(
        "{PROXIED}limits: {{ watched: {{ key: ip, rate: 1/h, mode: shadow, {ban} }}, \
         held: {{ key: ip, rate: 3/h, {ban} }} }}\n"
    );
    let site = site_with(&gateway, "match: /**\nupstream: up\n");
    for expected in [200, 200, 200] {
        let fields = from("192.0.2.7");
        assert_eq!(status(&site, "GET", "/a", &fields), expected);
    }
    // What is ordered is published with all that limits have found by then.
    site.ban_key("192.0.2.9");
    assert_eq!(site.keys(), ["ip=192.0.2.9"]);
    assert_eq!(status(&site, "GET", "/a", &from("192.0.2.7")), 429);
    wait_until("the other limit bans", || site.keys().len() == 2);
}

/// What its candidate rate would have refused is refused by nobody.
#[test]
fn a_candidate_rate_bans_nobody() {
    let gateway = format!(
        "{PROXIED}limits: {{ few: {{ key: ip, rate: 3/h, try: 1/h, ban: {{ after: 1 refusal in 10m }} }} }}\n"
    );
    let site = site_with(&gateway, "match: /**\nupstream: up\n");
    for expected in [200, 200, 200] {
        assert_eq!(status(&site, "GET", "/a", &from("192.0.2.7")), expected);
    }
    site.ban_key("192.0.2.9");
    assert_eq!(site.keys(), ["ip=192.0.2.9"]);
    assert_eq!(status(&site, "GET", "/a", &from("192.0.2.7")), 429);
    wait_until("its own rate bans", || site.keys().len() == 2);
}

const PLANS: &str = "plans: { free: { multiply: 1 }, gold: { multiply: 2 } }\n\
    identity:\n  user: { api_keys: keys.yaml }\n  token: { query: key }\n  plan: { api_keys: true, default: free }\n";
const KEYS: &str = "ann-key: { user: ann, plan: free }\nbob-key: { user: bob, plan: gold }\n";

/// The head alone says neither who has sent the form nor which plan that is.
#[test]
fn a_key_in_the_body_is_waited_for() {
    let policy = "match: /**\nupstream: up\nlimits: { many: { key: user, rate: 1000/h } }\n";
    let site = site_with_keys(KEYS, PLANS, policy);
    for (banned, statuses) in [
        ("user=ann", [429, 200, 200]),
        ("token=ann-key", [429, 200, 200]),
        ("plan=free", [429, 200, 429]),
        ("plan=gold", [200, 429, 200]),
    ] {
        site.ban_key(banned);
        for (body, expected) in ["key=ann-key", "key=bob-key", "a=b"]
            .into_iter()
            .zip(statuses)
        {
            assert_eq!(
                status_of_form(&site, body),
                expected,
                "{body} with {banned}"
            );
        }
        assert_eq!(site.unban(banned).status(), 200);
    }
}

/// Which of two keys the upstream reads is not known. No limit of the route counts by what they prove.
#[test]
fn a_key_with_two_readings_is_no_way_around_a_ban_of_its_user() {
    let gateway = "identity:\n  user: { api_keys: keys.yaml }\n  token: { header: x-key }\n  team: { api_keys: true }\n";
    let keys = "ann-key: { user: ann, team: red }\nbob-key: { user: bob, team: blue }\n";
    let site = site_with_keys(keys, gateway, "match: /**\nupstream: up\n");
    let twice = "x-key: ann-key\r\nx-key: bob-key\r\n";
    assert_eq!(status(&site, "GET", "/a", twice), 200);
    for banned in ["user=ann", "team=red", "token=ann-key"] {
        site.ban_key(banned);
        for (fields, expected) in [
            ("x-key: ann-key\r\n", 429),
            ("x-key: bob-key\r\n", 200),
            (twice, 400),
            ("", 200),
        ] {
            assert_eq!(
                status(&site, "GET", "/a", fields),
                expected,
                "{fields} with {banned}"
            );
        }
        assert_eq!(site.unban(banned).status(), 200);
    }
}

/// An identity that a ban alone names is looked for in preflights too, where their client is identified at all.
#[test]
fn a_preflight_of_a_banned_identity_is_refused_where_preflights_are_counted() {
    let gateway = "identity:\n  tenant: { header: x-tenant }\n";
    let policy = "match: GET /a\nupstream: up\ncors: { origins: '*' }\n\
        limits: { asked: { key: ip, rate: 100/h, for: { preflight: present } } }\n";
    let site = site_with(gateway, policy);
    let preflight = "origin: https://a.test\r\naccess-control-request-method: GET\r\n";
    let fields = format!("{preflight}x-tenant: red\r\n");
    assert_eq!(status(&site, "OPTIONS", "/a", &fields), 204);
    site.ban_key("tenant=red");
    assert_eq!(status(&site, "OPTIONS", "/a", &fields), 429);
    assert_eq!(status(&site, "OPTIONS", "/a", preflight), 204);
}

/// A ban by what a route does not look for does not hold there, and an explanation does not say that it does.
#[test]
fn an_explanation_knows_what_a_route_looks_for() {
    let gateway = "identity:\n  email: { body: email }\n  tenant: { header: x-tenant }\n";
    let limited = "match: GET /a\nupstream: up\ncors: { origins: '*' }\n";
    let site = site_with(gateway, limited);
    site.ban_key("email=ann@example.com");
    site.ban_key("tenant=red");
    let preflight = "origin: https://a.test\r\naccess-control-request-method: GET\r\n";
    let fields = format!("{preflight}x-tenant: red\r\n");
    assert_eq!(status(&site, "GET", "/a?email=ann@example.com", ""), 200);
    assert_eq!(status(&site, "OPTIONS", "/a", &fields), 204);
    let explained = site.command(&["explain", "GET", "/a?email=ann@example.com"]);
    assert!(explained.out.contains("200 admitted"), "{}", explained.out);
    let origin = ["-H", "origin: https://a.test", "-H", "x-tenant: red"];
    let asked = ["-H", "access-control-request-method: GET"];
    let explained = site.command(&[&["explain", "OPTIONS", "/a"][..], &origin, &asked].concat());
    assert!(!explained.out.contains("banned"), "{}", explained.out);
    let explained = site.command(&["explain", "GET", "/a", "-H", "x-tenant: red"]);
    assert!(explained.out.contains("429 banned"), "{}", explained.out);
}
