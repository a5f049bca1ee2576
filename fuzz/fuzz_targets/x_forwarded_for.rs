//! Whatever clients write, an untrusted peer is the client, and behind a trusted one what that one
//! appended is.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use tollgate::http::head::Fields;
use tollgate::identity::embedded_ipv4::Nat64Prefix;
use tollgate::identity::ip::{TrustedPeers, X_FORWARDED_FOR, client_address};
use tollgate::net::PeerNetwork;

fuzz_target!(|data: &[u8]| {
    let proxy: IpAddr = "10.0.0.1".parse().expect("an address");
    let seen: IpAddr = "203.0.113.9".parse().expect("an address");
    let networks = [PeerNetwork::Ip("10.0.0.0/8".parse().expect("a network"))];
    let trusted = TrustedPeers::new(&networks, &[Nat64Prefix::well_known()]);
    let mut headers = Fields::default();
    let lines = data.split(|byte| *byte == b'\n');
    for line in lines {
        headers.add(X_FORWARDED_FOR, line);
    }
    assert_eq!(client_address(&trusted, seen, &headers).ip, seen);
    let _ = client_address(&trusted, proxy, &headers).ip;

    let mut another_line = headers.clone();
    another_line.add(X_FORWARDED_FOR, b"203.0.113.9, 10.2.3.4:99");
    assert_eq!(client_address(&trusted, proxy, &another_line).ip, seen);

    let first = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    headers.add(X_FORWARDED_FOR, &[first, b", 203.0.113.9"].concat());
    assert_eq!(client_address(&trusted, proxy, &headers).ip, seen);
});
