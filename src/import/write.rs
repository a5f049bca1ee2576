//! Writes a draft as the gateway file and one file for each policy. Comments name the lines of the input.

use std::collections::HashSet;
use std::fmt::Write;

use super::files::OutputFile;
use super::model::{
    ActionDraft, AlgorithmDraft, AmountDraft, ClientsDraft, IdentityPlace, ImportDraft, LimitDraft,
    LimitUseDraft, ListenerDraft, RateDraft, RouteDraft, ScopeDraft, UpstreamDraft, UserDraft,
};
use super::report::{Origin, printable};
use super::yaml_text::{flow_list, gateway_scalar, list, quoted, scalar};

/// The path of the gateway file.
pub const GATEWAY_FILE: &str = "tollgate.yaml";

/// Maximum number of characters of a comment.
const MAX_COMMENT_CHARS: usize = 300;

/// What stands in place of files that are not read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// The paths of the files.
    Files,
    /// Something that needs no file, to check all the rest.
    Placeholder,
}

/// Writes all files of a draft that is settled.
pub fn write(draft: &ImportDraft, paths: &[String], certificates: Certificates) -> Vec<OutputFile> {
    let writer = DraftWriter {
        draft,
        paths,
        certificates,
    };
    let mut files = vec![OutputFile {
        path: GATEWAY_FILE.into(),
        text: writer.gateway(),
    }];
    files.extend(draft.routes.iter().map(|route| OutputFile {
        path: format!("policies/{}.yaml", route.name),
        text: writer.policy(route),
    }));
    files
}

struct DraftWriter<'d> {
    draft: &'d ImportDraft,
    /// The printable paths of the input.
    paths: &'d [String],
    certificates: Certificates,
}

