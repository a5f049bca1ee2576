//! A header of the PROXY protocol: what is read does not depend on what comes behind it, and what is said again is
//! read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::net::proxy_protocol::{ProxyProtocolVersion, encode_header, parse_header};

fuzz_target!(|data: &[u8]| {
    let Ok(Some(header)) = parse_header(data) else {
        return;
    };
    assert!(header.length <= data.len());
    let alone = parse_header(&data[..header.length]).expect("it is one by itself");
    assert_eq!(alone, Some(header));
    for end in 0..header.length {
        assert!(
            !matches!(parse_header(&data[..end]), Ok(Some(_))),
            "it is whole before its end"
        );
    }
    let Some(ends) = header.addresses else {
        return;
    };
    for version in [ProxyProtocolVersion::One, ProxyProtocolVersion::Two] {
        let again = encode_header(version, ends).expect("addresses can be said");
        let read = parse_header(&again)
            .expect("it is one")
            .expect("it is whole");
        assert_eq!(read.length, again.len());
        let said = read.addresses.expect("it has addresses");
        for (said, end) in [(said.client, ends.client), (said.local, ends.local)] {
            assert_eq!(said.ip().to_canonical(), end.ip().to_canonical());
            assert_eq!(said.port(), end.port());
        }
    }
});
