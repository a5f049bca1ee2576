//! What the contract's own configuration does to real clients: its limits by address, by user and by
//! plan, and its count of wrong passwords.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use common::certificate::Certificate;
use common::{Client, Gateway, Message, Upstream, assert_contains, ok, status};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tollgate::app;
use tollgate::base::clock::{Clock, Nanos};

const CONTRACT: &str = "tests/golden/product";
const LOOPBACK: &str = "127.0.0.0/8";

/// The issuer's key (RFC 8037, appendix A) and one of a stranger (RFC 8032, section 7.1, test 2).
const PUBLIC: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const STRANGER: &str = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";

/// The contract's gateway before two shops, its clock in the test's hand.
struct Site {
    gateway: Gateway,
    shops: [Upstream; 2],
    clock: Clock,
}

impl Site {
    /// `proxies` are trusted in the place of 10.0.0.0/8.
    fn start(
        proxies: &str,
        shop: impl Fn(&Message) -> String + Send + Sync + Clone + 'static,
    ) -> Site {
        let shops = [Upstream::answering(shop.clone()), Upstream::answering(shop)];
        let folder = tempfile::tempdir().unwrap();
        let file = Text::of("tollgate.yaml")
            .with("  - 0.0.0.0:8080\n", "  - 127.0.0.1:0\n")
            .with("address: 0.0.0.0:8443", "address: 127.0.0.1:0")
            .with("10.0.0.11:8080", &shops[0].address.to_string())
            .with("10.0.0.12:8080", &shops[1].address.to_string())
            .with("10.0.0.21:8080", &Upstream::plain().address.to_string())
            .with("10.0.0.0/8", proxies);
        fs::write(
            folder.path().join("tollgate.yaml"),
            file.0 + "access_log: off\n",
        )
        .unwrap();
        let policies = folder.path().join("policies");
        fs::create_dir(&policies).unwrap();
        for name in ["api.yaml", "login.yaml"] {
            fs::write(policies.join(name), Text::of(&format!("policies/{name}")).0).unwrap();
        }
        let analytics = Text::of("policies/analytics.yaml").with(
            "throttle: elastic, while: upstream.load < 0.7, at_most: 300/m",
            "throttle: hard",
        );
        fs::write(policies.join("analytics.yaml"), analytics.0).unwrap();
        let keys =
            json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "use": "sig", "x": PUBLIC }] });
        fs::write(folder.path().join("jwks.json"), keys.to_string()).unwrap();
        let made = Certificate::of(&["localhost"]);
        fs::write(folder.path().join("cert.pem"), made.pem).unwrap();
        fs::write(folder.path().join("key.pem"), made.key).unwrap();

        let clock = Clock::manual(Nanos::from_secs(1_800_000_000));
        let (app, _) = app::Gateway::start(&folder.path().join("tollgate.yaml"), clock.clone())
            .unwrap_or_else(|e| panic!("{e}"));
        let gateway = Gateway {
            address: app.addresses()[0].tcp().unwrap(),
            app,
            folder,
        };
        Site {
            gateway,
            shops,
            clock,
        }
    }

    fn plain(proxies: &str) -> Site {
        Site::start(proxies, |_| ok("fine"))
    }

    fn connect(&self) -> Client {
        self.gateway.connect()
    }

    /// Requests that reached the shops since the last look.
    fn reached(&self) -> Vec<Message> {
        self.shops.iter().flat_map(Upstream::drain).collect()
    }

    /// Lets time pass, and 100 us more: so long a unit may stay when its window is over.
    fn pass(&self, seconds: u64) {
        self.clock.advance(Nanos(seconds * 1_000_000_000 + 100_000));
    }
}

/// A file of the contract.
struct Text(String);

impl Text {
    fn of(name: &str) -> Text {
        let text =
            fs::read_to_string(Path::new(CONTRACT).join(name)).expect("a file of the contract");
        Text(text)
    }

    fn with(self, from: &str, to: &str) -> Text {
        assert_eq!(self.0.matches(from).count(), 1, "{from:?} in\n{}", self.0);
        Text(self.0.replace(from, to))
    }
}

