#!/usr/bin/env bash
# Decisions a second over gRPC on one core, CPU time of each, and latencies at 20,000 a second, beside the least that
# answers with tonic (benches/echo). Both run in turn in short slices; CPU time is the kernel's schedstat of the process.
# Needs h2load and python3, which `make tools` installs.
#
#   benches/grpc.sh [PROGRAM] [ROUNDS] [ECHO]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/production/tollgate}")
rounds=${2:-9}
echo_program=${3:-}
if [ -z "$echo_program" ]; then
	cargo build --release --manifest-path benches/echo/Cargo.toml --target-dir target/echo
	echo_program=target/echo/release/tollgate-echo
fi
echo_program=$(realpath "$echo_program")
source benches/common.sh

# The servers on the first core, the client on the last, where there are two.
taskset -cp "$(($(nproc) - 1))" $$ >/dev/null
declare -A port process
port[tollgate]=$(free_port) port[tonic]=$(free_port)

mkdir "$folder/policies"
cat >"$folder/tollgate.yaml" <<EOF
version: 1
workers: 1
decide: { grpc: 127.0.0.1:${port[tollgate]} }
admin: off
access_log: off
EOF
cat >"$folder/policies/address.yaml" <<EOF
domain: bench
entries: { remote_address: any }
limits:
  per-address: { key: remote_address, rate: 1000000000/h }
EOF
python3 - >"$folder/request" <<'EOF'
import struct, sys
def field(tag, value): return bytes([tag << 3 | 2, len(value)]) + value
entry = field(1, b"remote_address") + field(2, b"192.0.2.7")
message = field(1, b"bench") + field(2, field(1, entry))
sys.stdout.buffer.write(b"\0" + struct.pack(">I", len(message)) + message)
EOF
taskset -c 0 "$program" run --config "$folder/tollgate.yaml" 2>"$folder/tollgate.log" &
process[tollgate]=$!
taskset -c 0 "$echo_program" "127.0.0.1:${port[tonic]}" &
process[tonic]=$!
answers "${port[tollgate]}"
answers "${port[tonic]}"

# Sends so many requests to a server: name, requests, more options.
ask() {
	local name=$1 count=$2
	shift 2
	h2load -n "$count" -c 8 -m 16 -t 1 "$@" -d "$folder/request" -H content-type:application/grpc -H te:trailers \
		"http://127.0.0.1:${port[$name]}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" >"$folder/out"
	grep -q "status codes: $count 2xx" "$folder/out" || {
		echo "$name: not all requests were answered" >&2
		cat "$folder/out" >&2
		exit 1
	}
}

requests=20000
for name in tollgate tonic; do ask "$name" "$requests"; done
for round in $(seq "$rounds"); do
	for name in tollgate tonic; do
		before=$(nanos "$name")
		ask "$name" "$requests"
		echo $(($(nanos "$name") - before)) >>"$folder/$name.nanos"
		grep -o 'finished in .*req/s' "$folder/out" | grep -oE '[0-9.]+ req/s' | cut -d' ' -f1 >>"$folder/$name.speed"
		ask "$name" 40000 --rps 2500 --log-file "$folder/times"
		cut -f3 "$folder/times" | sort -n | awk -v file="$folder/$name" '
			{ all[NR] = $1 }
			END { print all[int(NR / 2)] >>(file ".p50"); print all[int(NR * 0.99)] >>(file ".p99") }'
		rm "$folder/times"
	done
done
for name in tollgate tonic; do
	echo "$name: $(($(median "$folder/$name.nanos") / requests)) ns of CPU a decision, $(median "$folder/$name.speed") a second," \
		"p50 $(median "$folder/$name.p50") us and p99 $(median "$folder/$name.p99") us at 20,000 a second"
done
ratio=$(paste "$folder/tollgate.nanos" "$folder/tonic.nanos" | awk '{ print $1 / $2 }' | median)
echo "tollgate takes $ratio times the CPU time of tonic, bound 1.5"
awk -v ratio="$ratio" 'BEGIN { exit ratio > 1.5 }'
