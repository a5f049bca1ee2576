//! Heads, bodies, trailers, interim answers, resets: from HTTP/1.1 to HTTP/2, and from HTTP/2 to HTTP/2.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use tokio::sync::Notify;

use crate::common::http2::{Client, request, run, whole};
use crate::common::{assert_contains, wait_until};
use crate::server::Server;

/// RFC 9113 section 8.3.1: what a request of HTTP/1.1 becomes.
#[test]
fn a_request_becomes_one_of_http2() {
    let server = Server::start(|asked| async move {
        let uri = asked.request.uri().to_string();
        let names: Vec<_> = asked
            .request
            .headers()
            .keys()
            .map(|n| n.to_string())
            .collect();
        asked.tell(format!(
            "{} {uri} {}",
            asked.request.method(),
            names.join(" ")
        ));
        asked.tell(asked.field("te").unwrap_or("none").to_owned());
        asked.ok("fine");
    });
    let gateway = server.gateway();
    let mut client = gateway.connect();
    client.send(
        "GET /a?b=c%20d HTTP/1.1\r\nHost: example.com\r\nX-Own: kept\r\nTE: trailers\r\n\
         Connection: x-gone\r\nX-Gone: 1\r\nKeep-Alive: 5\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "fine"));
    assert_eq!(answer.start, "HTTP/1.1 200 OK");
    let seen = server.next();
    assert_contains(
        &seen,
        &[
            "GET http://example.com/a?b=c%20d ",
            "x-own",
            "x-forwarded-for",
        ],
    );
    for gone in [" x-gone", " keep-alive", " connection", " host"] {
        assert!(!seen.contains(gone), "{gone} in {seen}");
    }
    assert_eq!(server.next(), "trailers");
}

#[test]
fn bodies_and_trailers_pass_both_ways() {
    let server = Server::start(|mut asked| async move {
        let (body, trailers) = asked.body().await.unwrap();
        let sum = trailers.map(|trailers| trailers["x-sum"].to_str().unwrap().to_owned());
        asked.tell(format!("{} {sum:?}", body.len()));
        let mut out = asked
            .respond
            .send_response(Response::new(()), false)
            .unwrap();
        for piece in body.chunks(50_000) {
            out.send_data(Bytes::copy_from_slice(piece), false).unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-back", "42".parse().unwrap());
        out.send_trailers(trailers).unwrap();
    });
    let gateway = server.gateway();
    let mut client = gateway.connect();
    client.send(
        "POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\nte: trailers\r\n\r\n\
         5\r\nabcde\r\n3\r\nfgh\r\n0\r\nx-sum: 7\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!(answer.text(), "abcdefgh");
    assert_eq!(answer.trailers, [("x-back".to_owned(), "42".to_owned())]);
    assert_eq!(server.next(), "8 Some(\"7\")");
    // More than the windows hold.
    let length = 3_000_000;
    let body = vec![b'x'; length];
    let head = format!("POST / HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n");
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        sender.write_all(head.as_bytes()).unwrap();
        sender.write_all(&body).unwrap();
    });
    assert_eq!(client.answer().body.len(), length);
    sending.join().unwrap();
    assert_eq!(server.next(), format!("{length} None"));
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let post = request("POST", "/").body(()).unwrap();
        let (answer, mut body) = client.begin(post, false);
        body.send_data("abc".into(), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "9".parse().unwrap());
        body.send_trailers(trailers).unwrap();
        let answer = whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.body, "abc");
        assert_eq!(answer.trailers.unwrap()["x-back"], "42");
    });
    assert_eq!(server.next(), "3 Some(\"9\")");
}

