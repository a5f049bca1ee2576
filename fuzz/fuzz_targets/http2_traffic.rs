//! An HTTP/2 connection's frames: what is seen of them does not depend on how the bytes are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::clock::Nanos;
use tollgate::serve::http2::traffic::Traffic;

fuzz_target!(|data: &[u8]| {
    let Some((cut, bytes)) = data.split_first() else {
        return;
    };
    let (whole, pieces) = (Traffic::new(), Traffic::new());
    whole.came(bytes);
    for piece in bytes.chunks(usize::from(*cut).max(1)) {
        pieces.came(piece);
    }
    assert_eq!(whole.is_in_head(), pieces.is_in_head());
    let now = Nanos::ZERO;
    assert_eq!(whole.is_flooded(now), pieces.is_flooded(now));
});
