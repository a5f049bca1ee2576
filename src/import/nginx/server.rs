//! `server` and `location`: each location becomes a policy, with the limits that it has or inherits.

use super::access::read_access;
use super::answer::{ReturnAction, ServerFacts, read_return};
use super::level::{Level, unread_check};
use super::limits::ZoneTable;
use super::listen::{ListenerTable, ServerNames};
use super::location::{LocationPaths, read_location};
use super::methods::{RouteLimit, split_by_method};
use super::notes::{has_limits, report_other};
use super::syntax::Directive;
use super::upstream::UpstreamTable;
use crate::import::files::MAX_ROUTES;
use crate::import::model::{ActionDraft, ImportDraft, RouteDraft};
use crate::import::report::{Concern, Fate, ImportReport};
use crate::route::pattern::Pattern;

/// A server of nginx.
#[derive(Debug)]
pub struct NginxServer<'d> {
    /// The index among all servers.
    pub index: usize,
    /// Its block.
    pub directive: &'d Directive,
    /// What holds in it.
    pub level: Level<'d>,
    /// Its directives that are not inherited.
    pub others: Vec<&'d Directive>,
    /// Its names.
    pub names: ServerNames,
}

/// What the locations of all servers need.
pub struct RouteBuilder<'b> {
    /// The configuration that is made.
    pub draft: &'b mut ImportDraft,
    /// What becomes of each line.
    pub report: &'b mut ImportReport,
    /// The zones.
    pub zones: &'b mut ZoneTable,
    /// The groups of servers.
    pub upstreams: &'b UpstreamTable,
    /// The listeners.
    pub listeners: &'b ListenerTable,
    /// Whether the names of policies begin with the host.
    pub has_several_servers: bool,
}

/// Directives of servers and locations that are read with these.
const READ_ELSEWHERE: [&str; 11] = [
    "listen",
    "server_name",
    "ssl_certificate",
    "ssl_certificate_key",
    "return",
    "proxy_pass",
    "grpc_pass",
    "internal",
    "limit_except",
    "try_files",
    "auth_jwt_key_file",
];

/// One location while its policy is made.
pub(super) struct LocationRoute<'d> {
    pub(super) directive: &'d Directive,
    pub(super) level: Level<'d>,
    pub(super) others: Vec<&'d Directive>,
    pub(super) paths: LocationPaths,
    /// The path of a prefix or an exact location, as written; empty for a regular expression.
    pub(super) literal: String,
}

impl<'b> RouteBuilder<'b> {
    /// Adds the routes of a server.
    pub fn add_server(&mut self, server: &NginxServer<'_>) {
        let (at, text) = (server.directive.origin, "server");
        let mut hosts = server.names.hosts.clone();
        let is_default = self.listeners.is_default(server.index);
        if is_default {
            if !hosts.is_empty() && self.has_several_servers {
                let note = "it takes all other hosts too, as the default server of its addresses";
                self.report.taken(at, Concern::Routing, text, note);
            }
            hosts.clear();
        } else if hosts.is_empty() {
            let note = match server.names.has_left {
                true => "none of its names has a counterpart",
                false => "another server takes all requests without a host of their own",
            };
            let concern = match has_limits(server.directive) {
                true => Concern::Limits,
                false => Concern::Routing,
            };
            return self.report.left(at, concern, text, note);
        } else if self.listeners.is_partly_default(server.index) {
            let note =
                "it is the default server at some of its addresses only: other hosts get 404 there";
            self.report.changed(at, Concern::Routing, text, note);
        }
        self.report.taken(at, Concern::Routing, text, "");
        let first_route = self.draft.routes.len();
        let early = server
            .others
            .iter()
            .find(|directive| directive.name == "return");
        if let Some(directive) = early {
            self.add_server_return(server, &hosts, directive);
        } else {
            self.add_locations(server, &hosts);
        }
        let routes = self.draft.routes.get(first_route..).unwrap_or_default();
        let has_rest = routes
            .iter()
            .any(|route| route.methods.is_empty() && route.paths.iter().any(|path| path == "/**"));
        let level = &server.level;
        let has_limits = !level.limit_req.is_empty() || !level.limit_conn.is_empty();
        if !has_rest && (has_limits || !hosts.is_empty()) {
            // Without it the paths that the server does not name would be those of the default server, and not counted.
            let route = self.base_route(
                server,
                &hosts,
                server.directive,
                "server, all other paths",
                "/",
            );
            let route = RouteDraft {
                paths: vec!["/**".into()],
                action: ActionDraft::respond(404),
                ..route
            };
            let limits = self.location_limits(server.index, level);
            self.draft.routes.extend(split_by_method(route, limits));
        }
    }

