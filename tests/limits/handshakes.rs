//! Identities from the client's TLS handshake: the JA4 fingerprint, and the names in its certificate.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::SanType;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned, version};
use tokio_rustls::TlsConnector;

use crate::common::certificate::{Authority, Certificate};
use crate::common::tls::{ALL, Tls, put, showing, trusting};
use crate::common::{Gateway, Message, Upstream, http2, read_body, read_head, write};
use crate::protocols::Protocol;
use crate::{Clock, Nanos};

const IDENTITY: &str = "\
identity:
  fingerprint: { tls: ja4, forward: true }
  subject: { tls: subject }
  name: { tls: san }
";

/// A gateway with one limit. The first listener speaks TLS and asks for certificates, the second one does not.
struct Site {
    gateway: Gateway,
    upstream: Upstream,
    own: Certificate,
    authority: Authority,
}

impl Site {
    fn start(limit: &str) -> Site {
        let (upstream, authority) = (Upstream::plain(), Authority::new());
        let own = Certificate::of(&["localhost"]);
        let folder = tempfile::tempdir().unwrap();
        let policy = format!("match: /**\nupstream: up\nlimits:\n  {limit}\n");
        write(&folder, upstream.address, IDENTITY, &[("all", &policy)]);
        put(&folder, 0, &own);
        std::fs::write(folder.path().join("clients.pem"), &authority.pem).unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let listen = "listen:\n  - { address: 127.0.0.1:0, tls: { cert: 0.pem, key: 0.key }, client_roots: clients.pem }\n  - 127.0.0.1:0\n";
        std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
        let clock = Clock::manual(Nanos::from_secs(1_800_000_000));
        Site {
            gateway: Gateway::start_in(folder, clock),
            upstream,
            own,
            authority,
        }
    }

    /// The settings of a usual client.
    fn config(&self) -> ClientConfig {
        Arc::unwrap_or_clone(trusting(&[&self.own], ALL))
    }

    fn get(&self, config: ClientConfig) -> Message {
        Tls::connect(&self.gateway, "localhost", &Arc::new(config)).get("/")
    }

    /// The status of a request over this version of HTTP.
    fn status(&self, protocol: Protocol, mut config: ClientConfig) -> u16 {
        if let Protocol::Http1 = protocol {
            return self.get(config).status();
        }
        config.alpn_protocols = vec![b"h2".to_vec()];
        http2::run(async {
            let stream = tokio::net::TcpStream::connect(self.gateway.address).await;
            let name = ServerName::try_from("localhost").unwrap();
            let connector = TlsConnector::from(Arc::new(config));
            let stream = connector.connect(name, stream.unwrap()).await.unwrap();
            let mut client = http2::Client::over(stream).await;
            let request = http::Request::get("https://localhost/").body(()).unwrap();
            let (response, _) = client.begin(request, true);
            response.await.unwrap().status().as_u16()
        })
    }

    /// The fingerprint that the upstream is told of a client with these settings.
    fn fingerprint(&self, config: ClientConfig) -> String {
        assert_eq!(self.get(config).status(), 200);
        self.last_fingerprint().unwrap()
    }

    fn last_fingerprint(&self) -> Option<String> {
        let request = self.upstream.next();
        request.field("tollgate-fingerprint").map(str::to_owned)
    }
}

#[test]
fn clients_of_one_kind_count_together() {
    let site = Site::start("per-program: { key: fingerprint, rate: 1/h }");
    let old = || Arc::unwrap_or_clone(trusting(&[&site.own], &[&version::TLS12]));
    // A program that speaks another version is another one.
    for protocol in Protocol::BOTH {
        let status = |config| site.status(protocol, config);
        assert_eq!([status(site.config()), status(site.config())], [200, 429]);
        assert_eq!([status(old()), status(old())], [200, 429]);
    }
    // Without TLS there is no fingerprint, and no limit by it.
    let address: SocketAddr = site.gateway.app.addresses()[1].tcp().unwrap();
    for _ in 0..2 {
        let mut client = crate::Client::connect(address);
        client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(client.answer().status(), 200);
    }
}

