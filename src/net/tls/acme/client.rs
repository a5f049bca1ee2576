//! HTTPS to a directory.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::net::Roots;
use crate::net::client::{Boxed, ask};

/// How long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

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
            let told = |why: Boxed| Error::Other(format!("{host}: {why}").into());
            if request.uri().scheme_str() != Some("https") {
                return Err(told("it is not asked but under https://".into()));
            }
            let asked = tokio::time::timeout(PATIENCE, ask(Some(&roots), request)).await;
            let asked = asked.unwrap_or_else(|_| Err("no answer in time".into()));
            asked
                .map(|answer| BytesResponse::from(answer.map(Full::new)))
                .map_err(told)
        })
    }
}
