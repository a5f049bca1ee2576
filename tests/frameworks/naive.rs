//! A proxy that limits as a first draft would: each credential and field as it stands, what cannot be read as
//! nobody's. Every dimension has a fault on purpose.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::Value;

use crate::apps::{App, SECRET};
use crate::common::{MAX_WAIT, status};
use crate::dimension::{Dimension, LIMIT};

/// What is read of a request.
struct Request {
    method: Vec<u8>,
    path: Vec<u8>,
    query: Vec<u8>,
    /// Names in small letters.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

/// The paths of the routes.
#[derive(Clone, Copy)]
struct Routes {
    login: &'static str,
    report: &'static str,
}

/// Listens, and limits what it sends on to the framework.
pub fn start(app: &App, dimension: Dimension) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counts = Arc::new(Mutex::new(HashMap::<Vec<u8>, usize>::new()));
    let upstream = app.address;
    let routes = Routes {
        login: app.login,
        report: app.report,
    };
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let counts = counts.clone();
            // A connection that breaks is over.
            thread::spawn(move || {
                let _ = serve(client, upstream, |request| {
                    let Some(key) = key(dimension, request, routes) else {
                        return true;
                    };
                    let mut counts = counts.lock().unwrap();
                    let count = counts.entry(key).or_default();
                    *count += 1;
                    *count <= LIMIT
                });
            });
        }
    });
    address
}

fn serve(
    client: TcpStream,
    upstream: SocketAddr,
    admits: impl Fn(&Request) -> bool,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(MAX_WAIT))?;
    let mut reader = BufReader::new(client.try_clone()?);
    let mut client = client;
    loop {
        let (request, mut bytes) = read(&mut reader)?;
        if !admits(&request) {
            client.write_all(status(429).as_bytes())?;
            continue;
        }
        let host = first(&request, b"host").unwrap_or_default();
        let begins = bytes
            .windows(2)
            .position(|at| at == b"\r\n")
            .map_or(0, |at| at + 2);
        let more = [b"x-forwarded-host: ", host, b"\r\nconnection: close\r\n"].concat();
        bytes.splice(begins..begins, more);
        let mut server = TcpStream::connect(upstream)?;
        server.set_read_timeout(Some(MAX_WAIT))?;
        server.write_all(&bytes)?;
        let mut response = Vec::new();
        server.read_to_end(&mut response)?;
        client.write_all(&response)?;
        return Ok(());
    }
}

/// A request, and the same as bytes.
fn read(from: &mut impl BufRead) -> std::io::Result<(Request, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut lines = Vec::new();
    loop {
        let begins = bytes.len();
        if from.read_until(b'\n', &mut bytes)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = bytes[begins..].trim_ascii_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_vec());
    }
    let mut words = lines[0].splitn(3, |byte| *byte == b' ');
    let method = words.next().unwrap_or_default().to_vec();
    let target = words.next().unwrap_or_default();
    let (path, query) = halves(target, b'?');
    let fields = lines[1..].iter().map(|line| {
        let (name, value) = halves(line, b':');
        (name.to_ascii_lowercase(), value.trim_ascii().to_vec())
    });
    let mut request = Request {
        path: path.to_vec(),
        query: query.to_vec(),
        fields: fields.collect(),
        body: Vec::new(),
        method,
    };
    let length = first(&request, b"content-length")
        .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let begins = bytes.len();
    if let Some(length) = length {
        from.take(length).read_to_end(&mut bytes)?;
        request.body = bytes[begins..].to_vec();
    } else if first(&request, b"transfer-encoding").is_some() {
        // Passed on as it is, and not looked at.
        while !bytes[begins..].ends_with(b"0\r\n\r\n") {
            from.read_until(b'\n', &mut bytes)?;
        }
    }
    Ok((request, bytes))
}

/// Who is counted; nobody is not.
fn key(dimension: Dimension, request: &Request, routes: Routes) -> Option<Vec<u8>> {
    let token = || first(request, b"x-api-key").map(<[u8]>::to_vec);
    let bearer =
        || first(request, b"authorization").and_then(|value| value.strip_prefix(b"Bearer "));
    let route = match (&*request.method, &*request.path) {
        (b"POST", path) if path == routes.login.as_bytes() => "login",
        // Reads no parameters, so that an item of nothing else is none.
        (b"DELETE", [b'/', b'i', b't', b'e', b'm', b's', b'/', first, ..]) if *first != b';' => {
            "item"
        }
        (b"GET", path) if path == routes.report.as_bytes() => "report",
        _ => "rest",
    };
    match dimension.as_read() {
        Dimension::Email if route == "login" => email(&request.body),
        Dimension::Email => None,
        Dimension::OwnBody if route == "login" => email(&request.body),
        Dimension::OwnBody => None,
        Dimension::Bearer => bearer().map(<[u8]>::to_vec),
        Dimension::User => {
            let token = std::str::from_utf8(bearer()?).ok()?;
            let key = DecodingKey::from_secret(SECRET.as_bytes());
            let claims = decode::<Value>(token, &key, &Validation::new(Algorithm::HS256))
                .ok()?
                .claims;
            Some(claims["sub"].as_str()?.into())
        }
        Dimension::OwnClaim => bearer().map(<[u8]>::to_vec),
        Dimension::Cookie => {
            let pairs = first(request, b"cookie")?.split(|byte| *byte == b';');
            let mut own = pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(b"sid="));
            own.next().map(<[u8]>::to_vec)
        }
        Dimension::Query => value(&request.query, b"key"),
        Dimension::Host if first(request, b"host")? == b"a.test" && route == "login" => token(),
        Dimension::Host => None,
        Dimension::Path | Dimension::Method if route == "rest" => None,
        Dimension::Path | Dimension::Method => Some([&token()?, route.as_bytes()].concat()),
        Dimension::OwnPath => request.path.strip_prefix(b"/items/").map(<[u8]>::to_vec),
        Dimension::Address | Dimension::OwnNetwork => {
            first(request, b"x-forwarded-for").map(<[u8]>::to_vec)
        }
        Dimension::Header | Dimension::OwnCookie | Dimension::OwnQuery | Dimension::OwnHeader => {
            token()
        }
    }
}

fn email(body: &[u8]) -> Option<Vec<u8>> {
    let found = match serde_json::from_slice::<Value>(body) {
        Ok(json) => json["email"].as_str()?.as_bytes().to_vec(),
        Err(_) => value(body, b"email")?,
    };
    Some(found.to_ascii_lowercase())
}

/// The first value of this name, as it stands.
fn value(form: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut pairs = form
        .split(|byte| *byte == b'&')
        .map(|pair| halves(pair, b'='));
    pairs
        .find(|(given, _)| *given == name)
        .map(|(_, value)| value.to_vec())
}

fn first<'r>(request: &'r Request, name: &[u8]) -> Option<&'r [u8]> {
    let mut fields = request.fields.iter();
    fields
        .find(|(given, _)| given == name)
        .map(|(_, value)| &value[..])
}

/// What stands before and behind the first such byte.
fn halves(text: &[u8], at: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == at) {
        Some(place) => (&text[..place], &text[place + 1..]),
        None => (text, &[]),
    }
}
