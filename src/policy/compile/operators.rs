//! Reads the tokens of operators: the file of one token, or that of several with entries
//! `NAME: { token: TOKEN, rights: support, expires: 2027-01-31 }`. In place of the token may stand `sha256:` and its hash.
//!
//! No message shows a token or a line of the file.

use std::path::Path;
use std::time::Duration;

use http::HeaderValue;

use super::super::context::LoadContext;
use super::super::decode::AdminConfig;
use super::super::settings::PeerGateways;
use super::super::source::Files;
use super::super::tree::{Located, MapKey, Node, SourceLocation, YamlValue, find_repeated_keys};
use super::expiry::{EXPIRY_HELP, parse_expiry};
use super::files::{read_named_secret, read_secret_map};
use crate::base::clock::Clock;
use crate::identity::api_keys::WrittenKey;
use crate::operator::{OperatorToken, OperatorTokens, Right};

const ENTRY_HELP: &str = "write `alice: { token: TOKEN, rights: support }` on each line; the rights are `read`, `support` and `admin`";

/// The start of a reference to a variable or a file, which only the gateway file and policies have.
const REFERENCE_START: &str = "${";

const REFERENCE_HELP: &str =
    "write the token itself, or `sha256:` and what `printf %s TOKEN | sha256sum` prints";

/// The name of the operator with the token of `token_file`.
const SINGLE_OPERATOR: &str = "admin";

/// Reads the file that `admin` names, and returns the tokens and the text of a valid one with the least right. `None` if no file is
/// named, or if it has a mistake, which is reported.
pub fn read_operators(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    admin: &AdminConfig,
) -> Option<(OperatorTokens, Option<String>)> {
    if let Some(file) = &admin.tokens {
        return read_tokens(cx, files, base, admin, file);
    }
    let text = read_token(cx, files, base, admin.token_file.as_ref()?)?;
    let token = OperatorToken::of_text(SINGLE_OPERATOR, Right::Admin, None, &text);
    let tokens = OperatorTokens::new(vec![token]).ok()?;
    Some((tokens, Some(text)))
}

/// Compiles the other gateways, and reads the file of the token for them. A file with a mistake, which is reported, gives no
/// token.
pub fn compile_peers(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    admin: &AdminConfig,
) -> PeerGateways {
    let file = admin.peers_token_file.as_ref();
    let token = file.and_then(|file| read_token(cx, files, base, file));
    let authorization = token.and_then(|token| {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    });
    PeerGateways {
        addresses: admin.peers.iter().map(|peer| peer.value).collect(),
        authorization,
    }
}

/// Reads the file of one token. `None` if it cannot be read or holds no token, which is reported.
fn read_token(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
) -> Option<String> {
    let token = read_named_secret(cx, files, base, name, "the admin token")?;
    if token.contains(REFERENCE_START) {
        let message = format!("`{}` holds `${{`, which is not filled in there", name.value);
        cx.error(name.location, message, Some(REFERENCE_HELP.into()));
        return None;
    }
    if OperatorToken::is_token(&token) {
        return Some(token);
    }
    let message = format!(
        "`{}` holds no token of 16 to 4096 printable characters",
        name.value
    );
    let help = "make one with `openssl rand -hex 32`";
    cx.error(name.location, message, Some(help.into()));
    None
}

/// Reads the file of several tokens. `None` if it has a mistake; of each entry the first one is reported.
fn read_tokens(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    admin: &AdminConfig,
    file: &Located<String>,
) -> Option<(OperatorTokens, Option<String>)> {
    let described = ("operators' tokens", ENTRY_HELP);
    let (start, entries) = read_secret_map(cx, files, base, file, described)?;
    let repeated = find_repeated_keys(&entries);
    for (_, name) in &repeated {
        let message = "this name is already listed";
        let help = "give each token a name of its own, such as `alice-2`";
        cx.error(name.location, message, Some(help.into()));
    }
    if let Some((name, _)) = entries.get(OperatorTokens::MAX_TOKENS) {
        let message = format!("there are more than {} tokens", OperatorTokens::MAX_TOKENS);
        cx.error(name.location, message, Some("remove some".into()));
        return None;
    }
    let tokens: Vec<WrittenToken> = entries
        .iter()
        .filter_map(|(name, value)| read_entry(cx, name, value))
        .collect();
    if tokens.len() < entries.len() || !repeated.is_empty() {
        return None;
    }
    let text = warn_of_validity(cx, file, &entries, &tokens);
    if text.is_none() && admin.probes.is_none() {
        let message =
            "`tollgate ready` has no token: the file has only hashes, or tokens that have expired";
        let help =
            "if a health check uses it, add for instance `probes: 127.0.0.1:9901` to `admin`";
        cx.warn(file.location, message, Some(help.into()));
    }
    match OperatorTokens::new(tokens.into_iter().map(|token| token.token).collect()) {
        Ok(tokens) => Some((tokens, text)),
        Err(index) => {
            let location = entries.get(index).map_or(start, |(name, _)| name.location);
            let message = "another operator has this token already";
            let help = "make a new one with `openssl rand -hex 32`";
            cx.error(location, message, Some(help.into()));
            None
        }
    }
}