impl DraftWriter<'_> {
    fn gateway(&self) -> String {
        let draft = self.draft;
        let mut out = String::from("version: 1\n");
        self.listeners(&mut out);
        let is_default_admin = |listener: &ListenerDraft| listener.address.ends_with(":9900");
        if draft.listeners.iter().any(is_default_admin) {
            out.push_str("admin: 127.0.0.1:9901\n");
        }
        if let Some(address) = &draft.decide_grpc {
            let _ = writeln!(out, "decide: {{ grpc: {} }}", gateway_scalar(address));
        }
        out.push_str("policies: policies\n");
        let used: HashSet<&str> = draft
            .routes
            .iter()
            .filter_map(|route| match &route.action {
                ActionDraft::Upstream(name) => Some(name),
                _ => route.withheld_upstream.as_ref(),
            })
            .map(String::as_str)
            .collect();
        let is_used = |upstream: &&UpstreamDraft| used.contains(upstream.name.as_str());
        let upstreams: Vec<_> = draft.upstreams.iter().filter(is_used).collect();
        let is_for_requests = draft.routes.iter().any(|route| route.descriptor.is_none());
        if is_for_requests {
            out.push_str("upstreams:\n");
        }
        if upstreams.is_empty() && is_for_requests {
            comment_line(
                &mut out,
                "  ",
                "No policy uses it, but the gateway file needs one.",
            );
            out.push_str("  none: http://127.0.0.1:9\n");
        }
        for upstream in upstreams {
            self.origin_comment(&mut out, "  ", &[upstream.origin]);
            let _ = writeln!(out, "  {}: {}", upstream.name, upstream_text(upstream));
        }
        self.identity(&mut out);
        for (field, clients) in [("deny", &draft.deny), ("allow", &draft.allow)] {
            if !clients.is_empty() {
                let text = clients_text(clients).replace('$', "$$");
                let _ = writeln!(out, "{field}: {text}");
            }
        }
        let limits = draft.limits.iter().zip(draft.written_limits());
        let limits: Vec<_> = limits.filter(|(_, is_written)| *is_written).collect();
        if !limits.is_empty() {
            out.push_str("limits:\n");
        }
        for (limit, _) in limits {
            self.limit(&mut out, limit, true);
        }
        for comment in &draft.comments {
            comment_line(&mut out, "", comment);
        }
        out
    }

    fn listeners(&self, out: &mut String) {
        let draft = self.draft;
        if draft.listeners.is_empty() && draft.decide_grpc.is_some() {
            return;
        }
        if draft.listeners.is_empty() {
            out.push_str("listen: 127.0.0.1:8080\n");
            return;
        }
        out.push_str("listen:\n");
        for listener in &draft.listeners {
            let _ = writeln!(out, "  - {}", self.listener_text(listener));
        }
    }

    fn listener_text(&self, listener: &ListenerDraft) -> String {
        let mut fields = Vec::new();
        if !listener.name.is_empty() {
            fields.push(format!("name: {}", listener.name));
        }
        fields.push(format!("address: {}", gateway_scalar(&listener.address)));
        if !listener.certificates.is_empty() {
            let pair = |(certificate, key): &(String, String)| {
                format!(
                    "{{ cert: {}, key: {} }}",
                    gateway_scalar(certificate),
                    gateway_scalar(key)
                )
            };
            let pairs: Vec<String> = match self.certificates {
                Certificates::Files => listener.certificates.iter().map(pair).collect(),
                Certificates::Placeholder => {
                    vec!["{ acme: { domains: placeholder.example } }".into()]
                }
            };
            fields.push(match pairs.as_slice() {
                [one] => format!("tls: {one}"),
                several => format!("tls: [{}]", several.join(", ")),
            });
        }
        if !listener.proxy_protocol.is_empty() {
            fields.push(format!(
                "proxy_protocol: {}",
                flow_list(&listener.proxy_protocol)
            ));
        }
        match fields.as_slice() {
            [_] => gateway_scalar(&listener.address),
            fields => format!("{{ {} }}", fields.join(", ")),
        }
    }

    fn identity(&self, out: &mut String) {
        let draft = self.draft;
        let mut lines = Vec::new();
        if !draft.trusted_proxies.is_empty() {
            let proxies = flow_list(&draft.trusted_proxies);
            lines.push(format!("ip: {{ trusted_proxies: {proxies} }}"));
        }
        if let Some(UserDraft { claim, key_set }) = &draft.identities.user {
            let key_set = match self.certificates {
                Certificates::Files => key_set.as_str(),
                Certificates::Placeholder => "https://placeholder.example/jwks.json",
            };
            let (claim, key_set) = (gateway_scalar(claim), gateway_scalar(key_set));
            lines.push(format!("user: {{ jwt: {claim}, jwks: {key_set} }}"));
        }
        let places: Vec<String> = draft.identities.token.iter().map(place_text).collect();
        match places.as_slice() {
            [] => {}
            [one] => lines.push(format!("token: {one}")),
            several => lines.push(format!("token: [{}]", several.join(", "))),
        }
        let own = draft.identities.own.iter();
        lines.extend(own.map(|(name, place)| format!("{name}: {}", place_text(place))));
        if !lines.is_empty() {
            out.push_str("identity:\n");
        }
        for line in lines {
            let _ = writeln!(out, "  {line}");
        }
    }

    fn policy(&self, route: &RouteDraft) -> String {
        let mut out = String::new();
        let source = format!("{}: {}", self.place(route.origin), route.source);
        comment_line(&mut out, "", &source);
        for comment in &route.comments {
            comment_line(&mut out, "", comment);
        }
        if let Some(upstream) = &route.withheld_upstream {
            let comment = format!(
                "To serve it, write what refuses its clients, and put this in place of `respond`: upstream: {upstream}"
            );
            comment_line(&mut out, "", &comment);
        }
        match &route.descriptor {
            Some(descriptor) => out.push_str(&descriptor.text()),
            None => request_fields(&mut out, route),
        }
        if !route.limits.is_empty() {
            out.push_str("limits:\n");
        }
        for used in &route.limits {
            let name = |index: &usize| {
                self.draft
                    .limits
                    .get(*index)
                    .map_or("", |limit| &*limit.name)
            };
            let _ = match used {
                LimitUseDraft::Own(limit) => {
                    self.limit(&mut out, limit, false);
                    Ok(())
                }
                LimitUseDraft::Shared(index) => writeln!(out, "  {}: ~", name(index)),
                LimitUseDraft::Off(index) => writeln!(out, "  {}: off", name(index)),
            };
        }
        out
    }

    fn limit(&self, out: &mut String, limit: &LimitDraft, is_of_gateway: bool) {
        self.origin_comment(out, "  ", &limit.origins);
        let mut fields = vec![format!("key: {}", list(&limit.key))];
        if !limit.clients.is_empty() {
            fields.push(format!("for: {}", clients_text(&limit.clients)));
        }
        fields.push(amount_text(&limit.amount));
        match limit.algorithm {
            AlgorithmDraft::Sliding => {}
            AlgorithmDraft::FixedWindow(is_of_clock) => {
                let align = if is_of_clock { ", align: clock" } else { "" };
                fields.push(format!("algorithm: fixed-window{align}"));
            }
            AlgorithmDraft::Gcra { burst } => {
                fields.push(format!("algorithm: gcra, burst: {burst}"))
            }
            AlgorithmDraft::LeakyBucket { delay_millis } => {
                fields.push(format!("algorithm: leaky-bucket, delay: {delay_millis}ms"));
            }
        }
        if limit.is_shadow {
            fields.push("mode: shadow".into());
        }
        if !limit.exempt.is_empty() {
            fields.push(format!("exempt: {}", flow_list(&limit.exempt)));
        }
        fields.extend(
            limit
                .fields
                .iter()
                .map(|(field, value)| format!("{field}: {value}")),
        );
        match limit.scope {
            _ if !is_of_gateway => {}
            ScopeDraft::All => {}
            ScopeDraft::Each => fields.push("routes: each".into()),
            ScopeDraft::Listed => fields.push("routes: listed".into()),
            ScopeDraft::EachListed => fields.push("routes: each-listed".into()),
        }
        // In the gateway file `$` begins a reference.
        let fields = match is_of_gateway {
            true => fields.join(", ").replace('$', "$$"),
            false => fields.join(", "),
        };
        let _ = writeln!(out, "  {}: {{ {fields} }}", limit.name);
    }

    /// A place of the input as comments name it.
    fn place(&self, at: Origin) -> String {
        let path = self.paths.get(at.file).map_or("", String::as_str);
        format!("{path}:{}", at.line)
    }

    fn origin_comment(&self, out: &mut String, indent: &str, origins: &[Origin]) {
        let mut origins = origins.to_vec();
        origins.sort_unstable();
        origins.dedup();
        let places: Vec<String> = origins.iter().take(6).map(|at| self.place(*at)).collect();
        if !places.is_empty() {
            comment_line(out, indent, &places.join(", "));
        }
    }
}

