//! Attacks on the admin listener: an operator who may only read changes nothing, pages of other sites order nothing, and
//! guesses of tokens are bounded.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::common::{Client, Message, read_head, wait_until};
use crate::rights::{start_with_operators, token};
use crate::{ADMIN, Setup, json, problem, start};

/// The state that orders change, as ada sees it.
fn state(setup: &Setup) -> String {
    let bans = setup.ask_as("ada", "GET", "/v1/bans", "");
    let count = setup.ask_as("ada", "GET", "/v1/limits/per-ip/keys/ip=127.0.0.1", "");
    let metrics = setup.ask_as("ada", "GET", "/metrics", "").text();
    let reloads = metrics
        .lines()
        .filter(|line| line.starts_with("tollgate_reloads_total"));
    let keys = json(&bans)["bans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ban| ban["key"].clone())
        .collect::<Vec<_>>();
    let remaining = &json(&count)["limits"][0]["remaining"];
    format!("{keys:?} {remaining} {:?}", reloads.collect::<Vec<_>>())
}

/// A gateway with a ban, and with requests that a limit has counted.
fn start_with_state() -> (Setup, String) {
    let setup = start_with_operators();
    let order = json!({ "key": "ip=192.0.2.9", "for": "1d" }).to_string();
    assert_eq!(
        setup.ask_as("ada", "POST", "/v1/bans", &order).status(),
        200
    );
    assert_eq!(setup.requests(2), [200, 200]);
    let before = state(&setup);
    assert!(
        before.contains("ip=192.0.2.9") && before.contains(" 1 "),
        "{before}"
    );
    (setup, before)
}

const BAN: &str = r#"{"key":"ip=192.0.2.1"}"#;

/// Each path that orders something, in the spellings that servers have taken for it.
const SPELLINGS: [&str; 24] = [
    "/v1/bans",
    "//v1/bans",
    "/v1//bans",
    "/v1/bans/",
    "/v1/./bans",
    "/v1/x/../bans",
    "/v1/%2e/bans",
    "/v1%2fbans",
    "/v1/b%61ns",
    "/V1/BANS",
    "/v1/bans;x=1",
    "/v1/bans?x=1",
    "/v1/bans%00",
    "/v1/bans%20",
    "/healthz/../v1/bans",
    "/app.js/../v1/bans",
    "/v1/bans/ip%3D192.0.2.9",
    "/v1/bans/ip=192.0.2.9",
    "/v1/bans//ip=192.0.2.9",
    "/v1/bans/%2e%2e/reload",
    "/v1/reload",
    "/v1/reload/",
    "/v1/limits/per-ip/keys/ip=127.0.0.1",
    "/v1/limits/per-ip/keys/ip%3D127.0.0.1",
];

#[test]
fn a_reader_changes_nothing() {
    let (setup, before) = start_with_state();
    let rita = format!("authorization: Bearer {}\r\n", token("rita"));
    let methods = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", "Delete",
        "BREW",
    ];
    for path in SPELLINGS {
        for method in methods {
            // A response to `HEAD` has no body, whatever its length is.
            if method == "HEAD" {
                let mut client = crate::Client::connect(setup.server.admin.unwrap());
                client.send(format!("HEAD {path} HTTP/1.1\r\nhost: t\r\n{rita}\r\n"));
                client.head().unwrap();
                continue;
            }
            let response = setup.server.ask_with(method, path, &rita, BAN);
            let is_read = method == "GET" && response.status() == 200;
            assert!(
                is_read || response.status() >= 400,
                "{method} {path}: {}",
                response.status()
            );
        }
    }
    // Fields by which frameworks take another method, path or operator.
    for field in [
        "x-http-method-override: DELETE",
        "x-http-method: DELETE",
        "x-method-override: POST",
        "x-original-url: /v1/reload",
        "x-rewrite-url: /v1/reload",
        "x-forwarded-prefix: /v1/reload",
        "x-forwarded-user: ada",
        "x-forwarded-for: 127.0.0.1",
        "forwarded: for=127.0.0.1",
        "upgrade: h2c",
        "connection: authorization",
    ] {
        let fields = format!("{rita}{field}\r\n");
        for path in [
            "/v1/bans",
            "/v1/limits/per-ip/keys/ip=127.0.0.1",
            "/v1/bans?_method=DELETE",
        ] {
            for method in ["GET", "POST", "DELETE"] {
                let response = setup.server.ask_with(method, path, &fields, BAN);
                let is_read = method == "GET" && response.status() == 200;
                assert!(
                    is_read || [403, 405].contains(&response.status()),
                    "{method} {path} {field}"
                );
            }
        }
    }
    // Two tokens, whichever comes first; another spelling of the field is the same field.
    let ada = format!("Authorization: Bearer {}\r\n", token("ada"));
    for fields in [
        format!("{rita}{ada}"),
        format!("{ada}{rita}"),
        format!(
            "authorization: Bearer {}, Bearer {}\r\n",
            token("rita"),
            token("ada")
        ),
        format!(
            "authorization: Bearer {} {}\r\n",
            token("rita"),
            token("ada")
        ),
        format!("authorization: Bearer {}\r\n", token("ada").to_uppercase()),
        format!("proxy-authorization: Bearer {}\r\n", token("ada")),
        format!("cookie: token={}\r\n", token("ada")),
    ] {
        let response = setup.server.ask_with("POST", "/v1/reload", &fields, "");
        problem(&response, 401, "Authorization: Bearer");
    }
    let path = format!("/v1/reload?token={0}&access_token={0}", token("ada"));
    problem(
        &setup.server.ask("POST", &path, ""),
        401,
        "Authorization: Bearer",
    );
    // HTTP/2 is not served.
    let mut stream = TcpStream::connect(setup.server.admin.unwrap()).unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    let mut client = crate::Client::over(stream);
    let rest = client.rest();
    assert!(
        !rest
            .windows(9)
            .any(|frame| frame[3] == 4 && frame[..3] == [0, 0, 0]),
        "{rest:?}"
    );
    assert_eq!(state(&setup), before);
}

