//! The service behind a path.

use super::settings::IngressSettings;
use crate::import::documents::InputValue;
use crate::import::model::UpstreamDraft;

/// A backend as an upstream.
#[derive(Debug)]
pub struct IngressBackend {
    /// A text for the name of the upstream.
    pub hint: String,
    /// What the report calls it.
    pub text: String,
    /// The upstream, without a name.
    pub upstream: UpstreamDraft,
    /// What differs, if anything does.
    pub differences: Vec<String>,
}

/// Reads `backend` in the form of `networking.k8s.io/v1`, or in that of `v1beta1`.
///
/// # Errors
///
/// Why it is no upstream.
pub fn read_backend(
    backend: InputValue<'_>,
    namespace: &str,
    settings: &IngressSettings,
) -> Result<IngressBackend, String> {
    if backend.get("resource").is_some() {
        return Err("a backend that is no service has no counterpart".into());
    }
    let service = backend.get("service");
    let name = service
        .and_then(|service| service.text_of("name"))
        .or_else(|| backend.text_of("serviceName"));
    let name = name
        .filter(|name| is_label(name))
        .ok_or("it names no service")?;
    let namespace = Some(namespace)
        .filter(|namespace| is_label(namespace))
        .ok_or("its namespace is no name")?;
    let port = service
        .and_then(|service| service.at(&["port", "number"]))
        .or_else(|| backend.get("servicePort"));
    let port_name = service
        .and_then(|service| service.at(&["port", "name"]))
        .or(port);
    let mut differences = Vec::new();
    let port = match port.and_then(InputValue::number) {
        Some(port) if (1..=65_535).contains(&port) => port,
        _ => {
            let name = port_name.and_then(InputValue::text).unwrap_or("");
            let number = if name.contains("https") { 443 } else { 80 };
            differences.push(format!("the port `{name}` is taken as {number}; write the number that the service has for it"));
            number
        }
    };
    let scheme = if settings.is_tls_backend {
        "https"
    } else {
        "http"
    };
    if settings.is_tls_backend {
        differences.push("certificates of servers are verified; for your own authority write `tls: { roots: FILE }`".into());
    }
    let mut upstream = UpstreamDraft {
        servers: vec![(
            format!("{scheme}://{name}.{namespace}.svc.cluster.local:{port}"),
            1,
        )],
        host: settings.upstream_host.clone(),
        http2: settings.is_grpc_backend,
        balance: settings.balance.clone(),
        origin: backend.origin(),
        ..UpstreamDraft::default()
    };
    if !settings.timeouts.is_empty() {
        upstream.fields.push((
            "timeouts",
            format!("{{ {} }}", settings.timeouts.join(", ")),
        ));
    }
    Ok(IngressBackend {
        hint: name.to_owned(),
        text: format!("service {name}:{port}"),
        upstream,
        differences,
    })
}

/// Whether a text is the name of a service or a namespace (RFC 1035 label).
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
