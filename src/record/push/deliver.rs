//! One request to a destination, and what its answer means.

use std::cell::OnceCell;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::Full;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::row::Part;
use super::settings::{Engine, Settings};
use super::{graphite, otlp, remote_write};
use crate::net::Roots;
use crate::net::client::{BoxError, send_request};

/// How long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest pause that a destination may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Most of an answer that is told.
const MOST_TOLD: usize = 200;
/// Bytes of an answer in which it is looked for what it means.
const MOST_READ: usize = 4_096;
/// Words of Prometheus, and of Mimir, for what is there already.
const KNOWN: [&str; 4] = [
    "out of order",
    "out-of-order",
    "duplicate sample",
    "sample with the same timestamp",
];
/// And for what is too old.
const TOO_OLD: [&str; 4] = ["out of bounds", "out-of-bounds", "too old", "too-old"];
/// Of a peer of Graphite's protocol that may have lost what it was sent.
const EARLY: &str = "it closes connections before it has read what was sent";

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination has it.
    Taken,
    /// It has all of it but so many samples.
    Partly(u64, String),
    /// It takes none of it, for it has something of these seconds or of later ones.
    Known(String),
    /// It takes none of it, for some of it is from too long ago.
    TooOld(String),
    /// It takes none of it, for it is too much at once.
    TooLarge(String),
    /// It never takes it.
    Refused(String),
    /// It may have it or not, and is asked again, after this pause if it said so.
    Again(String, Option<Duration>),
}

/// Sends some samples. `now` is the wall clock, `begun` the second from which on is counted; `system` holds whom the system
/// trusts, once that was needed.
pub async fn deliver(
    settings: &Settings,
    system: &OnceCell<Roots>,
    part: Part<'_>,
    begun: u64,
    now: Duration,
) -> Outcome {
    let sent = async {
        match settings.engine {
            Engine::Graphite => graphite(settings, part).await,
            Engine::Prometheus | Engine::Otlp => http(settings, system, part, begun, now).await,
        }
    };
    match tokio::time::timeout(PATIENCE, sent).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(why)) => Outcome::Again(told(&*why), None),
        Err(_) => Outcome::Again("no answer in time".into(), None),
    }
}

/// All causes of an error.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let deeper = error.to_string();
        if !text.contains(&deeper) {
            text = format!("{text}: {deeper}");
        }
        cause = error.source();
    }
    text
}

/// The protocol acknowledges nothing. A peer that closes after our end has read all of it; one that closes before, a proxy
/// without a server for instance, may have read nothing.
async fn graphite(settings: &Settings, part: Part<'_>) -> Result<Outcome, BoxError> {
    let lines = graphite::encode(part, &settings.labels);
    let host = settings.url.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let port = settings.url.port_u16().unwrap_or(2003);
    let mut stream = TcpStream::connect((bare, port)).await?;
    stream.write_all(&lines).await?;
    match SockRef::from(&stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => return Err(EARLY.into()),
        // An error is told once.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
        _ => {}
    }
    stream.shutdown().await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    if let Some(error) = stream.take_error()? {
        return Err(error.into());
    }
    // When both ends are acknowledged the system has no connection any more. Where it has one, the peer's end was on its way
    // before ours was there.
    match stream.peer_addr() {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(Outcome::Taken),
        _ => Err(EARLY.into()),
    }
}

async fn http(
    settings: &Settings,
    system: &OnceCell<Roots>,
    part: Part<'_>,
    begun: u64,
    now: Duration,
) -> Result<Outcome, BoxError> {
    let labels = &settings.labels;
    let (fields, body) = match settings.engine {
        Engine::Otlp => (&otlp::FIELDS[..], otlp::encode(part, labels, begun)),
        _ => (
            &remote_write::FIELDS[..],
            remote_write::encode(part, labels)?,
        ),
    };
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(settings.url.clone())
        .header(
            header::USER_AGENT,
            concat!("tollgate/", env!("CARGO_PKG_VERSION")),
        );
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    if let Some(token) = &settings.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let roots = match &settings.roots {
        None if settings.url.scheme_str() == Some("https") => {
            if system.get().is_none() {
                let _ = system.set(Roots::from_system()?);
            }
            system.get()
        }
        roots => roots.as_ref(),
    };
    let answer = send_request(roots, request.body(Full::new(Bytes::from(body)))?).await?;
    let (head, body) = answer.into_parts();
    Ok(read(
        settings.engine,
        head.status,
        &head.headers,
        &body,
        now,
    ))
}

