//! The field `traceparent` of a request: what is passed on of it is valid, and is then read as the same trace and span.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::trace::TraceParent;

fuzz_target!(|value: &[u8]| {
    let Some(parent) = TraceParent::parse(value) else {
        return;
    };
    assert!(parent.trace_id != [0; 16] && parent.span_id != [0; 8]);
    let passed_on = parent.to_string();
    assert_eq!(passed_on.as_bytes()[3..52], value[3..52]);
    assert_eq!(TraceParent::parse(passed_on.as_bytes()), Some(parent));
    // The servers of a request that is not traced learn nothing else.
    let cleared = parent.with_span([1; 8], false);
    assert!(!cleared.is_sampled() && cleared.trace_id == parent.trace_id);
    assert_eq!(TraceParent::parse(cleared.to_string().as_bytes()), Some(cleared));
    // Only a later version may have more.
    let longer = TraceParent::parse(format!("{passed_on}-00").as_bytes());
    assert_eq!(longer, None);
});
