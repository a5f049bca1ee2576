//! Messages of Envoy's rate limit service. Each is a request within its bounds or an error, and its descriptors are looked
//! for without a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::route::{DescriptorPattern, DescriptorTable, EntryPattern, ValuePattern};
use tollgate::serve::decide::grpc::MessageReader;
use tollgate::serve::decide::rate_limit_messages::{
    MAX_DESCRIPTORS, RateLimitRequest, decode_health_request,
};

fuzz_target!(|bytes: &[u8]| {
    let mut reader = MessageReader::default();
    if bytes.chunks(7).all(|piece| reader.add(piece).is_ok()) {
        let _ = reader.finish();
    }
    let _ = decode_health_request(bytes);
    let Ok(request) = RateLimitRequest::decode(bytes) else {
        return;
    };
    assert!(request.hits > 0 && !request.domain.is_empty());
    assert!((1..=MAX_DESCRIPTORS).contains(&request.descriptors.len()));
    for descriptor in &request.descriptors {
        let entries = descriptor.entries.iter();
        let entries: Vec<(&str, &str)> = entries.map(|(key, value)| (&**key, &**value)).collect();
        let pattern = DescriptorPattern::new(
            &request.domain,
            entries
                .iter()
                .map(|(key, value)| EntryPattern {
                    key: (*key).into(),
                    value: ValuePattern::Exact((*value).into()),
                })
                .collect(),
        );
        let Ok(table) = DescriptorTable::build([(7, &pattern)]) else {
            continue;
        };
        let is_bounded = (1..=16).contains(&entries.len());
        assert_eq!(table.find(&request.domain, &entries), is_bounded.then_some(7));
    }
});
