//! Tells an operator who they are to the gateway, and what they may do.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::bans;
use super::control::ControlState;
use super::operator::AdminOperator;
use super::rights::{Access, AdminRoute, Method};

/// A route, as operators are told of it.
pub(super) struct ListedRoute {
    method: Method,
    path: &'static str,
    access: Access,
}

impl From<&AdminRoute> for ListedRoute {
    fn from(route: &AdminRoute) -> ListedRoute {
        ListedRoute {
            method: route.method,
            path: route.path,
            access: route.access,
        }
    }
}

/// All routes.
#[derive(Clone)]
pub(super) struct RouteList(pub(super) Arc<[ListedRoute]>);

/// `GET /v1/whoami`: the name and the right of the request's token, and the requests that it may send. The name is null where
/// no token is needed. Paths are patterns. `ban_response` is what banned clients get.
pub(super) async fn whoami(
    State(gateway): ControlState,
    operator: AdminOperator,
    Extension(RouteList(routes)): Extension<RouteList>,
) -> Json<Value> {
    let may = routes.iter().filter(|route| match route.access {
        Access::Public => true,
        Access::Needs(right) => right <= operator.right,
    });
    let may = may.map(|route| format!("{} {}", route.method.as_str(), route.path));
    Json(json!({
        "name": operator.name.as_deref(),
        "rights": operator.right.as_str(),
        "may": may.collect::<Vec<String>>(),
        "ban_response": bans::response_name(gateway.running().ruleset.ban_response),
    }))
}
