//! Which routers are served at which listeners, and which of their regions become matches.

use std::collections::HashMap;

use super::entry_points::EntryPoints;
use super::middlewares::MAX_MIDDLEWARES;
use super::routers::Router;
use super::rule::read_rule;
use crate::import::report::{Concern, ImportReport};
use crate::import::routing::cells::{MAX_CELLS, MatchOwner, TooManyCells};
use crate::import::routing::judgement::{Judgement, RegionCandidate, judge};
use crate::import::routing::region::Region;

/// Maximum number of comparisons by which rules are read.
const MAX_RULE_WORK: usize = 4_000_000;

/// A router at entry points that add the same middlewares to it.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The index of the router.
    pub router: usize,
    /// The listeners, one bit each.
    pub listeners: u64,
    /// Full names of all its middlewares, those of the entry points first.
    pub middlewares: Vec<String>,
    /// Whether it is over TLS.
    pub is_tls: bool,
    /// The full name of its options of TLS; empty for the default ones.
    pub tls_options: String,
    /// Whether its clients may be refused without a certificate.
    pub may_need_certificate: bool,
}

/// A region of a variant that becomes matches.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The index of the variant.
    pub variant: usize,
    /// Its router, the priority, and how it treats requests.
    pub owner: MatchOwner,
    /// Its requests.
    pub region: Region,
    /// Why they get 503 in place of what the router says.
    pub stub: Option<String>,
}

/// Whether each entry point speaks TLS: if all its routers do, or if it says so.
pub fn listeners_with_tls(
    points: &EntryPoints,
    uses: &[Vec<usize>],
    routers: &[Router],
) -> Vec<bool> {
    let mut counts = vec![(0_usize, 0_usize); points.list.len()];
    for (router, used) in routers.iter().zip(uses) {
        for index in used {
            if let Some(count) = counts.get_mut(*index) {
                match router.tls_options {
                    Some(_) => count.0 += 1,
                    None => count.1 += 1,
                }
            }
        }
    }
    let points = points.list.iter().zip(counts);
    points
        .map(|(point, (with_tls, plain))| {
            point.has_tls || (with_tls > 0 && (plain == 0 || point.address.ends_with("443")))
        })
        .collect()
}

/// The indexes of the entry points of each router.
pub fn used_entry_points(
    routers: &[Router],
    points: &mut EntryPoints,
    report: &mut ImportReport,
) -> Vec<Vec<usize>> {
    for router in routers {
        for (name, at) in &router.entry_points {
            points.assume(name, *at, report);
        }
    }
    if points.list.is_empty() && !points.is_static {
        let first = routers.first().map(|router| router.at).unwrap_or_default();
        let has_tls = |router: &Router| router.tls_options.is_some();
        if routers.iter().any(|router| !has_tls(router)) {
            points.assume("web", first, report);
        }
        if routers.iter().any(has_tls) {
            points.assume("websecure", first, report);
        }
    }
    let mut uses = Vec::with_capacity(routers.len());
    for router in routers {
        let mut used = Vec::new();
        for (name, at) in &router.entry_points {
            match points.index(name) {
                Some(index) if !used.contains(&index) => used.push(index),
                Some(_) => {}
                None => {
                    let text = format!("entryPoint {name}");
                    report.left(
                        *at,
                        Concern::Routing,
                        &text,
                        "the static configuration does not have it",
                    );
                }
            }
        }
        if router.entry_points.is_empty() {
            used = points.defaults();
        }
        uses.push(used);
    }
    uses
}

/// Each router at its listeners, parted by what entry points add to it.
pub fn variants(
    routers: &[Router],
    uses: &[Vec<usize>],
    points: &EntryPoints,
    are_tls: &[bool],
    report: &mut ImportReport,
) -> Result<Vec<Variant>, TooManyCells> {
    let mut variants: Vec<Variant> = Vec::new();
    for (index, (router, used)) in routers.iter().zip(uses).enumerate() {
        let first = variants.len();
        for listener in used {
            let Some((point, is_tls)) = points.list.get(*listener).zip(are_tls.get(*listener))
            else {
                continue;
            };
            if point.redirect.is_some() {
                let note = format!(
                    "at the entry point {} all requests are redirected before it",
                    point.name
                );
                report.taken(router.at, Concern::Routing, &router.text(), &note);
                continue;
            }
            if (router.tls_options.is_some() || point.has_tls) != *is_tls {
                let (own, other) = if *is_tls {
                    ("without", "over")
                } else {
                    ("over", "without")
                };
                let note = format!(
                    "it is not served at the entry point {}: there its requests are {own} TLS, and others {other} it",
                    point.name
                );
                report.changed(router.at, Concern::Routing, &router.text(), &note);
                continue;
            }
            if variants.len() > MAX_CELLS {
                return Err(TooManyCells);
            }
            let all = point.middlewares.iter().chain(&router.middlewares);
            // Those beyond make it answer 503, however many they are.
            let middlewares: Vec<String> = all.take(MAX_MIDDLEWARES + 1).cloned().collect();
            let tls_options = match &router.tls_options {
                Some(options) => options.clone(),
                None if *is_tls => point.tls_options.clone(),
                None => String::new(),
            };
            let is_alike = |other: &&mut Variant| {
                other.middlewares == middlewares
                    && other.is_tls == *is_tls
                    && other.tls_options == tls_options
            };
            let known = variants.iter_mut().skip(first).find(is_alike);
            match known {
                Some(known) => known.listeners |= 1 << listener,
                None => variants.push(Variant {
                    router: index,
                    listeners: 1 << listener,
                    middlewares,
                    is_tls: *is_tls,
                    tls_options,
                    may_need_certificate: false,
                }),
            }
        }
        if variants.len() == first
            && !used.iter().any(|index| {
                points
                    .list
                    .get(*index)
                    .is_some_and(|point| point.redirect.is_some())
            })
        {
            report.left(
                router.at,
                Concern::Routing,
                &router.text(),
                "it is served at no entry point",
            );
        }
    }
    Ok(variants)
}

