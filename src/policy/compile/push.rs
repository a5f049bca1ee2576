//! The destinations of the record.

use std::path::Path;

use super::super::collect::Cx;
use super::super::model::{GatewayConfig, Located, RecordConfig};
use super::super::source::Files;
use super::files::named_secret;
use super::tls::named_roots;
use crate::record::push::Settings;

/// Fewest and most characters of a token.
const TOKEN: std::ops::RangeInclusive<usize> = 1..=4096;

/// The destinations, with what is in their files.
pub(super) fn compile(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Vec<Settings> {
    let Some(RecordConfig::Kept(_, push)) = &gateway.record else {
        return Vec::new();
    };
    let destinations = push.iter().map(|push| {
        let token_file = push.token_file.as_ref();
        let roots = push.roots.as_ref();
        Settings {
            token: token_file.and_then(|name| token(cx, files, base, name)),
            roots: roots.and_then(|name| named_roots(cx, files, base, name)),
            ..push.settings.clone()
        }
    });
    destinations.collect()
}

fn token(cx: &mut Cx, files: &dyn Files, base: &Path, name: &Located<String>) -> Option<String> {
    let token = named_secret(cx, files, base, name, "the token")?;
    if TOKEN.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(token);
    }
    let message = format!(
        "`{}` holds no token of 1 to 4096 printable characters",
        name.value
    );
    let help = "write the token alone into it, without `Bearer`";
    cx.error(name.place, message, Some(help.into()));
    None
}