/// Forms of other sites send these types without being asked first.
#[test]
fn forms_of_other_sites_order_nothing() {
    let setup = start(ADMIN);
    let key = "/v1/limits/per-ip/keys/ip=127.0.0.1";
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/jsonp",
        "",
    ] {
        let fields = format!("content-type: {kind}\r\n");
        for (method, path, body) in [
            ("POST", "/v1/bans", BAN),
            ("POST", "/v1/reload", ""),
            ("DELETE", key, ""),
        ] {
            let response = setup.server.ask_with(method, path, &fields, body);
            problem(&response, 415, "application/json");
        }
    }
    let twice = "content-type: text/plain\r\ncontent-type: application/json\r\n";
    problem(
        &setup.server.ask_with("POST", "/v1/bans", twice, BAN),
        415,
        "application/json",
    );
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let fields = format!("content-type: {kind}\r\n");
        assert_eq!(
            setup
                .server
                .ask_with("POST", "/v1/bans", &fields, BAN)
                .status(),
            200
        );
    }
    // As `curl -X POST` sends it.
    assert_eq!(setup.server.ask("POST", "/v1/reload", "").status(), 200);
    for site in [
        "origin: http://evil.example\r\n",
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
    ] {
        let fields = format!("content-type: application/json\r\n{site}");
        problem(
            &setup.server.ask_with("POST", "/v1/bans", &fields, BAN),
            403,
            "other sites",
        );
    }
}

/// No response may be framed, sniffed or kept, whatever it is.
#[test]
fn no_page_shows_the_listener_in_a_frame() {
    let setup = start_with_operators();
    for (path, status) in [
        ("/", 200),
        ("/app.js", 200),
        ("/healthz", 200),
        ("/v1/bans", 401),
        ("/nowhere", 401),
    ] {
        let response = setup.get(path);
        assert_eq!(response.status(), status, "{path}");
        check_protection(&response, path);
    }
    for (path, status) in [("/v1/bans", 200), ("/nowhere", 404), ("/metrics", 200)] {
        let response = setup.ask_as("rita", "GET", path, "");
        assert_eq!(response.status(), status, "{path}");
        check_protection(&response, path);
        assert_eq!(response.field("cache-control"), Some("no-store"), "{path}");
    }
}

