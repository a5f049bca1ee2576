//! What limits do to real clients beyond plain counting: holding back, costs that answers tell,
//! shadows, exempt networks, limits that clients are not told of, plans by API key, soft marks.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "limits/bytes.rs"]
mod bytes;
mod common;
#[path = "limits/costs.rs"]
mod costs;
#[path = "limits/credentials.rs"]
mod credentials;
#[path = "limits/custom.rs"]
mod custom;
#[path = "limits/denials.rs"]
mod denials;
#[path = "limits/denied_guesses.rs"]
mod denied_guesses;
#[path = "limits/fields.rs"]
mod fields;
#[path = "limits/folders.rs"]
mod folders;
#[path = "limits/handshakes.rs"]
mod handshakes;
#[path = "limits/identity_metrics.rs"]
mod identity_metrics;
#[path = "limits/issuers.rs"]
mod issuers;
#[path = "limits/keys.rs"]
mod keys;
#[path = "limits/left.rs"]
mod left;
#[path = "limits/listeners.rs"]
mod listeners;
#[path = "limits/messages.rs"]
mod messages;
#[path = "limits/overrides.rs"]
mod overrides;
#[path = "limits/protocols.rs"]
mod protocols;
#[path = "limits/quotas.rs"]
mod quotas;
#[path = "limits/request_costs.rs"]
mod request_costs;
#[path = "limits/reserve.rs"]
mod reserve;
#[path = "limits/spellings.rs"]
mod spellings;
#[path = "limits/tables.rs"]
mod tables;
#[path = "limits/user_sources.rs"]
mod user_sources;

use std::time::Duration;

use common::{Client, Gateway, Message, Upstream, status, write};
use protocols::{Connection, Protocol, Request};
use serde_json::Value;
use tollgate::base::clock::{Clock, Nanos};

/// A gateway before one upstream, its clock in the test's hand.
struct Site {
    gateway: Gateway,
    upstream: Upstream,
    clock: Clock,
    /// How clients speak to it.
    protocol: Protocol,
}

impl Site {
    /// One route with these limits, each a line `name: { … }`.
    fn start(gateway: &str, limits: &[&str], upstream: Upstream) -> Site {
        Site::with_files(gateway, "", limits, upstream, &[])
    }

    fn with_files(
        gateway: &str,
        policy: &str,
        limits: &[&str],
        upstream: Upstream,
        files: &[(&str, &str)],
    ) -> Site {
        let limits: String = limits.iter().map(|limit| format!("  {limit}\n")).collect();
        let policy = format!("match: /**\nupstream: up\n{policy}limits:\n{limits}");
        Site::with_policies(gateway, &[("all", &policy)], upstream, files)
    }

    fn with_policies(
        gateway: &str,
        policies: &[(&str, &str)],
        upstream: Upstream,
        files: &[(&str, &str)],
    ) -> Site {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, upstream.address, gateway, policies);
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let clock = Clock::manual(Nanos::from_secs(1_800_000_000));
        Site {
            gateway: Gateway::start_in(folder, clock.clone()),
            upstream,
            clock,
            protocol: Protocol::Http1,
        }
    }

    /// A GET with more fields, each ended by CRLF.
    fn get(&self, fields: &str) -> Message {
        self.get_path("/a", fields)
    }

    /// A GET of a path, with more fields.
    fn get_path(&self, path: &str, fields: &str) -> Message {
        self.exchange(Request::get(path, fields))
    }

    /// Sends a request on a connection of its own.
    fn exchange(&self, request: Request<'_>) -> Message {
        self.open().exchange(request)
    }

    /// Opens a connection.
    fn open(&self) -> Connection {
        Connection::open(self.gateway.address, self.protocol)
    }

    /// Decisions of a limit: within, over, refused, refused in the shadow.
    fn decisions(&self, limit: &str) -> [u32; 4] {
        let text = self.gateway.app.metrics();
        ["within", "over", "refused", "shadow_refused"].map(|outcome| {
            let series = format!(
                "tollgate_limit_decisions_total{{limit=\"{limit}\",outcome=\"{outcome}\"}} "
            );
            let line = text.lines().find_map(|line| line.strip_prefix(&series));
            line.map_or(0, |value| value.parse().unwrap())
        })
    }

    /// Lets time pass, and 100 us more: so long a unit may stay when its window is over.
    fn pass(&self, span: Nanos) {
        self.clock.advance(span.after(Nanos(100_000)));
    }
}

