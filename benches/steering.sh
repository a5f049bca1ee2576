#!/usr/bin/env bash
# CPU time that it adds to a request that its upstream is steered, and that a limit is elastic: the same gateway three
# times, in turn in short slices. CPU time is the kernel's schedstat of the gateway. Needs nginx (as the upstream) and
# h2load: `make bench-steering` installs them.
#
#   benches/steering.sh [PROGRAM] [ROUNDS, at least 2]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source benches/common.sh
prepare "$@"


requests=4000
declare -A port process terms=(
	[alone]="1000000000/h|hard|normal"
	[steered]="1000000000/h|hard|critical"
	[elastic]="500000000/h|elastic, while: upstream.load < 0.9, at_most: 1000000000/h|critical"
)

start() {
	local name=$1 rate throttle priority
	IFS='|' read -r rate throttle priority <<<"${terms[$name]}"
	port[$name]=$(free_port)
	write_gateway "$name" "${port[$name]}" "$upstream" "$rate" "$throttle" "$priority"
	taskset -c 0 "$program" run --config "$folder/$name/tollgate.yaml" >"$folder/$name/log" 2>&1 &
	process[$name]=$!
	answers "${port[$name]}"
}

compare "$rounds" alone steered elastic
