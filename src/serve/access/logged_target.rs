//! The request target as the access log shows it, in every format of lines.

use std::borrow::Cow;

use http::Uri;

use crate::identity::token;
use crate::serve::stack::request_context::RequestContext;

/// The target as the client sent it, with credentials in its query masked. Of a head that cannot be read, it is the
/// path. `None` if no target was read.
pub(super) fn logged_target(context: &RequestContext) -> Option<Cow<'_, str>> {
    if let Some(path) = &context.unreadable_path {
        return Some(Cow::Borrowed(path));
    }
    let target = received_target(&context.head.as_ref()?.uri);
    Some(mask_credentials(context, target))
}

/// A text from the client with `***` in place of the credentials in its query and of a user before its host.
pub(super) fn mask_credentials<'t>(context: &RequestContext, text: Cow<'t, str>) -> Cow<'t, str> {
    let identity = &context.generation.ruleset.identity;
    token::mask_credentials(&identity.token_sources, mask_user(text))
}

/// A text from the client with `***` in place of the user and the password of a URL at its beginning.
fn mask_user(text: Cow<'_, str>) -> Cow<'_, str> {
    let Some(scheme_end) = text.find("://") else {
        return text;
    };
    let (scheme, rest) = text.split_at(scheme_end + 3);
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(user_end) => Cow::Owned(format!("{scheme}***{}", &rest[user_end..])),
        None => text,
    }
}

/// The request target as the client sent it.
fn received_target(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query() {
        Some(target) if uri.authority().is_none() => Cow::Borrowed(target.as_str()),
        _ => Cow::Owned(uri.to_string()),
    }
}
