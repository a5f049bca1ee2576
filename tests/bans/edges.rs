//! Bans where no upstream answers: preflights, responses of routes, the path of usage, and guesses of credentials.

use crate::common::child::Server;
use crate::common::{Upstream, wait_until, write};
use crate::{Site, from};

/// A gateway with these lines beside the address of its admin listener, and this policy.
fn site_with(gateway: &str, policy: &str) -> Site {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    std::fs::write(
        folder.path().join("keys.yaml"),
        "ann-key: { user: ann }\nbob-key: { user: bob }\n",
    )
    .unwrap();
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
