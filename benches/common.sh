# What the scripts here share, to be sourced: a folder and programs that end with the script, free ports, an upstream,
# a gateway's files and a client.

folder=$(mktemp -d)
finish() {
	kill $(jobs -p) 2>/dev/null || true
	wait
	rm -rf "$folder"
}
trap finish EXIT

free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 10000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo "$port"
}

body=$(printf '%0128d' 0)
# The credential of all requests.
token=5d41402abc4b2a76b9719d911017c592

# Takes the arguments of a script that compares gateways, and starts an upstream: the gateways on the first core, everything
# else on the last, where there are two.
prepare() {
	program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/production/tollgate}")
	rounds=${2:-20}
	taskset -cp "$(($(nproc) - 1))" $$ >/dev/null
	upstream=$(free_port)
	start_upstream "$upstream"
}

# An upstream at a port.
start_upstream() {
	cat >"$folder/upstream.conf" <<EOF
daemon off; pid upstream.pid; error_log error.log crit; worker_processes 1;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;
  server { listen 127.0.0.1:$1; location / {
    default_type application/json; add_header cache-control no-store; add_header x-a 1; add_header x-b 2;
    return 200 "$body";
  } }
}
EOF
	/usr/sbin/nginx -p "$folder" -e error.log -c upstream.conf &
}

# Writes the files of a gateway with two limits: name, port, the upstream's port, rate, throttle, priority, store, record.
write_gateway() {
	mkdir -p "$folder/$1/policies"
	cat >"$folder/$1/tollgate.yaml" <<EOF
version: 1
workers: 1
listen: 127.0.0.1:$2
admin: 127.0.0.1:$(free_port)
access_log: { requests: refused, file: access.log }
upstreams: { bench: ["http://127.0.0.1:$3"] }
identity: { token: { bearer: true } }
store: ${7:-memory}
record: ${8:-memory}
EOF
	cat >"$folder/$1/policies/bench.yaml" <<EOF
match: GET /**
upstream: bench
priority: $6
limits:
  per-ip: { key: ip, rate: $4, throttle: hard }
  per-token: { key: token, rate: $4, throttle: $5 }
EOF
}

# Sends so many requests over so many connections to a port, and says how they were answered.
send() {
	h2load --h1 -n "$1" -c "$2" -t 1 -H user-agent:compare/1 -H accept:application/json -H accept-encoding:gzip \
		-H "authorization: Bearer $token" "http://127.0.0.1:$3/api/items/42" |
		grep "status codes"
}

answers() {
	for _ in $(seq 100); do
		(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
		sleep 0.2
	done
	echo "nothing answers at port $1" >&2
	return 1
}

# CPU time of a gateway of `process`, by the kernel's schedstat.
nanos() {
	cat "/proc/${process[$1]}/task/"*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

# The same of one slice of `requests` requests.
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

# Compares the CPU time of gateways with that of the first: rounds, names. `start NAME` starts one and fills `port` and
# `process`. In turn, in short slices; where a process lies in memory makes a hundredth by chance: new ones each round.
compare() {
	local rounds=$1 name place round
	shift
	local names=("$@")
	for round in $(seq "$rounds"); do
		for name in "${names[@]}"; do
			start "$name"
			slice "$name" >/dev/null
			: >"$folder/$name.slices"
		done
		for place in $(seq "$round" $((round + 8 * ${#names[@]} - 1))); do
			name=${names[$((place % ${#names[@]}))]}
			slice "$name" >>"$folder/$name.slices"
		done
		for name in "${names[@]}"; do
			paste "$folder/$name.slices" "$folder/${names[0]}.slices" | awk '{ print $1 / $2 }' | median >>"$folder/$name.ratios"
			kill "${process[$name]}"
			wait "${process[$name]}" || true
		done
		median "$folder/${names[0]}.slices" >>"$folder/first.nanos"
	done
	for name in "${names[@]:1}"; do
		awk -v name="$name" '
			{ sum += $1; squares += $1 * $1 }
			END {
				mean = sum / NR
				printf "%s: %.4f times the CPU time, standard error %.4f\n", name, mean, sqrt((squares / NR - mean * mean) / (NR - 1))
			}' "$folder/$name.ratios"
	done
	echo "${names[0]}: $(($(median "$folder/first.nanos") / requests)) ns a request"
}
