//! Which route wins.

use proptest::prelude::*;

use super::*;
use crate::route::host;

fn table(texts: &[&str]) -> Result<RouteTable, Vec<Conflict>> {
    RouteTable::build(&patterns(texts))
}

/// `host|METHOD /path`, the host optional.
fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts
        .iter()
        .map(|text| {
            let (host, text) = text.split_once('|').unwrap_or(("*", text));
            let host = HostPattern::parse(host).unwrap();
            Pattern::parse(text).unwrap().with_host(host)
        })
        .collect()
}

fn request(text: &str) -> (Option<&str>, Method, &str) {
    let (host, text) = text
        .split_once('|')
        .map_or((None, text), |(host, text)| (Some(host), text));
    let (method, path) = text.split_once(' ').unwrap_or(("GET", text));
    (host, method.parse().unwrap(), path)
}

#[track_caller]
fn check(routes: &[&str], asked: &str, expected: &str) {
    let (host, method, path) = request(asked);
    let host = host.map(|host| host::canonical(host).unwrap());
    let got = match table(routes).unwrap().find(host.as_deref(), &method, path) {
        Found::Route(place) => routes[place],
        Found::OtherMethod => "405",
        Found::None => "404",
    };
    assert_eq!(got, expected, "{asked} in {routes:?}");
}

#[test]
fn paths() {
    let routes = [
        "/api/**",
        "/api/users",
        "/api/*",
        "/api/{id}/posts",
        "/api/users/**",
        "/x",
    ];
    check(&routes, "/api", "/api/**");
    check(&routes, "/api/", "/api/**");
    check(&routes, "/api/users", "/api/users");
    check(&routes, "/api/users/", "/api/users");
    check(&routes, "/api/others", "/api/*");
    check(&routes, "/api/others/posts", "/api/{id}/posts");
    check(&routes, "/api/users/posts", "/api/users/**");
    check(&routes, "/api/others/else", "/api/**");
    check(&routes, "/api/a/b/c/d", "/api/**");
    check(&routes, "/x", "/x");
    check(&routes, "/X", "404");
    check(&routes, "/x/y", "404");
    check(&routes, "/", "404");
    check(&["/"], "/", "/");
    check(&["/"], "/a", "404");
    check(&["/**"], "/", "/**");
    check(&["/**", "/"], "/", "/");
    check(&["/*"], "/", "404");
    check(&["/a/*/c", "/a/b/d"], "/a/b/c", "/a/*/c");
    check(&[], "/", "404");
}

#[test]
fn methods() {
    let routes = [
        "POST /login",
        "/**",
        "GET,PURGE /a",
        "/a",
        "HEAD /b",
        "GET /b",
        "GET /c",
    ];
    check(&routes, "POST /login", "POST /login");
    check(&routes, "GET /login", "/**");
    check(&routes, "GET /a", "GET,PURGE /a");
    check(&routes, "HEAD /a", "GET,PURGE /a");
    check(&routes, "PURGE /a", "GET,PURGE /a");
    check(&routes, "POST /a", "/a");
    check(&routes, "HEAD /b", "HEAD /b");
    check(&routes, "GET /b", "GET /b");
    check(&routes, "HEAD /c", "GET /c");
    check(&["POST /login"], "GET /login", "405");
    check(&["POST /login"], "GET /logout", "404");
    check(&["POST /a/b", "GET /a/*"], "GET /a/b", "GET /a/*");
    check(&["POST /a/b", "PUT /a/*", "GET /**"], "GET /a/b", "GET /**");
}

#[test]
fn hosts() {
    let routes = [
        "a.com|/x",
        "*.a.com|/x",
        "*.b.a.com|/x",
        "/x",
        "/y",
        "a.com|POST /y",
    ];
    check(&routes, "a.com|/x", "a.com|/x");
    check(&routes, "A.Com.:80|/x", "a.com|/x");
    check(&routes, "c.a.com|/x", "*.a.com|/x");
    check(&routes, "c.b.a.com|/x", "*.b.a.com|/x");
    check(&routes, "b.a.com|/x", "*.a.com|/x");
    check(&["[0::1]|/x", "/**"], "[::0:1]:80|/x", "[0::1]|/x");
    check(&routes, "za.com|/x", "/x");
    check(&routes, "/x", "/x");
    check(&routes, "a.com|/y", "/y");
    check(&routes, "a.com|POST /y", "a.com|POST /y");
    check(&["a.com|/x"], "b.com|/x", "404");
    check(&["a.com|POST /x"], "a.com|/x", "405");
}

