#!/usr/bin/env bash
# CPU time of a request whose two limits are shared through Redis, beside the same gateway that counts alone: units granted in
# advance, and a question for each request. CPU time is the kernel's schedstat of the gateway. Needs nginx (as the upstream),
# h2load and redis-server: `make bench-sharing` installs them.
#
#   benches/sharing.sh [PROGRAM] [ROUNDS, at least 2]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source benches/common.sh
prepare "$@"

redis=$(free_port)
redis-server --bind 127.0.0.1 --port "$redis" --save '' --appendonly no --dir "$folder" >/dev/null &
answers "$redis"

requests=4000
# Windows of a second are asked about each time, those of a minute are leased.
declare -A port process rate=([alone]=100000000/m [leased]=100000000/m [strict]=100000000/s)

start() {
	local name=$1 store=memory
	[ "$name" = alone ] || store="{ address: redis://127.0.0.1:$redis/$((RANDOM % 16)), budget: 1s }"
	port[$name]=$(free_port)
	write_gateway "$name" "${port[$name]}" "$upstream" "${rate[$name]}" hard normal "$store"
	taskset -c 0 "$program" run --config "$folder/$name/tollgate.yaml" >"$folder/$name/log" 2>&1 &
	process[$name]=$!
	answers "${port[$name]}"
}

compare "$rounds" alone leased strict
