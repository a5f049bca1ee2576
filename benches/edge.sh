#!/usr/bin/env bash
# CPU time of a TLS 1.3 handshake, of one that resumes a session, and of a request over HTTP/2 under TLS that is
# answered without an upstream (404), refused by a limit, or proxied, beside nginx, haproxy and Envoy. All run in turn
# in short slices, so that a slow second of the machine meets all; CPU time is the kernel's schedstat of the proxy's
# processes. Needs openssl, the peers, nginx as the upstream and h2load: `make bench-edge` installs them.
#
#   [CASES="handshake ..."] [PROXIES="nginx tollgate"] benches/edge.sh [PROGRAM] [ROUNDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/production/tollgate}")
rounds=${2:-7}
source benches/common.sh

# The proxies on the first core, clients and upstream on the last, where there are two.
taskset -cp "$(($(nproc) - 1))" $$ >/dev/null
upstream=$(free_port) admin=$(free_port)
read -ra proxies <<<"${PROXIES:-nginx haproxy envoy tollgate}"
declare -A tls process cost
for name in nginx haproxy envoy tollgate; do tls[$name]=$(free_port); done

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
  server { listen 127.0.0.1:${tls[nginx]} ssl http2;
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

cat "$folder/cert.pem" "$folder/key.pem" >"$folder/both.pem"
cat >"$folder/haproxy.cfg" <<EOF
global
  nbthread 1
defaults
  mode http
  http-reuse always
  option forwardfor
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend edge
  bind 127.0.0.1:${tls[haproxy]} ssl crt $folder/both.pem alpn h2,http/1.1
  http-request return status 404 if { path /nowhere }
  http-request track-sc0 src table few if { path_beg /refused/ }
  http-request deny deny_status 429 if { path_beg /refused/ } { sc0_http_req_rate(few) gt 1 }
  http-request track-sc1 src table many if { path_beg /bench/ }
  http-request deny deny_status 429 if { sc1_http_req_rate(many) gt 1000000000 }
  default_backend bench
backend few
  stick-table type ip size 100k expire 1h store http_req_rate(1h)
backend many
  stick-table type ip size 100k expire 1h store http_req_rate(1h)
backend bench
  server one 127.0.0.1:$upstream pool-max-conn 512
EOF

# A limit by address of Envoy: at most so many at once and a minute.
envoy_limit() {
	cat <<EOF
{ '@type': $kind.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: edge, max_dynamic_descriptors: 100000,
  token_bucket: { max_tokens: 1000000000, tokens_per_fill: 1000000000, fill_interval: 60s },
  filter_enabled: { default_value: { numerator: 100 } }, filter_enforced: { default_value: { numerator: 100 } },
  rate_limits: [{ actions: [{ remote_address: {} }] }],
  descriptors: [{ entries: [{ key: remote_address }],
    token_bucket: { max_tokens: $1, tokens_per_fill: $1, fill_interval: 60s } }] }
EOF
}
kind=type.googleapis.com/envoy.extensions.filters
sockets=type.googleapis.com/envoy.extensions.transport_sockets
cat >"$folder/envoy.yaml" <<EOF
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: ${tls[envoy]} } }
    filter_chains:
    - transport_socket:
        name: tls
        typed_config:
          '@type': $sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2, http/1.1]
            tls_certificates:
            - { certificate_chain: { filename: $folder/cert.pem }, private_key: { filename: $folder/key.pem } }
      filters:
      - name: http
        typed_config:
          '@type': $kind.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: edge
          use_remote_address: true
          generate_request_id: false
          delayed_close_timeout: 0s
          http_protocol_options: { accept_http_10: true, default_host_for_http_10: edge }
          route_config:
            virtual_hosts:
            - name: edge
              domains: ['*']
              routes:
              - { match: { path: /nowhere }, direct_response: { status: 404 } }
              - match: { prefix: /refused/ }
                route: { cluster: bench }
                typed_per_filter_config: { limit: $(envoy_limit 1 | tr '\n' ' ') }
              - { match: { prefix: / }, route: { cluster: bench } }
          http_filters:
          - { name: limit, typed_config: $(envoy_limit 1000000000 | tr '\n' ' ') }
          - { name: route, typed_config: { '@type': $kind.http.router.v3.Router } }
  clusters:
  - name: bench
    type: STATIC
    load_assignment:
      cluster_name: bench
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $upstream } } } }] }]
EOF
envoy=target/envoy/envoy/_bin/envoy
[ -x "$envoy" ] || envoy=envoy

# Runs a proxy in the place of this shell.
run() {
	case $1 in
	nginx) exec /usr/sbin/nginx -p "$folder" -e error.log -c nginx.conf ;;
	haproxy) exec /usr/sbin/haproxy -db -f "$folder/haproxy.cfg" ;;
	envoy) exec "$envoy" --disable-hot-restart --log-level error --concurrency 1 -c "$folder/envoy.yaml" ;;
	tollgate) exec "$program" run --config "$folder/tollgate.yaml" ;;
	esac
}

start_upstream "$upstream"
for name in "${proxies[@]}"; do
	(taskset -cp 0 "$BASHPID" >/dev/null && run "$name") >"$folder/$name.log" 2>&1 &
	process[$name]=$!
	status=
	for _ in $(seq 200); do
		status=$(curl -sk -o /dev/null -w '%{http_code}' "https://127.0.0.1:${tls[$name]}/bench/" || true)
		[ "$status" = 200 ] && break
		sleep 0.05
	done
	[ "$status" = 200 ] || { echo "$name is not ready: $status" >&2; cat "$folder/$name.log" >&2; exit 1; }
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

# Median and, in brackets, least and greatest of a column of the rounds divided by another.
ratio() {
	awk -v a="$1" -v b="$2" '{ printf "%.3f\n", $a / $b }' "$folder/rounds" | sort -n |
		awk '{ all[NR] = $1 } END { printf "%.2f (%.2f to %.2f)", all[int((NR + 1) / 2)], all[1], all[NR] }'
}

own=${#proxies[@]}
[ "${proxies[own - 1]}" = tollgate ] || { echo "tollgate must be the last of PROXIES" >&2; exit 1; }
printf '| case |' && printf ' %s, us |' "${proxies[@]}" && printf ' ratio to %s |' "${proxies[@]:0:own-1}" && echo ' bound to nginx |'
printf '|---|' && printf -- '---|%.0s' "${proxies[@]}" "${proxies[@]:1}" && echo '---|'
for case in ${CASES:-handshake resumed http2-local http2-refused http2-proxied}; do
	: >"$folder/rounds"
	for round in $(seq "$rounds"); do
		for turn in $(seq "$own"); do
			name=${proxies[$(((turn + round) % own))]}
			before=$(used "$name")
			count=$(slice "$case" "$name")
			cost[$name]=$(awk -v a="$before" -v b="$(used "$name")" -v n="$count" 'BEGIN { printf "%.2f", (b - a) / n / 1000 }')
		done
		for name in "${proxies[@]}"; do printf '%s ' "${cost[$name]}"; done >>"$folder/rounds"
		echo >>"$folder/rounds"
	done
	case $case in
	http2-*) bound=0.7 ;;
	*) bound=0.5 ;;
	esac
	printf '| %s |' "$case"
	for column in $(seq "$own"); do
		printf ' %s |' "$(awk -v a="$column" '{ print $a }' "$folder/rounds" | median)"
	done
	for column in $(seq $((own - 1))); do printf ' %s |' "$(ratio "$own" "$column")"; done
	echo " $bound |"
done
