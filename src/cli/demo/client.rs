//! The clients of the demo. Each request has a connection of its own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest time between two parts of a response of the gateway.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client: an address, and a user with a plan if it says who it is.
#[derive(Clone, Copy)]
pub(super) struct DemoClient {
    pub(super) ip: &'static str,
    /// The user and its plan.
    pub(super) user: Option<(&'static str, &'static str)>,
}

/// What the gateway or the upstream sent back.
pub(super) struct DemoResponse {
    /// The head and the body, as they came.
    pub(super) text: String,
}

impl DemoResponse {
    /// The status code; 0 if there is none.
    pub(super) fn status(&self) -> u16 {
        let code = self.text.split(' ').nth(1);
        code.and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// The status line, `Retry-After` if it is there, and the body: what a client looks at.
    pub(super) fn excerpt(&self) -> String {
        let (head, body) = self.text.split_once("\r\n\r\n").unwrap_or((&self.text, ""));
        let mut lines = head.lines();
        let status_line = lines.next().unwrap_or_default().to_owned();
        let retry_after = lines.filter(|line| {
            let name = line.split(':').next().unwrap_or_default();
            name.eq_ignore_ascii_case("retry-after")
        });
        let mut excerpt = vec![status_line];
        excerpt.extend(retry_after.map(str::to_owned));
        excerpt.extend(body.lines().map(str::to_owned));
        excerpt.join("\n")
    }
}

impl DemoClient {
    /// Sends a `GET` request.
    ///
    /// # Errors
    ///
    /// The gateway sent no response; the message says so.
    pub(super) fn get(&self, gateway: SocketAddr, path: &str) -> io::Result<DemoResponse> {
        self.send(gateway, &format!("GET {path}"), "")
    }

    /// Sends a form to `/login`. Errors are those of [`DemoClient::get`].
    pub(super) fn log_in(
        &self,
        gateway: SocketAddr,
        email: &str,
        password: &str,
    ) -> io::Result<DemoResponse> {
        let form = format!("email={email}&password={password}");
        self.send(gateway, "POST /login", &form)
    }

    fn send(
        &self,
        gateway: SocketAddr,
        method_and_path: &str,
        form: &str,
    ) -> io::Result<DemoResponse> {
        self.send_on_new_connection(gateway, method_and_path, form)
            .map_err(|error| io::Error::other(format!("no response from the gateway: {error}")))
    }

    /// Sends the request, and reads until the gateway closes the connection.
    fn send_on_new_connection(
        &self,
        gateway: SocketAddr,
        method_and_path: &str,
        form: &str,
    ) -> io::Result<DemoResponse> {
        let mut stream = TcpStream::connect(gateway)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let ip = self.ip;
        let user_fields = match self.user {
            Some((user, plan)) => format!("x-user: {user}\r\nx-plan: {plan}\r\n"),
            None => String::new(),
        };
        let form_fields = match form.len() {
            0 => String::new(),
            length => format!(
                "content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n"
            ),
        };
        let request = format!(
            "{method_and_path} HTTP/1.1\r\nhost: {gateway}\r\nx-forwarded-for: {ip}\r\n{user_fields}{form_fields}\
             connection: close\r\n\r\n{form}"
        );
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(DemoResponse { text })
    }
}
