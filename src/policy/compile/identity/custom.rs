//! Compiles the custom identities: `preflight`, and those that the gateway file defines. Reads the files of networks
//! and the tables that they name.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

use super::super::super::context::LoadContext;
use super::super::super::decode::{CustomConfig, NetworksItem, parse_network};
use super::super::super::section::Named;
use super::super::super::source::Files;
use super::super::super::tree::{Located, SourceLocation};
use super::super::files::read_list_file;
use crate::identity::body::FieldName;
use crate::identity::custom::{NetworkTable, Settings, Source};
use crate::identity::embedded_ipv4::{Nat64Prefix, untranslated_network};
use crate::identity::token::TokenSource;
use crate::limit::CustomIdentity;

/// Maximum number of lines of one file that are reported, because another kind of file has mistakes in all of them.
const MAX_REPORTED_LINES: usize = 5;

/// Compiles all identities. Mistakes in files are reported to `cx`.
pub fn compile_custom(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    written: &[Named<CustomConfig>],
    nat64: &[Nat64Prefix],
) -> Vec<Settings> {
    let mut compiled = Vec::new();
    for custom in written {
        let (Some(identity), Some(source)) = (
            CustomIdentity::find(&custom.name.value),
            compile_source(cx, files, base, custom, nat64),
        ) else {
            continue;
        };
        let field = HeaderName::try_from(format!("tollgate-{}", identity.as_str()));
        compiled.push(Settings {
            identity,
            source,
            forwarded_as: field.ok().filter(|_| custom.forward),
        });
    }
    compiled
}

/// The source of one identity. `None` if its table cannot be used, which is reported, or without a source, which the
/// decoder has reported. Of a file of networks, only the mistaken lines are reported and left out.
fn compile_source(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    written: &CustomConfig,
    nat64: &[Nat64Prefix],
) -> Option<Source> {
    if let Some(claim) = &written.jwt {
        return Some(Source::Claim(claim.value.clone()));
    }
    if written.api_keys.is_some() {
        return Some(Source::ApiKeys);
    }
    if let Some(name) = &written.header {
        return Some(Source::Field(TokenSource::Header(name.clone())));
    }
    if let Some(name) = &written.cookie {
        return Some(Source::Field(TokenSource::Cookie(name.as_str().into())));
    }
    if let Some(name) = &written.query {
        return Some(Source::Query(FieldName::new(name).into()));
    }
    if let Some(name) = &written.body {
        return Some(Source::Body(name.as_str().into()));
    }
    if let Some(name) = &written.path {
        return Some(Source::PathPart(name.as_str().into()));
    }
    if let Some(name) = &written.tls {
        return Some(Source::Certificate(name.value));
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    let mut networks = Vec::new();
    for named in written.networks.as_ref()? {
        for item in &named.fields {
            match item {
                NetworksItem::Network(network) => networks.push((*network, names.len())),
                NetworksItem::File(file) => {
                    let listed = read_networks(cx, files, base, file);
                    networks.extend(listed.into_iter().map(|network| (network, names.len())));
                }
            }
        }
        names.push(named.name.value.as_str().into());
    }
    // A mapped or translated address of a request is looked up as the IPv4 address inside it.
    for (network, _) in &mut networks {
        *network = untranslated_network(*network, nat64);
    }
    report_shared_networks(cx, &networks, written.networks.as_ref()?);
    Some(Source::Networks(Arc::new(NetworkTable::new(
        names, networks,
    ))))
}

/// Reports the first network that has two names; later ones are not reported.
fn report_shared_networks(
    cx: &mut LoadContext,
    networks: &[(IpNet, usize)],
    named: &[Named<Vec<NetworksItem>>],
) {
    let mut names: HashMap<IpNet, usize> = HashMap::new();
    for (network, name_index) in networks {
        let first = *names.entry(*network).or_insert(*name_index);
        if let (Some(first), Some(second)) = (named.get(first), named.get(*name_index))
            && first.name.value != second.name.value
        {
            let message = format!("`{network}` is in `{}` too", first.name.value);
            let help = "an address has one name; remove the network from one of them";
            cx.error(second.name.location, message, Some(help.into()));
            return;
        }
    }
}

/// Reads a file with one network a line; `#` begins a comment.
fn read_networks(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    file: &Located<String>,
) -> Vec<IpNet> {
    let Some(text) = read_list_file(cx, files, base, file, "the networks") else {
        return Vec::new();
    };
    let mut networks = Vec::new();
    let mut mistakes = Vec::new();
    for (line_index, line) in text.lines().enumerate() {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        match parse_network(entry) {
            Ok(network) => networks.push(network),
            Err(error) => {
                mistakes.push((line_index, line, entry, error));
                if mistakes.len() == MAX_REPORTED_LINES {
                    break;
                }
            }
        }
    }
    if !mistakes.is_empty() {
        let name = base.join(&file.value).display().to_string();
        let file_number = cx.sources.add(&name, text.clone());
        for (line_index, line, entry, error) in mistakes {
            let before = line.find(entry).map_or(0, |at| line[..at].chars().count());
            let location = SourceLocation {
                file: file_number,
                line: u32::try_from(line_index + 1).unwrap_or(u32::MAX),
                column: u32::try_from(before + 1).unwrap_or(u32::MAX),
                width: u32::try_from(entry.chars().count()).unwrap_or(1),
                further_lines: 0,
            };
            cx.error(location, error.message, error.help);
        }
    }
    networks
}
