//! Users that clients' certificates name, with real handshakes.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;

use common::certificate::{Authority, Certificate};
use common::tls::{ALL, Tls, put, showing};
use common::{Gateway, Upstream, assert_contains, child, http2, wait_until, write};
use rcgen::{CertificateParams, DnType, SanType, date_time_ymd};
use rustls::pki_types::ServerName;
use rustls::{SupportedProtocolVersion, version};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;
use tollgate::base::clock::Clock;
use tollgate::base::telemetry::{Label, Metric};
use tollgate::serve::admin::Control;

const POLICIES: &[(&str, &str)] = &[
    (
        "all",
        "match: /**\nupstream: up\nlimits:\n  few: { key: user, rate: 2/h }\n",
    ),
    (
        "members",
        "match: /members/**\nupstream: up\nrequire: user\n",
    ),
];

struct Site {
    upstream: Upstream,
    own: Certificate,
    gateway: Gateway,
}

impl Site {
    /// A gateway whose users are named by `way` in certificates of `authority`.
    fn start(way: &str, authority: &Authority) -> Site {
        let (upstream, own) = (Upstream::plain(), Certificate::of(&["localhost", "test"]));
        let folder = folder(&upstream, way, authority, &own);
        let gateway = Gateway::start_in(folder, Clock::system());
        Site {
            upstream,
            own,
            gateway,
        }
    }

    fn client(
        &self,
        shown: Option<&Certificate>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Tls {
        let config = showing(shown, &[&self.own], versions);
        Tls::connect(&self.gateway, "localhost", &config)
    }

    /// The user that the upstream is told for one request; none where the request is refused.
    fn told(&self, shown: &Certificate) -> Option<String> {
        let status = self.client(Some(shown), ALL).get("/").status();
        if status == 401 {
            return None;
        }
        assert_eq!(status, 200);
        let seen = self.upstream.drain().pop().unwrap();
        seen.field("tollgate-user").map(str::to_owned)
    }

    fn failed(&self) -> u64 {
        let labels = [(Label::Outcome, "failed")];
        Control::counter_total(&self.gateway.app, Metric::Handshakes, &labels)
    }
}

fn folder(upstream: &Upstream, way: &str, authority: &Authority, own: &Certificate) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let more = format!("identity: {{ user: {{ client_cert: {way} }} }}\n");
    write(&folder, upstream.address, &more, POLICIES);
    put(&folder, 0, own);
    std::fs::write(folder.path().join("clients.pem"), &authority.pem).unwrap();
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = "listen: { address: 127.0.0.1:0, tls: { cert: 0.pem, key: 0.key }, client_roots: clients.pem }\n";
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
    folder
}

fn nothing(_: &mut CertificateParams) {}

#[test]
fn each_certificate_has_a_counter_of_its_own() {
    for versions in [&[&version::TLS13], &[&version::TLS12]] {
        let authority = Authority::new();
        let site = Site::start("subject", &authority);
        let alice = authority.issue("alice", nothing);
        let bob = authority.issue("bob", nothing);
        let mut one = site.client(Some(&alice), versions);
        assert_eq!(one.get("/").status(), 200);
        let mut other = site.client(Some(&bob), versions);
        assert_eq!(other.get("/").status(), 200);
        // Her next one, for the same subject.
        let renewed = authority.issue("alice", nothing);
        let mut again = site.client(Some(&renewed), versions);
        assert_eq!(again.get("/").status(), 200);
        assert_eq!(again.get("/").status(), 429);
        assert_eq!(one.get("/").status(), 429);
        assert_eq!(other.get("/").status(), 200);
        assert_eq!(other.get("/").status(), 429);
        let seen = site.upstream.drain();
        let users: Vec<_> = seen
            .iter()
            .map(|seen| seen.field("tollgate-user"))
            .collect();
        let expected = ["CN=alice", "CN=bob", "CN=alice", "CN=bob"];
        assert_eq!(users, expected.map(Some));
        assert_eq!(one.get("/members/x").status(), 200);
    }
}

