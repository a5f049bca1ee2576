//! Whatever a server says, the upstream codec and hyper's client make the same of it, or there is a reason
//! on the list of `tests/differential/compare/reasons.rs`.
#![no_main]

#[path = "../../tests/differential/compare/mod.rs"]
mod compare;

use std::cell::RefCell;

use compare::ours::Ours;
use compare::{Asks, Case, check};
use libfuzzer_sys::fuzz_target;

/// Most bytes of a case: below the bounds that the two have on what is sent for nothing.
const MOST: usize = 8 * 1024;

thread_local! {
    static OURS: RefCell<Ours> = RefCell::new(Ours::start());
}

// The first byte says what is asked for, the second in what pieces the rest comes.
fuzz_target!(|data: &[u8]| {
    let [asks, step, bytes @ ..] = data else {
        return;
    };
    if bytes.len() > MOST {
        return;
    }
    let asks = match asks % 3 {
        0 => Asks::Get,
        1 => Asks::Head,
        _ => Asks::Upgrade,
    };
    let step = match step {
        0 => MOST,
        step => usize::from(*step),
    };
    let case = Case {
        asks,
        pieces: bytes.chunks(step).map(<[u8]>::to_vec).collect(),
    };
    OURS.with_borrow_mut(|ours| {
        if let Err(mistake) = check(ours, &case) {
            panic!("{mistake}");
        }
    });
});
