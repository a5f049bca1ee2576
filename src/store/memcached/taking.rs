//! Which parts of a call take units, and whether the call is admitted. These are functions of the call and of its counts;
//! they do no I/O.

use smallvec::SmallVec;

use super::bucket_plan::PartVerdict;
use crate::store::Taking;
use crate::store::shared::call::{Call, CallPart};

/// The verdict of each part's counts, before any units are granted; `None` for networks around a key, which are not
/// counted.
pub(super) type PartVerdicts = SmallVec<[Option<PartVerdict>; 2]>;

/// Which parts take units. Where all should, only shadows do if a part that can refuse asks for more than its limit ever
/// allows: the call is refused anyway.
pub(super) fn effective_taking(call: &Call) -> Taking {
    let never_fits = |part: &CallPart| {
        let can_refuse =
            !part.is_shadow && part.key_part_index.is_none() && part.give_back.is_none();
        can_refuse
            && part
                .spec
                .windows
                .iter()
                .any(|window| part.cost > window.ceiling)
    };
    match call.taking {
        Taking::All if call.parts.iter().any(never_fits) => Taking::Shadows,
        taking => taking,
    }
}

/// Whether the call may be refused only because it wants more than it needs, so that it is worth repeating with less.
/// `false` for calls with a give-back, which must not be repeated.
pub(super) fn may_fit_with_less(call: &Call) -> bool {
    let wants_more = |part: &CallPart| {
        part.wanted_units > part.cost && !part.is_shadow && part.key_part_index.is_none()
    };
    let gives_back = call.parts.iter().any(|part| part.give_back.is_some());
    effective_taking(call) == Taking::All && !gives_back && call.parts.iter().any(wants_more)
}

/// Whether all parts that can refuse admit. `false` for a call of [`Taking::Shadows`], whose request is refused by
/// something else.
pub(super) fn is_admitted(call: &Call, verdicts: &PartVerdicts) -> bool {
    let is_refused = |(part, verdict): (&CallPart, &Option<PartVerdict>)| match verdict {
        Some(verdict) => !part.is_shadow && !verdict.reply.standing.admits(),
        None => false,
    };
    call.taking != Taking::Shadows && !call.parts.iter().zip(verdicts).any(is_refused)
}
