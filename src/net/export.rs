//! Exports to engines and collectors: sends metrics and spans by POST, and reads what a response says of them. Nothing
//! here retries.

use std::cell::OnceCell;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, header};
use http_body_util::Full;

use super::Roots;
use super::client::{BoxError, send_request};

/// The most characters of a response that a log line or the admin API shows.
const MAX_REASON_CHARS: usize = 200;

/// Sends a body by POST, with a bearer token if there is one. The certificate of an `https://` server must chain to
/// `roots`, or to those of the system for `None`. `system_roots` caches the latter; a request that needs them fills it.
///
/// # Errors
///
/// Fails if the roots of the system cannot be read, or if no whole response comes.
pub async fn post(
    url: &Uri,
    (token, roots): (Option<&str>, Option<&Roots>),
    system_roots: &OnceCell<Roots>,
    header_fields: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<Response<Bytes>, BoxError> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url.clone())
        .header(
            header::USER_AGENT,
            concat!("tollgate/", env!("CARGO_PKG_VERSION")),
        );
    for (name, value) in header_fields {
        request = request.header(*name, *value);
    }
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let roots = match roots {
        None if url.scheme_str() == Some("https") => {
            if system_roots.get().is_none() {
                let _ = system_roots.set(Roots::from_system()?);
            }
            system_roots.get()
        }
        roots => roots,
    };
    send_request(roots, request.body(Full::new(Bytes::from(body)))?).await
}

/// Describes an error, and those of its causes that its own text does not name.
pub fn describe_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let cause_text = error.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        cause = error.source();
    }
    text
}

/// Returns the first line of a response without control characters and outer blanks, cut to [`MAX_REASON_CHARS`].
pub fn first_line(body: &[u8]) -> String {
    // A character of UTF-8 has at most four bytes.
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MAX_REASON_CHARS)]);
    let line = text.lines().next().unwrap_or_default().trim();
    let printable = line.chars().filter(|c| !c.is_control());
    printable.take(MAX_REASON_CHARS).collect()
}

/// Reads `Retry-After`, which is a number of seconds or a date. The delay is at most `max_delay`, so that a mistake of a
/// server does not stop the sending for hours. A date in the past is a delay of zero. Returns `None` if the field is
/// missing or malformed. `now` is the wall clock.
pub fn parse_retry_after(
    fields: &HeaderMap,
    now: Duration,
    max_delay: Duration,
) -> Option<Duration> {
    let text = fields.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds_delay = text.parse().map(Duration::from_secs).ok();
    let delay = seconds_delay.or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        let since_1970 = date.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(since_1970.saturating_sub(now))
    })?;
    Some(delay.min(max_delay))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_that_servers_ask_for_are_bounded() {
        #[track_caller]
        fn check(text: &str, seconds: Option<u64>) {
            let mut fields = HeaderMap::new();
            fields.insert(header::RETRY_AFTER, text.parse().unwrap());
            let delay = parse_retry_after(&fields, Duration::ZERO, Duration::from_secs(600));
            assert_eq!(delay, seconds.map(Duration::from_secs), "{text}");
        }
        check("7", Some(7));
        check("99999999999", Some(600));
        check("Thu, 01 Jan 1970 00:00:09 GMT", Some(9));
        check("soon", None);
        let delay = parse_retry_after(&HeaderMap::new(), Duration::ZERO, Duration::MAX);
        assert_eq!(delay, None);
    }
}