#[test]
fn who_shows_none_is_nobody() {
    let authority = Authority::new();
    let site = Site::start("subject", &authority);
    for versions in [&[&version::TLS13], &[&version::TLS12]] {
        let mut client = site.client(None, versions);
        for _ in 0..4 {
            assert_eq!(client.get("/").status(), 200);
        }
        assert_eq!(client.get("/members/x").status(), 401);
        client
            .send(b"GET /members/x HTTP/1.1\r\nhost: localhost\r\ntollgate-user: CN=alice\r\n\r\n");
        assert_eq!(client.answer().status(), 401);
        client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\ntollgate-user: CN=alice\r\n\r\n");
        assert_eq!(client.answer().status(), 200);
        let seen = site.upstream.drain();
        assert_eq!(seen.len(), 5);
        assert!(
            seen.iter()
                .all(|seen| seen.field("tollgate-user").is_none())
        );
    }
    // A certificate that names nobody is one that does not verify, and `/` counts by user.
    let nameless = authority.issue("", |params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
    });
    let mut client = site.client(Some(&nameless), ALL);
    for path in ["/", "/members/x"] {
        let answer = client.get(path);
        assert_eq!(answer.status(), 401);
        assert_contains(&answer.text(), &["The client certificate names no user."]);
    }
}

#[test]
fn what_does_not_verify_is_not_served() {
    let authority = Authority::new();
    let site = Site::start("subject", &authority);
    let stranger = Authority::new().issue("alice", nothing);
    let expired = authority.issue("alice", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 2, 1);
    });
    let early = authority.issue("alice", |params| {
        params.not_before = date_time_ymd(4000, 1, 1);
    });
    let mut failed = 0;
    for shown in [&stranger, &expired, &early] {
        for versions in [&[&version::TLS13], &[&version::TLS12]] {
            // What it is told may be lost, for it goes on to send a request.
            assert!(site.client(Some(shown), versions).try_get("/").is_err());
            failed += 1;
            wait_until("the handshake counts as failed", || site.failed() == failed);
        }
    }
    assert!(site.upstream.drain().is_empty());
}

#[test]
fn alternative_names_by_kind() {
    let authority = Authority::new();
    let site = Site::start("san", &authority);
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let host = |text: &str| SanType::DnsName(text.try_into().unwrap());
    let email = |text: &str| SanType::Rfc822Name(text.try_into().unwrap());
    let cases = [
        (vec![], None),
        (vec![email("a@b.example")], Some("a@b.example")),
        (
            vec![email("a@b.example"), host("A.example")],
            Some("a.example"),
        ),
        (
            vec![host("b.example"), uri("spiffe://b/x")],
            Some("spiffe://b/x"),
        ),
        // Nothing that a field cannot carry is a name, and no second one is taken instead.
        (vec![uri("a:\r\nx: y"), uri("b:c")], None),
        (vec![email(" a@b.example")], None),
        (vec![uri(&format!("a:{}", "x".repeat(300)))], None),
    ];
    for (names, expected) in cases {
        let shown = authority.issue("alice", |params| params.subject_alt_names = names);
        assert_eq!(site.told(&shown).as_deref(), expected);
    }
}

#[test]
fn odd_subjects_stay_one_field() {
    let authority = Authority::new();
    let site = Site::start("subject", &authority);
    for (name, expected) in [
        ("a,O=b", "CN=a\\,O=b"),
        ("a\r\nx-admin: 1", "CN=a\\0D\\0Ax-admin: 1"),
        ("nul\0", "CN=nul\\00"),
        ("Lučić 名", "CN=Lučić 名"),
        (" spaces ", "CN=\\20spaces\\20"),
    ] {
        let shown = authority.issue(name, nothing);
        assert_eq!(site.told(&shown).as_deref(), Some(expected), "{name:?}");
    }
    let long = authority.issue("alice", |params| {
        params
            .distinguished_name
            .push(DnType::OrganizationName, "x".repeat(300));
    });
    assert_eq!(site.told(&long), None);
}

