//! [`AdminRoute`]: a path of the admin listener with a method, a handler and the right that it needs. A request without
//! that right does not reach the handler, and no order is carried out unrecorded.

use std::sync::Arc;

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use tokio::sync::Semaphore;

use super::audit::{self, Refusals};
use super::bodies::AwaitedBodies;
use super::control::Control;
use super::operator::{AdminOperator, TokenRefusal};
use super::problem::problem_response;
use crate::operator::Right;

/// The method of a route. `Get` serves `HEAD` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Delete,
}

impl Method {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Delete => MethodFilter::DELETE,
        }
    }
}

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody who reaches the listener. The handler shows nothing of the gateway.
    Public,
    /// Operators with this right. A right above [`Right::Read`] makes the request an order: it is recorded, and its body must
    /// be JSON.
    Needs(Right),
}

/// A route of the admin listener.
pub(super) struct AdminRoute {
    pub(super) method: Method,
    /// The path as axum writes patterns, such as `/v1/bans/{*key}`.
    pub(super) path: &'static str,
    pub(super) access: Access,
    handler: MethodRouter<Arc<dyn Control>>,
}

/// Creates a route for operators with this right.
pub(super) fn route<T: 'static>(
    method: Method,
    path: &'static str,
    right: Right,
    handler: impl Handler<T, Arc<dyn Control>>,
) -> AdminRoute {
    AdminRoute {
        method,
        path,
        access: Access::Needs(right),
        handler: on(method.filter(), handler),
    }
}

/// Creates a route of which everybody may `GET` the path.
pub(super) fn public_route<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, Arc<dyn Control>>,
) -> AdminRoute {
    AdminRoute {
        access: Access::Public,
        ..route(Method::Get, path, Right::Read, handler)
    }
}

impl AdminRoute {
    /// The handler behind the check of the right.
    pub(super) fn guarded(
        self,
        gateway: Arc<dyn Control>,
        bounds: RequestBounds,
    ) -> MethodRouter<Arc<dyn Control>> {
        let Access::Needs(right) = self.access else {
            return self.handler;
        };
        let guard = Guard {
            gateway,
            bounds,
            right,
            request: format!("{} {}", self.method.as_str(), self.path).into(),
        };
        self.handler
            .route_layer(from_fn_with_state(guard, check_right))
    }
}

/// What all routes together are bounded by.
#[derive(Clone)]
pub(super) struct RequestBounds {
    pub(super) refusals: Arc<Refusals>,
    pub(super) bodies: Arc<AwaitedBodies>,
    /// A permit for each order that is carried out at once.
    pub(super) orders: Arc<Semaphore>,
}

/// What the check of a route's right needs.
#[derive(Clone)]
struct Guard {
    gateway: Arc<dyn Control>,
    bounds: RequestBounds,
    right: Right,
    /// The method and the pattern of the path.
    request: Arc<str>,
}

impl Guard {
    /// Records a request of an operator that was refused before its handler.
    fn record_refusal(&self, operator: &AdminOperator, result: &str) {
        let refusals = &self.bounds.refusals;
        refusals.record(&*self.gateway, operator, &self.request, result);
    }
}

/// Passes a request on whose operator has the right. Others get 403, or 401 without an operator; an order whose body is not
/// JSON gets 415. See [`AwaitedBodies::read`] for bodies that cannot be read.
async fn check_right(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let Some(operator) = request.extensions().get::<AdminOperator>().cloned() else {
        return TokenRefusal::Missing.to_response();
    };
    if operator.right < guard.right {
        let needed = guard.right.as_str();
        let result = format!("needs the right `{needed}`");
        guard.record_refusal(&operator, &result);
        let detail = format!(
            "this needs the right `{needed}`; the token of `{}` has `{}`",
            operator.signature(None),
            operator.right.as_str()
        );
        return problem_response(StatusCode::FORBIDDEN, &detail);
    }
    let is_order = guard.right > Right::Read;
    if is_order && has_foreign_body(&request) {
        guard.record_refusal(&operator, "the body is not declared as JSON");
        return problem_response(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the body as `content-type: application/json`",
        );
    }
    let request = match guard.bounds.bodies.read(&operator, request).await {
        Ok(request) => request,
        Err(unread) => {
            if is_order {
                guard.record_refusal(&operator, unread.detail);
            }
            return problem_response(unread.status, unread.detail);
        }
    };
    if !is_order {
        return next.run(request).await;
    }
    let Ok(permit) = guard.bounds.orders.clone().try_acquire_owned() else {
        let detail = "the gateway carries out too many orders; try again in some seconds";
        return problem_response(StatusCode::SERVICE_UNAVAILABLE, detail);
    };
    // On a task of its own, so that a client that leaves neither ends an order halfway nor hides it.
    let Guard {
        gateway,
        request: name,
        ..
    } = guard;
    let (task_gateway, task_operator, task_name) =
        (gateway.clone(), operator.clone(), name.clone());
    let order = tokio::spawn(async move {
        let _permit = permit;
        let response = next.run(request).await;
        audit::record_order(&task_gateway, &task_operator, &task_name, response).await
    });
    match order.await {
        Ok(response) => response,
        Err(error) => {
            let response = audit::failed(&error);
            audit::record_order(&gateway, &operator, &name, response).await
        }
    }
}

/// Whether a request has a body that is not declared as JSON. A page of another site can send only such bodies without
/// being asked first, as a form does.
fn has_foreign_body(request: &Request) -> bool {
    let is_empty = request.body().is_end_stream();
    let mut types = request.headers().get_all(header::CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (None, _) => !is_empty,
        (Some(_), None) => !is_json(request.headers()),
        (Some(_), Some(_)) => true,
    }
}

/// Whether `Content-Type` is `application/json`, whatever its parameters are.
fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| {
        let media_type = value.split(';').next().unwrap_or_default();
        media_type.trim().eq_ignore_ascii_case("application/json")
    })
}