/// A number for each variant, which variants share that treat requests alike.
pub fn treatments(variants: &[Variant]) -> Vec<usize> {
    let mut known: HashMap<(&[String], &str, bool, bool), usize> = HashMap::new();
    variants
        .iter()
        .map(|variant| {
            let next = known.len();
            *known
                .entry((
                    &variant.middlewares,
                    &variant.tls_options,
                    variant.is_tls,
                    variant.may_need_certificate,
                ))
                .or_insert(next)
        })
        .collect()
}

/// The regions of all variants that become matches. One that cannot be told from those of other routers becomes 503, unless
/// the other routers treat requests alike.
///
/// # Errors
///
/// They become too many matches.
pub fn claims(
    variants: &[Variant],
    routers: &[Router],
    report: &mut ImportReport,
) -> Result<Vec<Claim>, TooManyCells> {
    let treatments = treatments(variants);
    let mut regions: Vec<(usize, Region)> = Vec::new();
    let mut size = 0;
    let mut work = MAX_RULE_WORK;
    // The variants of a router follow each other.
    let mut last: Option<(usize, Result<Vec<Region>, String>)> = None;
    for (index, variant) in variants.iter().enumerate() {
        let Some(router) = routers.get(variant.router) else {
            continue;
        };
        let read = match &last {
            Some((number, read)) if *number == variant.router => read.clone(),
            _ => {
                let read = read_rule(&router.rule, &mut work);
                last = Some((variant.router, read.clone()));
                read
            }
        };
        size += read.iter().flatten().map(Region::size).sum::<usize>();
        if size > MAX_CELLS {
            return Err(TooManyCells);
        }
        match read {
            Ok(read) if read.is_empty() => {
                let note = "no request can match its rule, so Traefik does not serve it";
                report.left(router.at, Concern::Routing, &router.text(), note);
            }
            Ok(read) => {
                // What is exact comes first, so that the rest cannot take its place.
                let mut read = read;
                read.sort_by(|a, b| a.fit.cmp(&b.fit));
                regions.extend(read.into_iter().map(|region| (index, region)));
            }
            Err(reason) => {
                regions.push((index, Region::some_of_everything(&reason)));
            }
        }
    }
    let candidate = |(index, region): &(usize, Region)| {
        let variant = variants.get(*index);
        let priority = variant.and_then(|variant| routers.get(variant.router));
        RegionCandidate {
            owner: MatchOwner {
                route: variant.map_or(0, |variant| variant.router),
                priority: priority.map_or(0, |router| router.priority),
                treatment: treatments.get(*index).copied().unwrap_or(0),
            },
            listeners: variant.map_or(0, |variant| variant.listeners),
            region: region.clone(),
        }
    };
    let candidates: Vec<RegionCandidate> = regions.iter().map(candidate).collect();
    let mut claims = Vec::new();
    for ((variant, _), (judgement, candidate)) in regions
        .iter()
        .zip(judge(&candidates).into_iter().zip(&candidates))
    {
        let Some(router) = routers.get(candidate.owner.route) else {
            continue;
        };
        let text = router.text();
        for note in &candidate.region.notes {
            report.changed(router.at, Concern::Routing, &text, note);
        }
        let stub = match judgement {
            Judgement::Match => None,
            Judgement::Stub(reason) => {
                let note = format!("{reason}: all requests that it may take get 503");
                report.left(router.at, Concern::Routing, &text, &note);
                Some(reason)
            }
            Judgement::LeftOut(reason) => {
                let note = format!(
                    "{reason}: its requests go to the next router, which has the same middlewares"
                );
                report.left(router.at, Concern::Routing, &text, &note);
                continue;
            }
        };
        claims.push(Claim {
            variant: *variant,
            owner: candidate.owner,
            region: candidate.region.clone(),
            stub,
        });
    }
    Ok(claims)
}