#[test]
fn http2_too() {
    let authority = Authority::new();
    let site = Site::start("subject", &authority);
    let names = ["Lučić", "bob"].map(|name| Some(authority.issue(name, nothing)));
    let [alice, bob] = &names;
    http2::run(async {
        for (shown, statuses) in [
            (alice, [200, 200, 429, 200]),
            (bob, [200, 200, 429, 200]),
            (&None, [200, 200, 200, 401]),
        ] {
            let mut config = (*showing(shown.as_ref(), &[&site.own], ALL)).clone();
            config.alpn_protocols = vec![b"h2".to_vec()];
            let connector = TlsConnector::from(Arc::new(config));
            let stream = tokio::net::TcpStream::connect(site.gateway.address).await;
            let name = ServerName::try_from("localhost").unwrap();
            let stream = connector.connect(name, stream.unwrap()).await.unwrap();
            let mut client = http2::Client::over(stream).await;
            for (path, status) in ["/", "/", "/", "/members/x"].into_iter().zip(statuses) {
                assert_eq!(client.get(path).await.status, status);
            }
        }
    });
    let seen = site.upstream.drain();
    assert_eq!(seen[0].field("tollgate-user"), Some("CN=Lučić"));
    assert_eq!(seen[3].field("tollgate-user"), Some("CN=bob"));
    assert_eq!(seen[6].field("tollgate-user"), None);
}

#[test]
fn a_reload_changes_whom_new_connections_may_show() {
    let (old, new) = (Authority::new(), Authority::new());
    let site = Site::start("subject", &old);
    let (alice, bob) = (old.issue("alice", nothing), new.issue("bob", nothing));
    let mut open = site.client(Some(&alice), ALL);
    assert_eq!(open.get("/members/x").status(), 200);
    assert!(site.client(Some(&bob), ALL).try_get("/").is_err());

    let roots = site.gateway.folder.path().join("clients.pem");
    std::fs::write(roots, &new.pem).unwrap();
    let reloaded = site.gateway.reload().unwrap();
    assert!(reloaded.needs_restart.is_empty(), "{reloaded:?}");
    assert_eq!(open.get("/members/x").status(), 200);
    assert!(site.client(Some(&alice), ALL).try_get("/").is_err());
    assert_eq!(site.told(&bob).as_deref(), Some("CN=bob"));
}

#[test]
fn curl_shows_its_certificate() {
    let authority = Authority::new();
    let site = Site::start("subject", &authority);
    let alice = authority.issue("alice", nothing);
    put(&site.gateway.folder, 1, &alice);
    let port = site.gateway.address.port();
    let url = format!("https://localhost:{port}/members/x");
    for (shown, expected) in [
        (&["--cert", "1.pem", "--key", "1.key"][..], "200"),
        (&[], "401"),
    ] {
        let always = ["-sS", "--max-time", "20", "--cacert", "0.pem"];
        let arguments = [
            &always[..],
            &["-o", "-", "-w", "%{http_code}"],
            shown,
            &[&*url],
        ]
        .concat();
        let out = child::program("curl", site.gateway.folder.path(), &arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.ends_with(expected), "{text} {out:?}");
    }
    assert_eq!(
        site.upstream.next().field("tollgate-user"),
        Some("CN=alice")
    );
}

#[test]
fn explain_takes_a_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::plain());
    let folder = folder(&upstream, "subject", &authority, &Certificate::of(&["a"]));
    let alice = authority.issue("alice", nothing);
    let both = format!("{}{}", alice.key, alice.pem);
    std::fs::write(folder.path().join("alice.pem"), both).unwrap();
    let question = ["explain", "GET", "/members/x"];
    let ended = child::run(folder.path(), &question);
    assert_contains(
        &ended.out,
        &["401 not served: this route requires a valid user"],
    );
    let shown = ["--client-cert", "alice.pem"];
    let ended = child::run(folder.path(), &[&question[..], &shown].concat());
    assert_contains(&ended.out, &["200 admitted", ", user CN=alice"]);
    let ended = child::run(
        folder.path(),
        &["explain", "GET", "/", "--client-cert", "0.key"],
    );
    assert_contains(&ended.err, &["0.key: it holds no certificate in PEM"]);
    assert_eq!(ended.code, Some(2));
}
