//! `set-src`: the proxies whose `X-Forwarded-For` names the client.

use super::section::{ConfigSection, SectionKind};
use super::syntax::ConfigLine;
use crate::import::model::ImportDraft;
use crate::import::nginx::variables::{network_text, parse_network};

/// Trusts the proxies whose `X-Forwarded-For` every frontend takes for the client's address before all other rules. Returns
/// whether there are such.
///
/// Rules of connections see the address before it changes, and further rules `set-src` change it again. With either of them
/// no proxy is trusted.
pub fn find_trusted_proxies(sections: &[ConfigSection], draft: &mut ImportDraft) -> bool {
    let lines = sections.iter().flat_map(|section| &section.lines);
    let has_early_rule = lines
        .clone()
        .any(|line| line.word(0) == "tcp-request" && line.word(1) != "inspect-delay");
    let count = lines.filter(|line| line.word(1) == "set-src").count();
    let frontends: Vec<&ConfigSection> = sections
        .iter()
        .filter(|section| {
            section.is_http && matches!(section.kind, SectionKind::Frontend | SectionKind::Listen)
        })
        .collect();
    if has_early_rule || count != frontends.len() {
        return false;
    }
    let mut proxies: Option<Vec<String>> = None;
    for section in frontends {
        let mut rules = section.lines.iter();
        let first = rules.find(|line| line.word(0) == "http-request");
        let own = first.and_then(set_src_networks);
        if own.is_none() || proxies.is_some() && proxies != own {
            return false;
        }
        proxies = own;
    }
    match proxies {
        Some(networks) => {
            draft.trusted_proxies = networks;
            true
        }
        None => false,
    }
}

/// The networks of `http-request set-src hdr(x-forwarded-for) if { src NETWORKS }`.
fn set_src_networks(line: &ConfigLine) -> Option<Vec<String>> {
    let is_source = [
        "hdr(x-forwarded-for)",
        "req.hdr(x-forwarded-for)",
        "hdr_ip(x-forwarded-for)",
        "req.hdr_ip(x-forwarded-for)",
    ]
    .contains(&line.word(2).to_ascii_lowercase().trim_end_matches(",-1)"));
    let condition = line.rest(3);
    let is_condition = condition.first()?.as_str() == "if"
        && condition.get(1)?.as_str() == "{"
        && condition.get(2)?.as_str() == "src"
        && condition.last()?.as_str() == "}";
    if line.word(1) != "set-src"
        || !is_source
        || !is_condition
        || line.has_variable
        || line.is_conditional
    {
        return None;
    }
    let networks = condition.get(3..condition.len().checked_sub(1)?)?;
    let networks: Option<Vec<String>> = networks
        .iter()
        .map(|text| parse_network(text).map(network_text))
        .collect();
    networks.filter(|networks| !networks.is_empty())
}