/// RFC 9112 section 6.2: what says its length is not sent in chunks, with whatever comes after it.
#[test]
fn a_length_stays_one() {
    let server = Server::start(|mut asked| async move {
        let mut answer = Response::new(());
        let length = "10".parse().unwrap();
        answer.headers_mut().insert("content-length", length);
        let mut out = asked.respond.send_response(answer, false).unwrap();
        out.send_data(Bytes::from_static(b"hello "), false).unwrap();
        out.send_data(Bytes::from_static(b"long"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-back", "42".parse().unwrap());
        out.send_trailers(trailers).unwrap();
    });
    let gateway = server.gateway();
    let mut client = gateway.connect();
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!(answer.text(), "hello long");
        assert_eq!(answer.field("content-length"), Some("10"));
        assert_eq!(answer.field("transfer-encoding"), None);
    }
    run(async {
        let answer = Client::connect(gateway.address).await.get("/").await;
        assert_eq!(answer.body, "hello long");
        assert_eq!(answer.field("content-length"), Some("10"));
        assert_eq!(answer.trailers.unwrap()["x-back"], "42");
    });
}

#[test]
fn answers_without_a_body_and_interim_ones() {
    let server = Server::start(|mut asked| async move {
        let mut answer = Response::new(());
        match asked.path() {
            "/204" => *answer.status_mut() = StatusCode::NO_CONTENT,
            "/304" => *answer.status_mut() = StatusCode::NOT_MODIFIED,
            "/103" => {
                let mut hints = Response::new(());
                *hints.status_mut() = StatusCode::EARLY_HINTS;
                hints.headers_mut().insert("link", "</a>".parse().unwrap());
                asked.respond.send_informational(hints).unwrap();
            }
            _ => {
                let length = "12".parse().unwrap();
                answer.headers_mut().insert("content-length", length);
            }
        }
        asked.respond.send_response(answer, true).unwrap();
    });
    let gateway = server.gateway();
    let mut client = gateway.connect();
    client.send("HEAD / HTTP/1.1\r\nhost: t\r\n\r\n");
    let head = client.head().unwrap();
    assert_eq!(
        (head.status(), head.field("content-length")),
        (200, Some("12"))
    );
    for status in [204, 304] {
        client.send(format!("GET /{status} HTTP/1.1\r\nhost: t\r\n\r\n"));
        let head = client.head().unwrap();
        assert_eq!(
            (head.status(), head.field("content-length")),
            (status, None)
        );
    }
    client.send("GET /103 HTTP/1.1\r\nhost: t\r\n\r\n");
    let hints = client.head().unwrap();
    assert_eq!((hints.status(), hints.field("link")), (103, Some("</a>")));
    assert_eq!(client.answer().status(), 200);
}

#[test]
fn a_server_is_asked_before_a_waiting_client_sends() {
    let server = Server::start(|mut asked| async move {
        if asked.path() == "/refused" {
            let mut answer = Response::new(());
            *answer.status_mut() = StatusCode::EXPECTATION_FAILED;
            asked.respond.send_response(answer, true).unwrap();
            return;
        }
        let mut go_on = Response::new(());
        *go_on.status_mut() = StatusCode::CONTINUE;
        asked.respond.send_informational(go_on).unwrap();
        let (body, _) = asked.body().await.unwrap();
        asked.ok(std::str::from_utf8(&body).unwrap());
    });
    let gateway = server.gateway();
    let ask = |path: &str| {
        let mut client = gateway.connect();
        client.send(format!(
            "PUT {path} HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n"
        ));
        client
    };
    let mut refused = ask("/refused");
    let head = crate::common::read_head(&mut refused.reader).unwrap();
    assert_eq!(head.status(), 417);
    let mut client = ask("/");
    let head = crate::common::read_head(&mut client.reader).unwrap();
    assert_eq!(head.status(), 100);
    client.send("body");
    assert_eq!(client.answer().text(), "body");
}

/// What is taken back by the client is taken back from the server.
#[test]
fn cancellation_reaches_the_server() {
    let server = Server::start(|mut asked| async move {
        let mut out = asked
            .respond
            .send_response(Response::new(()), false)
            .unwrap();
        out.send_data("a".into(), false).unwrap();
        asked.report.send("begun".into()).unwrap();
        let reset = std::future::poll_fn(|cx| out.poll_reset(cx)).await;
        asked.report.send(format!("{:?}", reset.unwrap())).unwrap();
    });
    let gateway = server.gateway_with("timeouts: { half_close: gone }\n");
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 200);
    assert_eq!(server.next(), "begun");
    drop(client);
    assert_eq!(server.next(), "CANCEL");
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let (answer, mut out) = client.begin(crate::common::http2::get("/"), true);
        let _begun = answer.await.unwrap();
        out.send_reset(h2::Reason::CANCEL);
        tokio::task::yield_now().await;
        let server = server;
        let told = tokio::task::spawn_blocking(move || [server.next(), server.next()]);
        assert_eq!(told.await.unwrap(), ["begun", "CANCEL"]);
    });
}