/// The fields of a policy for requests, but its limits.
fn request_fields(out: &mut String, route: &RouteDraft) {
    let methods = route.methods.join(",");
    let matches: Vec<String> = route
        .paths
        .iter()
        .map(|path| match methods.is_empty() {
            true => path.clone(),
            false => format!("{methods} {path}"),
        })
        .collect();
    let _ = writeln!(out, "match: {}", match_list(&matches));
    if !route.hosts.is_empty() {
        let _ = writeln!(out, "host: {}", list(&route.hosts));
    }
    if !route.listeners.is_empty() {
        let _ = writeln!(out, "listen: {}", list(&route.listeners));
    }
    let _ = writeln!(out, "{}", action_text(&route.action));
    for (field, value) in [("strip", &route.strip), ("prefix", &route.prefix)] {
        if let Some(value) = value {
            let _ = writeln!(out, "{field}: {}", scalar(value));
        }
    }
    if let Some(bytes) = route.max_body {
        let _ = writeln!(out, "max_body: {}", size_text(bytes));
    }
    for (field, clients) in [("deny", &route.deny), ("allow", &route.allow)] {
        if !clients.is_empty() {
            let _ = writeln!(out, "{field}: {}", clients_text(clients));
        }
    }
    if !route.require.is_empty() {
        let _ = writeln!(out, "require: {}", list(&route.require));
    }
    for (field, value) in &route.fields {
        let _ = writeln!(out, "{field}: {value}");
    }
}

fn comment_line(out: &mut String, indent: &str, text: &str) {
    let text = printable(text, MAX_COMMENT_CHARS);
    let _ = writeln!(out, "{indent}# {}", text.trim());
}

fn match_list(matches: &[String]) -> String {
    let text = |pattern: &String| match pattern.contains(' ') {
        // `GET /items` is plain in a block, and needs quotes only for odd characters behind the method.
        true if pattern
            .split(' ')
            .all(|part| scalar(part) == part && !part.contains(',')) =>
        {
            pattern.clone()
        }
        true => quoted(pattern),
        false => scalar(pattern),
    };
    match matches {
        [one] => text(one),
        several => format!(
            "[{}]",
            several.iter().map(text).collect::<Vec<_>>().join(", ")
        ),
    }
}

