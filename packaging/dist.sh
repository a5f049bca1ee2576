#!/usr/bin/env bash
# Makes what is released, in target/dist: the static program of this architecture, its SBOM, the image, the Debian
# package, the chart, and the checksums of all. It tries the program in a root that has nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
architecture=$(uname -m)
target=$architecture-unknown-linux-musl
target_folder=${CARGO_TARGET_DIR:-target}
version=$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
dist=target/dist
rm -rf "$dist"
mkdir -p "$dist"

rustup target add "$target" >/dev/null 2>&1 || { echo "the target $target is not installed" >&2; exit 1; }
cargo build --locked --profile production --bin tollgate --target "$target"
program=$dist/tollgate-$version-linux-$architecture
install -m 755 "$target_folder/$target/production/tollgate" "$program"
strip "$program"
packaging/try-static.sh "$program"
packaging/sbom.py "$target" "$program" >"$program.cdx.json"
packaging/image.sh "$program" "$program.image.tar"

# Packages have the program that is linked to the system's C library, whose allocator is quicker.
cargo build --locked --profile production --bin tollgate
packaging/debian/build.sh "$target_folder/production/tollgate" "$dist"
target/kubernetes/helm/helm package packaging/helm --destination "$dist" >/dev/null 2>&1
cd "$dist"
sha256sum -- * >SHA256SUMS
cat SHA256SUMS
