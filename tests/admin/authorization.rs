//! Whom the admin listener lets in: whoever has the token, or this machine; never a page of others.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tollgate::base::clock::Clock;

use crate::common::{Client, Upstream, child, read_body, read_head, wait_until, write};
use crate::{ADMIN, FREE, Setup, problem, start, start_with};

#[test]
fn an_open_address_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let nobody: SocketAddr = "127.0.0.1:9".parse().unwrap();
    for open in [
        "0.0.0.0:0",
        "\"[::]:0\"",
        "192.0.2.1:0",
        "{ address: 0.0.0.0:0 }",
    ] {
        write(
            &folder,
            nobody,
            &format!("admin: {open}\n"),
            &[("free", FREE)],
        );
        let ended = child::run(folder.path(), &["run"]);
        assert_eq!(ended.code, Some(2), "{open}");
        assert!(ended.err.contains("is not loopback"), "{}", ended.err);
        assert!(
            ended.err.contains("token_file: admin.token"),
            "{}",
            ended.err
        );
        assert!(!ended.err.contains("listening on"), "{}", ended.err);
    }
}

#[test]
fn a_token_lets_in() {
    let folder = tempfile::tempdir().unwrap();
    let token = "correct-horse-battery-staple-0123456789";
    // As an editor saves it.
    let saved = format!("\u{feff}{token} \r\n\r\n");
    std::fs::write(folder.path().join("admin.token"), saved).unwrap();
    let gateway = "admin: { address: 127.0.0.1:0, token_file: admin.token }\n\
                   identity: { token: { header: x-api-key } }\n";
    let setup = start_with(Upstream::plain(), folder, gateway);
    let with = |method, path, fields: &str| setup.server.ask_with(method, path, fields, "");
    assert_eq!(
        setup.get("/healthz").status(),
        200,
        "anyone may ask for life"
    );
    let doors = [
        ("GET", "/v1/status"),
        ("GET", "/v1/record/series"),
        ("GET", "/prometheus/api/v1/labels"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/v1/policies"),
        ("GET", "/v1/limits"),
        ("GET", "/v1/limits/per-ip/keys/ip=127.0.0.1"),
        ("DELETE", "/v1/limits/per-ip/keys/ip=127.0.0.1"),
        ("POST", "/v1/reload"),
    ];
    let right = format!("authorization: Bearer {token}\r\n");
    for (number, (method, path)) in doors.into_iter().enumerate() {
        // At most 20 wrong tokens of an address are checked at once.
        let guess = match number % 2 {
            0 => format!("{token}0"),
            _ => token[1..].to_owned(),
        };
        let wrong = [
            String::new(),
            "authorization: Bearer\r\n".into(),
            format!("authorization: Bearer {guess}\r\n"),
            format!("authorization: Basic {token}\r\n"),
        ];
        for fields in wrong {
            problem(&with(method, path, &fields), 401, "Authorization: Bearer");
        }
        assert_eq!(with(method, path, &right).status(), 200, "{method} {path}");
    }
    let named = format!("host: gateway.example\r\n{right}");
    let answer = with("GET", "/v1/limits", &named);
    assert_eq!(answer.status(), 200, "with a token any name will do");
    problem(&with("GET", "/nowhere", ""), 401, "Authorization: Bearer");
    // The dashboard asks for the token itself, and shows nothing before it has it.
    let page = with("GET", "/", "");
    assert_eq!(page.status(), 200);
    assert!(!page.text().contains("per-ip"), "{}", page.text());
    assert!(with("GET", "/", &right).text().contains("per-ip"));
    assert_eq!(with("GET", "/app.js", "").status(), 200);
    // The commands read the file as the gateway does.
    let admin = setup.server.admin.unwrap().to_string();
    let question = ["explain", "GET", "/free", "--admin", &*admin];
    let with_token = [&question[..], &["--token-file", "admin.token"]].concat();
    let ended = child::run(setup.folder.path(), &with_token);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let ended = child::run(setup.folder.path(), &question);
    assert_eq!(ended.code, Some(1), "{}", ended.out);
}

/// Whoever says nothing makes room, whatever their number.
#[test]
fn silent_connections_keep_nobody_waiting() {
    let setup = start(ADMIN);
    let address = setup.server.admin.unwrap();
    let clock = Clock::system();
    let begun = clock.now();
    let silent = (0..600).map(|_| TcpStream::connect(address).unwrap());
    let mut silent: Vec<TcpStream> = silent.collect();
    // Some have had an answer.
    for stream in &mut silent[560..] {
        let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(
            setup.server.ask_with("GET", "/healthz", "", "").status(),
            200
        );
    }
    let waited: Duration = clock.now().since(begun).into();
    assert!(waited < Duration::from_secs(8), "{waited:?}");
}

/// Nor do those whose requests do not end. Of one client only some are waited for, and not for long.
#[test]
fn requests_without_an_end_keep_nobody_waiting() {
    let setup = start(ADMIN);
    let address = setup.server.admin.unwrap();
    let mut stalled: Vec<Client> = (0..56).map(|_| stall(address)).collect();
    for client in &mut stalled {
        let interim = read_head(&mut client.reader).unwrap();
        assert_eq!(interim.start, "HTTP/1.1 100 Continue");
    }
    for _ in 0..20 {
        for path in ["/healthz", "/readyz"] {
            assert_eq!(setup.get(path).status(), 200);
        }
    }
    wait_until("there is room", || setup.get("/v1/limits").status() == 200);
    let question = r#"{ "method": "GET", "path": "/free" }"#;
    let explained = setup.server.ask("POST", "/v1/explain", question);
    assert_eq!(explained.status(), 200, "{}", explained.text());
    let statuses = stalled.iter_mut().map(|client| client.answer().status());
    let statuses: Vec<u16> = statuses.collect();
    let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(503), count(408)), (40, 16), "{statuses:?}");
}

