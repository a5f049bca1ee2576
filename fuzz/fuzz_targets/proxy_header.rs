//! A header of the PROXY protocol: what is read does not depend on what comes behind it, and what is said again is
//! read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::net::proxy::{Ends, Version, header, parse};

fuzz_target!(|data: &[u8]| {
    let Ok(Some((source, length))) = parse(data) else {
        return;
    };
    assert!(length <= data.len());
    let alone = parse(&data[..length]).expect("it is one by itself");
    assert_eq!(alone, Some((source, length)));
    for end in 0..length {
        assert!(!matches!(parse(&data[..end]), Ok(Some(_))), "it is whole before its end");
    }
    let Some(client) = source else { return };
    for version in [Version::One, Version::Two] {
        let ends = Ends {
            client,
            local: client,
        };
        let again = header(version, ends).expect("addresses can be said");
        let (said, length) = parse(&again).expect("it is one").expect("it is whole");
        let said = said.expect("it has a source");
        assert_eq!(said.ip().to_canonical(), client.ip().to_canonical());
        assert_eq!((said.port(), length), (client.port(), again.len()));
    }
});
