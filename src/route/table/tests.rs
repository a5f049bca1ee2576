//! Which route wins.

use proptest::prelude::*;

use super::*;
use crate::route::canonical_host;
use crate::route::pattern::Segment;

fn table(texts: &[&str]) -> Result<RouteTable, Vec<Conflict>> {
    RouteTable::build(patterns(texts).iter().enumerate())
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
fn check(routes: &[&str], request_line: &str, expected: &str) {
    let (host, method, path) = request(request_line);
    let host = host.map(|host| canonical_host::canonical_host(host).unwrap());
    let got = match table(routes).unwrap().find(host.as_deref(), &method, path) {
        RouteMatch::Route(index) => routes[index],
        RouteMatch::OtherMethod => "405",
        RouteMatch::None => "404",
    };
    assert_eq!(got, expected, "{request_line} in {routes:?}");
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
fn hosts_that_are_alike() {
    let routes = table(&["a.com|/x", "*.b.com|/x", "*.c.b.com|/y", "/**"]).unwrap();
    let check = |host: Option<&str>, other: &str, expected: bool| {
        assert_eq!(
            routes.has_same_routes(host, other),
            expected,
            "{host:?} {other}"
        );
    };
    check(Some("a.com"), "a.com:80", true);
    check(Some("x.b.com"), "y.z.b.com", true);
    check(Some("d.com"), "b.com", true);
    check(None, "d.com", true);
    check(Some("d.com"), "a.com", false);
    check(Some("x.b.com"), "x.c.b.com", false);
    check(None, "a.com", false);
    assert!(!table(&["/x"]).unwrap().depends_on_host());
}

/// What takes a request as it is spelled, and what takes it as frameworks read it; all routes count.
#[track_caller]
fn check_folded(routes: &[&str], request_line: &str, expected: &str) {
    let (host, method, path) = request(request_line);
    let table = table(routes).unwrap();
    let path = crate::route::normalise(path).unwrap();
    let exact = table.find(host, &method, &path).route_index();
    let exact = exact.unwrap_or_else(|| panic!("no route of {routes:?} takes {request_line}"));
    let folded = table.find_folded(host, &method, &path, exact, |_| true);
    assert_eq!(routes[folded], expected, "{request_line} in {routes:?}");
    let none = table.find_folded(host, &method, &path, exact, |_| false);
    assert_eq!(none, exact, "{request_line}, where nothing else counts");
}

#[test]
fn spellings_that_frameworks_fold() {
    let routes = [
        "POST /login",
        "/**",
        "/Account/Log%C3%9Cn",
        "/a/{id}/Export",
        "/{page}",
    ];
    for path in [
        "/login",
        "/LOGIN",
        "/lOgIn/",
        "/%4cogin",
        "/login.",
        "/login..",
        "/login%20",
        "/Login%20.",
        "/login.json",
        "/login.JSON",
        "/login.a-b",
        "/login.tar.gz",
        "/login.html.",
        "/login.php/x/y",
        "/index.php/login",
        "/Index.PHP/LOGIN.json",
        "/index.html/login",
        "/login/index.php",
        "/login/Default.aspx",
        "/login/index",
        "/login/INDEX/",
        "/Login/Index/x/7",
        "/index.php/login/index",
        "/(S(abc))/login",
        "/(A(x)S(y))/login",
        "/x/../LOGIN",
        "/LOGIN;x",
        "/%E2%84%93/../login",
    ] {
        check_folded(&routes, &format!("POST {path}"), "POST /login");
    }
    check_folded(&routes, "GET /LOGIN", "/{page}");
    for path in [
        "/account/log%c3%bcn",
        "/ACCOUNT/LOG%C3%9CN.xml",
        "/account/LOGÜN",
    ] {
        check_folded(&routes, path, "/Account/Log%C3%9Cn");
    }
    check_folded(&routes, "/A/5/export", "/a/{id}/Export");
    check_folded(&routes, "/a/5/export.pdf", "/a/{id}/Export");
    for path in [
        "/logins",
        "/log",
        "/login-json",
        "/.login",
        "/login/x",
        "/login%2520",
        "/login.1.0/x",
        "/x/login",
        "/login/index.php/x",
        "/index.php/index.php/login",
        "/index/login",
        "/index.1/login",
        "/index/x",
        "/login/indexes",
        "/x/login/index",
        "/login%FF",
        "/%E2%84%AAogin",
        "/...",
        "/login%23x",
    ] {
        let exact = if path.matches('/').count() == 1 {
            "/{page}"
        } else {
            "/**"
        };
        check_folded(&routes, &format!("POST {path}"), exact);
    }
}

#[test]
fn scripts_and_folders() {
    let routes = ["/login.php", "/v1.0", "/admin/index.php", "/", "/**"];
    for path in [
        "/login.php/x",
        "/LOGIN.PHP/x/y.js",
        "/login.php%20/x",
        "/login.php.",
        "/login.php.bak",
    ] {
        check_folded(&routes, path, "/login.php");
    }
    for path in [
        "/admin",
        "/Admin/",
        "/admin/INDEX.php",
        "/admin/index.php/users",
    ] {
        check_folded(&routes, path, "/admin/index.php");
    }
    for path in ["/index.php", "/Default.htm"] {
        check_folded(&routes, path, "/");
    }
    for path in ["/v1.0/x", "/login", "/login.ph/x", "/index.php/x"] {
        check_folded(&routes, path, "/**");
    }
}

#[test]
fn the_more_specific_reading_is_taken() {
    // What is spelled as a policy has it stays with that policy.
    check_folded(&["/login", "/LOGIN", "/**"], "/LOGIN", "/LOGIN");
    check_folded(
        &["/login", "/login.json", "/**"],
        "/login.json",
        "/login.json",
    );
    check_folded(
        &["/login", "/login.json", "/**"],
        "/LOGIN.JSON",
        "/login.json",
    );
    check_folded(
        &["/login.php", "/login.php/**", "/**"],
        "/login.php/x",
        "/login.php/**",
    );
    check_folded(&["/a/**", "/a/b/c", "/**"], "/A/B/C.json", "/a/b/c");
    check_folded(&["/a/{x}", "/a/b", "/**"], "/a/B", "/a/b");
    check_folded(&["/a", "/a/index", "/**"], "/a/INDEX", "/a/index");
    check_folded(&["/a/{x}", "/a", "/**"], "/a/index", "/a");
    check_folded(&["/{x}", "/a/b", "/**"], "/c/index", "/**");
    // A host of its own comes first.
    let hosts = ["a.com|POST /login", "*.b.com|POST /login", "/**"];
    check_folded(&hosts, "a.com|POST /LOGIN", "a.com|POST /login");
    check_folded(&hosts, "x.b.com|POST /LOGIN", "*.b.com|POST /login");
    check_folded(&hosts, "c.com|POST /LOGIN", "/**");
    check_folded(
        &["a.com|/**", "POST /login"],
        "a.com|POST /LOGIN",
        "a.com|/**",
    );
}

#[test]
fn usual_spellings() {
    let check = |pattern: &str, path: &str, expected: bool| {
        let pattern = Pattern::parse(pattern).unwrap();
        assert_eq!(
            is_common_spelling(&pattern, path),
            expected,
            "{pattern} {path}"
        );
    };
    for path in ["/LOGIN", "/Login/", "/login", "/login/index"] {
        check("/login", path, true);
    }
    for path in [
        "/login.json",
        "/LOGIN.",
        "/login%20",
        "/Login/x",
        "/X/login",
    ] {
        check("/login", path, false);
    }
    check("/a/{id}/B%C3%9C", "/A/X.y/b%C3%BC", true);
    check("/a/{id}/b", "/A/X.y", false);
    check("/a/**", "/A/x.y/z", true);
}

/// What is left out of a path is bounded, or a short path could be read in more ways than can be tried.
#[test]
fn a_path_of_indexes_has_few_readings() {
    let deep = "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/x";
    let path = "/index.php".repeat(1_500);
    check_folded(&[deep, "/**"], &path, "/**");
}

#[test]
fn allowed_methods() {
    let routes = table(&["POST /a", "GET,PURGE /*", "a.com|PUT /**"]).unwrap();
    assert_eq!(routes.allowed_methods(None, "/a"), "POST, GET, HEAD, PURGE");
    assert_eq!(
        routes.allowed_methods(Some("a.com"), "/b"),
        "PUT, GET, HEAD, PURGE"
    );
    assert_eq!(routes.allowed_methods(None, "/b/c"), "");
}

#[test]
fn conflicts() {
    let clash = |texts: &[&str]| {
        let conflicts = table(texts).err().unwrap_or_default();
        conflicts
            .iter()
            .map(|clash| (clash.first_index, clash.second_index))
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
        let built = RouteTable::build(all.iter().enumerate()).unwrap();
        let naive = (0..all.len())
            .filter_map(|index| Some((rank(&all[index], host, &method, &path)?, index)))
            .min()
            .map(|(_, index)| index);
        prop_assert_eq!(built.find(host, &method, &path).route_index(), naive, "{:?}", kept);
        // A path in the spelling of the policies has no other reading.
        if let Some(exact) = naive {
            let folded = built.find_folded(host, &method, &path, exact, |_| true);
            prop_assert_eq!(folded, exact, "{:?}", kept);
        }
    }
}

/// Each of ten thousand routes takes its own requests.
#[test]
fn many_routes() {
    let texts: Vec<String> = (0..10_000)
        .map(|n| format!("GET /v{}/r{n}/{{id}}", n % 7))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let built = table(&texts).unwrap();
    for n in [0, 1, 777, 9_999] {
        let path = format!("/v{}/r{n}/x", n % 7);
        assert_eq!(built.find(None, &Method::GET, &path), RouteMatch::Route(n));
    }
    assert_eq!(built.find(None, &Method::GET, "/v0/r1/x"), RouteMatch::None);
}
