//! Names of fields as documents write them. Traefik reads them in whatever case, so that `ratelimit` is `rateLimit`.

use crate::import::documents::InputValue;
use crate::import::error::ImportError;
use crate::import::report::Origin;

/// The names of all fields that the import tells apart.
const NAMES: [&str; 145] = [
    "accessControlAllowCredentials",
    "accessControlAllowHeaders",
    "accessControlAllowMethods",
    "accessControlAllowOriginList",
    "accessControlAllowOriginListRegex",
    "accessControlExposeHeaders",
    "accessControlMaxAge",
    "addPrefix",
    "address",
    "addVaryHeader",
    "allowedHosts",
    "amount",
    "asDefault",
    "average",
    "basicAuth",
    "browserXssFilter",
    "buffering",
    "burst",
    "caFiles",
    "certFile",
    "certificates",
    "certResolver",
    "chain",
    "circuitBreaker",
    "clientAuth",
    "clientAuthType",
    "compress",
    "contentSecurityPolicy",
    "contentType",
    "contentTypeNosniff",
    "customBrowserXSSValue",
    "customFrameOptionsValue",
    "customRequestHeaders",
    "customResponseHeaders",
    "defaultCertificate",
    "depth",
    "digestAuth",
    "domains",
    "entryPoint",
    "entryPoints",
    "errors",
    "excludedIPs",
    "failover",
    "forwardAuth",
    "forwardedHeaders",
    "frameDeny",
    "grpcWeb",
    "headerField",
    "headers",
    "healthCheck",
    "highestRandomWeight",
    "hostsProxyHeaders",
    "http",
    "http3",
    "inFlightReq",
    "insecure",
    "interval",
    "ipAllowList",
    "ipStrategy",
    "ipv6Subnet",
    "ipWhiteList",
    "keyFile",
    "kind",
    "loadBalancer",
    "match",
    "maxRequestBodyBytes",
    "maxResponseBodyBytes",
    "middlewares",
    "mirroring",
    "name",
    "namespace",
    "nativeLB",
    "nodePortLB",
    "observability",
    "options",
    "parentRefs",
    "passHostHeader",
    "passiveHealthCheck",
    "passTLSClientCert",
    "path",
    "period",
    "permanent",
    "permissionsPolicy",
    "plugin",
    "port",
    "prefix",
    "prefixes",
    "preservePath",
    "priority",
    "proxyProtocol",
    "rateLimit",
    "redirections",
    "redirectRegex",
    "redirectScheme",
    "redis",
    "referrerPolicy",
    "regex",
    "rejectStatusCode",
    "replacement",
    "replacePath",
    "replacePathRegex",
    "requestHeaderName",
    "requestHost",
    "responseForwarding",
    "retry",
    "routers",
    "routes",
    "rule",
    "ruleSyntax",
    "scheme",
    "secret",
    "secretName",
    "server",
    "servers",
    "serversTransport",
    "serversTransports",
    "service",
    "services",
    "sourceCriterion",
    "sourceRange",
    "spec",
    "sslForceHost",
    "sslHost",
    "sslRedirect",
    "sslTemporaryRedirect",
    "sticky",
    "stores",
    "strategy",
    "stripPrefix",
    "stripPrefixRegex",
    "stsIncludeSubdomains",
    "stsPreload",
    "stsSeconds",
    "syntax",
    "tcp",
    "timeout",
    "tls",
    "to",
    "transport",
    "trustedIPs",
    "udp",
    "url",
    "users",
    "weight",
    "weighted",
];

/// The fields of a map, with the names of [`NAMES`] in the case that these have.
pub fn fields<'v>(
    value: InputValue<'v>,
) -> impl Iterator<Item = (&'v str, Origin, InputValue<'v>)> {
    value
        .entries()
        .map(|(name, at, value)| (canonical_name(name), at, value))
}

fn canonical_name(name: &str) -> &str {
    NAMES
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(name))
        .unwrap_or(name)
}

/// Refuses maps that have a field twice, in different cases. Which of them Traefik takes is not documented.
///
/// # Errors
///
/// The first such field. `path_of` is the path of a file by its index.
pub fn check_cases(
    value: InputValue<'_>,
    path_of: &dyn Fn(Origin) -> String,
) -> Result<(), ImportError> {
    let mut seen: Vec<&str> = Vec::new();
    for (name, at, inner) in value.entries() {
        let known = canonical_name(name);
        if NAMES.contains(&known) {
            if seen.contains(&known) {
                let message = format!("the field `{known}` is there twice, in different cases");
                return Err(ImportError::at(&path_of(at), at.line, 1, message)
                    .with_help("keep one of them"));
            }
            seen.push(known);
        }
        check_cases(inner, path_of)?;
    }
    value
        .items()
        .try_for_each(|item| check_cases(item, path_of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_case() {
        for (name, expected) in [
            ("ratelimit", "rateLimit"),
            ("RATELIMIT", "rateLimit"),
            ("ipallowlist", "ipAllowList"),
            ("X-Tenant", "X-Tenant"),
        ] {
            assert_eq!(canonical_name(name), expected);
        }
    }
}
