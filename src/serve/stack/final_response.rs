//! What the gateway changes of every final response, in order, after the layers have made it.

use super::body::ResponseBody;
use super::changed_fields::change_response;
use super::request_context::RequestContext;
use super::{compression, cors, http_check, own_page};
use crate::http::head::Response;

/// Changes the fields of a response, by the id of the request, the listener and the policy. Which pages may read the response
/// is said after that, so that no policy contradicts it. Then the response is compressed where the policy says so.
#[cold]
pub(super) fn change_response_of(context: &RequestContext, response: &mut Response<ResponseBody>) {
    let head = &mut response.head;
    if let Some(request_id) = context.request_id() {
        request_id.set_field(&mut head.fields);
    }
    let listener = context.listener();
    if let Some(hsts) = listener.and_then(|listener| listener.hsts.as_ref()) {
        head.fields
            .set("strict-transport-security", hsts.as_bytes());
    }
    if listener.is_some_and(|listener| listener.announces_http3) && !context.peer.is_quic {
        let alt_svc = context.peer.alt_svc();
        head.fields.set("alt-svc", alt_svc.as_bytes());
    }
    change_response(context, head);
    if context.generation.ruleset.has_error_pages {
        own_page::set_vary(context, head);
    }
    cors::set_fields(context, head);
    compression::compress(context, response);
    if context.peer.is_check() {
        http_check::apply_check_options(context, response);
    }
}
