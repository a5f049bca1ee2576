#!/usr/bin/env bash
# CPU time of a TLS 1.3 handshake, of one that resumes a session, and of a request over HTTP/2 under TLS that is
# answered without an upstream (404), refused by a limit, or proxied, beside nginx. Both run in turn in short slices,
# so that a slow second of the machine meets both; CPU time is the kernel's schedstat of the proxy's processes. Needs
# openssl, nginx (as the peer and as the upstream) and h2load: `make bench-edge` installs them.
#
#   benches/edge.sh [PROGRAM] [ROUNDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "${1:-target/release/tollgate}")
rounds=${2:-7}
source benches/common.sh

# The proxies on the first core, clients and upstream on the last, where there are two.
taskset -cp "$(($(nproc) - 1))" $$ >/dev/null
upstream=$(free_port) admin=$(free_port)
declare -A tls plain process
for name in nginx tollgate; do tls[$name]=$(free_port) plain[$name]=$(free_port); done

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
	-keyout "$folder/key.pem" -out "$folder/cert.pem" 2>/dev/null

cat >"$folder/nginx.conf" <<EOF
daemon off; pid nginx.pid; worker_processes 1; error_log error.log crit; events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;
  ssl_certificate cert.pem; ssl_certificate_key key.pem; ssl_protocols TLSv1.2 TLSv1.3;
  limit_req_zone \$binary_remote_addr zone=per_ip:10m rate=1000000000r/s; limit_req_status 429;
  limit_req_zone \$binary_remote_addr zone=few:10m rate=1r/m;
  upstream bench { server 127.0.0.1:$upstream; keepalive 128; keepalive_requests 1000000000; }
  server { listen 127.0.0.1:${tls[nginx]} ssl http2; listen 127.0.0.1:${plain[nginx]} http2;
    location = /nowhere { return 404; }
    location /refused/ { limit_req zone=few; proxy_pass http://bench; }
    location / {
      limit_req zone=per_ip burst=1000000000 nodelay;
      proxy_pass http://bench; proxy_http_version 1.1; proxy_set_header Host \$host;
      proxy_set_header Connection ""; proxy_set_header X-Forwarded-For \$proxy_add_x_forwarded_for;
    }
  }
}
EOF
mkdir "$folder/policies"
cat >"$folder/tollgate.yaml" <<EOF
version: 1
workers: 1
listen:
  - { address: 127.0.0.1:${tls[tollgate]}, tls: { cert: cert.pem, key: key.pem } }
  - 127.0.0.1:${plain[tollgate]}
admin: 127.0.0.1:$admin
access_log: off
upstreams: { bench: ["http://127.0.0.1:$upstream"] }
EOF
cat >"$folder/policies/bench.yaml" <<EOF
match: /bench/**
upstream: bench
limits:
  per-ip: { key: ip, rate: 1000000000/h, throttle: hard }
EOF

cat >"$folder/policies/refused.yaml" <<EOF
match: /refused/**
upstream: bench
limits:
  few: { key: ip, rate: 1/h, throttle: hard }
EOF

start_upstream "$upstream"
taskset -c 0 /usr/sbin/nginx -p "$folder" -e error.log -c nginx.conf &
process[nginx]=$!
taskset -c 0 "$program" run --config "$folder/tollgate.yaml" 2>"$folder/tollgate.log" &
process[tollgate]=$!
for name in nginx tollgate; do
	for _ in $(seq 100); do
		[ "$(curl -sk -o /dev/null -w '%{http_code}' "https://127.0.0.1:${tls[$name]}/bench/")" = 200 ] && break
		sleep 0.05
	done
done

# Nanoseconds of CPU that a proxy has used.
used() {
	local all=("${process[$1]}") child
	for child in $(cat /proc/"${process[$1]}"/task/*/children); do all+=("$child"); done
	cat $(printf '/proc/%s/task/*/schedstat ' "${all[@]}") | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

# How many of a case were done in one slice.
slice() {
	local case=$1 name=$2 address out
	case $case in
	handshake)
		out=$(openssl s_time -connect "127.0.0.1:${tls[$name]}" -new -tls1_3 -time 1)
		awk '/connections in .* real/ { print $1 }' <<<"$out"
		;;
	resumed)
		# Each connection asks for something, for else the client does not see the ticket.
		out=$(openssl s_time -connect "127.0.0.1:${tls[$name]}" -reuse -tls1_3 -www /nowhere -time 1)
		grep -q rrr <<<"$out" || { echo "$name resumes no session" >&2; exit 1; }
		awk '/connections in .* real/ { print $1 }' <<<"$out"
		;;
	http2-local)
		out=$(h2load -n 50000 -c 16 -m 32 "https://127.0.0.1:${tls[$name]}/nowhere")
		grep -q 'status codes: 0 2xx, 0 3xx, 50000 4xx' <<<"$out" || { echo "$out" >&2; exit 1; }
		echo 50000
		;;
	http2-refused)
		out=$(h2load -n 50000 -c 16 -m 32 "https://127.0.0.1:${tls[$name]}/refused/x")
		# One a minute is let through.
		grep -qE 'status codes: [01] 2xx, 0 3xx, (49999|50000) 4xx' <<<"$out" || { echo "$out" >&2; exit 1; }
		echo 50000
		;;
	http2-proxied)
		out=$(h2load -n 20000 -c 16 -m 4 "https://127.0.0.1:${tls[$name]}/bench/x")
		grep -q 'status codes: 20000 2xx' <<<"$out" || { echo "$out" >&2; exit 1; }
		echo 20000
		;;
	esac
}

echo "| case | nginx, us | tollgate, us | ratio (least to greatest) | bound |"
echo "|---|---|---|---|---|"
for case in ${CASES:-handshake resumed http2-local http2-refused http2-proxied}; do
	: >"$folder/rounds"
	for round in $(seq "$rounds"); do
		order=(nginx tollgate)
		[ $((round % 2)) = 0 ] && order=(tollgate nginx)
		declare -A cost
		for name in "${order[@]}"; do
			before=$(used "$name")
			count=$(slice "$case" "$name")
			cost[$name]=$(awk -v a="$before" -v b="$(used "$name")" -v n="$count" 'BEGIN { printf "%.2f", (b - a) / n / 1000 }')
		done
		awk -v n="${cost[nginx]}" -v t="${cost[tollgate]}" 'BEGIN { printf "%.3f %s %s\n", t / n, n, t }' >>"$folder/rounds"
	done
	case $case in
	http2-*) bound=0.7 ;;
	*) bound=0.5 ;;
	esac
	sort -n "$folder/rounds" | awk -v case="$case" -v bound="$bound" '
		{ ratio[NR] = $1; nginx[NR] = $2; tollgate[NR] = $3 }
		END {
			middle = int((NR + 1) / 2)
			printf "| %s | %s | %s | %.2f (%.2f to %.2f) | %s |\n",
				case, nginx[middle], tollgate[middle], ratio[middle], ratio[1], ratio[NR], bound
		}'
done
