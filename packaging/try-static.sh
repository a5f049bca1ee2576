#!/usr/bin/env bash
# Runs a static program in a root that has no C library and no shell, as a user without rights, and asks it until the
# first 429:
#
#   packaging/try-static.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
case $(file --brief "$program") in
*"statically linked"* | *static-pie*) ;;
*) echo "$program is not static" >&2; exit 1 ;;
esac
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/etc/policies" "$root/proc"
install -m 755 "$program" "$root/tollgate"
cat >"$root/etc/tollgate.yaml" <<-'YAML'
	version: 1
	listen: 127.0.0.1:8080
	admin: off
	upstreams: { own: "http://localhost:8080" }
YAML
cat >"$root/etc/policies/all.yaml" <<-'YAML'
	match: /**
	respond: { status: 200, body: here }
	limits: { per-ip: { key: ip, rate: 3/h } }
YAML
# Requests pass through it twice, so that it looks up a name too.
cat >"$root/etc/policies/own.yaml" <<-'YAML'
	match: /own/**
	upstream: own
	strip: /own
YAML
echo '127.0.0.1 localhost' >"$root/etc/hosts"
chmod -R go+rX "$root"
# The network is one of its own, so that any port is free.
unshare --net --mount --pid --fork --kill-child bash -euo pipefail -s "$root" <<-'SCRIPT'
	ip link set lo up
	mount --bind "$1" "$1"
	mount -t proc proc "$1/proc"
	mount -o remount,bind,ro "$1"
	chroot --userspec=10001:10001 "$1" /tollgate --version
	chroot --userspec=10001:10001 "$1" /tollgate check --config /etc/tollgate.yaml >/dev/null
	chroot --userspec=10001:10001 "$1" /tollgate run --config /etc/tollgate.yaml >/dev/null &
	statuses=
	for ((at = 0; at < 100; at++)); do
		status=$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8080/own/item || true)
		[ "$status" = 000 ] || statuses="$statuses $status"
		[ "$status" != 429 ] || break
		sleep 0.05
	done
	kill %1
	wait %1
	[ "$statuses" = " 200 200 200 429" ] || { echo "statuses:$statuses" >&2; exit 1; }
	echo "static: runs in an empty root, and refuses the fourth request"
SCRIPT