/// What an answer means.
fn read(
    engine: Engine,
    status: StatusCode,
    fields: &HeaderMap,
    body: &[u8],
    now: Duration,
) -> Outcome {
    if status.is_success() {
        let rejected = (engine == Engine::Otlp).then(|| otlp::rejected(body));
        return match rejected.flatten() {
            Some((count, why)) => Outcome::Partly(count, first_line(why.as_bytes())),
            None => Outcome::Taken,
        };
    }
    let said = String::from_utf8_lossy(&body[..body.len().min(MOST_READ)]).to_lowercase();
    let line = first_line(body);
    let why = match line.as_str() {
        "" => format!("it answers {}", status.as_u16()),
        line => format!("it answers {}: {line}", status.as_u16()),
    };
    let says = |words: &[&str]| words.iter().any(|words| said.contains(words));
    let prometheus = engine == Engine::Prometheus;
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => Outcome::TooLarge(why),
        StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => {
            if prometheus && says(&KNOWN) {
                Outcome::Known(why)
            } else if prometheus && says(&TOO_OLD) {
                Outcome::TooOld(why)
            } else {
                Outcome::Refused(why)
            }
        }
        // All others are about the destination or the way to it, a token or a path that is wrong too: somebody will mend it.
        _ => Outcome::Again(why, pause(fields, now)),
    }
}

fn first_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MOST_TOLD)]);
    let line = text.lines().next().unwrap_or_default().trim();
    let plain = line.chars().filter(|c| !c.is_control());
    plain.take(MOST_TOLD).collect()
}

/// `Retry-After`: seconds, or a date.
fn pause(fields: &HeaderMap, now: Duration) -> Option<Duration> {
    let text = fields.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = text.parse().map(Duration::from_secs).ok();
    let pause = seconds.or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        let date = date.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(date.saturating_sub(now))
    })?;
    Some(pause.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(engine: Engine, status: u16, body: &str, expected: &Outcome) {
        let status = StatusCode::from_u16(status).unwrap();
        let now = Duration::from_secs(784_111_777);
        let mut fields = HeaderMap::new();
        fields.insert(
            "retry-after",
            "Sun, 06 Nov 1994 08:49:47 GMT".parse().unwrap(),
        );
        let outcome = read(engine, status, &fields, body.as_bytes(), now);
        assert_eq!(&outcome, expected, "{status} {body}");
    }

    #[test]
    fn answers_mean_what_they_say() {
        let (prometheus, otlp) = (Engine::Prometheus, Engine::Otlp);
        check(prometheus, 204, "", &Outcome::Taken);
        check(otlp, 200, "\x0a\x00", &Outcome::Taken);
        let partly = Outcome::Partly(3, "no".into());
        check(otlp, 200, "\x0a\x06\x08\x03\x12\x02no", &partly);
        let again = |why: &str| Outcome::Again(why.into(), Some(Duration::from_secs(10)));
        check(prometheus, 503, "", &again("it answers 503"));
        check(otlp, 429, "later\nplease", &again("it answers 429: later"));
        let known = Outcome::Known("it answers 400: out of order sample".into());
        check(prometheus, 400, "out of order sample\n", &known);
        let old = Outcome::TooOld("it answers 400: out of bounds".into());
        check(prometheus, 400, "out of bounds", &old);
        let refused = Outcome::Refused("it answers 400: out of order sample".into());
        check(otlp, 400, "out of order sample", &refused);
        let refused = Outcome::Refused("it answers 422".into());
        check(prometheus, 422, "", &refused);
        let large = Outcome::TooLarge("it answers 413".into());
        check(prometheus, 413, "", &large);
    }

    /// What is wrong with the way there is no reason to drop what is on it.
    #[test]
    fn mistakes_of_operators_are_waited_for() {
        for status in [
            301, 302, 307, 401, 402, 403, 404, 405, 407, 408, 411, 415, 421, 451,
        ] {
            let pause = Some(Duration::from_secs(10));
            let again = Outcome::Again(format!("it answers {status}"), pause);
            check(Engine::Prometheus, status, "", &again);
            check(Engine::Otlp, status, "", &again);
        }
    }

    #[test]
    fn pauses_are_bounded() {
        let mut fields = HeaderMap::new();
        assert_eq!(pause(&fields, Duration::ZERO), None);
        fields.insert("retry-after", "7".parse().unwrap());
        assert_eq!(pause(&fields, Duration::ZERO), Some(Duration::from_secs(7)));
        fields.insert("retry-after", "99999999999".parse().unwrap());
        assert_eq!(pause(&fields, Duration::ZERO), Some(LONGEST_PAUSE));
        fields.insert("retry-after", "soon".parse().unwrap());
        assert_eq!(pause(&fields, Duration::ZERO), None);
    }
}
