//! Tests of which route counts a request that servers may read in several ways.

use std::path::Path;

use http::Version;

use super::*;
use crate::http::head::Fields;
use crate::policy::load_from;
use crate::policy::source::MemoryFiles;

/// Compiles policies, each of a name and its YAML. `gateway` is YAML that is added to the gateway's file.
fn ruleset(gateway: &str, policies: &[(&str, &str)]) -> Ruleset {
    let head = "version: 1\nlisten: 127.0.0.1:0\nadmin: off\nrecord: off\npolicies: policies\n";
    let gateway =
        format!("{head}upstreams: {{ up: http://127.0.0.1:9, b: http://127.0.0.1:8 }}\n{gateway}");
    let mut texts = vec![(String::from("tollgate.yaml"), gateway)];
    texts.extend(policies.iter().map(|(name, policy)| {
        let text = match policy.contains("upstream:") {
            true => (*policy).to_owned(),
            false => format!("upstream: up\n{policy}"),
        };
        (format!("policies/{name}.yaml"), text)
    }));
    let files = texts.iter().map(|(path, text)| (&**path, &**text));
    let files = MemoryFiles::new(files);
    load_from(&files, Path::new("tollgate.yaml"))
        .unwrap()
        .ruleset
}

/// The name of the request's route, or the names of the routes that count it together, or the status that it gets.
fn route(ruleset: &Ruleset, request: &str) -> String {
    let (method, target) = request.split_once(' ').unwrap_or(("GET", request));
    let head = Head {
        method: method.parse().unwrap(),
        uri: target.parse().unwrap(),
        version: Version::HTTP_11,
        upgrade: None,
        fields: Fields::default(),
    };
    match find_route_by_head(&head, None, &ruleset.default_table, ruleset) {
        Ok(matched_route) if matched_route.single_route_index().is_some() => {
            matched_route.route(ruleset).name.to_string()
        }
        Ok(matched_route) => {
            let has_limits = |route: &&Arc<Route>| !route.rules.is_empty();
            let counts = |route: &&Arc<Route>| matched_route.covers(&route.index.into(), ruleset);
            let counting_routes = ruleset.routes.iter().filter(has_limits).filter(counts);
            let names: Vec<&str> = counting_routes.map(|route| &*route.name).collect();
            names.join("+")
        }
        Err(RefusalCause::Bad(_)) => "400".into(),
        Err(_) => "none".into(),
    }
}

/// Checks that [`route`] is `expected` for each request, which is a method and a target, or only a target for GET.
#[track_caller]
fn check(ruleset: &Ruleset, requests: &[&str], expected: &str) {
    for request in requests {
        assert_eq!(route(ruleset, request), expected, "{request}");
    }
}

/// A policy with a strict limit.
const LOGIN: &str = "match: POST /login\nlimits: { l: { key: ip, rate: 5/15m } }";

/// A policy for all other paths, without a limit.
const REST: &str = "match: /**";

/// The same with a loose limit.
const LIMITED: &str = "match: /**\nlimits: { r: { key: ip, rate: 1000/m } }";

#[test]
fn a_semicolon_ends_the_path_to_some() {
    let item = "match: DELETE /items/{id}\nlimits: { i: { key: ip, rate: 5/h } }";
    for rest in [REST, LIMITED] {
        let rules = ruleset("", &[("login", LOGIN), ("item", item), ("rest", rest)]);
        check(
            &rules,
            &[
                "POST /login;/x1",
                "POST /login;/x1?y",
                "POST /login;a/b;c/d",
                "POST /LOGIN;/x",
                "POST /login;jsessionid=x",
                "POST /login%3Bx",
            ],
            "login",
        );
        check(
            &rules,
            &["DELETE /items/7;/x1", "DELETE /items/7;/x/../y"],
            "item",
        );
        check(
            &rules,
            &["POST /x;/login", "POST /log;in", "GET /login;/x1"],
            "rest",
        );
    }
    let exact = ruleset("paths: exact", &[("login", LOGIN), ("rest", REST)]);
    check(&exact, &["POST /login;/x1"], "rest");
    // Neither route is as strict as the other, so both count.
    let other = "match: /**\nlimits: { r: { key: ip, rate: 10/d } }";
    let rules = ruleset("", &[("login", LOGIN), ("rest", other)]);
    check(&rules, &["POST /login;/x1"], "login+rest");
    check(
        &rules,
        &["POST /login", "POST /LOGIN", "POST //login", "POST /login/"],
        "login",
    );
}

#[test]
fn a_method_in_a_query_that_begins_in_the_path() {
    let item = "match: DELETE /items/{id}\nlimits: { i: { key: ip, rate: 5/h } }";
    let rules = ruleset("", &[("item", item), ("rest", REST)]);
    check(
        &rules,
        &[
            "POST /items/7;_method=DELETE",
            "POST /items/7;x&_method=delete?y",
        ],
        "item",
    );
    check(&rules, &["POST /items/7;x=_method"], "rest");
}