#[track_caller]
fn check_protection(response: &Message, path: &str) {
    let policy = response.field("content-security-policy").unwrap();
    assert!(
        policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"),
        "{path}: {policy}"
    );
    assert_eq!(response.field("x-frame-options"), Some("DENY"), "{path}");
    assert_eq!(
        response.field("x-content-type-options"),
        Some("nosniff"),
        "{path}"
    );
    assert_eq!(
        response.field("cross-origin-resource-policy"),
        Some("same-origin"),
        "{path}"
    );
}

/// Guesses are bounded by address, also where a response does not depend on the token.
#[test]
fn guesses_are_bounded() {
    let setup = start_with_operators();
    let guess = |number: usize| format!("authorization: Bearer guess-{number:020}\r\n");
    let paths = ["/v1/limits", "/", "/app.js"];
    let statuses = (0..60).map(|number| {
        let path = paths[number % paths.len()];
        setup
            .server
            .ask_with("GET", path, &guess(number), "")
            .status()
    });
    let statuses: Vec<u16> = statuses.collect();
    let unauthorized = statuses.iter().filter(|status| **status == 401).count();
    assert!((6..=12).contains(&unauthorized), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
    let response = setup.server.ask_with("GET", "/v1/limits", &guess(99), "");
    problem(&response, 429, "too many wrong tokens");
    assert!(response.field("retry-after").is_some());
    // Requests without a token are no guesses, and the bound ends.
    assert_eq!(setup.get("/healthz").status(), 200);
    assert_eq!(setup.get("/v1/limits").status(), 401);
    // Nor does it hold for operators behind the same address.
    let status = setup.ask_as("rita", "GET", "/v1/limits", "").status();
    assert_eq!(status, 200);
    let response = setup.server.ask_with("GET", "/v1/limits", &guess(98), "");
    problem(&response, 429, "too many wrong tokens");
    // A flood of refusals is recorded as a few of them, and those of one operator hide no other's.
    let refused = |name: &str| setup.ask_as(name, "POST", "/v1/reload", "").status();
    assert!((0..100).all(|_| refused("rita") == 403));
    assert_eq!(refused("simon"), 403);
    let by = |name: &str| {
        let events = setup.audit();
        let events = events.iter().filter(|event| event["audit"]["by"] == name);
        events.count()
    };
    wait_until("the last one is recorded", || by("simon") == 1);
    assert_eq!((by(""), by("rita")), (3, 20));
}

/// A stranger writes nothing long into the record and the log.
#[test]
fn long_methods_are_not_recorded() {
    let setup = start_with_operators();
    let wrong = "authorization: Bearer wrong-token-0123456789\r\n";
    let long = "X".repeat(20_000);
    let response = setup.server.ask_with(&long, "/v1/limits", wrong, "");
    assert_eq!(response.status(), 401);
    let entry = setup.orders(1).remove(0);
    assert_eq!(entry["action"], "other");
    let mut client = crate::Client::connect(setup.server.admin.unwrap());
    let request = format!("{} / HTTP/1.1\r\nhost: t\r\n\r\n", "X".repeat(400_000));
    let sent = client.stream.write_all(request.as_bytes());
    let response = client.rest();
    assert!(
        sent.is_err() || !response.starts_with(b"HTTP/1.1 2"),
        "{response:?}"
    );
}

/// A page of another site can point its name at this machine. It may not guess there, and operators may use any name.
#[test]
fn a_foreign_name_guesses_no_token() {
    let setup = start_with_operators();
    let foreign = "host: evil.example\r\nauthorization: Bearer wrong-token-0123456789\r\n";
    for _ in 0..30 {
        let response = setup.server.ask_with("GET", "/v1/limits", foreign, "");
        problem(&response, 403, "does not name this machine");
    }
    let wrong = foreign.replace("host: evil.example\r\n", "");
    let response = setup.server.ask_with("GET", "/v1/limits", &wrong, "");
    assert_eq!(response.status(), 401, "no guess was counted");
    let named = format!(
        "host: gate.example\r\nauthorization: Bearer {}\r\n",
        token("rita")
    );
    let response = setup.server.ask_with("GET", "/v1/limits", &named, "");
    assert_eq!(response.status(), 200);
    assert_eq!(setup.orders(1).len(), 1);
}

/// Whoever orders something and leaves is recorded all the same.
#[test]
fn nobody_orders_and_hides() {
    let setup = start_with_operators();
    let admin = setup.server.admin.unwrap();
    for number in 0..40 {
        let body = format!(r#"{{"key":"ip=192.0.2.{number}"}}"#);
        let request = format!(
            "POST /v1/bans HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            token("simon"),
            body.len()
        );
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        // Long enough that the order is begun, and too short for some to be done.
        for _ in 0..number % 4 {
            setup.get("/healthz");
        }
        stream.shutdown(Shutdown::Both).unwrap();
    }
    // What was ordered and what is recorded are the same.
    let keys = || {
        let bans = json(&setup.ask_as("ada", "GET", "/v1/bans", ""));
        let keys = bans["bans"].as_array().unwrap().iter();
        let mut keys: Vec<String> = keys
            .map(|ban| ban["key"].as_str().unwrap().to_owned())
            .collect();
        keys.sort();
        keys
    };
    let recorded = || {
        let events = setup.audit();
        let events = events
            .iter()
            .map(|event| event["audit"]["target"].as_str().unwrap().to_owned());
        let mut keys: Vec<String> = events.collect();
        keys.sort();
        keys
    };
    wait_until("each ban is recorded", || {
        let keys = keys();
        keys.len() >= 5 && keys == recorded()
    });
}

/// An order whose body does not come.
fn stall(setup: &Setup) -> Client {
    let mut client = Client::connect(setup.server.admin.unwrap());
    client.send(format!(
        "POST /v1/bans HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n",
        token("simon")
    ));
    let interim = read_head(&mut client.reader).unwrap();
    assert_eq!(interim.start, "HTTP/1.1 100 Continue");
    client
}

/// Those who order something else do not wait, and what did not come in time is no order.
#[test]
fn orders_without_a_body_hold_up_nobody() {
    let setup = start_with_operators();
    let mut stalled: Vec<Client> = (0..16).map(|_| stall(&setup)).collect();
    let clock = Clock::system();
    let begin = clock.now();
    for _ in 0..20 {
        assert_eq!(setup.ask_as("ada", "POST", "/v1/reload", "").status(), 200);
    }
    let order = json!({ "key": "user=bob" }).to_string();
    let own = setup.ask_as("simon", "POST", "/v1/bans", &order);
    assert_eq!(own.status(), 200, "nor does the same operator wait");
    problem(&stall(&setup).answer(), 503, "wait for their bodies");
    for client in &mut stalled {
        problem(&client.answer(), 408, "did not arrive");
    }
    let waited: Duration = clock.now().since(begin).into();
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    let entries = setup.orders(21 + 17);
    let refused = entries.iter().filter(|entry| entry["by"] == "simon");
    let results = refused.map(|entry| entry["result"].as_str().unwrap().to_owned());
    let late = results
        .filter(|result| result == "the body did not arrive within 5 s; send it with the head");
    assert_eq!(late.count(), 16);
}

/// While the disk stands still, orders that wait for it keep a bounded number of others waiting.
#[test]
fn orders_at_once_are_bounded() {
    let setup = start_with_operators();
    let lock = std::fs::File::create(setup.folder.path().join("record/orders.lock")).unwrap();
    lock.lock().unwrap();
    let begin = |number: usize| {
        let mut client = Client::connect(setup.server.admin.unwrap());
        let body = format!(r#"{{"key":"ip=192.0.2.{number}"}}"#);
        client.send(format!(
            "POST /v1/bans HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            token("simon"),
            body.len()
        ));
        client
    };
    let mut waiting: Vec<Client> = (0..8).map(begin).collect();
    let path = "/v1/limits/per-ip/keys/ip=192.0.2.1";
    let order = || setup.ask_as("ada", "DELETE", path, "");
    wait_until("eight are carried out", || order().status() == 503);
    problem(&order(), 503, "too many orders");
    let status = setup.ask_as("rita", "GET", "/v1/limits", "").status();
    assert_eq!(status, 200, "nobody else waits");
    drop(lock);
    for client in &mut waiting {
        assert_eq!(client.answer().status(), 200);
    }
    assert_eq!(order().status(), 200);
}