fn action_text(action: &ActionDraft) -> String {
    match action {
        ActionDraft::Upstream(name) => format!("upstream: {name}"),
        ActionDraft::Redirect { to, status: 308 } => format!("redirect: {}", scalar(to)),
        ActionDraft::Redirect { to, status } => {
            format!("redirect: {{ to: {}, status: {status} }}", scalar(to))
        }
        ActionDraft::Respond {
            status,
            body,
            content_type,
        } => {
            let mut fields = vec![format!("status: {status}")];
            if !body.is_empty() {
                fields.push(format!("body: {}", scalar(body)));
                if !content_type.is_empty() {
                    fields.push(format!("type: {}", scalar(content_type)));
                }
            }
            format!("respond: {{ {} }}", fields.join(", "))
        }
    }
}

fn upstream_text(upstream: &UpstreamDraft) -> String {
    let server = |(url, weight): &(String, u32)| match weight {
        1 => gateway_scalar(url),
        weight => format!("{{ url: {}, weight: {weight} }}", gateway_scalar(url)),
    };
    let servers: Vec<String> = upstream.servers.iter().map(server).collect();
    let servers = format!("[{}]", servers.join(", "));
    let mut fields = Vec::new();
    if let Some(host) = &upstream.host {
        fields.push(format!("host: {}", gateway_scalar(host)));
    }
    if upstream.http2 {
        fields.push("protocol: h2".into());
    }
    if !upstream.balance.is_empty() {
        fields.push(format!("balance: {}", upstream.balance));
    }
    fields.extend(
        upstream
            .fields
            .iter()
            .map(|(field, value)| format!("{field}: {value}")),
    );
    match fields.is_empty() {
        true => servers,
        false => format!("{{ servers: {servers}, {} }}", fields.join(", ")),
    }
}

fn place_text(place: &IdentityPlace) -> String {
    let (word, name) = match place {
        IdentityPlace::Header(name) => ("header", name),
        IdentityPlace::Cookie(name) => ("cookie", name),
        IdentityPlace::Query(name) => ("query", name),
        IdentityPlace::Claim(name) => ("jwt", name),
    };
    format!("{{ {word}: {} }}", gateway_scalar(name))
}

fn clients_text(clients: &ClientsDraft) -> String {
    let entry =
        |(identity, values): &(String, Vec<String>)| format!("{identity}: {}", list(values));
    let entries: Vec<String> = clients.iter().map(entry).collect();
    format!("{{ {} }}", entries.join(", "))
}

fn amount_text(amount: &AmountDraft) -> String {
    match amount {
        AmountDraft::Rates(rates) => {
            let rates: Vec<String> = rates.iter().map(|rate| rate_text(*rate)).collect();
            match rates.as_slice() {
                [one] => format!("rate: {one}"),
                several => format!("rate: [{}]", several.join(", ")),
            }
        }
        AmountDraft::Concurrent(most) => format!("concurrent: {most}"),
        AmountDraft::Quota(units, unit) => format!("quota: {units}/{unit}"),
    }
}

/// A rate as policies write it: `10/s`, `5/15m`.
pub fn rate_text(rate: RateDraft) -> String {
    let seconds = rate.seconds();
    let units = [
        (604_800, "w"),
        (86_400, "d"),
        (3_600, "h"),
        (60, "m"),
        (1, "s"),
    ];
    let fitting = units
        .into_iter()
        .find(|(length, _)| seconds.is_multiple_of(*length));
    let (length, unit) = fitting.unwrap_or((1, "s"));
    match seconds / length {
        1 => format!("{}/{unit}", rate.units()),
        several => format!("{}/{several}{unit}", rate.units()),
    }
}

/// A size as policies write it, in the largest unit of which it is a multiple.
fn size_text(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fitting = units
        .into_iter()
        .find(|(size, _)| bytes.is_multiple_of(*size));
    fitting.map_or_else(
        || format!("{bytes}B"),
        |(size, unit)| format!("{}{unit}", bytes / size),
    )
}
