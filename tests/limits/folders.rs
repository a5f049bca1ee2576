//! Sub-folders of policies, and the limits and defaults of `_defaults.yaml`.

use futures_util::FutureExt;
use serde_json::Value;
use tollgate::base::clock::Nanos;
use tollgate::serve::stack::explain::explain;
use tollgate::serve::stack::request_to_explain::RequestToExplain;

use crate::common::child::{self, Server};
use crate::common::{MAX_WAIT, Upstream, assert_contains, wait_until, write};
use crate::{Site, told, violated};

const SHOP: &str = "upstream: up\nlimits:\n  shop: { key: ip, rate: 3/h }\n";

fn site(gateway: &str, policies: &[(&str, &str)]) -> Site {
    Site::with_policies(gateway, policies, Upstream::plain(), &[])
}

/// The statuses of requests of these paths, one after the other.
fn statuses<const N: usize>(site: &Site, paths: [&str; N]) -> [u16; N] {
    paths.map(|path| site.get_path(path, "").status())
}

/// Explains a GET of a path with these header fields.
pub fn explained(site: &Site, path: &str, fields: &[(&str, &str)]) -> Value {
    let fields = fields.iter();
    let request = RequestToExplain {
        method: "GET".into(),
        path: path.into(),
        listen: None,
        host: None,
        headers: fields
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        ip: None,
        body: String::new(),
        client_cert: None,
        ja4: None,
        descriptor: None,
    };
    let app = &site.gateway.app;
    let explanation = explain(&app.running(), &request, app.clock()).now_or_never();
    explanation.unwrap().unwrap()
}

#[test]
fn routes_of_a_folder_share_its_limit_and_no_others_do() {
    let site = site(
        "limits: { all: { key: ip, rate: 100/h } }\n",
        &[
            ("shop/_defaults", SHOP),
            ("shop/items", "match: /items\n"),
            ("shop/admin/users", "match: /users\n"),
            ("shop", "match: /shop\nupstream: up\n"),
            ("shopping/cart", "match: /cart\nupstream: up\n"),
        ],
    );
    // Neither requests without a route nor routes beside the folder use the limit up.
    let elsewhere = statuses(&site, ["/nowhere", "/shop", "/cart", "/nowhere"]);
    assert_eq!(elsewhere, [404, 200, 200, 404]);
    assert_eq!(site.decisions("shop"), [0, 0, 0, 0]);
    let below = statuses(&site, ["/items", "/users", "/items", "/users", "/items"]);
    assert_eq!(below, [200, 200, 200, 429, 429]);
    assert_eq!(statuses(&site, ["/shop", "/cart"]), [200, 200]);
    assert_eq!(site.decisions("shop"), [3, 0, 2, 0]);
    assert_eq!(site.decisions("all"), [11, 0, 0, 0]);
}

#[test]
fn the_nearest_file_that_mentions_a_limit_decides() {
    let site = site(
        "limits: { all: { key: ip, rate: 2/h }, rare: { key: ip, rate: 1/h, routes: listed } }\n",
        &[
            ("_defaults", "upstream: up\nlimits: { all: off }\n"),
            ("open", "match: /open\n"),
            ("again", "match: /again\nlimits: [all]\n"),
            (
                "a/_defaults",
                "limits:\n  rare:\n  own: { key: ip, rate: 3/h }\n",
            ),
            ("a/rare", "match: /rare\n"),
            ("a/off", "match: /off\nlimits: { rare: off }\n"),
            ("a/b/_defaults", "limits: { own: off, rare: off }\n"),
            ("a/b/none", "match: /none\n"),
            ("a/b/own", "match: /own\nlimits: [own]\n"),
        ],
    );
    let limits = |path: &str| {
        let explanation = explained(&site, path, &[]);
        let limits = explanation["limits"].as_array().unwrap().iter();
        let names: Vec<&str> = limits
            .map(|limit| limit["limit"].as_str().unwrap())
            .collect();
        names.join(" ")
    };
    for (path, expected) in [
        ("/open", ""),
        ("/again", "all"),
        ("/rare", "rare own"),
        ("/off", "own"),
        ("/none", ""),
        ("/own", "own"),
    ] {
        assert_eq!(limits(path), expected, "{path}");
    }
    let paths = ["/again", "/again", "/again", "/open", "/none"];
    assert_eq!(statuses(&site, paths), [200, 200, 429, 200, 200]);
    let paths = ["/rare", "/rare", "/off", "/own", "/off", "/none"];
    assert_eq!(statuses(&site, paths), [200, 429, 200, 200, 429, 200]);
}

