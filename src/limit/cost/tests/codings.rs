//! Bodies that come packed.

use base64::Engine as _;

use super::*;

/// Padding, or what a server that fails adds to a body that was whole.
#[test]
fn what_is_known_stays_known_when_the_coding_breaks() {
    let at = path("usage.total");
    for coding in ["gzip", "deflate", "zstd"] {
        for garbage in ["\0\0\0\0\0\0\0\0", "<html>500</html>"] {
            let whole_body = packed(coding, b"{\"usage\":{\"total\":42}}");
            let bytes = [whole_body, garbage.repeat(40).into()].concat();
            for step in [1, 7, bytes.len()] {
                let measured_cost = read(&at, &[coding], JSON, &bytes, step).unwrap();
                assert_eq!(measured_cost.units, 42, "{coding}, {step}, {garbage}");
            }
        }
    }
    // Too much comes out of what follows.
    let bomb = packed("zstd", &vec![b' '; 4 << 20]);
    let bytes = [packed("zstd", b"{\"usage\":{\"total\":42}}"), bomb].concat();
    let measured_cost = read(&at, &["zstd"], JSON, &bytes, 512).unwrap();
    assert_eq!((measured_cost.units, measured_cost.is_exact), (42, false));
}

#[test]
fn codings() {
    let at = path("usage.total");
    let measured_cost = Some(MeasuredCost {
        units: 4711,
        is_exact: true,
    });
    let body = document(400_000);
    for coding in ["gzip", "x-gzip", "GZIP", "deflate", "zstd", "identity"] {
        let bytes = packed(&coding.to_lowercase(), &body);
        for step in [1, 1000, bytes.len()] {
            assert_eq!(
                read(&at, &[coding], JSON, &bytes, step),
                measured_cost,
                "{coding} {step}"
            );
        }
        let cut = read(&at, &[coding], JSON, &bytes[..bytes.len() / 2], 512);
        assert_eq!(cut, None, "{coding}");
    }
    let raw = packed("raw", &body);
    assert_eq!(read(&at, &["deflate"], JSON, &raw, 1), measured_cost);
    let twice = packed("gzip", &packed("zstd", &body));
    for codings in [
        &["zstd, gzip"][..],
        &["zstd", "gzip"],
        &["zstd", "identity,gzip"],
    ] {
        assert_eq!(
            read(&at, codings, JSON, &twice, 700),
            measured_cost,
            "{codings:?}"
        );
    }
    let members = [packed("gzip", &body), packed("gzip", b" ")].concat();
    assert_eq!(read(&at, &["gzip"], JSON, &members, 999), measured_cost);
    let frames = [
        packed("zstd", &body),
        b"\x50\x2a\x4d\x18\x02\0\0\0ab".to_vec(),
    ]
    .concat();
    assert_eq!(read(&at, &["zstd"], JSON, &frames, 999), measured_cost);
    // By another encoder than ours: brotli of Node 20.
    let brotli = base64::engine::general_purpose::STANDARD
        .decode(BROTLI)
        .unwrap();
    for step in [1, 10, 1000] {
        let measured_cost = read(&path("usage.total_tokens"), &["br"], JSON, &brotli, step);
        assert_eq!(
            measured_cost.map(|measured_cost| measured_cost.units),
            Some(4711),
            "{step}"
        );
    }
    for codings in ["lzma", "gzip, lzma", "gzip,gzip,gzip,gzip", "br"] {
        let bytes = packed("gzip", &body);
        assert_eq!(read(&at, &[codings], JSON, &bytes, 1000), None, "{codings}");
    }
}

const BROTLI: &str = "G+UDYCwK7PYBzZQOBs5bFV/EQC2yN/fVjRamfvmDAIqmvBTXaW50eLKPLCZ1WLqgqJtGt/iot5ZiM0FeGFhgWak0HjjkqC2wU8k/G+bdXW/YH79IfeLp5qwn2giaYStqx93pnkwn6c325V749EDu2cBFKCEZq2kNoxAtq8vNWYMlABFKSMZqWsMoRMvqcnPVUAlAhBKSsZrWMArRsrrpjntuOfkTxDo/LgcXpwA=";

#[test]
fn a_bomb_is_given_up() {
    let mut blanks = vec![b' '; 4 * 1024 * 1024];
    blanks.extend_from_slice(b"{\"c\":1}");
    for coding in ["gzip", "deflate", "zstd"] {
        let mut bytes = packed(coding, &blanks);
        assert!(bytes.len() < blanks.len() / 200, "{coding}");
        // What one deflate can do is read.
        let measured_cost = read(&path("c"), &[coding], JSON, &bytes, 4096);
        assert_eq!(measured_cost.is_some(), coding != "zstd", "{coding}");
        // The same inside of another one.
        bytes = packed("gzip", &bytes);
        let codings = format!("{coding},gzip");
        assert_eq!(read(&path("c"), &[&codings], JSON, &bytes, 4096), None);
    }
}

/// Clients that hold slow bodies open leave windows to all others.
#[test]
fn windows_are_shared_out_and_come_back() {
    let at = path("c");
    let bytes = packed("zstd", b"{\"c\":1}");
    let of =
        |owner: u128| CostMeter::new([&at].into_iter(), [&b"zstd"[..]].into_iter(), None, owner);
    let reads = |mut meter: CostMeter| {
        meter.feed(&bytes);
        meter.measured(&at).is_some()
    };
    let mut open = Vec::new();
    for owner in 1..=6 {
        assert!(reads(of(owner)), "{owner}");
        open.extend((0..200).map(|_| of(owner)));
        assert!(!reads(of(owner)), "{owner}");
    }
    // In all no more than there are.
    open.extend((100..400).map(of));
    assert!(!reads(of(7)));
    open.clear();
    assert!(reads(of(1)) && reads(of(7)));
}