/// RFC 9112 section 8: what the server breaks off does not look whole.
#[test]
fn resets_reach_the_client() {
    static HEAD_SEEN: Notify = Notify::const_new();
    let server = Server::start(|mut asked| async move {
        if asked.path() == "/before" {
            return asked.respond.send_reset(h2::Reason::INTERNAL_ERROR);
        }
        let mut out = asked
            .respond
            .send_response(Response::new(()), false)
            .unwrap();
        out.send_data("half".into(), false).unwrap();
        while out.capacity() == 0 {
            tokio::task::yield_now().await;
            out.reserve_capacity(1);
        }
        HEAD_SEEN.notified().await;
        out.send_reset(h2::Reason::INTERNAL_ERROR);
    });
    let gateway = server.gateway();
    let mut client = gateway.connect();
    assert_eq!(client.get("/before").status(), 502);
    client.send("GET /after HTTP/1.1\r\nhost: t\r\n\r\n");
    let mut answer = client.head().unwrap();
    assert_eq!(answer.status(), 200);
    HEAD_SEEN.notify_one();
    assert!(crate::common::read_body(&mut client.reader, &mut answer).is_err());
    run(async {
        let mut client = Client::connect(gateway.address).await;
        assert_eq!(client.get("/before").await.status, 502);
        let (answer, _) = client.begin(crate::common::http2::get("/after"), true);
        let answer = answer.await.unwrap();
        HEAD_SEEN.notify_one();
        let error = whole(answer).await.unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR));
    });
}

/// RFC 8441 both ways: a WebSocket of HTTP/1.1, and one of HTTP/2, over HTTP/2.
#[test]
fn websockets() {
    let connect = |builder: &mut h2::server::Builder| {
        builder.enable_connect_protocol();
    };
    let server = Server::with(connect, |mut asked| async move {
        let protocol = asked.request.extensions().get::<h2::ext::Protocol>();
        let protocol = protocol.map(|protocol| protocol.as_str().to_owned());
        let key = asked.field("sec-websocket-key").map(str::to_owned);
        asked.tell(format!("{} {protocol:?} {key:?}", asked.request.method()));
        let mut out = asked
            .respond
            .send_response(Response::new(()), false)
            .unwrap();
        let body = asked.request.body_mut();
        while let Some(Ok(data)) = body.data().await {
            body.flow_control().release_capacity(data.len()).unwrap();
            out.send_data(data, false).unwrap();
        }
        out.send_data("bye".into(), true).unwrap();
    });
    let gateway = server.gateway();
    // The first connection's settings come with the first answer.
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
    client.answer();
    assert_eq!(server.next(), "GET None None");
    client.send(
        "GET /chat HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let head = client.head().unwrap();
    assert_eq!(
        (head.status(), head.field("upgrade")),
        (101, Some("websocket"))
    );
    let accept = head.field("sec-websocket-accept");
    assert_eq!(accept, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(server.next(), "CONNECT Some(\"websocket\") None");
    client.send("hello");
    let mut back = [0; 5];
    std::io::Read::read_exact(&mut client.reader, &mut back).unwrap();
    assert_eq!(&back, b"hello");
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"bye");
    run(async {
        let mut client = Client::connect(gateway.address).await;
        while !client.send.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut connect = request("CONNECT", "/chat").body(()).unwrap();
        let protocol = h2::ext::Protocol::from_static("websocket");
        connect.extensions_mut().insert(protocol);
        let (answer, mut out) = client.begin(connect, false);
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        out.send_data("one".into(), true).unwrap();
        assert_eq!(whole(answer).await.unwrap().body, "onebye");
    });
}

/// Heads of servers have the bounds of those over HTTP/1: 64 KiB and 100 fields, interim ones too.
#[test]
fn heads_of_answers_have_a_bound() {
    let server = Server::start(|mut asked| async move {
        let (fields, bytes) = match asked.path() {
            "/long" => (1, 70_000),
            "/longer" => (100, 10_000),
            "/many" | "/interim" => (101, 1),
            _ => (99, 100),
        };
        let mut response = Response::new(());
        for n in 0..fields {
            let name = HeaderName::from_bytes(format!("x-{n}").as_bytes()).unwrap();
            let value = "v".repeat(bytes).parse().unwrap();
            response.headers_mut().insert(name, value);
        }
        if asked.path() == "/interim" {
            *response.status_mut() = StatusCode::EARLY_HINTS;
            let _ = asked.respond.send_informational(response);
            return asked.ok("");
        }
        // The gateway may have left.
        let _ = asked.respond.send_response(response, true);
    });
    let gateway = server.gateway_with("access_log: { file: access.log }\n");
    let cases = [
        ("/fine", 200),
        ("/long", 502),
        ("/longer", 502),
        ("/many", 502),
        ("/interim", 502),
        ("/fine", 200),
    ];
    for (path, status) in cases {
        assert_eq!(gateway.connect().get(path).status(), status, "{path}");
    }
    let log = gateway.folder.path().join("access.log");
    wait_until("they are logged", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.matches("\"reason\":\"no answer\"").count() == 4
    });
}
