#!/usr/bin/env bash
# Instructions per request in user space, counted by callgrind: steadier than time, blind to the kernel.
# Needs valgrind, nginx (as the upstream) and h2load: `make bench-instructions` installs them.
#
#   benches/instructions.sh [PROGRAM] [REQUESTS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "${1:-target/release/tollgate}")
requests=${2:-20000}
source benches/common.sh

upstream=$(free_port)
start_upstream "$upstream"

measure() {
	local name=$1 rate=$2 port gateway total
	port=$(free_port)
	write_gateway "$name" "$port" "$upstream" "$rate" hard normal
	valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file="$folder/$name/out" \
		"$program" run --config "$folder/$name/tollgate.yaml" >"$folder/$name/log" 2>&1 &
	gateway=$!
	answers "$port"
	send 2000 64 "$port" >/dev/null
	callgrind_control -i on "$gateway" >/dev/null 2>&1
	send "$requests" 64 "$port"
	callgrind_control -i off "$gateway" >/dev/null 2>&1
	kill "$gateway"
	wait "$gateway" || true
	total=$(awk '/^totals:/ { print $2 }' "$folder/$name/out")
	echo "$name: $((total / requests)) instructions per request"
}

measure proxied 1000000000/h
measure refused 1/h
