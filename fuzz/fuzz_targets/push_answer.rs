//! Whatever a collector answers, what it rejected is a number above zero, or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::base::otlp::rejected_items;

fuzz_target!(|data: &[u8]| {
    if let Some((count, why)) = rejected_items(data) {
        assert!(count > 0 && why.len() <= 3 * data.len());
    }
});
