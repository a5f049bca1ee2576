//! Whatever clients write, an untrusted peer is the client, and behind a trusted one what that one
//! appended is.
#![no_main]

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tollgate::identity::ip::{Trusted, X_FORWARDED_FOR, client};

fuzz_target!(|data: &[u8]| {
    let proxy: IpAddr = "10.0.0.1".parse().expect("an address");
    let seen: IpAddr = "2001:db8::9".parse().expect("an address");
    let trusted = Trusted::new(&["10.0.0.0/8".parse().expect("a network")]);
    let mut headers = HeaderMap::new();
    let lines = data.split(|byte| *byte == b'\n');
    for line in lines.filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        headers.append(FORWARDED, line);
    }
    assert_eq!(client(&trusted, seen, &headers), seen);

    // Two headers that do not agree name nobody.
    let alone = client(&trusted, proxy, &headers);
    let mut both = headers.clone();
    both.append(X_FORWARDED_FOR, HeaderValue::from_static("198.51.100.1"));
    let together = client(&trusted, proxy, &both);
    if !headers.is_empty() {
        assert!(together == proxy || together == alone);
    }

    let mut another_line = headers.clone();
    let written =
        HeaderValue::from_static("proto=https;For=\"[2001:db8::9]:80\";host=\"a,\\\";b\"");
    another_line.append(FORWARDED, written);
    assert_eq!(client(&trusted, proxy, &another_line), seen);

    let first = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if let Ok(line) = HeaderValue::from_bytes(&[first, b", for=\"[2001:db8::9]\""].concat()) {
        headers.append(FORWARDED, line);
        assert_eq!(client(&trusted, proxy, &headers), seen);
    }
});
