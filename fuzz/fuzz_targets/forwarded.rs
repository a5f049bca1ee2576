//! Whatever clients write, an untrusted peer is the client, and behind a trusted one what that one
//! appended is.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use tollgate::http::head::Fields;
use tollgate::identity::embedded_ipv4::Nat64Prefix;
use tollgate::identity::ip::{FORWARDED, TrustedPeers, X_FORWARDED_FOR, client_address};
use tollgate::net::PeerNetwork;

fuzz_target!(|data: &[u8]| {
    let proxy: IpAddr = "10.0.0.1".parse().expect("an address");
    let seen: IpAddr = "2001:db8::9".parse().expect("an address");
    let networks = [PeerNetwork::Ip("10.0.0.0/8".parse().expect("a network"))];
    let trusted = TrustedPeers::new(&networks, &[Nat64Prefix::well_known()]);
    let mut headers = Fields::default();
    let lines = data.split(|byte| *byte == b'\n');
    for line in lines {
        headers.add(FORWARDED, line);
    }
    assert_eq!(client_address(&trusted, seen, &headers).ip, seen);

    // Two headers that do not agree name nobody.
    let alone = client_address(&trusted, proxy, &headers).ip;
    let mut both = headers.clone();
    both.add(X_FORWARDED_FOR, b"198.51.100.1");
    let together = client_address(&trusted, proxy, &both).ip;
    assert!(together == proxy || together == alone);

    let mut another_line = headers.clone();
    let written = b"proto=https;For=\"[2001:db8::9]:80\";host=\"a,\\\";b\"";
    another_line.add(FORWARDED, written);
    assert_eq!(client_address(&trusted, proxy, &another_line).ip, seen);

    let first = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    headers.add(FORWARDED, &[first, b", for=\"[2001:db8::9]\""].concat());
    assert_eq!(client_address(&trusted, proxy, &headers).ip, seen);
});
