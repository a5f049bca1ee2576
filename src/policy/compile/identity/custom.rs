//! Compiles the custom identities: `preflight`, and those that the gateway file defines. Reads the files of networks
//! and the tables that they name.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

use super::super::super::context::LoadContext;
use super::super::super::decode::{CustomConfig, NetworksItem, TlsPart};
use super::super::super::section::Named;
use super::super::super::source::Files;
use super::super::super::tree::Located;
use super::network_list::{counted_network, read_networks};
use super::table::read_table;
use crate::identity::body::FieldName;
use crate::identity::custom::{Settings, Source};
use crate::identity::embedded_ipv4::Nat64Prefix;
use crate::identity::token::TokenSource;
use crate::limit::custom_identity::PREFLIGHT;
use crate::limit::{CustomIdentity, NetworkTable};

/// Compiles all custom identities: `preflight` if a limit has used it since the process started, then those of the
/// gateway file. Those in `logged` are looked for in every request, but not in its body. An identity whose source cannot
/// be compiled is left out; mistakes in files are reported to `cx`.
pub fn compile_custom(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    written: &[Named<CustomConfig>],
    nat64: &[Nat64Prefix],
    logged: &[Located<String>],
) -> Vec<Settings> {
    let mut compiled: Vec<Settings> = CustomIdentity::find(PREFLIGHT)
        .map(|identity| Settings {
            identity,
            source: Source::Preflight,
            forwarded_as: None,
            is_always_read: false,
        })
        .into_iter()
        .collect();
    for custom in written {
        let (Some(identity), Some(source)) = (
            CustomIdentity::find(&custom.name.value),
            compile_source(cx, files, base, custom, nat64),
        ) else {
            continue;
        };
        // A log is no reason to read bodies.
        let is_read_for_log = !matches!(source, Source::Query(_) | Source::Body(_))
            && (logged.iter()).any(|logged| logged.value == custom.name.value);
        let field = HeaderName::try_from(format!("tollgate-{}", identity.as_str()));
        compiled.push(Settings {
            identity,
            source,
            forwarded_as: field.ok().filter(|_| custom.forward),
            is_always_read: custom.forward || custom.metrics || is_read_for_log,
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
    if let Some(part) = &written.tls {
        return Some(match part.value {
            TlsPart::Certificate(name) => Source::Certificate(name),
            TlsPart::Ja4 => Source::Ja4,
        });
    }
    if let Some(table) = &written.table {
        let table = read_table(cx, files, base, table, written.field.as_ref()?)?;
        return Some(Source::Networks(Arc::new(table)));
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    let mut networks = Vec::new();
    for named in written.networks.as_ref()? {
        for item in &named.fields {
            let listed = match item {
                NetworksItem::Network(network) => vec![*network],
                NetworksItem::File(file) => read_networks(cx, files, base, file),
            };
            for network in listed {
                let network = counted_network(cx, named.name.location, network, nat64);
                networks.push((network, names.len()));
            }
        }
        names.push(named.name.value.as_str().into());
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
        let first_index = *names.entry(*network).or_insert(*name_index);
        if let (Some(first), Some(second)) = (named.get(first_index), named.get(*name_index))
            && first.name.value != second.name.value
        {
            let message = format!("`{network}` is in `{}` too", first.name.value);
            let help = "an address has one name; remove the network from one of them";
            cx.error(second.name.location, message, Some(help.into()));
            return;
        }
    }
}
