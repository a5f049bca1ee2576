//! HTTPS to a directory: one connection for each request, for there are few.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::net::TcpStream;

use crate::net::{Connector, Roots, Socket};

/// How long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of an answer.
const MOST: usize = 1024 * 1024;

type Boxed = Box<dyn StdError + Send + Sync>;

/// Speaks to directories that prove by `0` to be who they say.
pub struct Client(pub Roots);

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let roots = self.0.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let asked = tokio::time::timeout(PATIENCE, ask(&roots, request)).await;
            let asked = asked.unwrap_or_else(|_| Err("no answer in time".into()));
            let told = |why: Boxed| Error::Other(format!("{host}: {why}").into());
            asked.map(BytesResponse::from).map_err(told)
        })
    }
}

async fn ask(
    roots: &Roots,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Full<Bytes>>, Boxed> {
    let uri = std::mem::take(request.uri_mut());
    let authority = uri.authority().ok_or("its URL has no host")?;
    if uri.scheme_str() != Some("https") {
        return Err("it is not asked but under https://".into());
    }
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let connector = Connector::new(Connector::name(bare)?, roots, None, false)?;
    let stream = TcpStream::connect((bare, authority.port_u16().unwrap_or(443))).await?;
    let socket = Socket::connect(stream, &connector).await?;

    let fields = request.headers_mut();
    fields.insert(header::HOST, HeaderValue::from_str(authority.as_str())?);
    fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = Uri::try_from(path)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let exchange = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MOST).collect().await?.to_bytes();
        Ok(Response::from_parts(parts, Full::new(body)))
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
