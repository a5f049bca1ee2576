//! Sends the HTTPS requests of the ACME library to a directory.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::net::Roots;
use crate::net::client::{BoxError, send_request};

/// The longest time for connecting, sending the request and receiving its response together.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A client for directories whose certificates chain to these roots. It refuses URLs without `https://`.
pub struct DirectoryClient(pub Roots);

impl HttpClient for DirectoryClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let roots = self.0.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let host_error = |reason: BoxError| Error::Other(format!("{host}: {reason}").into());
            if request.uri().scheme_str() != Some("https") {
                return Err(host_error(
                    "only URLs that begin with https:// are asked".into(),
                ));
            }
            let response =
                tokio::time::timeout(REQUEST_TIMEOUT, send_request(Some(&roots), request)).await;
            let response = response.unwrap_or_else(|_| Err("no response in time".into()));
            response
                .map(|response| BytesResponse::from(response.map(Full::new)))
                .map_err(host_error)
        })
    }
}
