//! Compiles the destinations to which the record is pushed, with the contents of the files that they name.

use std::path::Path;

use super::super::context::LoadContext;
use super::super::decode::GatewayConfig;
use super::super::source::Files;
use super::super::tree::Located;
use super::files::read_named_secret;
use super::tls::read_named_roots;
use crate::record::push::Settings;

/// Lengths of a bearer token in bytes, each an ASCII character.
const TOKEN_CHARS: std::ops::RangeInclusive<usize> = 1..=4096;

/// Compiles all destinations, in the order of the gateway file. Mistakes in their files are reported to `cx`; such a
/// file counts as absent.
pub(super) fn compile_destinations(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Vec<Settings> {
    let push = gateway.record.iter().flat_map(|record| &record.push);
    let destinations = push.map(|push| {
        let token_file = push.token_file.as_ref();
        let roots = push.ca.as_ref();
        Settings {
            token: token_file.and_then(|name| read_token(cx, files, base, name)),
            roots: roots.and_then(|name| read_named_roots(cx, files, base, name)),
            ..push.settings.clone()
        }
    });
    destinations.collect()
}

/// Reads a bearer token. `None` if the file cannot be read, or has no printable ASCII of [`TOKEN_CHARS`]. Both are
/// reported.
pub(super) fn read_token(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
) -> Option<String> {
    let token = read_named_secret(cx, files, base, name, "the token")?;
    if TOKEN_CHARS.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(token);
    }
    let message = format!(
        "`{}` holds no token of 1 to 4096 printable characters",
        name.value
    );
    let help = "write the token alone into it, without `Bearer`";
    cx.error(name.location, message, Some(help.into()));
    None
}
