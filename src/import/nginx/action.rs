//! What becomes of the requests of a location: they are forwarded, or the gateway answers.

use super::answer::read_return;
use super::level::Level;
use super::server::{LocationRoute, NginxServer, RouteBuilder};
use super::syntax::Directive;
use crate::import::model::ActionDraft;
use crate::import::report::Concern;
use crate::route::pattern::Pattern;

/// What becomes of the requests of a location.
#[derive(Default)]
pub(super) struct LocationAction<'d> {
    pub(super) action: ActionDraft,
    /// The upstream of requests that nginx checks in a way that is not imported.
    pub(super) withheld_upstream: Option<String>,
    /// What holds in the named location that `try_files` leads to.
    pub(super) fallback: Option<Level<'d>>,
    pub(super) strip: Option<String>,
    pub(super) prefix: Option<String>,
    /// Whether it answers before nginx looks at limits and access.
    pub(super) is_early: bool,
    /// Comments for the policy.
    pub(super) comments: Vec<String>,
}

impl RouteBuilder<'_> {
    /// What becomes of the requests of a location.
    pub(super) fn location_action<'d>(
        &mut self,
        server: &NginxServer<'_>,
        location: &LocationRoute<'d>,
        named: &[(&'d Directive, Level<'d>)],
    ) -> LocationAction<'d> {
        let find = |name: &str| {
            location
                .others
                .iter()
                .copied()
                .find(|other| other.name == name)
        };
        if let Some(internal) = find("internal") {
            let note = "clients get 404, as in nginx";
            self.report
                .taken(internal.origin, Concern::Routing, &internal.text(), note);
            return LocationAction {
                action: ActionDraft::respond(404),
                is_early: true,
                ..LocationAction::default()
            };
        }
        if let Some(directive) = find("return") {
            let text = directive.text();
            return match read_return(directive, &location.level.media_type, self.facts(server)) {
                Ok(read) => {
                    self.report_return(directive, &read);
                    LocationAction {
                        action: read.action,
                        is_early: true,
                        ..LocationAction::default()
                    }
                }
                Err(reason) => {
                    self.report
                        .left(directive.origin, Concern::Routing, &text, &reason);
                    stub("a redirect")
                }
            };
        }
        if let Some(directive) = find("proxy_pass").or_else(|| find("grpc_pass")) {
            return self.pass(directive, location, &location.level);
        }
        if let Some(directive) = find("try_files") {
            return self.try_files(directive, location, named);
        }
        let text = location.directive.text();
        let handlers = [
            "fastcgi_pass",
            "uwsgi_pass",
            "scgi_pass",
            "memcached_pass",
            "stub_status",
            "empty_gif",
        ];
        let handler = location
            .others
            .iter()
            .find(|other| handlers.contains(&other.name.as_str()));
        let what = handler.map_or("files", |handler| handler.name.as_str());
        let note = format!(
            "tollgate serves no {what}, so that clients get 503; keep nginx behind it, and write its upstream in the policy"
        );
        self.report
            .left(location.directive.origin, Concern::Routing, &text, &note);
        stub(what)
    }

    /// Puts a 503 in place of a server whose requests nginx checks in a way that is not imported.
    pub(super) fn refuse_unchecked(
        &mut self,
        directive: &Directive,
        level: &Level<'_>,
        action: &mut LocationAction<'_>,
    ) {
        let has_key_set = self.draft.identities.user.is_some();
        let checks: Vec<&str> = level.unread_checks(has_key_set).into_iter().collect();
        if checks.is_empty() || !matches!(action.action, ActionDraft::Upstream(_)) {
            return;
        }
        let checks = checks.join(", ");
        let note = format!(
            "nginx refuses clients by {checks}, which is not imported: clients get 503. Write `require`, `allow` or `deny`, and then the upstream"
        );
        self.report
            .left(directive.origin, Concern::Routing, &directive.text(), &note);
        let refused = std::mem::replace(action, stub(&checks));
        if let ActionDraft::Upstream(upstream) = refused.action {
            action.withheld_upstream = Some(upstream);
        }
    }

    fn try_files<'d>(
        &mut self,
        directive: &Directive,
        location: &LocationRoute<'d>,
        named: &[(&'d Directive, Level<'d>)],
    ) -> LocationAction<'d> {
        let text = directive.text();
        let target = directive.arguments.last().map_or("", String::as_str);
        let fallback = named
            .iter()
            .find(|(fallback, _)| fallback.argument(0) == target);
        let pass = fallback.and_then(|(fallback, level)| {
            let mut children = fallback.children().iter();
            // These decide before its server does.
            if children.any(|child| matches!(&*child.name, "return" | "limit_except" | "try_files"))
            {
                return None;
            }
            let mut passes = fallback.children().iter();
            Some((
                passes.find(|pass| matches!(&*pass.name, "proxy_pass" | "grpc_pass"))?,
                level,
            ))
        });
        let Some((pass, level)) = pass else {
            let note = "tollgate serves no files, so that clients get 503; keep nginx behind it, and write its upstream in the policy";
            self.report
                .left(directive.origin, Concern::Routing, &text, note);
            return stub("files");
        };
        let note = format!("no file is looked for: all requests go where `{target}` leads");
        self.report
            .changed(directive.origin, Concern::Routing, &text, &note);
        LocationAction {
            fallback: Some(level.clone()),
            ..self.pass(pass, location, level)
        }
    }

    fn pass(
        &mut self,
        directive: &Directive,
        location: &LocationRoute<'_>,
        level: &Level<'_>,
    ) -> LocationAction<'static> {
        let text = directive.text();
        let settings = level.pass_settings();
        let resolved = self.upstreams.resolve(
            directive,
            &level.literals,
            &settings,
            self.draft,
            self.report,
        );
        let target = match resolved {
            Ok(target) => target,
            Err(reason) => {
                let note = format!("{reason}. Clients get 503");
                self.report
                    .left(directive.origin, Concern::Routing, &text, &note);
                return stub("a server that is chosen for each request");
            }
        };
        let mut action = LocationAction {
            action: ActionDraft::Upstream(target.upstream),
            ..LocationAction::default()
        };
        let note = match settings.host {
            None if text.contains("unix:") => {
                "servers get the client's host; nginx sends `localhost`"
            }
            None => "servers get the host of this URL, as nginx's default is",
            Some(_) => "",
        };
        self.report
            .taken(directive.origin, Concern::Routing, &text, note);
        let Some(path) = target.path else {
            return action;
        };
        let new_begin = path.trim_end_matches('/');
        let old_begin = location.literal.trim_end_matches('/');
        let is_path = new_begin.is_empty()
            || Pattern::parse(new_begin)
                .is_ok_and(|_| !new_begin.contains(['*', '{', '%', '?', '$']));
        if location.literal.is_empty() || !is_path {
            let note = "its path has no counterpart in this location; write `strip` and `prefix`. Clients get 503";
            self.report
                .left(directive.origin, Concern::Routing, &text, note);
            return stub("a changed path");
        }
        let is_exact = location.directive.argument(0).starts_with('=');
        if !is_exact && path.ends_with('/') != location.literal.ends_with('/') {
            let note = format!(
                "nginx puts `{path}` in place of `{}` letter by letter; here whole segments change: `{}/x` becomes `{new_begin}/x`",
                location.literal, old_begin
            );
            self.report
                .changed(directive.origin, Concern::Routing, &text, &note);
        }
        if old_begin != new_begin {
            action.strip = (!old_begin.is_empty()).then(|| old_begin.to_owned());
            action.prefix = (!new_begin.is_empty()).then(|| new_begin.to_owned());
        }
        action
    }
}

fn stub(what: &str) -> LocationAction<'static> {
    LocationAction {
        action: ActionDraft::not_imported(what),
        ..LocationAction::default()
    }
}
