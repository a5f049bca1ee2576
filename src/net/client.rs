//! An HTTP/1.1 client that opens a connection for each request. It sends the few requests of the gateway itself, such
//! as those to an ACME directory. It follows no redirects. Requests of clients go through `upstream`.

use std::error::Error as StdError;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::net::{Connector, Roots, Socket};

/// Maximum bytes of a response body, to bound the memory that a server can fill. A longer body is an error.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The error of a request; its text is for log messages.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The error of a URL whose port is not a number from 1 to 65535.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("its URL has no valid port")]
pub struct InvalidPort;

/// The port that an authority names; `None` if it names none.
///
/// # Errors
///
/// The text after the colon is no port. [`Authority::port_u16`] returns `None` for such a text too.
pub fn named_port(authority: &Authority) -> Result<Option<u16>, InvalidPort> {
    let text = authority.as_str();
    let host_and_port = text
        .rsplit_once('@')
        .map_or(text, |(_, host_and_port)| host_and_port);
    if host_and_port == authority.host() {
        return Ok(None);
    }
    let port = authority.port_u16().filter(|port| *port > 0);
    port.map(Some).ok_or(InvalidPort)
}

/// Sends a request to the host of its URL, and reads the whole response. Sets `Host` and `Connection: close`. There is
/// no timeout; the caller sets one.
///
/// # Errors
///
/// The URL is not `http://` or `https://`, or has no host or an invalid port. For `https://` there are no `roots`, or
/// the server's certificate is not for the host or does not chain to them. The connection fails, the response is
/// malformed, or its body is longer than 1 MiB.
pub async fn send_request<B>(
    roots: Option<&Roots>,
    mut request: Request<B>,
) -> Result<Response<Bytes>, BoxError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let uri = std::mem::take(request.uri_mut());
    let authority = uri.authority().ok_or("its URL has no host")?;
    let tls_roots = match uri.scheme_str() {
        Some("https") => Some(roots.ok_or("no certificate authority is there to verify it")?),
        Some("http") => None,
        _ => return Err("its URL is neither http:// nor https://".into()),
    };
    let host = authority.host();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let default_port = if tls_roots.is_some() { 443 } else { 80 };
    let port = named_port(authority)?.unwrap_or(default_port);
    let connector = tls_roots.map(|roots| -> Result<Connector, BoxError> {
        let name = Connector::parse_server_name(host)?;
        Ok(Connector::new(name, roots, None, false)?)
    });
    let connector = connector.transpose()?;
    let stream = TcpStream::connect((host, port)).await?;
    let socket = match connector {
        Some(connector) => Socket::connect_tls(stream, &connector).await?,
        None => Socket::to_server(stream)?,
    };

    let fields = request.headers_mut();
    fields.insert(header::HOST, HeaderValue::from_str(authority.as_str())?);
    fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let path_and_query = uri.path_and_query().map_or("/", |text| text.as_str());
    *request.uri_mut() = Uri::try_from(path_and_query)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let exchange = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES)
            .collect()
            .await?
            .to_bytes();
        Ok(Response::from_parts(parts, body))
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        response = &mut exchange => response,
        connection_end = connection => {
            connection_end?;
            // The server may close right after the last byte of the response.
            exchange.await
        }
    }
}
