//! An HTTP/1.1 client that opens a connection for each request. It serves the few requests of the gateway itself: to an
//! ACME directory, and to the engines that get pushed samples. Requests of clients go through `upstream`.

use std::error::Error as StdError;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::net::{Connector, Roots, Socket};

/// The most bytes of a response body. A longer one is an error.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Any of the errors on the way to a response.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Sends a request to the host of its URL, and reads the whole response. There is no timeout; the caller sets one.
///
/// # Errors
///
/// Fails if the URL is not `http://` or `https://`, if the server's certificate does not chain to `roots`, or if the
/// connection fails.
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
        Some("https") => Some(roots.ok_or("there is nobody to verify it by")?),
        Some("http") => None,
        _ => return Err("it is asked under http:// or https:// only".into()),
    };
    let host = authority.host();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = match authority.as_str().rsplit_once(authority.host()) {
        Some((_, "")) if tls_roots.is_some() => 443,
        Some((_, "")) => 80,
        _ => authority.port_u16().ok_or("its URL has no valid port")?,
    };
    let connector = tls_roots.map(|roots| -> Result<Connector, BoxError> {
        let name = Connector::server_name(host)?;
        Ok(Connector::new(name, roots, None, false)?)
    });
    let connector = connector.transpose()?;
    let stream = TcpStream::connect((host, port)).await?;
    let socket = match connector {
        Some(connector) => Socket::connect(stream, &connector).await?,
        None => Socket::new(stream)?,
    };

    let fields = request.headers_mut();
    fields.insert(header::HOST, HeaderValue::from_str(authority.as_str())?);
    fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = Uri::try_from(path)?;
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
        closed = connection => {
            closed?;
            // The server may close right after the last byte of the response.
            exchange.await
        }
    }
}
