//! One request over a connection of its own, for questions that are few: to a directory of certificates, to an engine that
//! takes figures.

use std::error::Error as StdError;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::net::{Connector, Roots, Socket};

/// Most bytes of an answer.
const MOST: usize = 1024 * 1024;

/// Why there is no answer.
pub type Boxed = Box<dyn StdError + Send + Sync>;

/// Asks over HTTP/1.1 what the request's URL names; a host that is asked under https:// proves to `roots` who it is. Waits
/// as long as it takes.
pub async fn ask<B>(
    roots: Option<&Roots>,
    mut request: Request<B>,
) -> Result<Response<Bytes>, Boxed>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Boxed>,
{
    let uri = std::mem::take(request.uri_mut());
    let authority = uri.authority().ok_or("its URL has no host")?;
    let secure = match uri.scheme_str() {
        Some("https") => Some(roots.ok_or("there is nobody to verify it by")?),
        Some("http") => None,
        _ => return Err("it is asked under http:// or https:// only".into()),
    };
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16();
    let port = port.unwrap_or(if secure.is_some() { 443 } else { 80 });
    let connector = secure.map(|roots| -> Result<Connector, Boxed> {
        let name = Connector::name(bare)?;
        Ok(Connector::new(name, roots, None, false)?)
    });
    let connector = connector.transpose()?;
    let stream = TcpStream::connect((bare, port)).await?;
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
        let body = Limited::new(body, MOST).collect().await?.to_bytes();
        Ok(Response::from_parts(parts, body))
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => {
            ended?;
            // All of the answer may be there.
            exchange.await
        }
    }
}
