#!/usr/bin/env bash
# CPU time and memory that `count: cost json` adds to bodies that stream past: the same gateway with the same limit, with and
# without it, in turn. CPU time is the kernel's schedstat of the gateway, all its threads; memory the most that was resident
# while 100 bodies of 50 MB came at once. Needs nginx (as the upstream), python3 (which writes the bodies) and h2load;
# where the commands brotli and zstd are, bodies of these codings too.
#
#   benches/cost.sh [PROGRAM] [ROUNDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source benches/common.sh

# In place of the short answers of the other comparisons.
start_upstream() {
	# For the worker of an nginx that root started.
	chmod 755 "$folder"
	mkdir -p "$folder/site"
	python3 - "$folder/site" <<'PYTHON'
import json, random, sys
site, draw = sys.argv[1], random.Random(1)
words = [''.join(draw.choices('abcdefghijklmnopqrstuvwxyz', k=draw.randint(2, 9))) for _ in range(5000)]
def said(count):
    return ' '.join(draw.choices(words, k=count)) + ' "so"\n'
def document(size):
    listed = [{'id': i, 'role': 'assistant', 'ok': True, 'score': draw.random(), 'text': said(40)} for i in range(2500)]
    part = json.dumps(listed)[1:-1]
    return '{"data":[' + ','.join([part] * max(1, size // len(part))) + '],"usage":{"total_tokens":17}}'
def events(size):
    head = 'data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"m-1","choices":[{"index":0,"delta":{"content":'
    one = ''.join(f'{head}{json.dumps(" " + draw.choice(words))}}},"finish_reason":null}}]}}\n\n' for _ in range(5000))
    last = 'data: {"id":"chatcmpl-123","choices":[],"usage":{"prompt_tokens":8,"total_tokens":17}}\n\ndata: [DONE]\n\n'
    return one * (size // len(one)) + last
def write(name, text):
    with open(f'{site}/{name}', 'w') as file:
        file.write(text)
write('long.json', document(50_000_000))
write('short.json', document(5 << 20))
write('events', events(5_000_000))
write('long-events', events(50_000_000))
PYTHON
	gzip -k "$folder/site/long.json"
	if command -v brotli >/dev/null; then brotli -q 5 -k -o "$folder/site/long.json.br" "$folder/site/long.json"; fi
	if command -v zstd >/dev/null; then zstd -q -k "$folder/site/long.json"; fi
	# `chunked` has no length and comes in pieces of a few events, as a server of a language model sends them.
	cat >"$folder/upstream.conf" <<CONF
daemon off; pid upstream.pid; error_log error.log crit; worker_processes 1;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;
  server { listen 127.0.0.1:$1; root $folder/site; default_type application/json;
    location ~ \.gz$ { types { } add_header content-encoding gzip; }
    location ~ \.br$ { types { } add_header content-encoding br; }
    location ~ \.zst$ { types { } add_header content-encoding zstd; }
    location = /long-events { default_type text/event-stream; }
    location = /chunked { alias $folder/site/events; default_type text/event-stream; sendfile off; output_buffers 1 512;
      postpone_output 0; ssi on; ssi_types *; ssi_min_file_chunk 1; }
  }
}
CONF
	/usr/sbin/nginx -p "$folder" -e error.log -c upstream.conf &
}

prepare "${1:-}" "${2:-7}"

start() {
	local count=all
	[ "$1" = plain ] || count="cost json usage.total_tokens"
	port[$1]=$(free_port)
	mkdir -p "$folder/$1/policies"
	cat >"$folder/$1/tollgate.yaml" <<CONF
version: 1
workers: 1
listen: 127.0.0.1:${port[$1]}
admin: off
access_log: off
upstreams: { bench: ["http://127.0.0.1:$upstream"] }
CONF
	cat >"$folder/$1/policies/bench.yaml" <<CONF
match: GET /**
upstream: bench
limits:
  tokens: { key: ip, rate: 1000000000/h, count: $count }
CONF
	taskset -c 0 "$program" run --config "$folder/$1/tollgate.yaml" >"$folder/$1/log" 2>&1 &
	process[$1]=$!
	answers "${port[$1]}"
}

# Asks for a body: requests, at once, path, port.
ask() {
	h2load --h1 -n "$1" -c "$2" -t 1 "http://127.0.0.1:$4/$3" | grep -q "status codes: $1 2xx" || {
		echo "$3: not all requests were answered 200" >&2
		exit 1
	}
}

resident() {
	awk '/^VmHWM/ { print $2 }' "/proc/${process[$1]}/status"
}

stop() {
	kill "${process[$1]}"
	wait "${process[$1]}" || true
}

declare -A port process
bodies=(long.json short.json chunked long-events)
for coding in gz br zst; do
	[ ! -e "$folder/site/long.json.$coding" ] || bodies+=("long.json.$coding")
done
for path in "${bodies[@]}"; do
	case $path in
	short.json) requests=200 ;;
	chunked | long.json | long-events) requests=20 ;;
	*) requests=2 ;;
	esac
	: >"$folder/ratios"
	for round in $(seq "$rounds"); do
		for name in plain cost; do
			start "$name"
			ask 1 1 "$path" "${port[$name]}"
		done
		for slice in 1 2 3; do
			for name in plain cost; do
				before=$(nanos "$name")
				ask "$requests" 1 "$path" "${port[$name]}"
				echo $(($(nanos "$name") - before)) >>"$folder/$name.slices"
			done
		done
		paste "$folder/cost.slices" "$folder/plain.slices" | awk '{ print $1 / $2 }' | median >>"$folder/ratios"
		for name in plain cost; do
			stop "$name"
			rm "$folder/$name.slices"
		done
	done
	echo "$path: $(median "$folder/ratios") times the CPU time (rounds: $(sort -n "$folder/ratios" | xargs))"
done
for path in "${bodies[@]}"; do
	[ "$path" != short.json ] && [ "$path" != chunked ] || continue
	for name in plain cost; do
		start "$name"
		ask 1 1 "$path" "${port[$name]}"
		before=$(resident "$name")
		ask 100 100 "$path" "${port[$name]}"
		echo "$path, $name: $((before / 1024)) MiB after one body, at most $(($(resident "$name") / 1024)) MiB with 100 at once"
		stop "$name"
	done
done
