//! Sends requests to the admin listener of a running gateway, or to that of its probes. It speaks HTTP/1.0 without TLS,
//! one request on each connection, because these listeners are usually on the loopback interface.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::output::CommandError;
use super::terminal::replace_control_chars;
use crate::policy::text;

/// The longest time to connect to one address, to send a part of the request, and between two parts of the response.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest length of a response in bytes, its head included. A longer response is cut, so that a wrong server
/// cannot fill the memory.
const MAX_RESPONSE_BYTES: u64 = 256 * 1024 * 1024;

/// The address of a running gateway, and its token.
#[derive(clap::Args, Clone)]
pub struct AdminAddress {
    /// Address of the admin listener of a running gateway, such as `127.0.0.1:9900`.
    #[arg(long)]
    pub admin: Option<String>,
    /// File with the token of the admin listener.
    #[arg(long, requires = "admin")]
    pub token_file: Option<PathBuf>,
}

impl AdminAddress {
    /// The address that is used without `--admin`.
    const DEFAULT: &str = "127.0.0.1:9900";

    /// Sends a request, and returns the JSON of a response with status 200.
    ///
    /// # Errors
    ///
    /// The token cannot be read, there is no response, or the response has another status or is not JSON.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Result<Value, CommandError> {
        let admin = self.admin.as_deref().unwrap_or(AdminAddress::DEFAULT);
        let to_command_error = |error: io::Error| match error.kind() {
            // A read that timed out is reported as `WouldBlock`.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let seconds = ADMIN_TIMEOUT.as_secs();
                let message = format!(
                    "no answer from {admin} within {seconds} s: check that this is the address after \
                     `admin` in the gateway file, and that the gateway is neither stopped nor overloaded"
                );
                CommandError::failure(message)
            }
            _ => {
                let cure = match self.admin {
                    Some(_) => "is this the address after `admin` in the gateway file?",
                    None => "name the address after `admin` in the gateway file by `--admin`",
                };
                CommandError::failure(format!("no answer from {admin}: {error}; {cure}"))
            }
        };
        // Operators may paste the URL that a browser shows.
        let authority = admin.trim_start_matches("http://").trim_end_matches('/');
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let request = AdminRequest { method, path, body };
        let response = send_request(authority, token.as_deref(), request, ADMIN_TIMEOUT);
        let (head, body) = response.map_err(|error| CommandError {
            is_unanswered: true,
            ..to_command_error(error)
        })?;
        if head.split(' ').nth(1) != Some("200") {
            return Err(CommandError::failure(refusal_text(&head, &body)));
        }
        serde_json::from_str(&body).map_err(|error| {
            let message = format!(
                "the response of {authority} is not JSON: {error}; is this the admin listener?"
            );
            CommandError::failure(message)
        })
    }
}

/// Percent-encodes all but the unreserved characters of RFC 3986 section 2.3.
pub fn percent_encode(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

/// A request to the admin listener.
pub struct AdminRequest<'a> {
    /// The method, in upper case.
    pub method: &'a str,
    /// The path and the query.
    pub path: &'a str,
    /// The body, which is JSON; empty for a request without one.
    pub body: &'a str,
}

/// What a response with another status than 200 says: the detail of a problem document (RFC 9457), or else all of it.
fn refusal_text(head: &str, body: &str) -> String {
    let problem: Option<Value> = serde_json::from_str(body).ok();
    let detail = problem
        .as_ref()
        .and_then(|problem| problem["detail"].as_str());
    let status = head.split(' ').nth(1).unwrap_or_default();
    match detail {
        Some(detail) => {
            let lines: Vec<String> = detail.lines().map(replace_control_chars).collect();
            format!("the gateway refused this ({status}): {}", lines.join("\n"))
        }
        None => format!("{}\n{body}", head.lines().next().unwrap_or_default()),
    }
}

/// Reads the token of the admin listener from a file.
///
/// # Errors
///
/// The file cannot be read, is not UTF-8, or holds no valid token.
fn read_token(file: &Path) -> Result<String, CommandError> {
    let with_path = |error: &dyn std::fmt::Display| {
        CommandError::failure(format!("{}: {error}", file.display()))
    };
    let bytes = std::fs::read(file).map_err(|error| with_path(&error))?;
    let text = text::decode_utf8(bytes).map_err(|error| with_path(&error.message))?;
    let token = text::trim_secret(&text).map_err(|error| with_path(&error.message))?;
    Ok(token.to_owned())
}

/// Sends a request, and returns the head and the body of the response. The body is empty if the head has no end.
/// `timeout` is used as [`ADMIN_TIMEOUT`] says, so the whole may take longer.
///
/// # Errors
///
/// The listener cannot be reached, or is slower than `timeout`. The response is not UTF-8, perhaps because it was cut.
pub fn send_request(
    authority: &str,
    token: Option<&str>,
    request: AdminRequest<'_>,
    timeout: Duration,
) -> io::Result<(String, String)> {
    let mut stream = connect(authority, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let AdminRequest { method, path, body } = request;
    let token_field = token.map_or_else(String::new, |token| {
        format!("authorization: Bearer {token}\r\n")
    });
    let type_field = match body.is_empty() {
        true => "",
        false => "content-type: application/json\r\n",
    };
    let body_bytes = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: {authority}\r\n{token_field}{type_field}content-length: {body_bytes}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_string(&mut response)?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    Ok((head.to_owned(), body.to_owned()))
}

/// Connects to the first address of `authority` that accepts a connection. Each address may take as long as `timeout`.
/// An error is that of the last address.
fn connect(authority: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last_error = io::Error::other("the name has no address");
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_its_detail_and_obeys_no_control_character() {
        let head = "HTTP/1.0 404 Not Found";
        let body = r#"{"status":404,"detail":"no limit `a\u001b[31m`\nsee /v1/limits"}"#;
        let expected = "the gateway refused this (404): no limit `a\u{fffd}[31m`\nsee /v1/limits";
        assert_eq!(refusal_text(head, body), expected);
        assert_eq!(refusal_text(head, "gone"), "HTTP/1.0 404 Not Found\ngone");
    }
}
