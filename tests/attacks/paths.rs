//! Spellings of a path: each finds the policy of the path that servers take it for, or is refused; what is
//! forwarded is what the client wrote. RFC 3986 6.2.2.

use crate::case::Site;

const POLICIES: [(&str, &str); 2] = [
    (
        "item",
        "match: /api/item\nupstream: up\nlimits: { item: { key: ip, rate: 100000/h } }\n",
    ),
    (
        "rest",
        "match: /**\nupstream: up\nlimits: { rest: { key: ip, rate: 100000/h } }\n",
    ),
];

/// Paths that servers take for `/api/item`.
pub const SPELLINGS: [&str; 35] = [
    "/api/item",
    "/api/item/",
    "//api/item",
    "/api//item",
    "///api///item//",
    "/./api/item",
    "/api/./item",
    "/api/item/.",
    "/api/x/../item",
    "/api/item/x/..",
    "/x/../api/item",
    "/../api/item",
    "/api/../api/item",
    "/api/%2e/item",
    "/api/x/%2e%2e/item",
    "/api/x/%2E./item",
    "/api/x/.%2e/item",
    "/%2e%2e/api/item",
    "/%61pi/item",
    "/api/%69tem",
    "/api/%69%74%65%6d",
    "/api/%69%74%65%6D",
    "/api%2fitem",
    "/api%2Fitem",
    "/api/%2fitem",
    "/api\\item",
    "/api%5citem",
    "/api/x%2f..%2fitem",
    "/api/x\\..\\item",
    "/api/item;x",
    "/api;x=1/item",
    "/;/api/item",
    "/api/item%3bx",
    "/api/item?x=/rest",
    "/api/item?",
];

/// Paths that frameworks take for `/api/item`, and only `/**` takes as they are spelled.
const FOLDED: [&str; 14] = [
    "/API/item",
    "/api/Item",
    "/%41pi/i%54EM/",
    "/api/item.",
    "/api/item..",
    "/api/item%20",
    "/API%20/item.json",
    "/api/item.xml",
    "/api/item.php/x",
    "/api/item/index.php",
    "/index.php/api/item",
    "/api/Index.HTML/item",
    "/(S(abc))/api/item",
    "/x/../API//item;x",
];

/// Paths that are others, to servers too.
const OTHERS: [&str; 9] = [
    "/api/item%2520",
    "/api/item%252f",
    "/api%252fitem",
    "/api/%2569tem",
    "/api/items",
    "/api/item/x",
    "/api/item%3fx",
    "/api/item%23",
    "/rest?/api/item",
];

#[track_caller]
fn check(site: &Site, target: &str, limit: &str, host: &str) {
    let mut asker = site.connect();
    asker.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
    let answer = asker.answer(false).unwrap();
    assert_eq!(answer.status(), 200, "{target} {host}");
    let policy = answer.field("ratelimit-policy").unwrap();
    assert!(
        policy.starts_with(&format!("\"{limit}\"")),
        "{target} {host}: {policy}"
    );
    let seen = site.recorder.take().requests.remove(0);
    let written = target
        .split_once("://")
        .map_or(target, |(_, rest)| &rest[rest.find('/').unwrap()..]);
    assert_eq!(seen.start, format!("GET {written} HTTP/1.1"));
}

#[test]
fn spellings_of_a_path() {
    let site = Site::start("", &POLICIES);
    for path in SPELLINGS {
        check(&site, path, "item", "t");
        check(&site, &format!("http://u{path}"), "item", "t");
    }
    for path in OTHERS {
        check(&site, path, "rest", "t");
    }
    for path in FOLDED {
        // The third time what was made of the fields is remembered, and the second time of the line too.
        for _ in 0..3 {
            check(&site, path, "item", "t");
        }
    }
    let exact = Site::start("paths: exact\n", &POLICIES);
    for path in SPELLINGS {
        check(&exact, path, "item", "t");
    }
    for path in FOLDED.iter().chain(&OTHERS) {
        check(&exact, path, "rest", "t");
    }
}

