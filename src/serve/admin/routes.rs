//! The paths of the admin listener, with the handler of each and the right that it needs. The paths of `admin.probes` are in
//! `probes.rs`.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};
use tokio::sync::Semaphore;

use super::authorization::{Entrance, authorize};
use super::bodies::AwaitedBodies;
use super::control::{Control, MAX_BODY_BYTES};
use super::problem::problem_response;
use super::rights::Method::{Delete, Get, Post};
use super::rights::{Access, AdminRoute, RequestBounds, public_route, route};
use super::whoami::{ListedRoute, RouteList, whoami};
use super::{
    actions, api_keys, bans, dashboard, grants, keys, probes, prometheus, record, status, tried,
};
use crate::operator::Right::{Admin, Read, Support};

/// The most orders that are carried out at once, also for clients that have left.
const MAX_ORDERS: usize = 8;

/// All routes. `Read` is for those that change nothing and show no secret.
fn routes() -> Vec<AdminRoute> {
    let mut routes = vec![
        public_route("/", dashboard::page),
        public_route("/healthz", || async { "ok\n" }),
        route(Get, "/readyz", Read, probes::readiness_with_store),
        route(Get, "/metrics", Read, probes::metrics),
        route(Get, "/v1/whoami", Read, whoami),
        route(Get, "/v1/limits", Read, status::limits),
        route(Get, "/v1/limits/{limit}/keys/{key}", Read, keys::read_key),
        route(
            Delete,
            "/v1/limits/{limit}/keys/{key}",
            Support,
            keys::reset_key,
        ),
        route(Get, "/v1/near", Read, record::near),
        route(Get, "/v1/try", Read, tried::tried),
        route(Get, "/v1/bans", Read, bans::list),
        route(Post, "/v1/bans", Support, bans::order),
        route(Delete, "/v1/bans/{*key}", Support, bans::lift),
        route(Get, "/v1/grants", Read, grants::list),
        route(Post, "/v1/grants", Support, grants::order),
        route(Delete, "/v1/grants/{limit}/{*key}", Support, grants::revoke),
        route(Get, "/v1/keys", Read, api_keys::list),
        route(Post, "/v1/keys", Admin, api_keys::add),
        route(Delete, "/v1/keys/{id}", Admin, api_keys::revoke),
        route(Get, "/v1/upstreams", Read, status::upstreams),
        route(Post, "/v1/explain", Read, actions::explain),
        route(Post, "/v1/reload", Admin, actions::reload),
        route(Get, "/v1/policies", Read, status::policies),
        route(Get, "/v1/record/series", Read, record::series),
        route(Get, "/v1/record/range", Read, record::range),
        route(Get, "/v1/record/top", Read, record::top),
        route(Get, "/v1/record/samples", Read, record::samples),
        route(Get, "/v1/record/events", Read, record::events),
        route(Get, "/v1/record/key", Read, record::key),
        route(Get, "/v1/record/explain", Read, record::explain),
        route(Get, "/v1/record/live", Read, record::live),
        route(Get, "/v1/gateways", Read, record::gateways),
        route(Get, "/v1/status", Read, status::status),
    ];
    routes.extend(dashboard::asset_paths().map(|path| public_route(path, dashboard::asset)));
    routes.extend(prometheus::routes());
    routes
}

/// All paths of the admin listener, behind [`authorize`].
pub fn router(gateway: Arc<dyn Control>) -> Router {
    let routes = routes();
    let public_paths = routes.iter().filter(|route| route.access == Access::Public);
    let entrance = Entrance {
        gateway: gateway.clone(),
        public_paths: Arc::new(public_paths.map(|route| route.path).collect()),
        guesses: Arc::default(),
        refusals: Arc::default(),
    };
    let bounds = RequestBounds {
        refusals: entrance.refusals.clone(),
        bodies: Arc::new(AwaitedBodies::default()),
        orders: Arc::new(Semaphore::new(MAX_ORDERS)),
    };
    let list = RouteList(routes.iter().map(ListedRoute::from).collect());
    let router = routes.into_iter().fold(Router::new(), |router, route| {
        let path = route.path;
        let handler = route.guarded(gateway.clone(), bounds.clone());
        router.route(path, handler)
    });
    router
        .fallback(|| async { problem_response(StatusCode::NOT_FOUND, "no such path") })
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(Extension(list))
        .layer(from_fn_with_state(entrance, authorize))
        .with_state(gateway)
}