/// A request that frameworks may hand to a stricter route is not counted by a looser one.
#[test]
fn a_looser_literal_takes_nothing_from_a_pattern() {
    let search = "match: GET /search/{q}\nlimits: { s: { key: ip, rate: 5/h } }";
    let files = "match: GET /files/**\nlimits: { f: { key: ip, rate: 5/h } }";
    for loose in ["", "\nlimits: { m: { key: ip, rate: 1000/m } }"] {
        let popular = format!("match: GET /search/popular{loose}");
        let index = format!("match: GET /files/index{loose}");
        let rules = ruleset(
            "",
            &[
                ("popular", &*popular),
                ("search", search),
                ("index", &*index),
                ("files", files),
            ],
        );
        check(&rules, &["/search/popular", "/search/popular/"], "popular");
        check(&rules, &["/files/index"], "index");
        check(
            &rules,
            &[
                "/search/popular;x1",
                "/search/popular%3Bx1",
                "/search/%70opular;1",
                "/search/popula%72",
                "/search/popular%2F;1",
                "/search/POPULAR",
                "/search/popular.x1",
                "/search/x1%2F..%2Fpopular",
            ],
            "search",
        );
        check(
            &rules,
            &[
                "/files/index;x1",
                "/files/x1/../index",
                "/files/./index",
                "/files//index",
                "/files/index//",
                "/files/x1%2F..%2Findex",
                "/files/index.x1",
            ],
            "files",
        );
    }
}

#[test]
fn routes_that_cannot_be_compared() {
    let popular = "match: GET /search/popular\nlimits: { m: { key: token, rate: 5/h } }";
    let search = "match: GET /search/{q}\nlimits: { s: { key: ip, rate: 5/h } }";
    let token = "identity: { token: { header: x-key } }";
    let rules = ruleset(
        token,
        &[("popular", popular), ("search", search), ("rest", REST)],
    );
    check(
        &rules,
        &[
            "/search/popular;x",
            "/search/popula%72",
            "/search/popular.x",
        ],
        "popular+search",
    );
    // Clients write these without a thought.
    check(
        &rules,
        &[
            "/search/POPULAR",
            "/search//popular",
            "//search/popular/",
            "/search/popular/",
            "/Search/Popular//",
        ],
        "popular",
    );
    // No more than a name is expected behind all other paths.
    let login = "match: POST /login\nlimits: { l: { key: token, rate: 5/h } }";
    let rules = ruleset(token, &[("login", login), ("rest", LIMITED)]);
    check(
        &rules,
        &["POST /login.json", "POST /login.php/x", "POST /login/index"],
        "login",
    );
}

#[test]
fn a_path_in_the_query() {
    let item = "match: DELETE /items/{id}\nlimits: { i: { key: ip, rate: 5/h } }";
    let slug = "match: GET /{slug}\nlimits: { s: { key: ip, rate: 5/h } }";
    for rest in [REST, LIMITED] {
        let rules = ruleset(
            "",
            &[
                ("login", LOGIN),
                ("item", item),
                ("slug", slug),
                ("rest", rest),
            ],
        );
        check(
            &rules,
            &[
                "POST /?/login",
                "POST /index.php?/login",
                "POST /?//login",
                "POST //?/login",
                "POST /?/LOGIN",
                "POST /?/login/index",
                "POST /?/login?x=y",
                "POST /?r=login",
                "POST /index.php?x&route=login",
                "POST /?_url=/login",
                "POST /?rest_route=%2flogin",
                "POST /?q=x&q=login",
            ],
            "login",
        );
        check(&rules, &["DELETE /?/items/7", "DELETE /?q=items/7"], "item");
        check(
            &rules,
            &[
                "GET /?q=shoes",
                "POST /?x=login",
                "POST /?/",
                "POST /a?/login",
                "GET /?/login%00",
            ],
            "rest",
        );
        check(&rules, &["GET /?/shoes"], "slug");
    }
    let wordpress = "match: POST /wp-json/users\nlimits: { w: { key: ip, rate: 5/h } }";
    let home = "match: /";
    let rules = ruleset("", &[("users", wordpress), ("home", home), ("rest", REST)]);
    check(&rules, &["POST /?rest_route=/users"], "users");
    check(&rules, &["POST /?rest_route=/user"], "home");
    let exact = ruleset("paths: exact", &[("login", LOGIN), ("rest", REST)]);
    check(&exact, &["POST /?/login"], "rest");
    let many = format!("POST /?{}", "q=a&".repeat(63));
    check(&rules, &[&many], "400");
    let away = format!("upstream: b\n{LOGIN}");
    let rules = ruleset("", &[("login", &away), ("rest", REST)]);
    check(&rules, &["POST /?/login", "POST /login;/x"], "rest");
}