    pub(super) fn facts<'s>(&'s self, server: &'s NginxServer<'_>) -> ServerFacts<'s> {
        ServerFacts {
            index: server.index,
            hosts: &server.names.hosts,
            first_name: &server.names.first,
            listeners: self.listeners,
        }
    }

    fn base_route(
        &self,
        server: &NginxServer<'_>,
        hosts: &[String],
        directive: &Directive,
        source: &str,
        path: &str,
    ) -> RouteDraft {
        let path = match path.trim_matches('/') {
            "" => "root",
            path => path,
        };
        let host = match (self.has_several_servers, hosts.first()) {
            (true, Some(_)) => server.names.first.as_str(),
            (true, None) => "default",
            (false, _) => "",
        };
        RouteDraft {
            name: format!("{host} {path}"),
            origin: directive.origin,
            source: source.to_owned(),
            hosts: hosts.to_vec(),
            listeners: self.listeners.names_of(server.index),
            ..RouteDraft::default()
        }
    }

    /// Reports a `return` that was read.
    pub(super) fn report_return(&mut self, directive: &Directive, read: &ReturnAction) {
        let fate = match read.difference {
            None => Fate::Taken,
            Some(_) => Fate::Changed,
        };
        let (text, note) = (directive.text(), read.difference.as_deref());
        let note = note.unwrap_or_default();
        self.report
            .add(directive.origin, fate, Concern::Routing, &text, note);
    }

    fn add_server_return(
        &mut self,
        server: &NginxServer<'_>,
        hosts: &[String],
        directive: &Directive,
    ) {
        let text = directive.text();
        let action = match read_return(directive, &server.level.media_type, self.facts(server)) {
            Ok(read) => {
                self.report_return(directive, &read);
                read.action
            }
            Err(reason) => {
                self.report
                    .left(directive.origin, Concern::Routing, &text, &reason);
                ActionDraft::not_imported("a redirect")
            }
        };
        let route = self.base_route(server, hosts, directive, &text, "/");
        self.draft.routes.push(RouteDraft {
            paths: vec!["/**".into()],
            action,
            ..route
        });
        for other in server
            .others
            .iter()
            .filter(|other| !std::ptr::eq(**other, directive))
        {
            match other.name.as_str() {
                "listen"
                | "server_name"
                | "ssl_certificate"
                | "ssl_certificate_key"
                | "auth_jwt_key_file" => {}
                "location" => {
                    let note = "the `return` of the server answers first";
                    self.report
                        .taken(other.origin, Concern::Routing, &other.text(), note);
                }
                _ => report_other(other, self.report),
            }
        }
    }

    fn add_locations(&mut self, server: &NginxServer<'_>, hosts: &[String]) {
        let mut locations = Vec::new();
        let mut named = Vec::new();
        self.collect(&server.level, &server.others, &mut locations, &mut named);
        // With more the import fails, and comparing all of them would take long.
        let is_bounded = locations.len() <= MAX_ROUTES;
        if is_bounded {
            self.note_order(&locations);
        }
        for location in &locations {
            if self.draft.routes.len() > MAX_ROUTES {
                return;
            }
            self.add_location(server, hosts, location, &named);
        }
        for (directive, _) in &named {
            let note =
                "clients cannot ask for a named location; it is used where `try_files` leads to it";
            self.report
                .taken(directive.origin, Concern::Routing, &directive.text(), note);
        }
    }

    /// Collects the locations of a block and those within them, and the named locations.
    fn collect<'d>(
        &mut self,
        level: &Level<'d>,
        directives: &[&'d Directive],
        locations: &mut Vec<LocationRoute<'d>>,
        named: &mut Vec<(&'d Directive, Level<'d>)>,
    ) {
        for directive in directives.iter().copied() {
            if directive.name != "location" {
                if !READ_ELSEWHERE.contains(&directive.name.as_str()) {
                    report_other(directive, self.report);
                }
                continue;
            }
            let text = directive.text();
            let (own_level, others) = level.enter(directive.children(), self.report);
            if directive.argument(0).starts_with('@') {
                let is_left = |other: &&&Directive| !READ_ELSEWHERE.contains(&other.name.as_str());
                for other in others.iter().filter(is_left) {
                    report_other(other, self.report);
                }
                named.push((directive, own_level));
                continue;
            }
            match read_location(&directive.arguments) {
                Ok(paths) => {
                    self.report
                        .taken(directive.origin, Concern::Routing, &text, "");
                    for difference in &paths.differences {
                        self.report
                            .changed(directive.origin, Concern::Routing, &text, difference);
                    }
                    let literal = match paths.is_regex {
                        true => String::new(),
                        false => directive
                            .arguments
                            .last()
                            .map_or("", String::as_str)
                            .trim_start_matches(['=', '^', '~'])
                            .to_owned(),
                    };
                    locations.push(LocationRoute {
                        directive,
                        level: own_level.clone(),
                        others: others.clone(),
                        paths,
                        literal,
                    });
                }
                Err(reason) => {
                    let has_limits = !own_level.limit_req.is_empty()
                        || !own_level.limit_conn.is_empty()
                        || !own_level.access.is_empty()
                        || has_limits(directive);
                    let concern = if has_limits {
                        Concern::Limits
                    } else {
                        Concern::Routing
                    };
                    let note = format!(
                        "{reason}. Its requests belong to the next broader policy here, without its limits and lists"
                    );
                    self.report.left(directive.origin, concern, &text, &note);
                    for limit in directive
                        .children()
                        .iter()
                        .filter(|child| matches!(&*child.name, "limit_req" | "limit_conn"))
                    {
                        self.report.left(
                            limit.origin,
                            Concern::Limits,
                            &limit.text(),
                            "its location is left",
                        );
                    }
                }
            }
            self.collect(&own_level, &others, locations, named);
        }
    }

    /// Notes regular expressions that nginx takes before or after others, where the longer path wins here.
    fn note_order(&mut self, locations: &[LocationRoute<'_>]) {
        let patterns = |location: &LocationRoute<'_>| -> Vec<Pattern> {
            let paths = location.paths.paths.iter();
            paths.filter_map(|path| Pattern::parse(path).ok()).collect()
        };
        let all: Vec<Vec<Pattern>> = locations.iter().map(patterns).collect();
        let is_broader = |broad: &[Pattern], narrow: &[Pattern]| {
            broad
                .iter()
                .any(|broad| narrow.iter().any(|narrow| broad.is_broader_than(narrow)))
        };
        for (index, (regex, own)) in locations.iter().zip(&all).enumerate() {
            if !regex.paths.is_regex {
                continue;
            }
            for (other_index, (other, paths)) in locations.iter().zip(&all).enumerate() {
                let text = other.directive.text();
                let is_first = text.starts_with("location ^~");
                let is_exact = text.starts_with("location =");
                let note = if other.paths.is_regex {
                    let is_before = other_index < index && is_broader(paths, own);
                    is_before.then(|| format!("nginx takes the earlier `{text}` before it"))
                } else if is_first {
                    is_broader(paths, own).then(|| format!("nginx takes `{text}` before it"))
                } else {
                    let is_after = !is_exact && is_broader(own, paths);
                    is_after.then(|| format!("nginx takes it before the longer `{text}`"))
                };
                if let Some(note) = note {
                    let note = format!("{note}; here the longer path wins");
                    let directive = regex.directive;
                    self.report.changed(
                        directive.origin,
                        Concern::Routing,
                        &directive.text(),
                        &note,
                    );
                }
            }
        }
    }

    fn add_location<'d>(
        &mut self,
        server: &NginxServer<'_>,
        hosts: &[String],
        location: &LocationRoute<'d>,
        named: &[(&'d Directive, Level<'d>)],
    ) {
        let directive = location.directive;
        let text = directive.text();
        let mut action = self.location_action(server, location, named);
        let level = match action.fallback.take() {
            Some(fallback) => &location.level.sent_on(&fallback),
            None => &location.level,
        };
        self.refuse_unchecked(directive, level, &mut action);
        let path = location
            .paths
            .paths
            .first()
            .map_or("", String::as_str)
            .trim_end_matches("/**")
            .to_owned();
        let mut route = self.base_route(server, hosts, directive, &text, &path);
        route.paths.clone_from(&location.paths.paths);
        route.action = action.action;
        route.withheld_upstream = action.withheld_upstream;
        route.strip = action.strip;
        route.prefix = action.prefix;
        route.comments = action.comments;
        if action.is_early {
            for limit in &level.limit_req {
                self.report
                    .taken(limit.origin, Concern::Limits, &limit.text(), "");
            }
            self.draft.routes.push(route);
            return;
        }
        let is_forwarded = matches!(route.action, ActionDraft::Upstream(_));
        route.max_body = level.max_body().filter(|_| is_forwarded);
        if is_forwarded && let Some(changes) = level.request_changes() {
            route.fields.push(("request", changes));
        }
        if level.needs_token && is_forwarded {
            route.require.push("user".into());
        }
        read_access(&level.access, self.report).apply(&mut route);
        let limits = self.location_limits(server.index, level);
        let exceptions = location
            .others
            .iter()
            .find(|other| other.name == "limit_except");
        let mut routes = Vec::new();
        if let Some(exception) = exceptions {
            let rest = self.other_methods(&mut route, exception);
            routes.extend(split_by_method(rest, limits.clone()));
        }
        routes.extend(split_by_method(route, limits));
        self.draft.routes.extend(routes);
    }

    /// Restricts a route to the methods of `limit_except`, and returns the route of the other methods.
    fn other_methods(&mut self, route: &mut RouteDraft, exception: &Directive) -> RouteDraft {
        self.report
            .taken(exception.origin, Concern::Routing, &exception.text(), "");
        let children = exception.children().iter();
        let (rules, others): (Vec<&Directive>, Vec<_>) =
            children.partition(|rule| matches!(&*rule.name, "allow" | "deny"));
        for other in others {
            report_other(other, self.report);
        }
        let access = read_access(&rules, self.report);
        let mut rest = RouteDraft {
            name: format!("{} other methods", route.name),
            ..route.clone()
        };
        if !rules.is_empty() {
            rest.deny.clear();
            rest.allow.clear();
            access.apply(&mut rest);
        }
        let is_on = |directive: &&Directive| directive.argument(0) != "off";
        let mut checks = exception.children().iter().filter(is_on);
        if let Some(check) = checks.find_map(unread_check) {
            rest.withhold(check);
            let note = format!("{check} is not imported: clients get 503 for the other methods");
            self.report
                .left(exception.origin, Concern::Routing, &exception.text(), &note);
        }
        let methods = exception
            .arguments
            .iter()
            .map(|method| method.to_ascii_uppercase());
        route.methods = methods
            .filter(|method| super::key_parts::COMMON_METHODS.contains(&method.as_str()))
            .collect();
        rest
    }

    fn location_limits(&mut self, server: usize, level: &Level<'_>) -> Vec<RouteLimit> {
        if !level.limit_req.is_empty() && !level.has_req_status
            || !level.limit_conn.is_empty() && !level.has_conn_status
        {
            self.report.note("A refusal is 429 with `Retry-After`. nginx answers 503 without `limit_req_status` or `limit_conn_status`.");
        }
        if !level.limit_conn.is_empty() {
            self.report.note(
                "`limit_conn`: a request counts until its server has finished with it. nginx counts it until the client is gone.",
            );
        }
        let mut limits = Vec::new();
        let requests = level.limit_req.iter().map(|it| (it, level.is_req_dry));
        let connections = level.limit_conn.iter().map(|it| (it, level.is_conn_dry));
        for (directive, is_dry) in requests.chain(connections) {
            limits.extend(
                self.zones
                    .use_zone(directive, server, is_dry, self.draft, self.report),
            );
        }
        limits
    }
}
