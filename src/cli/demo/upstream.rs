//! The upstream of the demo: it responds with the request line, and with 401 to a login with a wrong password.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// The password that the upstream accepts.
pub(super) const RIGHT_PASSWORD: &str = "correct-horse";
/// The longest body that is read, in bytes. The rest of a longer one ends the connection.
const MAX_BODY_BYTES: u64 = 64 * 1024;

/// Starts an upstream on a free port, and returns its address. Its threads end with the process.
pub(super) fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("echo".into()).spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = move || serve_connection(stream);
            if thread::Builder::new().spawn(serve).is_err() {
                return;
            }
        }
    })?;
    Ok(address)
}

/// Responds to requests on one connection until the gateway closes it or the connection fails.
fn serve_connection(stream: TcpStream) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut request_line = String::new();
        if reader.read_line(&mut request_line)? == 0 {
            return Ok(());
        }
        let body_length = read_body_length(&mut reader)?;
        let mut body = Vec::new();
        let readable_length = body_length.min(MAX_BODY_BYTES);
        (&mut reader).take(readable_length).read_to_end(&mut body)?;
        let is_login = request_line.starts_with("POST /login");
        let (status, text) = match is_login && !has_right_password(&body) {
            true => ("401 Unauthorized", "wrong password\n".to_owned()),
            false => (
                "200 OK",
                format!("upstream saw: {}\n", request_line.trim_end()),
            ),
        };
        let length = text.len();
        write!(
            writer,
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{text}"
        )?;
        if body_length > MAX_BODY_BYTES {
            return Ok(());
        }
    }
}

/// Whether a form contains [`RIGHT_PASSWORD`].
fn has_right_password(form: &[u8]) -> bool {
    let mut fields = form.split(|byte| *byte == b'&');
    fields.any(|field| field.strip_prefix(b"password=") == Some(RIGHT_PASSWORD.as_bytes()))
}

/// Reads the header fields of a request, up to the empty line behind them. Returns the length of the body in bytes; 0
/// if they state none.
fn read_body_length(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            return Ok(length);
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
}