/// The limit that speaks and what it leaves: `name N`; empty when none does.
fn told(answer: &Message) -> String {
    let field = answer.field("ratelimit").unwrap_or_default();
    let field = field.split(";t=").next().unwrap_or_default();
    field.replace("\";r=", " ").replace('"', "")
}

/// The limits that refused, as the client is told.
#[track_caller]
fn violated(answer: &Message) -> Vec<String> {
    assert_eq!(answer.status(), 429, "{}", answer.text());
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let names = body["violated-policies"].as_array();
    let names = names.into_iter().flatten();
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

/// Sends more requests at once than a leaky bucket takes, and looks at when they come through.
#[test]
#[allow(clippy::disallowed_methods)]
fn a_leaky_bucket_holds_back_and_refuses_beyond_its_queue() {
    let limit = "drip: { key: ip, rate: 10/s, algorithm: leaky-bucket, delay: 400ms }";
    let site = Site::start("", &[limit], Upstream::plain());
    for round in 0..2 {
        let start = std::time::Instant::now();
        let mut clients: Vec<Client> = (0..8).map(|_| site.gateway.connect()).collect();
        for client in &mut clients {
            client.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
        }
        // The gateway's clock stands still: one passes at once, four wait for 100 to 400 ms.
        for turn in 0..5_u32 {
            site.upstream.next();
            let passed = start.elapsed();
            let held = Duration::from_millis(100) * turn;
            assert!(passed >= held, "{round}: {turn} after {passed:?}");
        }
        let answers: Vec<Message> = clients.iter_mut().map(Client::answer).collect();
        let (passed, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status() == 200);
        assert_eq!((passed.len(), refused.len()), (5, 3), "{round}");
        for answer in refused {
            assert_eq!(violated(answer), ["drip"]);
            assert_eq!(answer.field("retry-after"), Some("1"));
        }
        assert!(
            site.upstream.drain().is_empty(),
            "refused ones reach nobody"
        );
        // The queue has run out: all of it is there again.
        site.pass(Nanos::from_millis(500));
    }
    assert_eq!(site.decisions("drip"), [10, 0, 6, 0]);
}

/// Requests one after another: what clients and the upstream are told of each, and what the metrics
/// say of the limits in the end.
#[track_caller]
fn check(limits: &[&str], steps: &[(u16, &str, Option<&str>)], decisions: &[(&str, [u32; 4])]) {
    let site = Site::start("", limits, Upstream::plain());
    for (number, (status, says, over)) in steps.iter().enumerate() {
        let what = format!("request {number} of {limits:?}");
        // The mark is the gateway's to set.
        let answer = site.get("tollgate-over: forged\r\n");
        assert_eq!(
            (answer.status(), told(&answer).as_str()),
            (*status, *says),
            "{what}"
        );
        let reached = site.upstream.drain();
        assert_eq!(reached.len(), usize::from(*status == 200), "{what}");
        let marked = reached.first().and_then(|r| r.field("tollgate-over"));
        assert_eq!(marked, *over, "{what}");
    }
    for (limit, expected) in decisions {
        assert_eq!(site.decisions(limit), *expected, "{limit} of {limits:?}");
    }
}

#[test]
fn shadows_count_and_never_refuse() {
    let shadow = "quiet: { key: ip, rate: 2/h, mode: shadow }";
    let alone = [(200, "", None); 5];
    check(&[shadow], &alone, &[("quiet", [2, 0, 0, 3])]);

    let soft = "quiet: { key: ip, rate: 2/h, throttle: soft 50%, mode: shadow }";
    check(&[soft], &alone, &[("quiet", [2, 1, 0, 2])]);

    // Held back by nobody: a shadow that would delay does not.
    let leaky = "quiet: { key: ip, rate: 1/m, algorithm: leaky-bucket, delay: 60s, mode: shadow }";
    check(&[leaky], &alone, &[("quiet", [2, 0, 0, 3])]);
}

#[test]
fn a_shadow_beside_a_limit_that_refuses() {
    let live = "live: { key: ip, rate: 3/h }";
    let steps = [
        (200, "live 2", None),
        (200, "live 1", None),
        (200, "live 0", None),
        (429, "live 0", None),
        (429, "live 0", None),
    ];
    for (quota, decisions) in [(2, [2, 0, 0, 3]), (4, [4, 0, 0, 1])] {
        let shadow = format!("quiet: {{ key: ip, rate: {quota}/h, mode: shadow }}");
        let expected = [("live", [3, 0, 2, 0]), ("quiet", decisions)];
        check(&[live, &shadow], &steps, &expected);
        check(&[&shadow, live], &steps, &expected);
    }
    let shadow = "quiet: { key: ip, rate: 1/h, mode: shadow }";
    let site = Site::start("", &[live, shadow], Upstream::plain());
    let answers: Vec<Message> = (0..4).map(|_| site.get("")).collect();
    assert_eq!(violated(&answers[3]), ["live"]);
    for answer in &answers {
        assert_eq!(
            answer.field("ratelimit-policy"),
            Some("\"live\";q=3;w=3600")
        );
        assert!(!format!("{answer:?}{}", answer.text()).contains("quiet"));
    }
}

#[test]
fn exempt_networks_are_spared() {
    let exempt = "per-ip: { key: ip, rate: 1/h, exempt: [10.0.0.0/8, \"2001:db8::/32\"] }";
    let trusting = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n";
    for (gateway, from, spared) in [
        (trusting, "203.0.113.9", false),
        (trusting, "10.1.2.3", true),
        (trusting, "::ffff:10.1.2.3", true),
        (trusting, "11.0.0.1", false),
        (trusting, "2001:db8:1::7", true),
        (trusting, "2001:db9::7", false),
        (trusting, "10.1.2.3, 203.0.113.9", false),
        // Anyone can say so.
        ("", "10.1.2.3", false),
    ] {
        let site = Site::start(gateway, &[exempt], Upstream::plain());
        let fields = format!("x-forwarded-for: {from}\r\n");
        let answers: Vec<Message> = (0..3).map(|_| site.get(&fields)).collect();
        let statuses: Vec<u16> = answers.iter().map(Message::status).collect();
        if spared {
            assert_eq!(statuses, [200; 3], "{from}");
            assert!(answers.iter().all(|a| told(a).is_empty()), "{from}");
        } else {
            assert_eq!(statuses, [200, 429, 429], "{from}");
        }
    }
    // The one beside it spares nobody.
    let beside = "live: { key: ip, rate: 2/h }";
    let site = Site::start(trusting, &[exempt, beside], Upstream::plain());
    let answers: Vec<Message> = (0..3)
        .map(|_| site.get("x-forwarded-for: 10.1.2.3\r\n"))
        .collect();
    assert_eq!(
        answers.iter().map(told).collect::<Vec<_>>(),
        ["live 1", "live 0", "live 0"]
    );
    assert_eq!(violated(&answers[2]), ["live"]);
}

#[test]
fn undisclosed_limits_refuse_without_a_name() {
    let hidden = "secret: { key: ip, rate: 2/h, disclose: none }";
    for (limits, says) in [
        (vec![hidden], ["", "", "", ""]),
        (
            vec![hidden, "open: { key: ip, rate: 5/h }"],
            ["open 4", "open 3", "open 3", "open 3"],
        ),
        (
            vec!["open: { key: ip, rate: 5/h }", hidden],
            ["open 4", "open 3", "open 3", "open 3"],
        ),
        (
            vec![hidden, "open: { key: ip, rate: 2/h }"],
            ["open 1", "open 0", "open 0", "open 0"],
        ),
    ] {
        let both = limits
            .iter()
            .any(|limit| limit.contains("open") && limit.contains("2/h"));
        let site = Site::start("headers: both\n", &limits, Upstream::plain());
        for (number, says) in says.into_iter().enumerate() {
            let answer = site.get("");
            assert_eq!(told(&answer), says, "{number} of {limits:?}");
            assert!(!format!("{answer:?}{}", answer.text()).contains("secret"));
            if number < 2 {
                assert_eq!(answer.status(), 200);
                continue;
            }
            let named: &[&str] = if both { &["open"] } else { &[] };
            assert_eq!(violated(&answer), named, "{limits:?}");
            assert_eq!(answer.field("retry-after"), Some("3600"));
        }
        assert_eq!(site.decisions("secret"), [2, 0, 2, 0], "operators are told");
    }
}

#[test]
fn api_keys_name_users_and_plans() {
    const KEYS: &str = "\
key-of-ann: { user: ann, plan: gold }
other-key-of-ann: { user: ann, plan: gold }
key-of-bob: { user: bob, plan: free }
key-of-eve: eve
";
    const GATEWAY: &str = "\
identity:
  token: { header: x-api-key }
  user: { api_keys: keys.yaml }
  plan: { api_keys: true, default: free }
plans: { free: { multiply: 1 }, gold: { multiply: 3 } }
";
    let limit = "per-user: { key: user, rate: 2/h, plans: true }";
    let files = [("keys.yaml", KEYS)];
    let site = Site::with_files(
        GATEWAY,
        "require: user\n",
        &[limit],
        Upstream::plain(),
        &files,
    );
    for (key, user, plan, quota, left) in [
        ("key-of-ann", "ann", "gold", 6, 5),
        ("key-of-ann", "ann", "gold", 6, 4),
        ("other-key-of-ann", "ann", "gold", 6, 3),
        ("key-of-bob", "bob", "free", 2, 1),
        ("key-of-eve", "eve", "free", 2, 1),
        ("key-of-ann", "ann", "gold", 6, 2),
    ] {
        let forged = "tollgate-user: root\r\ntollgate-plan: gold\r\n";
        let answer = site.get(&format!("x-api-key: {key}\r\n{forged}"));
        assert_eq!(answer.status(), 200, "{key}");
        assert_eq!(told(&answer), format!("per-user {left}"), "{key}");
        let policy = format!("\"per-user\";q={quota};w=3600");
        assert_eq!(answer.field("ratelimit-policy"), Some(policy.as_str()));
        let reached = site.upstream.next();
        let seen = ["tollgate-user", "tollgate-plan"].map(|name| reached.field(name));
        assert_eq!(seen, [Some(user), Some(plan)], "{key}");
    }
    let bob = || site.get("x-api-key: key-of-bob\r\n");
    assert_eq!(bob().status(), 200);
    assert_eq!(violated(&bob()), ["per-user"]);
    site.upstream.drain();
    for unknown in ["", "x-api-key: key-of-nobody\r\n", "x-api-key: ann\r\n"] {
        assert_eq!(site.get(unknown).status(), 401, "{unknown}");
    }
    assert!(site.upstream.drain().is_empty());
}

#[test]
fn soft_limits_mark_what_they_lend() {
    let half = "half: { key: ip, rate: 2/h, throttle: soft 50% }";
    check(
        &[half],
        &[
            (200, "half 1", None),
            (200, "half 0", None),
            (200, "half 0", Some("half")),
            (429, "half 0", None),
        ],
        &[("half", [2, 1, 1, 0])],
    );
    // Each that lends is named, one that clients are not told of too: the upstream is.
    let more = "more: { key: ip, rate: 1/h, throttle: soft 300%, disclose: none }";
    check(
        &[half, more],
        &[
            (200, "half 1", None),
            (200, "half 0", Some("more")),
            (200, "half 0", Some("half, more")),
            (429, "half 0", None),
        ],
        &[("half", [2, 1, 1, 0])],
    );
}