/// Frameworks that know no parameters, or no slash but `/`, take these for an item. Others take them for the folder.
#[test]
fn names_that_are_none_to_others() {
    let item =
        "match: DELETE /items/{id}\nupstream: up\nlimits: { item: { key: ip, rate: 100000/h } }\n";
    let rest = "match: /**\nupstream: up\nlimits: { rest: { key: ip, rate: 100000/h } }\n";
    let folder = "match: /items\nupstream: up\nlimits: { folder: { key: ip, rate: 100000/h } }\n";
    let limit = |site: &Site, method: &str, path: &str| {
        let mut asker = site.connect();
        asker.send(format!("{method} {path} HTTP/1.1\r\nhost: t\r\n\r\n"));
        let answer = asker.answer(false).unwrap();
        let policy = answer.field("ratelimit-policy").unwrap_or_default();
        let limits: Vec<&str> = policy.split('"').skip(1).step_by(2).collect();
        (answer.status(), limits.join("+"))
    };
    let counted = Site::start("", &[("item", item), ("all", "match: /**\nupstream: up\n")]);
    let apart = Site::start("", &[("item", item), ("folder", folder), ("rest", rest)]);
    let exact = Site::start("paths: exact\n", &[("item", item), ("rest", rest)]);
    for name in [
        ";", ";x", ";x=1;y", "%3B", "%3bx", "%2F", "%2f", "\\", "%5C", ".", "..", "%2e", "%2E.",
        "x/..",
    ] {
        let path = format!("/items/{name}");
        if name != "x/.." {
            let got = limit(&counted, "DELETE", &path);
            assert_eq!(got, (200, "item".into()), "{path}");
        }
        assert_eq!(
            limit(&counted, "GET", &path),
            (200, String::new()),
            "{path}"
        );
        assert_eq!(
            limit(&exact, "DELETE", &path),
            (200, "rest".into()),
            "{path}"
        );
        // The folder and the item have limits of their own: both count.
        let (status, limits) = limit(&apart, "DELETE", &path);
        let both = limits.contains("item") && limits.contains("folder");
        assert!(status == 200 && both, "{path}: {status} {limits}");
    }
    assert_eq!(limit(&apart, "GET", "/items/;x"), (200, "folder".into()));
    // No step leads from the limits of one tree to those of another.
    let api = "match: /api/**\nupstream: up\nlimits: { api: { key: ip, rate: 1000/h } }\n";
    let files =
        "match: /static/files/**\nupstream: up\nlimits: { files: { key: ip, rate: 100000/h } }\n";
    let trees = Site::start("", &[("api", api), ("files", files)]);
    for path in [
        "/static/files/../../api/x",
        "/static/files/%2e%2e/../api/x",
        "/static/files/..%2F..%2Fapi/x",
        "/static/files/..\\..\\api\\x",
    ] {
        let (status, limits) = limit(&trees, "GET", path);
        assert!(
            status == 200 && limits.contains("api"),
            "{path}: {status} {limits}"
        );
    }
}

/// Express takes `/LOGIN` for `/login` unless it is told otherwise: 2^5 spellings, none of which the limit counted.
#[test]
fn the_case_of_a_path_passes_no_limit() {
    let login = (
        "login",
        "match: POST /login\nupstream: up\nlimits: { l: { key: ip, rate: 5/15m } }\n",
    );
    let rest = (
        "rest",
        "match: /**\nupstream: up\nlimits: { r: { key: ip, rate: 1000/m } }\n",
    );
    let site = Site::start("", &[login, rest]);
    let mut admitted = 0;
    for spelling in 0..32_u32 {
        let path: String = "login"
            .chars()
            .enumerate()
            .map(|(at, letter)| match spelling >> at & 1 {
                1 => letter.to_ascii_uppercase(),
                _ => letter,
            })
            .collect();
        let mut asker = site.connect();
        asker.send(format!(
            "POST /{path} HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n"
        ));
        admitted += usize::from(asker.answer(false).unwrap().status() == 200);
    }
    assert_eq!(admitted, 5);
}

/// A route on another upstream, or without limits of its own, takes no spelling but its own.
#[test]
fn only_routes_that_count_more_take_other_spellings() {
    let rest = "match: /**\nupstream: up\nlimits: { rest: { key: ip, rate: 100000/h } }\n";
    for item in [
        "match: /api/item\nupstream: other\nlimits: { item: { key: ip, rate: 100000/h } }\n",
        "match: /api/item\nupstream: up\n",
    ] {
        let upstreams =
            "upstreams: { up: [\"http://{upstream}\"], other: [\"http://{upstream}\"] }\n";
        let site = Site::start(upstreams, &[("item", item), ("rest", rest)]);
        check(&site, "/api/ITEM", "rest", "t");
    }
}

/// RFC 9110 4.2.3, RFC 1034 3.1: a host's case, port and last dot make no other host.
#[test]
fn spellings_of_a_host() {
    let policies = [
        (
            "api",
            "match: /**\nhost: api.test\nupstream: up\nlimits: { api: { key: ip, rate: 100000/h } }\n",
        ),
        (
            "rest",
            "match: /**\nupstream: up\nlimits: { rest: { key: ip, rate: 100000/h } }\n",
        ),
    ];
    let site = Site::start("", &policies);
    for host in [
        "api.test",
        "API.Test",
        "api.test.",
        "api.test:80",
        "api.test:8080",
        "api.test.:80",
        "api.test:",
    ] {
        check(&site, "/a", "api", host);
        // The authority counts, not what stands beside it: RFC 9112 3.2.2.
        check(&site, &format!("http://{host}/a"), "api", "other.test");
        check(&site, "http://other.test/a", "rest", host);
    }
    for host in ["api", "test", "xapi.test", "api.test.x", "api-test"] {
        check(&site, "/a", "rest", host);
    }
}