#[test]
fn each_route_of_a_folder_may_count_for_itself() {
    let limits = "limits:\n  each: { key: ip, rate: 1/h, routes: each }\n  by-route: { key: [ip, route], rate: 1/h, mode: shadow }\n";
    let defaults = format!("upstream: up\n{limits}");
    let site = site(
        "",
        &[
            ("shop/_defaults", &defaults),
            ("shop/items", "match: /items\n"),
            ("shop/cart", "match: /cart\n"),
        ],
    );
    let paths = ["/items", "/cart", "/items", "/cart"];
    assert_eq!(statuses(&site, paths), [200, 200, 429, 429]);
    assert_eq!(
        explained(&site, "/cart", &[])["limits"][0]["scope"],
        "shop/cart/each"
    );
    assert_eq!(
        explained(&site, "/cart", &[])["limits"][1]["scope"],
        "shop/cart/by-route"
    );
}

/// Two folders may have limits of one name, which do not count together.
#[test]
fn limits_are_named_by_their_folder() {
    let of_gold = "upstream: up\nlimits:\n  per-ip: { key: ip, rate: { gold: 2/h, else: 1/h } }\n";
    let site = site(
        "identity: { plan: { header: x-plan, from: [127.0.0.0/8], default: free } }\nplans: { free: { multiply: 1 }, gold: { multiply: 1 } }\n",
        &[
            ("shop/_defaults", of_gold),
            (
                "blog/_defaults",
                "upstream: up\nlimits:\n  per-ip: { key: ip, rate: 1/h }\n",
            ),
            ("shop/items", "match: /items\n"),
            ("blog/posts", "match: /posts\n"),
        ],
    );
    let paths = ["/items", "/posts", "/items", "/posts"];
    assert_eq!(statuses(&site, paths), [200, 200, 429, 429]);
    let limit = &explained(&site, "/items", &[])["limits"][1];
    assert_eq!(
        limit["scope"], "shop/_defaults.yaml/per-ip#else",
        "{limit:#}"
    );
    let place = limit["at"].as_str().unwrap();
    assert!(place.ends_with("policies/shop/_defaults.yaml:3"), "{place}");
    let config = site.gateway.folder.path().join("tollgate.yaml");
    let loaded = tollgate::policy::load(&config).unwrap();
    let description = tollgate::policy::describe(&loaded);
    assert_contains(
        &description,
        &[
            "\nshop/items: /items to up\n",
            "\n  shares per-ip",
            "\nshared between the routes below blog/_defaults.yaml:\n  per-ip: ",
            "\nshared between the routes below shop/_defaults.yaml:\n  per-ip: ",
        ],
    );
}

#[test]
fn policies_take_the_fields_that_they_do_not_have() {
    let gateway = "identity: { token: { header: x-api-key } }\nupstreams: { up: \"http://{upstream}\", down: \"http://127.0.0.1:9\" }\n";
    let site = site(
        gateway,
        &[
            (
                "_defaults",
                "upstream: up\nheaders: legacy\nrequire: token\n",
            ),
            ("down/_defaults", "upstream: down\n"),
            (
                "up",
                "match: /up\nlimits: { one: { key: ip, rate: 9/h } }\n",
            ),
            ("down/up", "match: /down/up\nupstream: up\nrequire: ip\n"),
            ("down/a/b/down", "match: /down/down\n"),
        ],
    );
    assert_eq!(
        statuses(&site, ["/up", "/down/up", "/down/down"]),
        [401, 200, 401]
    );
    let with_key = |path: &str| site.get_path(path, "x-api-key: k\r\n");
    let answer = with_key("/up");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.field("x-ratelimit-limit"), Some("9"), "{answer:?}");
    assert_eq!(told(&answer), "");
    assert_eq!(with_key("/down/down").status(), 503);
    assert_eq!(
        explained(&site, "/down/down", &[])["route"]["name"],
        "down/a/b/down"
    );
}

#[test]
fn keys_of_a_limit_of_a_folder_have_limits_of_their_own() {
    let defaults =
        "upstream: up\noverrides: shop.yaml\nlimits:\n  per-ip: { key: ip, rate: 1/h }\n";
    let policies = [
        ("shop/_defaults", defaults),
        ("shop/items", "match: /items\n"),
        (
            "blog/_defaults",
            "upstream: up\nlimits:\n  per-ip: { key: ip, rate: 1/h }\n",
        ),
        ("blog/posts", "match: /posts\n"),
    ];
    let files = [("shop.yaml", "per-ip: { ip=127.0.0.1: 2/h }\n")];
    let site = Site::with_policies("", &policies, Upstream::plain(), &files);
    let paths = ["/items", "/items", "/items", "/posts", "/posts"];
    assert_eq!(statuses(&site, paths), [200, 200, 429, 200, 429]);
}