/// CodeIgniter 3 leaves `..` out and takes what stands before it.
#[test]
fn dot_segments_that_are_left_out() {
    let rules = ruleset("", &[("login", LOGIN), ("rest", LIMITED)]);
    check(
        &rules,
        &[
            "POST /login/..",
            "POST /login/../index",
            "POST /login/%2e%2e",
            "POST /login/%2e%2e%2f..",
            "POST /../login",
            "POST /login/./..",
            "POST /../../LOGIN/..",
            "POST /index.php//login/..",
            "POST /index.php/login/..",
            "POST /?/login/..",
            "POST /?/../login",
            "POST /index.php?/login/../index",
            "POST /?r=login/..",
            "POST /?r=login%2f..",
            "POST /?_url=/login/../index",
            "POST /?route=lo-gin",
            "POST /?s=login|index",
            "POST /?r=login%0a",
        ],
        "login",
    );
    check(
        &rules,
        &["POST /a/..", "POST /?/a/..", "POST /a/../../b"],
        "rest",
    );
    check(&rules, &["POST /login/..;"], "400");
    let below = "match: POST /a/login\nlimits: { l: { key: ip, rate: 5/15m } }";
    let rules = ruleset("", &[("below", below), ("rest", LIMITED)]);
    check(
        &rules,
        &["POST /a/../../login", "POST /a/..%2flogin"],
        "below",
    );
}

/// PHP's `parse_url` and `new URL` take the first segment for a host.
#[test]
fn paths_behind_an_authority() {
    let rules = ruleset("", &[("login", LOGIN), ("rest", LIMITED)]);
    check(
        &rules,
        &[
            "POST //x/login",
            "POST ///x:80/login",
            "POST http://t//x/login",
            "POST /a?r=login",
            "POST /a/b?rest_route=/login",
        ],
        "login",
    );
    check(&rules, &["POST //x", "POST /x/login", "POST //x/a"], "rest");
}

/// A script has a policy, and what follows it names another.
#[test]
fn several_routes_by_frameworks_readings() {
    let index = "match: /index.php\nlimits: { x: { key: ip, rate: 1000/m } }";
    let rules = ruleset("", &[("index", index), ("login", LOGIN), ("rest", REST)]);
    check(
        &rules,
        &["POST /index.php/login", "POST /Index.php/LOGIN"],
        "index+login",
    );
    check(&rules, &["POST /index.php", "POST /index.php/a"], "index");
}

/// What people search for may be called as a route is: both count then.
#[test]
fn words_in_the_query() {
    let home = "match: /\nlimits: { h: { key: ip, rate: 10/d } }";
    let contact = "match: /contact\nlimits: { c: { key: ip, rate: 5/h } }";
    let all = [("home", home), ("contact", contact), ("rest", REST)];
    let rules = ruleset("", &all);
    check(
        &rules,
        &[
            "/?s=contact",
            "/?q=contact",
            "/?route=contact",
            "/?s=/contact",
            "/?r=contact/index",
            "/?/contact",
        ],
        "contact+home",
    );
    // The stricter of two counts.
    let home = "match: /\nlimits: { h: { key: ip, rate: 1000/m } }";
    let rules = ruleset("", &[("home", home), all[1], all[2]]);
    check(&rules, &["/?s=contact", "/?q=/contact"], "contact");
}

/// A slash that is kept leaves all other readings as they are.
#[test]
fn other_readings_beside_kept_slashes() {
    let keeps = "encoded_slashes: keep\n";
    let project =
        format!("match: POST /p/{{id}}/**\n{keeps}limits: {{ p: {{ key: ip, rate: 1000/m }} }}");
    let token =
        format!("match: POST /p/{{id}}/token\n{keeps}limits: {{ t: {{ key: ip, rate: 5/h }} }}");
    let issues = "match: POST /p/{id}/b/issues\nlimits: { i: { key: ip, rate: 7/d } }";
    let rules = ruleset(
        "",
        &[
            ("token", &*token),
            ("project", &*project),
            ("issues", issues),
            ("login", LOGIN),
            ("rest", REST),
        ],
    );
    check(
        &rules,
        &[
            "POST /p/a%2Fb/token",
            "POST /p/a%2Fb/token;x",
            "POST /p/a%2Fb/token/..",
            "POST /p/a%2Fb/x/../token",
            "POST /p/a%2Fb/tok%65n",
            "POST //p//a%2fb/token",
            "POST /p/a%2Fb/TOKEN",
            "POST /p/a%2Fb/?/token",
        ],
        "token",
    );
    check(
        &rules,
        &["POST /p/a%2Fb/issues", "POST /p/a%2Fb/x;y"],
        "project",
    );
}
