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
cat >"$folder/nginx.conf" <<EOF
daemon off; pid nginx.pid; error_log error.log crit; worker_processes 1;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;
  server { listen 127.0.0.1:$upstream; location / {
    default_type application/json; add_header cache-control no-store; add_header x-a 1; add_header x-b 2;
    return 200 "$body";
  } }
}
EOF
/usr/sbin/nginx -p "$folder" -e error.log -c nginx.conf &
children+=($!)

measure() {
	local name=$1 rate=$2 throttle=$3 priority=$4 clients=$5 port admin gateway total
	port=$(free_port) admin=$(free_port)
	mkdir -p "$folder/$name/policies"
	cat >"$folder/$name/tollgate.yaml" <<EOF
version: 1
workers: 1
listen: 127.0.0.1:$port
admin: 127.0.0.1:$admin
access_log: off
upstreams: { bench: ["http://127.0.0.1:$upstream"] }
identity: { token: { bearer: true } }
EOF
	cat >"$folder/$name/policies/bench.yaml" <<EOF
match: GET /**
upstream: bench
priority: $priority
limits:
  per-ip: { key: ip, rate: $rate, throttle: hard }
  per-token: { key: token, rate: $rate, throttle: $throttle }
EOF
	valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file="$folder/$name/out" \
		"$program" run --config "$folder/$name/tollgate.yaml" >"$folder/$name/log" 2>&1 &
	gateway=$!
	children+=("$gateway")
	load() {
		h2load --h1 -n "$1" -c "$clients" -t 1 -H user-agent:compare/1 -H accept:application/json \
			-H accept-encoding:gzip -H "authorization: Bearer 5d41402abc4b2a76b9719d911017c592" \
			"http://127.0.0.1:$port/api/items/42" | grep "status codes"
	}
	for _ in $(seq 100); do
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
		sleep 0.2
	done
	load 2000 >/dev/null
	callgrind_control -i on "$gateway" >/dev/null 2>&1
	load "$requests"
	callgrind_control -i off "$gateway" >/dev/null 2>&1
	kill "$gateway"
	wait "$gateway" || true
	total=$(awk '/^totals:/ { print $2 }' "$folder/$name/out")
	echo "$name: $((total / requests)) instructions per request"
}

measure proxied 1000000000/h hard normal 64
measure refused 1/h hard normal 64
# What it adds that the upstream is watched. With one client, for under callgrind the gateway itself is what many
# would wait for; at that pace ten steps a second of the controller weigh a hundred times what they do.
measure alone 1000000000/h hard normal 1
measure steered 1000000000/h hard critical 1
measure elastic 500000000/h "elastic, while: upstream.load < 0.7, at_most: 1000000000/h" critical 1
