//! Values of changed fields that say something of the connection, and the id of the request. All over real TLS.

use std::collections::HashSet;

use rcgen::{CertificateParams, SanType};
use rustls::pki_types::ServerName;
use rustls::{SupportedProtocolVersion, version};
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tollgate::base::clock::Clock;

use crate::common::certificate::{Authority, Certificate};
use crate::common::tls::{ALL, Tls, put, showing};
use crate::common::{Gateway, Message, Upstream, http2, write};

const POLICY: (&str, &str) = (
    "all",
    "\
match: /**
upstream: up
request:
  set:
    x-version: ${tls.version}
    x-name: sni ${tls.name}
    x-cipher: ${tls.cipher}
    x-ja4: ${tls.ja4}
    x-subject: ${tls.subject}
    x-san: ${tls.san}
    x-id: id ${request_id}
response:
  set: { y-subject: '${tls.subject}', y-id: '${request_id}', y-version: '${tls.version}' }
",
);

/// A line with all fields that the policy sets, as a client could send them.
const FORGED: &str = "x-version: F\r\nX_Name: F\r\nx-name: F\r\nx-cipher: F\r\nx-ja4: F\r\nx-subject: F\r\nx-san: F\r\nx-id: F\r\n";

struct Site {
    upstream: Upstream,
    own: Certificate,
    authority: Authority,
    gateway: Gateway,
}

impl Site {
    /// A gateway with a listener for TLS, and a plain one behind it.
    fn start() -> Site {
        let (upstream, own) = (
            Upstream::plain(),
            Certificate::of(&["localhost", "127.0.0.1"]),
        );
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        let more = "workers: 1\nrequest_id: x-request-id\nidentity: { print: { tls: ja4 } }\n";
        write(&folder, upstream.address, more, &[POLICY]);
        put(&folder, 0, &own);
        std::fs::write(folder.path().join("clients.pem"), &authority.pem).unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let listen = "listen: [{ address: 127.0.0.1:0, tls: { cert: 0.pem, key: 0.key }, client_roots: clients.pem }, 127.0.0.1:0]\n";
        std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
        Site {
            upstream,
            own,
            authority,
            gateway: Gateway::start_in(folder, Clock::system()),
        }
    }

    fn client(
        &self,
        name: &str,
        shown: Option<&Certificate>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Tls {
        let config = showing(shown, &[&self.own], versions);
        Tls::connect(&self.gateway, name, &config)
    }
}

fn values<'m>(message: &'m Message, name: &str) -> Vec<&'m str> {
    let fields = message.fields.iter().filter(|(other, _)| other == name);
    fields.map(|(_, value)| value.as_str()).collect()
}

fn hostile(params: &mut CertificateParams) {
    let uri = "spiffe://shop.example/a,b;c=\"d\"".replace('"', "%22");
    params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
}

#[test]
fn the_upstream_learns_of_the_connection() {
    let site = Site::start();
    let alice = site.authority.issue("Älice\r\nx-evil: 1, \"q\"", hostile);
    for (versions, shown_version, print) in [
        (&[&version::TLS13], "TLSv1.3", "t13d"),
        (&[&version::TLS12], "TLSv1.2", "t12d"),
    ] {
        let mut client = site.client("localhost", Some(&alice), versions);
        for _ in 0..4 {
            client.send(format!("GET / HTTP/1.1\r\nhost: localhost\r\n{FORGED}\r\n").as_bytes());
            let answer = client.answer();
            assert_eq!(answer.status(), 200);
            let seen = site.upstream.next();
            assert_eq!(values(&seen, "x-version"), [shown_version]);
            assert_eq!(values(&seen, "x-name"), ["sni localhost"]);
            assert!(seen.field("x_name").is_none());
            let cipher = seen.field("x-cipher").unwrap();
            let is_tls13 = shown_version == "TLSv1.3";
            assert_eq!(
                cipher.starts_with("TLS_ECDHE_ECDSA_WITH_"),
                !is_tls13,
                "{cipher}"
            );
            assert!(
                cipher.starts_with("TLS_") && !cipher.contains("TLS13"),
                "{cipher}"
            );
            assert!(values(&seen, "x-ja4")[0].starts_with(print), "{seen:?}");
            // In the form of RFC 4514, with what means something in a field escaped.
            let subject = "CN=%C3%84lice%5C0D%5C0Ax-evil: 1%5C%2C %5C%22q%5C%22";
            assert_eq!(values(&seen, "x-subject"), [subject]);
            assert_eq!(
                values(&seen, "x-san"),
                ["spiffe://shop.example/a%2Cb%3Bc=%2522d%2522"]
            );
            assert!(seen.field("x-evil").is_none(), "{seen:?}");
            assert_eq!(values(&answer, "y-subject"), [subject]);
            assert_eq!(values(&answer, "y-version"), [shown_version]);
        }
    }
}

