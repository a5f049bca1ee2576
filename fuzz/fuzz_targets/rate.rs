//! A rate that is read prints and reads back as the same rate.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::limit::Rate;

fuzz_target!(|text: &str| {
    if let Ok(rate) = text.parse::<Rate>() {
        assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate));
    }
});
