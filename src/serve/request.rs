//! The head of a request: RFC 9112 section 3, read strictly.

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::header::{EXPECT, TE};
use http::request::Parts;
use http::{Method, Request, Uri, Version};

use super::hop;
use crate::http1::fields::range;
use crate::http1::{Framing, MAX_FIELDS, MAX_HEAD, Malformed, Places};

/// A request without its body.
pub struct Head {
    /// Method, target and fields.
    pub parts: Parts,
    /// How far the body reaches.
    pub framing: Framing,
    /// What the client expects of the answer.
    pub wants: Wants,
    /// The client sends the body when it has been told to continue.
    pub waits: bool,
}

/// What the client expects of the answer.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    /// A head only.
    pub head_only: bool,
    /// HTTP/1.1 and not 1.0.
    pub newer: bool,
    /// The connection goes on.
    pub keep: bool,
    /// Trailers are understood.
    pub trailers: bool,
}

/// Why there is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is no request.
    Malformed(&'static str),
    /// It has too many fields or bytes.
    TooLarge,
    /// It is of another version of HTTP.
    Version,
}

impl From<Malformed> for Bad {
    fn from(malformed: Malformed) -> Bad {
        Bad::Malformed(malformed.0)
    }
}

/// Takes a head off the front of `input`, when all of it is there.
pub fn next(input: &mut BytesMut) -> Result<Option<Head>, Bad> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut []);
    let end = match head.parse_with_uninit_headers(input, &mut fields) {
        Ok(httparse::Status::Complete(end)) if end <= MAX_HEAD => end,
        Ok(httparse::Status::Partial) if input.len() <= MAX_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Bad::TooLarge),
        Err(httparse::Error::Version) => return Err(Bad::Version),
        Err(_) => return Err(Bad::Malformed("its head cannot be read")),
    };
    let newer = head.version == Some(1);
    let method = head.method.unwrap_or_default();
    let method = Method::from_bytes(method.as_bytes());
    let method = method.map_err(|_| Bad::Malformed("its method is not one"))?;
    let places = Places::new(input, head.headers);
    let (target, length) = places.of(head.path.unwrap_or_default());
    let bytes = input.split_to(end).freeze();
    let target = Uri::from_maybe_shared(bytes.slice(range(target, length)));
    let (headers, said) = places.read(&bytes)?;
    let framing = said.framing(newer, Framing::Length(0))?;
    let expects = headers.get(EXPECT);
    let waits = expects.is_some_and(|e| e.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let wants = Wants {
        head_only: method == Method::HEAD,
        newer,
        keep: said.keeps(newer),
        trailers: headers.get_all(TE).iter().any(hop::accepts_trailers),
    };
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = target.map_err(|_| Bad::Malformed("its target is not one"))?;
    *request.headers_mut() = headers;
    *request.version_mut() = if newer {
        Version::HTTP_11
    } else {
        Version::HTTP_10
    };
    Ok(Some(Head {
        parts: request.into_parts().0,
        framing,
        wants,
        waits: waits && newer && !framing.is_over(),
    }))
}