/// Warns of tokens that have expired, and if none may do everything. Returns the text of a valid token with the least right.
fn warn_of_validity(
    cx: &mut LoadContext,
    file: &Located<String>,
    entries: &[(MapKey, Node)],
    tokens: &[WrittenToken],
) -> Option<String> {
    let now = Clock::system().wall();
    let is_valid = |token: &WrittenToken| {
        let expires_at = token.token.expires_at;
        expires_at.is_none_or(|expires_at| expires_at > now)
    };
    for ((name, _), token) in entries.iter().zip(tokens) {
        if !is_valid(token) {
            let message = format!("the token of `{}` has expired", token.token.name);
            let help = "remove this line, or give the operator a new token and a later `expires`";
            cx.warn(name.location, message, Some(help.into()));
        }
    }
    let valid_tokens = tokens.iter().filter(|token| is_valid(token));
    let valid_tokens: Vec<&WrittenToken> = valid_tokens.collect();
    if !valid_tokens
        .iter()
        .any(|token| token.token.right == Right::Admin)
    {
        let message = "no token with the right `admin` is valid, so nobody can order a reload";
        let help = "give one operator `rights: admin`";
        cx.warn(file.location, message, Some(help.into()));
    }
    let with_text = valid_tokens.iter().filter(|token| token.text.is_some());
    let least = with_text.min_by_key(|token| token.token.right);
    least.and_then(|token| token.text.clone())
}

/// A token, and its text unless the file has only its hash.
struct WrittenToken {
    token: OperatorToken,
    text: Option<String>,
}

/// The fields of an entry, as far as they are read.
#[derive(Default)]
struct EntryFields<'n> {
    token: Option<(&'n str, SourceLocation)>,
    right: Option<Right>,
    expires_at: Option<Duration>,
}

/// Reads one entry. `None` for a mistake, which is reported.
fn read_entry(cx: &mut LoadContext, name: &MapKey, node: &Node) -> Option<WrittenToken> {
    if !OperatorToken::is_name(&name.text) {
        let message = format!(
            "a name of an operator is 1 to {} letters, digits and `-_.@+`",
            OperatorToken::MAX_NAME_BYTES
        );
        cx.error(name.location, message, Some(ENTRY_HELP.into()));
        return None;
    }
    let YamlValue::Map(nodes) = &node.value else {
        let message = "an operator has a token and rights";
        cx.error(node.location, message, Some(ENTRY_HELP.into()));
        return None;
    };
    if let Some((_, repeated)) = find_repeated_keys(nodes).first() {
        let message = "a field of this operator stands here twice";
        let help = "remove one of them";
        cx.error(repeated.location, message, Some(help.into()));
        return None;
    }
    let mut fields = EntryFields::default();
    for (field, value) in nodes {
        read_field(cx, &mut fields, field, value)?;
    }
    let Some((token, location)) = fields.token else {
        let message = "this operator has no token";
        cx.error(name.location, message, Some(ENTRY_HELP.into()));
        return None;
    };
    let Some(right) = fields.right else {
        let message = "this operator has no rights";
        cx.error(name.location, message, Some(ENTRY_HELP.into()));
        return None;
    };
    if token.contains(REFERENCE_START) {
        let message = "`${` is not filled in here, so the text itself would be the token";
        cx.error(location, message, Some(REFERENCE_HELP.into()));
        return None;
    }
    let written = WrittenKey::parse(token);
    if let Some(WrittenKey::Sha256(hash)) = written {
        return Some(WrittenToken {
            token: OperatorToken::of_hash(&name.text, right, fields.expires_at, hash),
            text: None,
        });
    }
    if written.is_none() || !OperatorToken::is_token(token) {
        let message = "this is no token of 16 to 4096 printable characters, and no SHA-256 hash";
        let help = "make one with `openssl rand -hex 32`, and write it, or `sha256:` and what `printf %s TOKEN | sha256sum` prints";
        cx.error(location, message, Some(help.into()));
        return None;
    }
    Some(WrittenToken {
        token: OperatorToken::of_text(&name.text, right, fields.expires_at, token),
        text: Some(token.to_owned()),
    })
}

/// Reads one field of an entry. `None` for a mistake, which is reported.
fn read_field<'n>(
    cx: &mut LoadContext,
    fields: &mut EntryFields<'n>,
    name: &MapKey,
    node: &'n Node,
) -> Option<()> {
    let text = node.scalar().unwrap_or_default();
    match name.text.as_str() {
        "token" => fields.token = Some((text, node.location)),
        "rights" => {
            fields.right = Right::parse(text);
            if fields.right.is_none() {
                let message = "there are no such rights";
                let help = "write `read`, `support` or `admin`";
                cx.error(node.location, message, Some(help.into()));
                return None;
            }
        }
        "expires" => {
            fields.expires_at = parse_expiry(text);
            if fields.expires_at.is_none() {
                let message = "`expires` is neither a day nor a time";
                cx.error(node.location, message, Some(EXPIRY_HELP.into()));
                return None;
            }
        }
        _ => {
            let message = "an operator has no such field";
            let help = "the fields are `token`, `rights` and `expires`";
            cx.error(name.location, message, Some(help.into()));
            return None;
        }
    }
    Some(())
}
