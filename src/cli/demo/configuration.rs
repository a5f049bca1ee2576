//! The files of the demo: a gateway file and four policies, one for each kind of limit in the story.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The policies: the name of the file without its ending, and its text.
pub(super) const POLICIES: [(&str, &str); 4] = [
    (
        "api",
        "\
match: GET /api/**
upstream: echo
limits:
  per-ip: { key: ip, rate: 10/s }
  per-user: { key: user, rate: 60/m, plans: true }
",
    ),
    (
        "login",
        "\
match: POST /login
upstream: echo
limits:
  failed-logins: { key: [ip, email], rate: 5/15m, count: status 401 }
",
    ),
    (
        "search",
        "\
match: GET /search
upstream: echo
limits:
  search: { key: ip, rate: 5/10s, mode: shadow }
",
    ),
    (
        "reports",
        "\
match: GET /reports/**
upstream: echo
limits:
  reports: { key: user, rate: 10/10s, throttle: elastic, while: upstream.load < 0.7, at_most: 50/10s }
",
    ),
];

/// Writes the files into the folder, which is made, and returns the path of the gateway file.
///
/// Clients state their address, user and plan in header fields. The gateway believes them from this machine only.
pub(super) fn write_files(
    folder: &Path,
    listen: SocketAddr,
    admin: SocketAddr,
    upstream: SocketAddr,
) -> io::Result<PathBuf> {
    let policies = folder.join("policies");
    std::fs::create_dir(&policies)?;
    for (name, text) in POLICIES {
        std::fs::write(policies.join(format!("{name}.yaml")), text)?;
    }
    let this_machine = format!("[127.0.0.0/8, \"::1\", \"{}\"]", listen.ip());
    let gateway_file = format!(
        "version: 1\nworkers: 1\nlisten: \"{listen}\"\nadmin: \"{admin}\"\npolicies: policies\n\
         upstreams: {{ echo: [\"http://{upstream}\"] }}\n\
         identity:\n  \
         ip: {{ trusted_proxies: {this_machine} }}\n  \
         user: {{ header: x-user, from: {this_machine} }}\n  \
         plan: {{ header: x-plan, from: {this_machine}, default: free }}\n  \
         email: {{ body: email }}\n\
         plans: {{ free: {{ multiply: 1 }}, gold: {{ multiply: 5 }} }}\naccess_log: off\n"
    );
    let path = folder.join("tollgate.yaml");
    std::fs::write(&path, gateway_file)?;
    Ok(path)
}

/// All policies as one text: the name of each file above its lines.
pub(super) fn describe_policies() -> String {
    let mut text = String::new();
    for (name, policy) in POLICIES {
        let _ = writeln!(text, "    policies/{name}.yaml");
        for line in policy.lines() {
            let _ = writeln!(text, "      {line}");
        }
    }
    text
}
