//! Decides for regions that policies cannot say exactly whether they become matches. None may give requests to a route
//! that treats them otherwise.

use super::cells::MatchOwner;
use super::region::{Fit, Region};

/// A region of a route.
#[derive(Clone, Debug)]
pub struct RegionCandidate {
    /// The route, its priority, and how it treats requests.
    pub owner: MatchOwner,
    /// The listeners, one bit each.
    pub listeners: u64,
    /// Its requests.
    pub region: Region,
}

/// What becomes of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It becomes matches.
    Match,
    /// It becomes matches that answer 503, for this reason.
    Stub(String),
    /// It is left out for this reason: all routes behind it treat its requests alike.
    LeftOut(String),
}

/// Judges each candidate beside all others.
pub fn judge(candidates: &[RegionCandidate]) -> Vec<Judgement> {
    candidates
        .iter()
        .map(|candidate| judge_one(candidate, candidates))
        .collect()
}

fn judge_one(candidate: &RegionCandidate, all: &[RegionCandidate]) -> Judgement {
    let fit = &candidate.region.fit;
    if *fit == Fit::Exact {
        return Judgement::Match;
    }
    let (mut has_others, mut has_different) = (false, false);
    for other in all {
        let may_take = other.owner.route != candidate.owner.route
            && other.listeners & candidate.listeners != 0
            && (*fit == Fit::Approximate || other.owner.priority <= candidate.owner.priority);
        if may_take && candidate.region.overlaps(&other.region) {
            has_others = true;
            has_different |= other.owner.treatment != candidate.owner.treatment;
        }
    }
    match fit {
        Fit::Superset(reason) if has_others && !has_different => Judgement::LeftOut(reason.clone()),
        Fit::Superset(reason) => Judgement::Stub(reason.clone()),
        _ if has_different => Judgement::Stub("requests that are not told apart".into()),
        _ => Judgement::Match,
    }
}
