//! What an upstream says of its load: a load is a number from 0 to 10, and a metric that was not asked for changes
//! nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::limit::pressure::OrcaReport;

fuzz_target!(|data: &[u8]| {
    let unnamed = OrcaReport::parse(data, None);
    let named = OrcaReport::parse(data, Some("queue"));
    for load in [&unnamed, &named]
        .into_iter()
        .flatten()
        .filter_map(OrcaReport::load)
    {
        assert!((0.0..=10.0).contains(&load.get()));
    }
    if !data.windows(5).any(|word| word == b"queue") && !data.contains(&b'\\') {
        assert_eq!(unnamed, named);
    }
});
