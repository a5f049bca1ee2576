//! Units that come back to Redis out of order.

use tollgate::limit::{Algorithm, Scale, ThrottleMode};
use tollgate::store::shared::call::GiveBack;

use crate::script::limit;
use crate::scripted::{Scripted, call, part};

/// Give-backs go over the connections of several workers, and their numbers begin anew after the last.
#[test]
fn grants_come_back_in_any_order() {
    Scripted::each().for_each(|mut store| {
        let limit = limit(&["100/m"], Algorithm::SlidingWindow, ThrottleMode::Hard);
        store.now = 1_000_000_000;
        let ask = part(&limit, 1, 7, 1, Scale::plan(1));
        let mut all = ask.clone();
        all.wanted_units = 100;
        let granted_at_micros = store.ask(&call(1, [all])).counters[0].granted_at_micros;
        let top = u32::MAX;
        let mut left = 100;
        for (number, news) in [
            (top - 60, true),
            (top - 1, true),
            (top - 3, true),
            (top - 3, false),
            (top - 61, false),
            (top - 60, false),
            (top, true),
            (2, true),
            (1, true),
            (top - 2, true),
            (top, false),
            (2, false),
            (60, true),
            (8, true),
            (7, false),
        ] {
            let mut back = ask.give_back_call(1, 1, granted_at_micros).numbered();
            back.parts[0].give_back = Some(GiveBack {
                granted_at_micros,
                number,
            });
            left -= u32::from(news);
            assert_eq!(store.ask(&back).counters[0].used_units[0], left, "{number}");
        }
    });
}

/// Redis remembers only the last numbers of a key.
#[test]
fn give_backs_of_other_keys_make_none_too_late() {
    Scripted::each().for_each(|mut store| {
        let limit = limit(&["100/m"], Algorithm::SlidingWindow, ThrottleMode::Hard);
        store.now = 1_000_000_000;
        let [ask, other] = [7, 8].map(|key| part(&limit, 1, key, 1, Scale::plan(1)));
        let mut all = ask.clone();
        all.wanted_units = 100;
        let granted_at_micros = store.ask(&call(1, [all])).counters[0].granted_at_micros;
        let late = ask.give_back_call(1, 1, granted_at_micros).numbered();
        for _ in 0..100 {
            other.give_back_call(1, 1, granted_at_micros).numbered();
        }
        let next = ask.give_back_call(1, 1, granted_at_micros).numbered();
        for (back, left) in [(&next, 99), (&late, 98), (&next, 98), (&late, 98)] {
            assert_eq!(store.ask(back).counters[0].used_units[0], left);
        }
    });
}
