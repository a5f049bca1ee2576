//! What an explanation says of a response beside its status: where a route sends the client or the request, and the file of
//! the body.

use super::own_page;
use super::own_response::find_location;
use super::request_to_explain::RequestToExplain;
use crate::policy::Ruleset;
use crate::route::{Route, RouteAction};
use crate::throttle::reject;

/// Where a route sends the requests that it serves.
#[derive(Default)]
pub(super) struct ExplainedDestination {
    /// The `Location` of the route's redirect.
    pub(super) location: Option<String>,
    /// The path and the query that the upstream gets, if the route changes them.
    pub(super) forwarded: Option<String>,
}

impl ExplainedDestination {
    /// The destination of a request that this route serves.
    pub(super) fn find(request: &RequestToExplain, route: &Route) -> ExplainedDestination {
        let Ok(Ok(head)) = request.read_head() else {
            return ExplainedDestination::default();
        };
        let path_change = route.path_change.as_deref();
        match &route.action {
            RouteAction::Redirect(redirect) => ExplainedDestination {
                location: find_location(redirect, path_change, &head),
                forwarded: None,
            },
            RouteAction::Forward(_) => {
                let target = path_change.and_then(|change| change.forwarded_target(&head.uri).ok());
                ExplainedDestination {
                    location: None,
                    forwarded: target.map(|target| target.to_string()),
                }
            }
            RouteAction::Respond(_)
            | RouteAction::Usage(_)
            | RouteAction::Admit
            | RouteAction::Decide(_) => ExplainedDestination::default(),
        }
    }
}

/// The file with the body of the refusal; `None` if the client gets a problem document or a gRPC status.
pub(super) fn find_page_file<'r>(
    request: &RequestToExplain,
    ruleset: &'r Ruleset,
    route: Option<&'r Route>,
    status: u16,
) -> Option<&'r str> {
    let head = request.read_head().ok()?.ok();
    let head = head.as_deref();
    if head.is_some_and(|head| reject::is_grpc(&head.fields)) {
        return None;
    }
    let page = ruleset.error_page(route, status)?;
    let (template, _) = own_page::choose_template(page, head)?;
    Some(&template.file)
}
