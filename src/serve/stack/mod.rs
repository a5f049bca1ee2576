//! The stack: what happens to a request, in order. [`layers`] shows the order, [`stages`] the types that the layers
//! hand on. Connections call the stack. It reaches a client only through `downstream.rs`, never by a socket.
//!
//! | layer | file | beside it |
//! |---|---|---|
//! | observe | `observe.rs` | `http_check.rs`, `observed_call.rs`, `final_response.rs`, `changed_fields.rs`, `cors.rs`, `compression.rs`, `vary.rs`, `own_page.rs`, `accepted_media.rs`, `request_context.rs`, `request_id.rs`, `request_outcome.rs`, `record_verdict.rs`, `counted_key.rs`, `sampling.rs`, `traced_request.rs`, `span_facts.rs` |
//! | route | `routing.rs` | `screening.rs`, `ban_view.rs`, `found_route.rs`, `target.rs`, `route_choice.rs`, `matched_route.rs`, `body_routes.rs`, `method_override.rs`, `query_path.rs` |
//! | identify | `identify.rs` | `identification.rs`, `credential_in_body.rs`, `body_needs.rs`, `objection.rs`, `reserved_units.rs` |
//! | throttle | [`crate::throttle`] | `identified.rs`, `limit_refusal.rs`, `refusal_cache.rs` |
//! | forward | `forward.rs`, `forwarding.rs`, `own_response.rs`, `usage.rs` | `added_fields.rs`, `proxy_fields.rs`, `upstream_load.rs`, `detached.rs`, `future_pool.rs`, `mapped_fields.rs`, `message_gate.rs`, `request_deadline.rs` |
//!
//! Names that resemble each other:
//!
//! - `identify.rs` identifies the client by `identification.rs`. `identified.rs` connects the identified request to the throttle.
//! - `forward.rs` is the service and builds the head for the server. `forwarding.rs` sends it and awaits the response.
//! - `explain.rs` computes what the stack would do with a `request_to_explain.rs`, by the layers' functions but without a
//!   layer; `explained_response.rs` finds where a redirect leads, `explained_descriptor.rs` explains a descriptor. `explanation.rs` makes JSON and text of the result,
//!   `explained_account.rs` of an account of credits.
//!
//! `unserved.rs` is a request that the gateway responds to itself, and `unreadable_request.rs` one whose head cannot be
//! read. `refusal.rs` says why a request is not served, and builds the response with `refusal_document.rs`; `ban_refusal.rs`
//! does so for banned clients. `downstream.rs`, `peer.rs` and `body/`
//! are the client's side of a request, as the layers see it.

mod accepted_media;
pub mod added_fields;
pub mod ban_refusal;
pub mod ban_view;
pub mod body;
mod body_needs;
mod body_routes;
pub mod changed_fields;
mod compression;
mod cors;
pub mod counted_key;
pub mod credential_in_body;
pub mod detached;
pub mod downstream;
pub mod explain;
mod explained_account;
pub mod explained_descriptor;
mod explained_response;
pub mod explanation;
mod final_response;
pub mod forward;
mod forwarding;
pub mod found_route;
pub mod future_pool;
pub mod http_check;
pub mod identification;
pub mod identified;
pub mod identify;
pub mod layers;
pub mod limit_refusal;
mod mapped_fields;
pub mod matched_route;
pub mod message_gate;
pub mod method_override;
mod objection;
pub mod observe;
pub mod observed_call;
mod own_page;
mod own_response;
pub mod peer;
pub mod proxy_fields;
pub mod query_path;
pub mod record_verdict;
pub mod refusal;
pub mod refusal_cache;
mod refusal_document;
pub mod request_context;
pub mod request_deadline;
pub mod request_id;
pub mod request_outcome;
pub mod request_to_explain;
pub mod reserved_units;
mod route_choice;
pub mod routing;
pub mod sampling;
mod screening;
mod span_facts;
pub mod stages;
pub mod target;
pub mod traced_request;
pub mod unreadable_request;
pub mod unserved;
pub mod upstream_load;
mod usage;
mod vary;