#[test]
fn allow() {
    let routes = table(&["POST /a", "GET,PURGE /*", "a.com|PUT /**"]).unwrap();
    assert_eq!(routes.allow(None, "/a"), "POST, GET, HEAD, PURGE");
    assert_eq!(routes.allow(Some("a.com"), "/b"), "PUT, GET, HEAD, PURGE");
    assert_eq!(routes.allow(None, "/b/c"), "");
}

#[test]
fn conflicts() {
    let clash = |texts: &[&str]| {
        let found = table(texts).err().unwrap_or_default();
        found
            .iter()
            .map(|clash| (clash.first, clash.second))
            .collect::<Vec<_>>()
    };
    assert_eq!(clash(&["/a", "/a"]), [(0, 1)]);
    assert_eq!(clash(&["/a", "/a/"]), [(0, 1)]);
    assert_eq!(clash(&["/{x}", "/*", "GET /*"]), [(0, 1)]);
    assert_eq!(
        clash(&["GET /a", "POST /a", "GET,POST /a"]),
        [(0, 2), (1, 2)]
    );
    assert_eq!(clash(&["GET /a", "HEAD /a", "/a", "/a/**", "x.com|/a"]), []);
    assert_eq!(clash(&["PURGE /a", "PURGE /a"]), [(0, 1)]);
    assert_eq!(clash(&["x.com|/a", "X.com|/a"]), [(0, 1)]);
}

/// How specific a pattern is for a request, the smaller the more; nothing where it does not apply.
fn rank(
    pattern: &Pattern,
    host: Option<&str>,
    method: &Method,
    path: &str,
) -> Option<impl Ord + use<>> {
    let host_rank = match pattern.host() {
        _ if !pattern.host().takes(host) => return None,
        HostPattern::Exact(_) => 0,
        HostPattern::Below(name) => 1_000 - name.len(),
        HostPattern::Any => 1_000,
    };
    let mut given = path.split('/').filter(|segment| !segment.is_empty());
    let mut ranks = Vec::new();
    let mut open = false;
    for segment in pattern.segments() {
        ranks.push(match segment {
            Segment::Rest => {
                open = true;
                2
            }
            Segment::Literal(text) => (given.next() == Some(&**text)).then_some(0)?,
            Segment::One(_) => given.next().map(|_| 1)?,
        });
    }
    if !open && given.next().is_some() {
        return None;
    }
    Some((host_rank, ranks, pattern.methods().fit(method)?))
}

fn any_pattern() -> impl Strategy<Value = String> {
    let host = prop::sample::select(vec!["", "a.c|", "*.c|", "*.a.c|"]);
    let method = prop::sample::select(vec!["", "GET ", "HEAD ", "GET,POST ", "PURGE "]);
    (host, method, "(/[ab*]){0,4}(/\\*\\*)?").prop_map(|(host, method, path)| {
        format!(
            "{host}{method}{}",
            if path.is_empty() { "/" } else { &path }
        )
    })
}

proptest! {
    #[test]
    fn finds_what_a_look_at_every_pattern_finds(
        texts in prop::collection::vec(any_pattern(), 0..24),
        host in prop::sample::select(vec![None, Some("a.c"), Some("x.a.c"), Some("b.c:1"), Some("c")]),
        method in prop::sample::select(vec!["GET", "HEAD", "POST", "PURGE"]),
        path in "(/[abc]){0,5}/?",
    ) {
        let method: Method = method.parse().unwrap();
        let mut kept: Vec<&str> = Vec::new();
        for text in &texts {
            kept.push(text);
            if table(&kept).is_err() {
                kept.pop();
            }
        }
        let all = patterns(&kept);
        let built = RouteTable::build(&all).unwrap();
        let naive = (0..all.len())
            .filter_map(|place| Some((rank(&all[place], host, &method, &path)?, place)))
            .min()
            .map(|(_, place)| place);
        prop_assert_eq!(built.find(host, &method, &path).route(), naive, "{:?}", kept);
    }
}

/// Ten thousand routes and ten cost the same number of steps; this only holds the answer.
#[test]
fn many_routes() {
    let texts: Vec<String> = (0..10_000)
        .map(|n| format!("GET /v{}/r{n}/{{id}}", n % 7))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let built = table(&texts).unwrap();
    for n in [0, 1, 777, 9_999] {
        let path = format!("/v{}/r{n}/x", n % 7);
        assert_eq!(built.find(None, &Method::GET, &path), Found::Route(n));
    }
    assert_eq!(built.find(None, &Method::GET, "/v0/r1/x"), Found::None);
}
