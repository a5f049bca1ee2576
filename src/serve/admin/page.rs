//! The page at `/`: limits, routes and servers as plain HTML, with no request to anywhere else.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::{Control, all_limits, all_upstreams};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;\
padding:0 1rem;color-scheme:light dark}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #8884}\
td.n{text-align:right;font-variant-numeric:tabular-nums}";

/// `GET /`.
pub async fn page(State(gateway): State<Arc<dyn Control>>) -> Response {
    let mut html = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>tollgate</title>\
         <style>{STYLE}</style><h1>tollgate</h1><h2>Limits</h2><table><thead><tr><th>Limit\
         <th>Counts by<th>Promise<th>Written at<th>Within<th>Over<th>Refused<th>Shadow</thead><tbody>"
    );
    for limit in all_limits(&*gateway) {
        let text = |name: &str| escape(limit[name].as_str().unwrap_or_default());
        let by = limit["counts_by"].as_array().into_iter().flatten();
        let by: Vec<&str> = by.filter_map(|part| part.as_str()).collect();
        let _ = write!(
            html,
            "<tr><th scope=row>{}<td>{}<td>{}<td>{}",
            text("limit"),
            escape(&by.join(", ")),
            text("guarantee"),
            text("at")
        );
        for outcome in ["within", "over", "refused", "shadow_refused"] {
            let _ = write!(html, "<td class=n>{}", limit["decisions"][outcome]);
        }
    }
    html.push_str("</tbody></table><h2>Routes</h2><table><thead><tr><th>Route<th>Match<th>Limits</thead><tbody>");
    for route in &gateway.running().ruleset.routes {
        let limits: Vec<&str> = route.rules.iter().map(|rule| rule.name.as_str()).collect();
        let _ = write!(
            html,
            "<tr><th scope=row>{}<td>{}<td>{}",
            escape(&route.name),
            escape(&route.pattern.to_string()),
            escape(&limits.join(", "))
        );
    }
    html.push_str(
        "</tbody></table><h2>Upstreams</h2><table><thead><tr><th>Upstream<th>Server<th>State\
         <th>Open<th>Ejections<th>Failed checks</thead><tbody>",
    );
    for upstream in all_upstreams(&*gateway) {
        for server in upstream["servers"].as_array().into_iter().flatten() {
            let text = |value: &Value| escape(value.as_str().unwrap_or_default());
            let _ = write!(
                html,
                "<tr><th scope=row>{}<td>{}<td>{}",
                text(&upstream["upstream"]),
                text(&server["server"]),
                text(&server["state"])
            );
            for count in ["open", "ejections", "failed_checks"] {
                let _ = write!(html, "<td class=n>{}", server[count]);
            }
        }
    }
    html.push_str(
        "</tbody></table><p><a href=/metrics>metrics</a> · <a href=/v1/limits>limits</a> · \
         <a href=/v1/upstreams>upstreams</a> · \
         <a href=/v1/policies>policies</a></p>",
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, html).into_response()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
