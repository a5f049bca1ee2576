//! HTTPS requests to a directory.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::net::Roots;
use crate::net::client::{Boxed, ask};

/// How long a request and its response may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of directories whose certificates these roots vouch for.
pub struct DirectoryClient(pub Roots);

impl HttpClient for DirectoryClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let roots = self.0.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let error = |why: Boxed| Error::Other(format!("{host}: {why}").into());
            if request.uri().scheme_str() != Some("https") {
                return Err(error("only URLs that begin with https:// are asked".into()));
            }
            let response = tokio::time::timeout(PATIENCE, ask(Some(&roots), request)).await;
            let response = response.unwrap_or_else(|_| Err("no response in time".into()));
            response
                .map(|response| BytesResponse::from(response.map(Full::new)))
                .map_err(error)
        })
    }
}
