//! Serves the dashboard at `/`: assets embedded in the program, and plain HTML tables for browsers without scripts.
//!
//! Assets contain no data of the gateway and need no token. The requests by which the scripts fetch data need it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::control::{Control, ControlState};
use super::operator::AdminOperator;
use super::problem::problem_response;
use super::status::{describe_limits, describe_upstreams};
use crate::http::content_coding::ContentCoding;

/// The policy of the page: only resources of the listener itself, and no inline scripts or styles. Assets are no documents;
/// they have the policy of all other responses, which allows nothing.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// An embedded file, and its gzip form once a browser has accepted it.
struct Asset {
    /// The path of the file's URL.
    path: &'static str,
    content: &'static str,
    /// The content, compressed with gzip.
    compressed: OnceLock<Vec<u8>>,
}

impl Asset {
    /// The content. Modules of the dashboard come without comments, so that slow connections carry less; other files keep
    /// the notices of their authors.
    fn text(&self) -> Cow<'static, str> {
        match self.path.ends_with(".js") && self.path != "/uplot.js" {
            true => Cow::Owned(without_comments(self.content)),
            false => Cow::Borrowed(self.content),
        }
    }
}

/// Removes the comments of a script that stand on lines of their own.
fn without_comments(script: &str) -> String {
    let mut is_in_comment = false;
    let mut code = String::with_capacity(script.len());
    for line in script.lines() {
        let begin = line.trim_start();
        is_in_comment |= begin.starts_with("/*");
        if !is_in_comment && !begin.starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
        is_in_comment &= !begin.trim_end().ends_with("*/");
    }
    code
}

/// The [`Asset`]s with these paths, which are relative to the folder `dashboard`.
macro_rules! assets {
    ($($path:literal),* $(,)?) => {
        [$(Asset {
            path: concat!("/", $path),
            content: include_str!(concat!("dashboard/", $path)),
            compressed: OnceLock::new(),
        }),*]
    };
}

/// All embedded files but the page.
static ASSETS: [Asset; 18] = assets![
    "api.js",
    "app.js",
    "charts.js",
    "order_dialog.js",
    "orders.js",
    "screens/health.js",
    "screens/keys.js",
    "screens/limit.js",
    "screens/now.js",
    "screens/policies.js",
    "screens/routes.js",
    "screens/tail.js",
    "screens/throttles.js",
    "state.js",
    "style.css",
    "ui.js",
    "uplot.LICENSE",
    "uplot.js",
];

/// The page of the dashboard, without tables.
static PAGE: &str = include_str!("dashboard/index.html");

/// The text in the page that the result of [`render_tables`] replaces.
const TABLES_PLACEHOLDER: &str = "<!-- numbers -->";

/// The paths of all assets but the page.
pub(super) fn asset_paths() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|asset| asset.path)
}

/// `GET /`: the page, with tables if the request is of an operator, all of whom may read.
pub async fn page(
    State(gateway): ControlState,
    operator: Option<Extension<AdminOperator>>,
    headers: HeaderMap,
) -> Response {
    let tables = match operator {
        Some(_) => render_tables(&*gateway),
        None => String::new(),
    };
    let page = PAGE.replacen(TABLES_PLACEHOLDER, &tables, 1);
    let compressed = accepts_gzip(&headers).then(|| compress(&page));
    let mut response = file_response("text/html; charset=utf-8", page.into_bytes(), compressed);
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// `GET` of an asset; 404 if there is none at this path.
pub async fn asset(uri: Uri, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == uri.path()) else {
        return problem_response(StatusCode::NOT_FOUND, "no such path");
    };
    let content_type = match asset.path.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let compressed = accepts_gzip(&headers).then(|| {
        let compressed = asset.compressed.get_or_init(|| compress(&asset.text()));
        compressed.clone()
    });
    let plain = asset.text().into_owned().into_bytes();
    file_response(content_type, plain, compressed)
}

