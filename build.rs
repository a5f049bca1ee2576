//! Tells `tollgate run` whether this build is slow, so that nobody puts one into production unawares.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(slow_release)");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("OPT_LEVEL", "0") {
        println!("cargo::rustc-cfg=slow_release");
    }
}