/// A request whose body does not come.
fn stall(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    client.send(
        "POST /v1/explain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n",
    );
    client
}

/// Nor do those that read nothing of long responses.
#[test]
fn responses_that_nobody_reads_keep_no_probe_waiting() {
    let setup = start_long(5);
    let address = setup.server.admin.unwrap();
    let silent = (0..56).map(|_| {
        // For a reader with so small a buffer the kernel takes 3 MB, not 4.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&address.into()).unwrap();
        let mut client = Client::over(socket.into());
        client.send("GET /v1/policies HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(client.head().unwrap().status(), 200);
        client
    });
    let silent: Vec<Client> = silent.collect();
    for _ in 0..20 {
        for path in ["/healthz", "/readyz"] {
            assert_eq!(setup.get(path).status(), 200);
        }
    }
    problem(&setup.get("/v1/limits"), 503, "try again");
    drop(silent);
    wait_until("there is room", || setup.get("/v1/limits").status() == 200);
}

/// A gateway whose policies have so many MB.
fn start_long(policies: usize) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{FREE}# {}\n", "x".repeat(1_000_000));
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    for number in 0..policies {
        let policy = long.replace("/free", &format!("/long{number}"));
        let path = format!("policies/long{number}.yaml");
        std::fs::write(folder.path().join(path), policy).unwrap();
    }
    start_with(Upstream::plain(), folder, ADMIN)
}

/// A client that reads slowly gets all of its response, whoever connects meanwhile.
#[test]
fn a_response_that_is_being_sent_is_not_cut_off() {
    let setup = start_long(8);
    let address = setup.server.admin.unwrap();
    let mut slow = Client::connect(address);
    slow.send("GET /v1/policies HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut response = slow.head().unwrap();
    let others = (0..200).map(|_| Client::connect(address));
    let mut others: Vec<Client> = others.collect();
    assert_eq!(setup.get("/healthz").status(), 200);
    read_body(&mut slow.reader, &mut response).expect("all of it");
    assert!(response.body.len() > 8_000_000);
    others.clear();
}

#[test]
fn pages_of_others_get_nothing() {
    let setup = start(ADMIN);
    let port = setup.server.admin.unwrap().port();
    let with = |method, path, fields: &str| setup.server.ask_with(method, path, fields, "");
    // A name that its owner has pointed at 127.0.0.1.
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
    ] {
        for path in ["/v1/limits", "/metrics", "/", "/v1/policies"] {
            let answer = with("GET", path, &format!("host: {host}:{port}\r\n"));
            problem(&answer, 403, "does not name this machine");
        }
        let answer = with("POST", "/v1/reload", &format!("host: {host}\r\n"));
        problem(&answer, 403, "does not name this machine");
    }
    for host in ["localhost", "127.0.0.1", "[::1]", "LocalHost"] {
        let answer = with("GET", "/v1/limits", &format!("host: {host}:{port}\r\n"));
        assert_eq!(answer.status(), 200, "{host}");
    }
    let others = [
        "origin: http://evil.example\r\n",
        "origin: null\r\n",
        "origin: http://127.0.0.1:1\r\n",
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
    ];
    let key = "/v1/limits/per-ip/keys/ip=127.0.0.1";
    assert_eq!(setup.requests(4).last(), Some(&429));
    for fields in others {
        for (method, path) in [("POST", "/v1/reload"), ("DELETE", key)] {
            problem(&with(method, path, fields), 403, "other sites");
        }
    }
    assert_eq!(setup.requests(1), [429], "nothing was forgotten");
    for site in ["cross-site", "same-site"] {
        let fields = format!("sec-fetch-site: {site}\r\n");
        for path in [
            "/v1/limits",
            "/metrics",
            "/prometheus/api/v1/query?query=up",
        ] {
            problem(&with("GET", path, &fields), 403, "other sites");
        }
        assert_eq!(with("GET", "/", &fields).status(), 200, "a link to it");
    }
    for site in ["same-origin", "none"] {
        let fields = format!("sec-fetch-site: {site}\r\n");
        assert_eq!(with("GET", "/v1/limits", &fields).status(), 200);
    }
    let own = format!("origin: http://127.0.0.1:{port}\r\nsec-fetch-site: same-origin\r\n");
    assert_eq!(with("DELETE", key, &own).status(), 200);
    assert_eq!(setup.requests(1), [200]);
}