#[test]
fn the_fingerprint_says_what_the_client_speaks() {
    let site = Site::start("per-program: { key: fingerprint, rate: 100/h }");
    let usual = site.fingerprint(site.config());
    assert!(
        usual.starts_with("t13d") && usual.contains("h1_"),
        "{usual}"
    );
    let mut other = site.config();
    other.alpn_protocols = vec![b"h2-not".to_vec(), b"http/1.1".to_vec()];
    let other = site.fingerprint(other);
    assert_eq!(
        other,
        usual.replace("h1_", "ht_"),
        "only the first protocol differs"
    );
    // What the client says of itself is not told.
    let mut client = Tls::connect(&site.gateway, "localhost", &Arc::new(site.config()));
    client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\ntollgate-fingerprint: own\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    assert_eq!(site.last_fingerprint().as_ref(), Some(&usual));
}

#[test]
fn a_hello_in_several_records_or_segments_has_the_same_fingerprint() {
    let site = Site::start("per-program: { key: fingerprint, rate: 100/h }");
    let usual = site.fingerprint(site.config());
    let mut in_records = site.config();
    in_records.max_fragment_size = Some(40);
    assert_eq!(site.fingerprint(in_records), usual);

    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::new(site.config()), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    let mut socket = TcpStream::connect(site.gateway.address).unwrap();
    socket.set_nodelay(true).unwrap();
    for byte in hello {
        socket.write_all(&[byte]).unwrap();
    }
    let mut stream = BufReader::new(StreamOwned::new(connection, socket));
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.get_mut().write_all(request).unwrap();
    let mut response = read_head(&mut stream).unwrap();
    read_body(&mut stream, &mut response).unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(site.last_fingerprint(), Some(usual));
}

#[test]
fn a_long_hello_has_a_fingerprint() {
    let site = Site::start("per-program: { key: fingerprint, rate: 100/h }");
    let usual = site.fingerprint(site.config());
    let mut long = site.config();
    let others = (0..100).map(|number| format!("{number:0200}").into_bytes());
    long.alpn_protocols.extend(others);
    assert_eq!(site.fingerprint(long), usual, "of 20 KB");
}

#[test]
fn the_first_hello_counts_if_the_gateway_asks_for_a_second_one() {
    let site = Site::start("per-program: { key: fingerprint, rate: 100/h }");
    let usual = site.fingerprint(site.config());
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![
        aws_lc_rs::kx_group::MLKEM768,
        aws_lc_rs::kx_group::SECP256R1,
    ];
    let config = ClientConfig::builder_with_provider(Arc::new(provider));
    let config = config.with_protocol_versions(ALL).unwrap();
    let roots = crate::common::certificate::roots(&[&site.own]);
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut client = Tls::connect(&site.gateway, "localhost", &Arc::new(config));
    assert_eq!(client.get("/").status(), 200);
    let kind = client.0.get_ref().conn.handshake_kind();
    assert_eq!(kind, Some(HandshakeKind::FullWithHelloRetryRequest));
    assert_eq!(site.last_fingerprint(), Some(usual));
}

#[test]
fn a_limit_counts_by_names_of_the_certificate() {
    let by_subject = ("per-subject: { key: subject, rate: 1/h }", false);
    let by_name = ("per-name: { key: name, rate: 1/h }", true);
    for protocol in Protocol::BOTH {
        for (limit, is_by_name) in [by_subject, by_name] {
            check_names_of_certificates(protocol, limit, is_by_name);
        }
    }
}

#[track_caller]
fn check_names_of_certificates(protocol: Protocol, limit: &str, is_by_name: bool) {
    let site = Site::start(limit);
    let issue = |subject: &str, host: &str| {
        let host = SanType::DnsName(host.try_into().unwrap());
        site.authority.issue(subject, |params| {
            params.subject_alt_names = vec![host.clone()]
        })
    };
    let get = |shown: Option<&Certificate>| {
        let config = showing(shown, &[&site.own], ALL);
        site.status(protocol, Arc::unwrap_or_clone(config))
    };
    let alice = issue("alice", "one.example");
    assert_eq!(get(Some(&alice)), 200);
    assert_eq!(get(Some(&alice)), 429);
    // The same subject with another name, and another subject with the same name.
    let statuses = [issue("alice", "two.example"), issue("bob", "one.example")];
    let statuses = statuses.each_ref().map(|shown| get(Some(shown)));
    assert_eq!(statuses, if is_by_name { [200, 429] } else { [429, 200] });
    assert_eq!(
        [get(None), get(None)],
        [200, 200],
        "nobody without a certificate"
    );
}