/// The response with a file: compressed if `compressed` is there, else plain.
fn file_response(
    content_type: &'static str,
    plain: Vec<u8>,
    compressed: Option<Vec<u8>>,
) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A newer gateway may serve another version at the same address.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept-encoding"),
    ];
    match compressed {
        Some(compressed) => {
            (headers, [(header::CONTENT_ENCODING, "gzip")], compressed).into_response()
        }
        None => (headers, plain).into_response(),
    }
}

/// Whether the browser accepts gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepted = fields.map(|value| value.as_bytes());
    ContentCoding::choose(accepted, &[ContentCoding::Gzip]).is_some()
}

/// Compresses a text with gzip.
fn compress(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(text.as_bytes());
    encoder.finish().unwrap_or_default()
}

/// Limits, routes and servers as HTML tables.
fn render_tables(gateway: &dyn Control) -> String {
    let mut html = String::from("<h1>tollgate</h1>");
    render_limits(&mut html, gateway);
    render_routes(&mut html, gateway);
    render_servers(&mut html, gateway);
    html + "<p><a href=metrics>metrics</a> · <a href=v1/limits>limits</a> · \
            <a href=v1/upstreams>upstreams</a> · <a href=v1/policies>policies</a></p>"
}

fn render_limits(html: &mut String, gateway: &dyn Control) {
    html.push_str(
        "<h2>Limits</h2><table><thead><tr><th>Limit\
         <th>Counts by<th>Promise<th>Written at<th>Within<th>Over<th>Refused<th>Shadow</thead><tbody>",
    );
    for limit in describe_limits(gateway) {
        let field_text = |name: &str| escape(limit[name].as_str().unwrap_or_default());
        let identities = limit["counts_by"].as_array().into_iter().flatten();
        let identities: Vec<&str> = identities.filter_map(Value::as_str).collect();
        let _ = write!(
            html,
            "<tr><th scope=row>{}<td>{}<td>{}<td>{}",
            field_text("limit"),
            escape(&match limit["for"].as_str() {
                Some(clients) => format!("{}, for {clients}", identities.join(", ")),
                None => identities.join(", "),
            }),
            field_text("guarantee"),
            field_text("at")
        );
        for outcome in ["within", "over", "refused", "shadow_refused"] {
            // A candidate rate has only the requests that it would have refused.
            let decisions = &limit["decisions"];
            let tried = (outcome == "shadow_refused").then(|| &decisions["try_refused"]);
            let count = decisions[outcome].as_u64();
            let count = count.or_else(|| tried?.as_u64());
            let text = count.map_or(String::new(), |count| count.to_string());
            let _ = write!(html, "<td class=n>{text}");
        }
    }
    html.push_str("</tbody></table>");
}

fn render_routes(html: &mut String, gateway: &dyn Control) {
    html.push_str("<h2>Routes</h2><table><thead><tr><th>Route<th>Match<th>Limits</thead><tbody>");
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
    html.push_str("</tbody></table>");
}

fn render_servers(html: &mut String, gateway: &dyn Control) {
    html.push_str(
        "<h2>Upstreams</h2><table><thead><tr><th>Upstream<th>Server<th>State\
         <th>Open<th>Ejections<th>Failed checks</thead><tbody>",
    );
    for upstream in describe_upstreams(gateway) {
        for server in upstream["servers"].as_array().into_iter().flatten() {
            let escaped_text = |value: &Value| escape(value.as_str().unwrap_or_default());
            let _ = write!(
                html,
                "<tr><th scope=row>{}<td>{} {}<td>{}",
                escaped_text(&upstream["upstream"]),
                escaped_text(&server["server"]),
                escaped_text(&server["address"]),
                escaped_text(&server["state"])
            );
            for count in ["open", "ejections", "failed_checks"] {
                let _ = write!(html, "<td class=n>{}", server[count]);
            }
        }
    }
    html.push_str("</tbody></table>");
}

/// Escapes a text for HTML, outside of attributes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_on_lines_of_their_own_are_removed() {
        let script = "// Text.\n\nconst a = 1; // one\n  /** Text. */\n/** More\n * text. */\nconst b = a\n  * 2;\n";
        let code = "\nconst a = 1; // one\nconst b = a\n  * 2;\n";
        assert_eq!(without_comments(script), code);
    }
}
