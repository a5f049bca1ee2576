#!/usr/bin/env bash
# CPU time that it adds to a request that what happens is recorded: the same gateway with `record: off`, in memory and in a
# folder, in turn in short slices. CPU time is the kernel's schedstat of the gateway, all its threads. Needs nginx (as the
# upstream) and h2load: `make bench-recording` installs them.
#
#   benches/recording.sh [PROGRAM] [ROUNDS, at least 2]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source benches/common.sh
prepare "$@"

requests=4000
declare -A port process

start() {
	local name=$1 record
	case $name in
	off | memory) record=$name ;;
	folder) record=$folder/$name/record ;;
	esac
	port[$name]=$(free_port)
	write_gateway "$name" "${port[$name]}" "$upstream" 1000000000/h hard normal memory "$record"
	taskset -c 0 "$program" run --config "$folder/$name/tollgate.yaml" >"$folder/$name/log" 2>&1 &
	process[$name]=$!
	answers "${port[$name]}"
}

compare "$rounds" off memory folder