/// Express takes `X-Forwarded-Host` up to the first comma, and so took `api.test,z` for a host whose limits had
/// not counted it.
#[test]
fn a_host_with_more_behind_it_passes_no_limit() {
    let policies = [
        (
            "login",
            "match: POST /login\nhost: api.test\nupstream: up\nlimits: { l: { key: ip, rate: 5/15m } }\n",
        ),
        ("rest", "match: /**\nupstream: up\n"),
    ];
    let site = Site::start("", &policies);
    for number in 0..12 {
        for host in [
            format!("api.test,z{number}"),
            format!("api.test;z{number}"),
            format!("api.test'{number}"),
            format!("z{number},api.test"),
        ] {
            for (target, field) in [("/login", &*host), (&*format!("http://{host}/login"), "t")] {
                let mut asker = site.connect();
                asker.send(format!(
                    "POST {target} HTTP/1.1\r\nhost: {field}\r\ncontent-length: 0\r\n\r\n"
                ));
                assert_eq!(
                    asker.answer(false).unwrap().status(),
                    400,
                    "{target} {field}"
                );
            }
        }
    }
    assert_eq!(site.recorder.count(), 0);
}

/// RFC 9110 7.6: what a server gets is what the client wrote, but for an absolute target's beginning.
#[test]
fn targets_go_on_as_they_were_written() {
    let site = Site::start("", &POLICIES);
    let targets = [
        ("/a%2Fb/./c//d?x=%20&y", "/a%2Fb/./c//d?x=%20&y"),
        ("/%41", "/%41"),
        ("/a;v=1?", "/a;v=1?"),
        ("/?//", "/?//"),
        ("/?a=%00", "/?a=%00"),
        ("http://u:81/abs", "/abs"),
        ("http://u?q", "/?q"),
        ("http://u", "/"),
        ("https://u/a//..", "/a//.."),
    ];
    for (target, seen) in targets {
        let mut asker = site.connect();
        asker.send(format!("GET {target} HTTP/1.1\r\nhost: t\r\n\r\n"));
        assert_eq!(asker.answer(false).unwrap().status(), 200, "{target}");
        let request = site.recorder.take().requests.remove(0);
        assert_eq!(request.start, format!("GET {seen} HTTP/1.1"));
    }
}

/// Some APIs name a thing by a path in one segment (GitLab's, npm's, S3's): there `%2F` is no slash, where the policy says
/// so. What is forwarded stays as it was written.
#[test]
fn encoded_slashes_stay_in_their_segment() {
    let keep = |name, path: &str| {
        let policy = format!(
            "match: {path}\nupstream: up\nencoded_slashes: keep\nlimits: {{ {name}: {{ key: ip, rate: 100000/h }} }}\n"
        );
        (name, policy)
    };
    let policies = [
        keep("issues", "GET /api/v4/projects/{id}/issues"),
        keep("package", "/npm/*"),
        (
            "split",
            "match: /split/{id}\nupstream: up\nlimits: { split: { key: ip, rate: 100000/h } }\n"
                .into(),
        ),
        ("rest", POLICIES[1].1.into()),
    ];
    let policies: Vec<_> = policies
        .iter()
        .map(|(name, text)| (*name, &**text))
        .collect();
    for paths in ["", "paths: exact\n"] {
        let site = Site::start(paths, &policies);
        for (target, limit) in [
            ("/api/v4/projects/group%2Fproject/issues", "issues"),
            ("/api/v4/projects/group%2fsub%2fproject/issues/", "issues"),
            ("//api/v4//projects/a%2F/issues?x=%2F", "issues"),
            ("/api/v4/projects/42/issues", "issues"),
            ("/npm/@scope%2fname", "package"),
            ("/npm/%40scope%2Fname", "package"),
            ("/npm/name", "package"),
            // A slash that is written as one is one.
            ("/api/v4/projects/group/project/issues", "rest"),
            ("/npm/@scope/name", "rest"),
            ("/split/a", "split"),
            ("/npm/a%252Fb", "package"),
        ] {
            check(&site, target, limit, "t");
        }
        // Elsewhere, and where upstreams may yet take it for a slash or a step, it is read as ever.
        for (target, exact, folded) in [
            ("/split/a%2Fb", "rest", Some("split")),
            ("/npm/a%2F..%2F..%2Fsplit%2Fb", "split", None),
            ("/npm/a%2Fb%5Cc", "rest", Some("package")),
        ] {
            let limit = if paths.is_empty() {
                folded
            } else {
                Some(exact)
            };
            if let Some(limit) = limit {
                check(&site, target, limit, "t");
                continue;
            }
            let mut asker = site.connect();
            asker.send(format!("GET {target} HTTP/1.1\r\nhost: t\r\n\r\n"));
            let answer = asker.answer(false).unwrap();
            site.recorder.take();
            let policy = answer.field("ratelimit-policy").unwrap_or_default();
            let both = policy.contains("package") && policy.contains("split");
            assert!(answer.status() == 200 && both, "{target}: {policy}");
        }
    }
}