#[test]
fn a_reload_keeps_the_counts_of_a_folder() {
    let site = site(
        "",
        &[
            ("shop/_defaults", SHOP),
            ("shop/items", "match: /items\n"),
            ("shop/cart", "match: /cart\n"),
        ],
    );
    assert_eq!(statuses(&site, ["/items", "/cart"]), [200, 200]);
    let policies = site.gateway.folder.path().join("policies/shop");
    let defaults = format!("{SHOP}  other: {{ key: ip, rate: 9/h }}\n");
    std::fs::write(policies.join("_defaults.yaml"), defaults).unwrap();
    std::fs::create_dir(policies.join("new")).unwrap();
    std::fs::write(policies.join("new/one.yaml"), "match: /new\n").unwrap();
    std::fs::remove_file(policies.join("cart.yaml")).unwrap();
    site.gateway.reload().unwrap();
    assert_eq!(statuses(&site, ["/cart", "/new", "/new"]), [404, 200, 429]);
    assert_eq!(violated(&site.get_path("/items", "")), ["shop"]);
    site.pass(Nanos::from_secs(3600));
    assert_eq!(statuses(&site, ["/items", "/new"]), [200, 200]);
}

/// The slash in a route's name is only a letter for everything that names routes.
#[test]
fn names_with_slashes_work_everywhere() {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    let gateway = "admin: 127.0.0.1:0\naccess_log: stdout\n";
    let policies = [
        ("shop/_defaults", SHOP),
        ("shop/old/items", "match: /items\n"),
    ];
    write(&folder, upstream.address, gateway, &policies);
    let server = Server::start(folder.path(), true);
    let mut client = server.connect();
    for expected in [200, 200, 200, 429] {
        assert_eq!(client.get("/items").status(), expected);
        let line = server.out.recv_timeout(MAX_WAIT).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let names = [&line["route"], &line["limit"], &line["limit_at"]];
        let place = "policies/shop/_defaults.yaml:3";
        assert_eq!(names, ["shop/old/items", "shop", place], "{line}");
    }
    let get = |path: &str| server.ask("GET", path, "").text();
    let json = |path: &str| -> Value {
        let text = get(path);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}: {text}"))
    };
    let metric = "tollgate_requests_total{route=\"shop/old/items\",outcome=\"refused\"} 1\n";
    assert_contains(&get("/metrics"), &[metric]);
    let policies = json("/v1/policies");
    assert_eq!(
        policies["routes"][0]["name"], "shop/old/items",
        "{policies:#}"
    );
    let files = policies["files"].to_string();
    let paths = [
        "policies/shop/_defaults.yaml",
        "policies/shop/old/items.yaml",
    ];
    assert_contains(&files, &paths);
    let limits = json("/v1/limits");
    assert_eq!(limits["limits"][0]["scope"], "shop/_defaults.yaml/shop");
    assert_eq!(limits["limits"][0]["decisions"]["refused"], 1);
    let key = json("/v1/limits/shop/keys/ip=127.0.0.1").to_string();
    assert_contains(&key, &["\"scope\":\"shop/_defaults.yaml/shop\""]);
    let selector = "tollgate_requests_total%7Broute=%22shop/old/items%22%7D";
    wait_until("the record has the route", || {
        let range = get(&format!(
            "/v1/record/range?series={selector}&from=-1h&points=10"
        ));
        range.contains("\"route\":\"shop/old/items\"")
    });
    for route in ["shop/old/items", "shop%2Fold%2Fitems"] {
        wait_until("the record has samples of the route", || {
            let samples = get(&format!("/v1/record/samples?from=-1h&route={route}"));
            samples.contains("\"route\":\"shop/old/items\"")
        });
    }
    let admin = server.admin.unwrap().to_string();
    let explained = child::run(
        folder.path(),
        &["explain", "GET", "/items", "--admin", &admin],
    );
    let of_limit = "* shop (policies/shop/_defaults.yaml:3): refused for ip=127.0.0.1";
    assert_contains(
        &explained.out,
        &["route shop/old/items (/items) to up\n", of_limit],
    );
    // A change of the limit is an event that names its file.
    let defaults = folder.path().join("policies/shop/_defaults.yaml");
    std::fs::write(defaults, SHOP.replace("3/h", "9/h")).unwrap();
    assert_eq!(server.ask("POST", "/v1/reload", "").status(), 200);
    wait_until("the record has the event", || {
        let events = get("/v1/record/events?from=-1h");
        events.contains("policies/shop/_defaults.yaml:3")
    });
}
