//! What a route does with the requests that its limits admit: it forwards them to an upstream, or the gateway answers by
//! itself. This file only describes the actions; the stack carries them out.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::descriptor::DescriptorPattern;
use super::pattern::Pattern;
use super::redirect::Redirect;
use super::usage::UsageList;

/// What a route does with the requests that its limits admit.
#[derive(Clone, Debug)]
pub enum RouteAction {
    /// The upstream with this index among those of the running policies serves them.
    Forward(usize),
    /// The gateway gives each of them this response.
    Respond(Arc<FixedResponse>),
    /// The gateway sends clients to another URL.
    Redirect(Arc<Redirect>),
    /// The gateway tells clients what they have left of these limits.
    Usage(Arc<UsageList>),
    /// A proxy that has asked serves them.
    Admit,
    /// A proxy that has asked by these descriptors serves them. No HTTP request has such a route.
    Decide(Arc<DescriptorPattern>),
}

impl RouteAction {
    /// The index of the upstream; `None` if there is none.
    #[inline]
    pub fn upstream_index(&self) -> Option<usize> {
        match self {
            RouteAction::Forward(index) => Some(*index),
            RouteAction::Respond(_)
            | RouteAction::Redirect(_)
            | RouteAction::Usage(_)
            | RouteAction::Admit
            | RouteAction::Decide(_) => None,
        }
    }

    /// The status of the gateway's own answer; `None` if a server answers.
    pub fn own_status(&self) -> Option<StatusCode> {
        match self {
            RouteAction::Forward(_) | RouteAction::Admit | RouteAction::Decide(_) => None,
            RouteAction::Respond(response) => Some(response.status),
            RouteAction::Redirect(redirect) => Some(redirect.status),
            RouteAction::Usage(_) => Some(StatusCode::OK),
        }
    }

    /// What becomes of a request, in words that follow its pattern: `to shop`, `answered with 503`. The upstream has the
    /// name `upstream_name`, which is empty if there is none.
    pub fn describe(&self, upstream_name: &str) -> String {
        match self {
            RouteAction::Forward(_) => format!("to {upstream_name}"),
            RouteAction::Respond(response) => {
                format!("answered with {}", response.status.as_u16())
            }
            RouteAction::Redirect(redirect) => format!(
                "redirected to {} with {}",
                redirect.target,
                redirect.status.as_u16()
            ),
            RouteAction::Usage(_) => "answered with what callers have left".to_owned(),
            RouteAction::Admit => "admitted for proxies that ask".to_owned(),
            RouteAction::Decide(_) => "decided for proxies that ask by gRPC".to_owned(),
        }
    }

    /// What a route with this action matches, as operators read it; `pattern` is that of the route.
    pub fn match_text(&self, pattern: &Pattern) -> String {
        match self {
            RouteAction::Decide(descriptors) => descriptors.to_string(),
            _ => pattern.to_string(),
        }
    }

    /// Whether clients get told what they have left of their limits.
    pub fn is_usage(&self) -> bool {
        matches!(self, RouteAction::Usage(_))
    }
}

/// A response that is the same for every request.
#[derive(Clone, Debug)]
pub struct FixedResponse {
    /// The status, from 200 to 599.
    pub status: StatusCode,
    /// The value of `Content-Type`, which is left out where there is no body.
    pub content_type: Box<str>,
    /// The body; always empty for a status whose responses have none.
    pub body: Bytes,
}

impl FixedResponse {
    /// Maximum size of a body in bytes.
    pub const MAX_BODY_BYTES: usize = 1024 * 1024;

    /// Whether responses of this status have no body: RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5.
    pub fn is_bodiless(status: StatusCode) -> bool {
        matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        )
    }
}
