#!/usr/bin/env bash
# CPU time that it adds to a request that its upstream is steered, and that a limit is elastic: the same gateway three
# times, in turn in short slices. CPU time is the kernel's schedstat of the gateway. Needs nginx (as the upstream) and
# h2load: `make bench-steering` installs them.
#
#   benches/steering.sh [PROGRAM] [ROUNDS, at least 2]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "${1:-target/release/tollgate}")
rounds=${2:-20}
source benches/common.sh

# The gateways on the first core, clients and upstream on the last, where there are two.
taskset -cp "$(($(nproc) - 1))" $$ >/dev/null
upstream=$(free_port)
start_upstream "$upstream"

names=(alone steered elastic)
requests=4000
declare -A port process

start() {
	local name=$1 rate=$2 throttle=$3 priority=$4
	port[$name]=$(free_port)
	write_gateway "$name" "${port[$name]}" "$upstream" "$rate" "$throttle" "$priority"
	taskset -c 0 "$program" run --config "$folder/$name/tollgate.yaml" >"$folder/$name/log" 2>&1 &
	process[$name]=$!
	answers "${port[$name]}"
}

nanos() {
	cat "/proc/${process[$1]}/task/"*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

# CPU time of one slice.
slice() {
	local before
	before=$(nanos "$1")
	send "$requests" 16 "${port[$1]}" | grep -q "status codes: $requests 2xx" || {
		echo "$1: not all requests were answered 200" >&2
		exit 1
	}
	echo $(($(nanos "$1") - before))
}

median() {
	sort -n "$@" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

# Where a process lies in memory makes a hundredth by chance: new ones each round.
for round in $(seq "$rounds"); do
	start alone 1000000000/h hard normal
	start steered 1000000000/h hard critical
	start elastic 500000000/h "elastic, while: upstream.load < 0.9, at_most: 1000000000/h" critical
	for name in "${names[@]}"; do
		slice "$name" >/dev/null
		: >"$folder/$name.slices"
	done
	for place in $(seq "$round" $((round + 23))); do
		name=${names[$((place % 3))]}
		slice "$name" >>"$folder/$name.slices"
	done
	for name in "${names[@]}"; do
		paste "$folder/$name.slices" "$folder/alone.slices" | awk '{ print $1 / $2 }' | median >>"$folder/$name.ratios"
		kill "${process[$name]}"
		wait "${process[$name]}" || true
	done
	median "$folder/alone.slices" >>"$folder/alone.nanos"
done

for name in steered elastic; do
	awk -v name="$name" '
		{ sum += $1; squares += $1 * $1 }
		END {
			mean = sum / NR
			printf "%s: %.4f times the CPU time, standard error %.4f\n", name, mean, sqrt((squares / NR - mean * mean) / (NR - 1))
		}' "$folder/$name.ratios"
done
echo "alone: $(($(median "$folder/alone.nanos") / requests)) ns a request"
