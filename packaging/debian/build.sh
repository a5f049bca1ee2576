#!/bin/sh
# Makes a Debian package of a built gateway and of the units in packaging/systemd, and prints its path:
#
#   packaging/debian/build.sh [PROGRAM] [FOLDER]
#
# PROGRAM is by default target/production/tollgate, and FOLDER, which gets the package, the current one. Run it on the release
# of Debian or Ubuntu that is to run the package, or on an older one: the package depends on that C library.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
program=${1:-$here/target/production/tollgate}
folder=${2:-.}
[ -x "$program" ] || { echo "$program is not there; run: cargo build --profile production" >&2; exit 1; }

version=$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' "$here/Cargo.toml")
architecture=$(dpkg --print-architecture)
libc=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
tree=$(mktemp -d)
trap 'rm -r "$tree"' EXIT

# Nobody else may write to a file of the package.
umask 022
chmod 755 "$tree"
install -D -m 755 "$program" "$tree/usr/bin/tollgate"
strip "$tree/usr/bin/tollgate"
units=$tree/usr/lib/systemd/system
mkdir -p "$units" "$tree/DEBIAN"
sed 's|/usr/local/bin/|/usr/bin/|' "$here/packaging/systemd/tollgate.service" >"$units/tollgate.service"
install -m 644 "$here/packaging/systemd/tollgate.socket" "$units"
install -D -m 644 "$here/packaging/systemd/tollgate.yaml" "$tree/etc/tollgate/tollgate.yaml"
install -D -m 644 "$here/packaging/debian/all.yaml" "$tree/etc/tollgate/policies/all.yaml"
install -D -m 644 "$here/packaging/systemd/tollgate.logrotate" "$tree/etc/logrotate.d/tollgate"
install -D -m 644 "$here/packaging/prometheus/alerts.yaml" "$tree/usr/share/doc/tollgate/alerts.yaml"
install -D -m 644 "$here/docs/alerts.md" "$tree/usr/share/doc/tollgate/alerts.md"
install -D -m 644 "$here/LICENSE" "$tree/usr/share/doc/tollgate/copyright"
share=$tree/usr/share
mkdir -p "$share/man/man1" "$share/bash-completion/completions"
mkdir -p "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
"$program" man "$share/man/man1" >/dev/null
gzip -9n "$share"/man/man1/*
"$program" completions bash >"$share/bash-completion/completions/tollgate"
"$program" completions zsh >"$share/zsh/vendor-completions/_tollgate"
"$program" completions fish >"$share/fish/vendor_completions.d/tollgate.fish"

# A changed file is kept when the package is renewed or removed.
cat >"$tree/DEBIAN/conffiles" <<END
/etc/logrotate.d/tollgate
/etc/tollgate/policies/all.yaml
/etc/tollgate/tollgate.yaml
END
cat >"$tree/DEBIAN/control" <<END
Package: tollgate
Version: $version
Architecture: $architecture
Maintainer: the maintainers of tollgate
Installed-Size: $(du -sk "$tree" | cut -f 1)
${libc:+Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1
}Recommends: ca-certificates, logrotate
Section: net
Priority: optional
Description: reverse proxy that counts before it forwards
 Limits by address, user and other identities, from readable policy files.
END
# The service starts when its operator has said what it is to do: systemctl enable --now tollgate.socket tollgate.service
# With DPKG_ROOT the package goes into a folder, where no systemd runs.
cat >"$tree/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# A running gateway hands over to the new program and drops no connection.
if [ "$1" = configure ] && [ -n "${2:-}" ] && systemctl --quiet is-active tollgate.service; then
	systemctl kill --kill-who=main --signal=SIGUSR2 tollgate.service
fi
END
cat >"$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] && [ "$1" = remove ] || exit 0
systemctl disable --now tollgate.socket tollgate.service
END
cat >"$tree/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ "$1" = purge ]; then
	# The service's own folders are links to those in private/.
	for part in etc var/lib var/lib/private var/log var/log/private; do
		rm -rf "$DPKG_ROOT/$part/tollgate"
	done
fi
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
END
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm" "$tree/DEBIAN/postrm"

package=$folder/tollgate_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$tree" "$package" >/dev/null
echo "$package"