/// A field that says who asks: a token of `user` on `plan`, signed with `key`.
fn signed(key: &str, user: &str, plan: Option<&str>) -> String {
    // PKCS #8 around the 32 bytes of an Ed25519 key (RFC 8410).
    let text = format!("302e020100300506032b657004220420{key}");
    let bytes = (0..text.len()).step_by(2);
    let der: Vec<u8> = bytes
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect();
    let mut claims = json!({ "sub": user, "iss": "https://idp.example", "exp": 4_000_000_000_u64 });
    if let Some(plan) = plan {
        claims["plan"] = plan.into();
    }
    let header = Header::new(Algorithm::EdDSA);
    let token = encode(&header, &claims, &EncodingKey::from_ed_der(&der)).unwrap();
    format!("authorization: Bearer {token}\r\n")
}

fn user(name: &str, plan: Option<&str>) -> String {
    signed(SECRET, name, plan)
}

/// A GET with more fields, from an address behind a trusted proxy.
fn get(client: &mut Client, from: &str, fields: &str) -> Message {
    client.send(format!(
        "GET /api/items HTTP/1.1\r\nhost: t\r\nx-forwarded-for: {from}\r\n{fields}\r\n"
    ));
    client.answer()
}

/// A new address for every five requests, so that the limit by address has room.
fn address(request: usize) -> String {
    format!("198.51.{}.{}", request / 5 / 200, request / 5 % 200 + 1)
}

