#!/usr/bin/env bash
# Makes the image of the Dockerfile of a static program, in place of building one, as an archive for `docker load`:
#
#   packaging/image.sh PROGRAM ARCHIVE
#
# It needs no daemon and no image from elsewhere. The architecture is that of the program.
set -euo pipefail
program=$(realpath "$1")
archive=$(realpath -m "$2")
cd "$(dirname "$0")/.."
case $(file --brief "$program") in
*x86-64*) architecture=amd64 ;;
*aarch64*) architecture=arm64 ;;
*) echo "$program is for no architecture that images are made for" >&2; exit 1 ;;
esac
version=$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/build/out
install -D -m 755 "$program" "$out/usr/bin/tollgate"
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/ca-certificates.crt"
install -d -o 10001 -g 10001 "$out/var/lib/tollgate"
rm -f "$archive"
buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" bud --quiet --isolation chroot --format docker \
	--arch "$architecture" --build-context "build=$work/build" --tag "docker-archive:$archive:tollgate:$version" . >/dev/null