#[test]
fn what_the_client_has_not_sent_is_absent() {
    let site = Site::start();
    // A client that connects to an address sends no name.
    let mut client = site.client("127.0.0.1", None, ALL);
    client.send(format!("GET / HTTP/1.1\r\nhost: localhost\r\n{FORGED}\r\n").as_bytes());
    let answer = client.answer();
    assert_eq!(answer.status(), 200);
    let seen = site.upstream.next();
    for name in ["x-name", "x_name", "x-subject", "x-san"] {
        assert!(seen.field(name).is_none(), "{name}: {seen:?}");
    }
    assert!(answer.field("y-subject").is_none());
    assert_eq!(values(&seen, "x-version"), ["TLSv1.3"]);
    // Without TLS there is none of it.
    let address = site.gateway.app.addresses()[1].tcp().unwrap();
    let mut client = crate::common::Client::connect(address);
    client.send(format!("GET / HTTP/1.1\r\nhost: localhost\r\n{FORGED}\r\n"));
    assert_eq!(client.answer().status(), 200);
    let seen = site.upstream.next();
    for name in [
        "x-version",
        "x-name",
        "x-cipher",
        "x-ja4",
        "x-subject",
        "x-san",
    ] {
        assert!(seen.field(name).is_none(), "{name}: {seen:?}");
    }
}

#[test]
fn every_request_of_a_connection_has_its_own_id() {
    let site = Site::start();
    let mut client = site.client("localhost", None, ALL);
    let mut ids = HashSet::new();
    for _ in 0..8 {
        let answer = client.get("/");
        let seen = site.upstream.next();
        let id = seen.field("x-request-id").unwrap().to_owned();
        assert_eq!(values(&seen, "x-id"), [format!("id {id}")]);
        assert_eq!(answer.field("y-id"), Some(&*id));
        assert!(ids.insert(id));
    }
}

#[test]
fn over_http2_too() {
    let site = Site::start();
    let alice = site.authority.issue("alice", hostile);
    let mut config = (*showing(Some(&alice), &[&site.own], ALL)).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    http2::run(async {
        let stream = tokio::net::TcpStream::connect(site.gateway.address)
            .await
            .unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let mut client = http2::Client::over(stream).await;
        let mut ids = HashSet::new();
        for _ in 0..3 {
            let request = http::Request::get("https://localhost/").header("x-subject", "F");
            let (answer, _) = client.begin(request.body(()).unwrap(), true);
            let answer = http2::whole(answer.await.unwrap()).await.unwrap();
            assert_eq!(
                (answer.status, answer.field("y-subject")),
                (200, Some("CN=alice"))
            );
            let seen = site.upstream.next();
            assert_eq!(values(&seen, "x-subject"), ["CN=alice"]);
            assert_eq!(values(&seen, "x-version"), ["TLSv1.3"]);
            assert_eq!(values(&seen, "x-name"), ["sni localhost"]);
            assert!(ids.insert(answer.field("y-id").unwrap().to_owned()));
        }
    });
}