/// What clients with connections of their own get who ask at the same moment.
fn at_once<T: Send>(
    site: &Site,
    clients: usize,
    ask: impl Fn(&mut Client, usize) -> T + Sync,
) -> Vec<T> {
    let start = Barrier::new(clients);
    let one = |mut client: Client, number: usize| {
        start.wait();
        ask(&mut client, number)
    };
    thread::scope(|scope| {
        let connected: Vec<_> = (0..clients).map(|_| site.connect()).collect();
        let one = &one;
        let asking = connected.into_iter().enumerate();
        let threads: Vec<_> = asking
            .map(|(number, client)| scope.spawn(move || one(client, number)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// The limits that refused.
#[track_caller]
fn violated(answer: &Message) -> Vec<String> {
    assert_eq!(answer.status(), 429, "{}", answer.text());
    assert_eq!(
        answer.field("content-type"),
        Some("application/problem+json")
    );
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let names = body["violated-policies"].as_array().unwrap().iter();
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

#[track_caller]
fn retry_after(answer: &Message) -> u64 {
    answer.field("retry-after").unwrap().parse().unwrap()
}

/// The limit that speaks and what it leaves: `"name";r=N` of `RateLimit`.
#[track_caller]
fn left(answer: &Message) -> &str {
    let field = answer.field("ratelimit").unwrap();
    field.rsplit_once(";t=").unwrap().0
}

#[test]
fn per_ip_limits_hold() {
    // As written: 10.0.0.0/8 is trusted and this client is not in it.
    let site = Site::plain("10.0.0.0/8");
    let answers = at_once(&site, 40, |client, number| {
        // What an untrusted client says of its address buys nothing.
        get(client, &format!("198.51.100.{number}"), "")
    });
    let (passed, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status() == 200);
    assert_eq!((passed.len(), refused.len()), (10, 30));
    for answer in refused {
        assert_eq!(violated(answer), ["per-ip"]);
        assert_eq!(answer.field("ratelimit"), Some("\"per-ip\";r=0;t=1"));
        assert_eq!(retry_after(answer), 1);
    }
    assert_eq!(site.reached().len(), 10, "refused ones reach nobody");

    for second in 1..60 {
        site.pass(1);
        let mut client = site.connect();
        for _ in 0..10 {
            let answer = client.get("/api/items");
            assert_eq!(answer.status(), 200, "second {second}: {}", answer.text());
        }
        assert_eq!(violated(&client.get("/api/items")), ["per-ip"]);
    }
    assert_eq!(
        site.reached().len(),
        590,
        "600 in a minute with the first ten"
    );
    // A fresh second, and the hour is used up until the first burst is an hour old.
    site.pass(1);
    let refused = site.connect().get("/api/items");
    assert_eq!(violated(&refused), ["per-ip"]);
    assert_eq!(retry_after(&refused), 3600 - 60);
    assert_eq!(refused.field("ratelimit"), Some("\"per-ip\";r=0;t=3540"));
    site.pass(3539);
    assert_eq!(retry_after(&site.connect().get("/api/items")), 1);
    assert!(site.reached().is_empty());
    site.pass(1);
    let mut client = site.connect();
    for number in 0..10 {
        assert_eq!(client.get("/api/items").status(), 200, "{number}");
    }
    assert_eq!(violated(&client.get("/api/items")), ["per-ip"]);
}

#[test]
fn soft_admits_ten_percent_more_and_marks_it() {
    let site = Site::plain(LOOPBACK);
    let ann = user("ann", None);
    let mut client = site.connect();
    // A token that a stranger signed makes nobody ann, and nobody gold; a server might take it.
    let forged = get(
        &mut client,
        "203.0.113.1",
        &signed(STRANGER, "ann", Some("gold")),
    );
    assert_eq!(forged.status(), 401);
    assert_contains(&forged.text(), &["The credential does not verify."]);
    assert!(site.reached().is_empty());

    for number in 1..=110 {
        // The mark is the gateway's to set.
        let fields = format!("tollgate-over: forged\r\n{ann}");
        let answer = get(&mut client, &address(number), &fields);
        assert_eq!(answer.status(), 200, "{number}: {}", answer.text());
        let policy = answer.field("ratelimit-policy").unwrap();
        assert!(policy.contains("\"per-user\";q=100;w=60"), "{policy}");
        let reached = site.reached();
        assert_eq!(reached.len(), 1);
        let over = reached[0].field("tollgate-over");
        assert_eq!(over, (number > 100).then_some("per-user"), "{number}");
        if number >= 100 {
            assert_eq!(left(&answer), "\"per-user\";r=0", "{number}");
        } else if number >= 96 {
            assert_eq!(left(&answer), format!("\"per-user\";r={}", 100 - number));
        }
    }
    let refused = get(&mut client, &address(200), &ann);
    assert_eq!(violated(&refused), ["per-user"]);
    assert_eq!(
        (left(&refused), retry_after(&refused)),
        ("\"per-user\";r=0", 60)
    );
    assert!(site.reached().is_empty());
    // Others have their own hundred.
    let other = get(&mut client, &address(200), &user("bob", Some("free")));
    assert_eq!(other.status(), 200);
    site.pass(60);
    let answer = get(&mut site.connect(), &address(200), &ann);
    assert_eq!(answer.status(), 200, "a minute later");
    let last = site.reached().pop().unwrap();
    assert_eq!(last.field("tollgate-over"), None);
}

#[test]
fn gold_gets_ten_times() {
    let site = Site::plain(LOOPBACK);
    // Eight connections at once; what passes and how many of those are marked.
    let run = |fields: &str, each: usize| {
        let asked = at_once(&site, 8, |client, thread| {
            let request = |n| get(client, &address(thread * 200 + n), fields);
            (0..each).map(request).collect::<Vec<_>>()
        });
        let answers: Vec<Message> = asked.into_iter().flatten().collect();
        for answer in answers.iter().filter(|answer| answer.status() != 200) {
            assert_eq!(violated(answer), ["per-user"]);
        }
        let passed = answers.iter().filter(|answer| answer.status() == 200);
        let reached = site.reached();
        let over = reached.iter().filter_map(|r| r.field("tollgate-over"));
        let policy = answers[0].field("ratelimit-policy").unwrap().to_owned();
        (passed.count(), reached.len(), over.count(), policy)
    };
    let (passed, reached, over, policy) = run(&user("gil", Some("gold")), 150);
    assert_eq!((passed, reached, over), (1100, 1100, 100));
    assert!(policy.contains("\"per-user\";q=1000;w=60"), "{policy}");
    site.pass(1);
    // No plan, the plan by name, and one that there is not.
    for plan in [None, Some("free"), Some("platinum")] {
        site.pass(1);
        let name = format!("user of {plan:?}");
        let (passed, reached, over, policy) = run(&user(&name, plan), 15);
        assert_eq!((passed, reached, over), (110, 110, 10), "{plan:?}");
        assert!(policy.contains("\"per-user\";q=100;w=60"), "{policy}");
    }
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// A shop that knows one password and thinks for a while about `slow` ones.
fn shop() -> Site {
    Site::start(LOOPBACK, |request| {
        let body = request.text();
        if body.contains("slow") {
            thread::sleep(Duration::from_millis(300));
        }
        if body.contains("right") {
            ok("in")
        } else {
            status(401)
        }
    })
}

fn attempt(client: &mut Client, from: &str, kind: &str, body: &str) -> Message {
    client.send(format!(
        "POST /login HTTP/1.1\r\nhost: t\r\nx-forwarded-for: {from}\r\ncontent-type: {kind}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.answer()
}

fn login(email: &str, password: &str) -> String {
    format!("{{\"email\": \"{email}\", \"password\": \"{password}\"}}")
}

#[test]
fn wrong_passwords_in_parallel() {
    let site = shop();
    let spellings = ["ann@example.com", "ANN@Example.COM", " ann@example.Com "];
    let answers = at_once(&site, 60, |client, number| {
        let body = login(spellings[number % 3], &format!("slow {number}"));
        attempt(client, "203.0.113.1", JSON, &body)
    });
    let (passed, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status() == 401);
    assert_eq!((passed.len(), refused.len()), (5, 55));
    for answer in refused {
        // Refused ones use up nothing: the limit by address, ten a second, never speaks.
        assert_eq!(violated(answer), ["failed-logins"]);
    }
    assert_eq!(site.reached().len(), 5);

    let ann = login("ann@example.com", "guess");
    let mut client = site.connect();
    let mut ask = |from: &str, body: &str| attempt(&mut client, from, JSON, body);
    let refused = ask("203.0.113.1", &ann);
    assert_eq!(violated(&refused), ["failed-logins"]);
    assert_eq!(
        (left(&refused), retry_after(&refused)),
        ("\"failed-logins\";r=0", 900)
    );
    let other_email = ask("203.0.113.1", &login("bob@example.com", "guess"));
    let other_address = ask("203.0.113.2", &ann);
    for untouched in [other_email, other_address] {
        assert_eq!(untouched.status(), 401);
        assert_eq!(left(&untouched), "\"failed-logins\";r=4");
    }
    // As a form it is the same account, and the right password does not help either.
    let form = "password=right&email=Ann%40example.com";
    assert_eq!(
        violated(&attempt(&mut client, "203.0.113.1", FORM, form)),
        ["failed-logins"]
    );
    assert_eq!(site.reached().len(), 2);
    site.pass(899);
    let early = attempt(&mut site.connect(), "203.0.113.1", JSON, &ann);
    assert_eq!(
        (violated(&early), retry_after(&early)),
        (vec!["failed-logins".to_owned()], 1)
    );
    site.pass(1);
    let later = attempt(&mut site.connect(), "203.0.113.1", JSON, &ann);
    assert_eq!(later.status(), 401, "a quarter of an hour later");
}

/// Five right passwords, five wrong ones and one too many.
fn right_then_wrong(site: &Site, from: &str, kind: &str, body: impl Fn(&str) -> String) {
    let mut client = site.connect();
    let mut ask = |password: &str| {
        let body = body(password);
        let answer = attempt(&mut client, from, kind, &body);
        let reached = site.reached();
        if answer.status() == 429 {
            assert!(reached.is_empty());
        } else {
            assert_eq!(reached.len(), 1);
            assert_eq!(reached[0].text(), body, "byte for byte");
            assert_eq!(reached[0].field("content-type"), Some(kind));
        }
        answer
    };
    for number in 0..5 {
        let answer = ask("right");
        assert_eq!(
            (answer.status(), answer.text()),
            (200, "in".to_owned()),
            "{number}"
        );
    }
    site.pass(1);
    for number in 1..=5 {
        let answer = ask("wrong");
        assert_eq!(answer.status(), 401, "wrong password {number}");
        let expected = format!("\"failed-logins\";r={}", 5 - number);
        assert_eq!(left(&answer), expected, "right ones used up nothing");
    }
    assert_eq!(violated(&ask("wrong")), ["failed-logins"]);
    assert_eq!(violated(&ask("right")), ["failed-logins"]);
}

#[test]
fn right_passwords_give_their_reservation_back() {
    let site = shop();
    right_then_wrong(&site, "203.0.113.1", JSON, |password| {
        login("ann@example.com", password)
    });
    // Whatever the body's shape, what reaches the upstream is what was sent.
    right_then_wrong(&site, "203.0.113.2", JSON, |password| {
        format!(
            "\r\n{{\"password\":\t\"{password} \\u00e9 é\",\n\"n\": 1e2, \"email\" : \"ann@example.com\"}} \n"
        )
    });
    right_then_wrong(&site, "203.0.113.3", FORM, |password| {
        format!("x=%C3%A9&&password={password}+%26&e%6Dail=Ann%40Example.com&")
    });
}
