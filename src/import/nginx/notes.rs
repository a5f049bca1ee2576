//! What the report says of directives that become nothing.

use super::syntax::Directive;
use crate::import::report::{Concern, ImportReport};

/// Reports a directive, and by the same line what is in its block.
pub fn report_other(directive: &Directive, report: &mut ImportReport) {
    let (concern, note) = note_of(directive);
    let concern = match has_limits(directive) {
        true => Concern::Limits,
        false => concern,
    };
    let note = match directive.children().is_empty() {
        true => note.to_owned(),
        false => format!("{note}. The same holds for what is in its block"),
    };
    report.left(directive.origin, concern, &directive.text(), &note);
}

/// Whether a block has limits in it, at any depth.
pub fn has_limits(directive: &Directive) -> bool {
    let mut children = directive.children().iter();
    children.any(|child| matches!(&*child.name, "limit_req" | "limit_conn") || has_limits(child))
}

fn note_of(directive: &Directive) -> (Concern, &'static str) {
    use Concern::{Limits, Other, Routing};

    match directive.name.as_str() {
        "limit_rate" | "limit_rate_after" => (
            Limits,
            "the speed of a response has no counterpart; `count: cost bytes out` counts the bytes of each client",
        ),
        "limit_req" | "limit_conn" | "limit_req_zone" | "limit_conn_zone" => {
            (Limits, "a limit in this place has no counterpart")
        }
        "limit_req_log_level" | "limit_conn_log_level" => {
            (Other, "the access log has every refusal")
        }
        "if" => (
            Routing,
            "a condition has no counterpart; write policies by method, host or path, or limits with `for`. Where it refuses clients, they get 503",
        ),
        "rewrite" => (
            Routing,
            "a rewritten path has no counterpart but `strip`, `prefix` and `redirect`",
        ),
        "auth_basic" | "auth_basic_user_file" => (
            Routing,
            "tollgate asks for no password: keep nginx behind it, or use `identity: user`. Clients get 503",
        ),
        "auth_request" | "auth_request_set" => (
            Routing,
            "no other server is asked whether to admit a request; use `identity: user` and `require`. Clients get 503",
        ),
        "auth_jwt_key_request" | "auth_jwt_type" | "auth_jwt_require" => (
            Routing,
            "write the issuer's key set under `identity: { user: { jwt: sub, jwks: URL } }`",
        ),
        "satisfy" => (Routing, "all conditions must hold here"),
        "try_files" | "root" | "alias" | "index" | "autoindex" => {
            (Routing, "tollgate serves no files")
        }
        "fastcgi_pass" | "uwsgi_pass" | "scgi_pass" | "memcached_pass" => {
            (Routing, "tollgate speaks HTTP only: keep nginx behind it")
        }
        "include" => match directive.argument(0) {
            name if name.ends_with("mime.types")
                || name.ends_with("_params")
                || name.contains("ssl") =>
            {
                (Other, "the file is not followed")
            }
            _ => (
                Routing,
                "the file is not followed: give it to `tollgate import` too",
            ),
        },
        "add_header" | "more_set_headers" | "expires" => (
            Other,
            "write it under `response: { set: … }` of the policies",
        ),
        "proxy_hide_header" => (
            Other,
            "write it under `response: { remove: [...] }` of the policies",
        ),
        "gzip" | "gzip_types" | "brotli" => (Other, "write `compress: true` in the gateway file"),
        "error_page" => (Other, "write bodies of refusals under `errors`"),
        "access_log" | "log_format" | "error_log" => {
            (Other, "write `access_log` in the gateway file")
        }
        "proxy_next_upstream" | "proxy_next_upstream_tries" => (
            Other,
            "requests that no server may have seen are tried again anyway",
        ),
        "ssl_client_certificate" | "ssl_verify_client" => {
            (Routing, "write `client_roots` at the listener")
        }
        "proxy_ssl_verify" | "proxy_ssl_trusted_certificate" | "proxy_ssl_name" => {
            (Routing, "write `tls: { roots, name }` at the upstream")
        }
        "stream" | "mail" => (Routing, "only HTTP is proxied"),
        "geoip2" | "geoip_country" => (
            Other,
            "write `identity: { country: { table: FILE, field: country.iso_code } }`",
        ),
        "split_clients" => (Routing, "clients are not split by chance"),
        "proxy_cache" | "proxy_cache_path" | "proxy_cache_valid" => {
            (Other, "responses are not cached")
        }
        "mirror" => (Other, "requests are not mirrored"),
        _ => (
            Other,
            "it is not about limits or routes, or has no counterpart",
        ),
    }
}
