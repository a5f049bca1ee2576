//! Finds out which router takes which requests, and has the policies written.

use std::collections::HashMap;

use super::client_certificates::{hosts_with_certificates, mark_variants};
use super::input::TraefikInput;
use super::policies::PolicyWriter;
use super::redirects::{add_redirects, tls_ports};
use super::routers::Router;
use super::treatment::{Claim, Variant, claims, listeners_with_tls, used_entry_points, variants};
use crate::import::budget::{TooMuchWork, WorkBudget};
use crate::import::error::ImportError;
use crate::import::model::ImportDraft;
use crate::import::report::{Concern, ImportReport};
use crate::import::routing::cells::{CellTable, MAX_CELLS, MatchCell, MatchOwner, TooManyCells};

/// Fills the draft with all that the files say. `path` is that of the first file.
pub fn assemble(
    mut input: TraefikInput<'_>,
    path: &str,
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    refuse_duplicates(&mut input.routers, report);
    let too_many = |what: &str| {
        ImportError::at(
            path,
            1,
            1,
            format!("this becomes more than {MAX_CELLS} {what}"),
        )
        .with_help("import fewer routers at a time")
    };
    if input.routers.len() > MAX_CELLS {
        return Err(too_many("routers"));
    }
    let uses = used_entry_points(&input.routers, &mut input.entry_points, report);
    let are_tls = listeners_with_tls(&input.entry_points, &uses, &input.routers);
    let mut variants = variants(&input.routers, &uses, &input.entry_points, &are_tls, report)
        .map_err(|TooManyCells| too_many("routes"))?;
    mark_variants(&mut variants, &input.routers, &input.tls);
    let mut claims =
        claims(&variants, &input.routers, report).map_err(|TooManyCells| too_many("routes"))?;
    let of_hosts = hosts_with_certificates(&variants, &input.routers, claims.len());
    claims.extend(of_hosts.map_err(|TooManyCells| too_many("routes"))?);
    let table = fill_table(&claims, &variants).map_err(|TooManyCells| too_many("routes"))?;
    report_precedences(&table, &claims, &variants, &input.routers, report);
    input
        .entry_points
        .write(&are_tls, &input.tls.certificates, draft, report);
    let tls_ports = tls_ports(&input.entry_points, &are_tls);
    add_redirects(&input.entry_points, &tls_ports, draft, report);
    let mut writer = PolicyWriter {
        input: &mut input,
        tls_ports,
        draft,
        report,
        budget: WorkBudget::new(),
    };
    let mut cells_of: Vec<(bool, Vec<&MatchCell>)> = vec![(false, Vec::new()); variants.len()];
    for claim in &claims {
        if let Some((has_claims, _)) = cells_of.get_mut(claim.variant) {
            *has_claims = true;
        }
    }
    for cell in table.cells() {
        let variant = claims.get(cell.owner).map(|claim| claim.variant);
        if let Some((_, cells)) = variant.and_then(|variant| cells_of.get_mut(variant)) {
            cells.push(cell);
        }
    }
    for (variant, (has_claims, cells)) in variants.iter().zip(&cells_of) {
        let first = (writer.draft.routes.len(), writer.draft.upstreams.len());
        let added = writer.add_variant(variant, *has_claims, cells, &claims);
        let written = writer.draft.written_since(first.0, first.1);
        added
            .and_then(|()| writer.budget.write(written))
            .map_err(|TooMuchWork| {
                let message = "its routers share too many long middlewares, services or lists";
                ImportError::at(path, 1, 1, message).with_help("import fewer routers at a time")
            })?;
        if writer.draft.limits.len() > 2 * MAX_CELLS {
            return Err(too_many("limits"));
        }
    }
    input.middlewares.report_unused(report);
    input.services.report_unused(report);
    Ok(())
}

/// The name of a middleware that no input has, so that routers with it answer 503.
const DUPLICATE_NAME: &str = "of two routers with one name";

/// Makes routers with the name of another one answer 503. Which of them Traefik serves depends on its version.
fn refuse_duplicates(routers: &mut [Router], report: &mut ImportReport) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for router in routers.iter() {
        *counts.entry(router.key.clone()).or_default() += 1;
    }
    for router in routers {
        if counts.get(&router.key) != Some(&1) {
            let note = "another router has this name, so the requests of both get 503";
            report.left(router.at, Concern::Routing, &router.text(), note);
            router.middlewares.push(DUPLICATE_NAME.into());
        }
    }
}

fn fill_table(claims: &[Claim], variants: &[Variant]) -> Result<CellTable, TooManyCells> {
    let owners: Vec<MatchOwner> = claims.iter().map(|claim| claim.owner).collect();
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(owners.get(*index).map(|owner| owner.priority)));
    let mut table = CellTable::default();
    for index in order {
        let Some(claim) = claims.get(index) else {
            continue;
        };
        for host in &claim.region.hosts {
            for path in &claim.region.paths {
                let cell = MatchCell {
                    host: host.clone(),
                    path: path.clone(),
                    methods: claim.region.methods.clone(),
                    listeners: variants
                        .get(claim.variant)
                        .map_or(0, |variant| variant.listeners),
                    owner: index,
                    is_stub: claim.stub.is_some(),
                };
                table.insert(cell, &owners)?;
            }
        }
    }
    Ok(table)
}

fn report_precedences(
    table: &CellTable,
    claims: &[Claim],
    variants: &[Variant],
    routers: &[Router],
    report: &mut ImportReport,
) {
    let router = |owner: usize| routers.get(variants.get(claims.get(owner)?.variant)?.router);
    for precedence in &table.precedences {
        let (Some(winner), Some(loser)) = (router(precedence.winner), router(precedence.loser))
        else {
            continue;
        };
        if precedence.is_tie {
            let note = format!(
                "router {} has the same priority, so Traefik does not say which of them takes what both match: it gets 503. \
                 Give them priorities",
                winner.name
            );
            report.left(loser.at, Concern::Routing, &loser.text(), &note);
        } else if claims
            .get(precedence.winner)
            .is_some_and(|claim| claim.stub.is_some())
        {
            let note = format!(
                "router {} is before it, and what both match gets 503, as is said there",
                winner.name
            );
            report.left(loser.at, Concern::Routing, &loser.text(), &note);
        } else {
            let note = format!(
                "router {} is before it, and keeps what both match",
                winner.name
            );
            report.taken(loser.at, Concern::Routing, &loser.text(), &note);
        }
    }
}
