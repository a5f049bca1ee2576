//! A request that an operator wants explained. It becomes a head by the parser of the request path; `explain.rs` does the
//! rest.

use std::net::IpAddr;
use std::rc::Rc;

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::explained_descriptor::DescriptorToExplain;
use super::refusal::RefusalCause;
use crate::http::head::Head;
use crate::net::Subject;
use crate::policy::Ruleset;
use crate::route::{Redirect, RouteTable};
use crate::serve::http1::{repeat_cache::RepeatCache, request};

/// A request to explain.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RequestToExplain {
    /// The method, such as `GET`; empty with a descriptor.
    #[serde(default)]
    pub method: String,
    /// The path and the query; empty with a descriptor.
    #[serde(default)]
    pub path: String,
    /// The name of the listener; the first of the gateway file if absent.
    #[serde(default)]
    pub listen: Option<String>,
    /// The value of `Host`; `localhost` if absent.
    #[serde(default)]
    pub host: Option<String>,
    /// The name and the value of each header field.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The address at the other end of the connection; 127.0.0.1 if absent.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// The body; empty if absent.
    #[serde(default)]
    pub body: String,
    /// The client's certificate in PEM, which counts as verified.
    #[serde(default)]
    pub client_cert: Option<String>,
    /// The JA4 fingerprint of the client's TLS handshake.
    #[serde(default)]
    pub ja4: Option<String>,
    /// The descriptor by which another proxy asks, in place of an HTTP request.
    #[serde(default)]
    pub descriptor: Option<DescriptorToExplain>,
}

/// Why a request cannot be explained: it cannot be written as HTTP/1.1, it names no existing listener, or its certificate
/// cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The method is empty, has a line break, or makes the head incomplete.
    #[error("`{0}` is not a method")]
    Method(String),
    /// The path is empty, or has a line break.
    #[error("`{0}` is not a path")]
    Path(String),
    /// The name of a header field has characters that no name has.
    #[error("`{0}` is not a field name")]
    FieldName(String),
    /// The value of the header field of this name has characters that no value has.
    #[error("the value of `{0}` is not one")]
    FieldValue(String),
    /// No listener has this name.
    #[error("no listener has the name `{0}`")]
    Listener(String),
    /// The certificate is not a valid one in PEM.
    #[error("the client's certificate is none in PEM")]
    Certificate,
}

impl RequestToExplain {
    /// The head as the gateway reads it from a connection. The inner error is why the gateway refuses the head.
    ///
    /// # Errors
    ///
    /// The method, the path or a header field cannot stand in a head.
    pub(super) fn read_head(&self) -> Result<Result<Rc<Head>, RefusalCause>, ExplainError> {
        let method_error = || ExplainError::Method(self.method.clone());
        let has_line_break = |text: &str| text.contains(['\r', '\n']);
        if self.method.is_empty() || has_line_break(&self.method) {
            return Err(method_error());
        }
        if self.path.is_empty() || has_line_break(&self.path) {
            return Err(ExplainError::Path(self.path.clone()));
        }
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            write_field(&mut text, name, value)?;
        }
        if !self.has_field("host") {
            let host = self.host.as_deref().unwrap_or("localhost");
            write_field(&mut text, "host", host)?;
        }
        let has_framing = self.has_field("content-length") || self.has_field("transfer-encoding");
        if !self.body.is_empty() && !has_framing {
            write_field(&mut text, "content-length", &self.body.len().to_string())?;
        }
        text.push_str("\r\n");
        match request::parse_request(&mut text.as_bytes().into(), &mut RepeatCache::default()) {
            Ok(Some(request)) => Ok(Ok(request.head)),
            Ok(None) => Err(method_error()),
            Err(error) => Ok(Err(error.into())),
        }
    }

    /// The routes of the named listener, or else of the first one, and its redirect of every request. Without any listener,
    /// the default routes.
    ///
    /// # Errors
    ///
    /// No listener has the name.
    pub(super) fn listener_table<'r>(
        &self,
        ruleset: &'r Ruleset,
    ) -> Result<(&'r RouteTable, Option<&'r Redirect>), ExplainError> {
        let mut listeners = ruleset.listeners.iter();
        let listener = match &self.listen {
            Some(name) => listeners
                .find(|listener| listener.name.as_ref() == Some(name))
                .ok_or_else(|| ExplainError::Listener(name.clone()))?,
            None => match listeners.next() {
                Some(first_listener) => first_listener,
                None => return Ok((&ruleset.default_table, None)),
            },
        };
        let index = ruleset.listener_table_index(listener.name.as_deref());
        Ok((ruleset.table_at(index), listener.redirect.as_ref()))
    }

    /// Whether the request has a header field of this name, in any case.
    fn has_field(&self, name: &str) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|field_name| field_name.eq_ignore_ascii_case(name))
    }

    /// The subject of the client's certificate; `None` if the request has no certificate.
    ///
    /// # Errors
    ///
    /// The certificate cannot be read.
    pub(super) fn client_subject(&self) -> Result<Option<Subject>, ExplainError> {
        let pem = self.client_cert.as_ref();
        let subject = pem.map(|pem| Subject::from_pem(pem.as_bytes())).transpose();
        subject.map_err(|_| ExplainError::Certificate)
    }
}

/// Appends a header field to the text of a head.
///
/// # Errors
///
/// The name or the value has a character that no header field may have.
fn write_field(text: &mut String, name: &str, value: &str) -> Result<(), ExplainError> {
    HeaderName::try_from(name).map_err(|_| ExplainError::FieldName(name.to_owned()))?;
    HeaderValue::try_from(value).map_err(|_| ExplainError::FieldValue(name.to_owned()))?;
    for piece in [name, ": ", value, "\r\n"] {
        text.push_str(piece);
    }
    Ok(())
}
