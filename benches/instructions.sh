#!/usr/bin/env bash
# Instructions per request in user space, counted by callgrind, and system calls, counted by strace: steadier than
# time, blind to what the kernel does. Fails when one is above its bound in benches/bounds by more than 5 %, or when a
# banned request costs more than its share of a refused one there.
# Needs valgrind, strace, nginx (as the upstream) and h2load: `make bench-instructions` installs them.
#
#   benches/instructions.sh [PROGRAM] [REQUESTS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/production/tollgate}")
requests=${2:-20000}
source benches/common.sh

upstream=$(free_port)
start_upstream "$upstream"

# Starts a gateway of this name and rate under a tool, warms it up and leaves its process in `gateway`, its port in `port`.
run() {
	local name=$1 rate=$2
	shift 2
	port=$(free_port)
	write_gateway "$name" "$port" "$upstream" "$rate" hard normal
	"$@" "$program" run --config "$folder/$name/tollgate.yaml" >"$folder/$name/log" 2>&1 &
	gateway=$!
	answers "$port"
	case $name in
	banned) ban "$name" 127.0.0.1 ;;
	banned-key) ban "$name" "token=$token" ;;
	esac
	send 2000 64 "$port" >/dev/null
}

# Bans a key at the gateway of this name.
ban() {
	local admin
	admin=$(awk '$1 == "admin:" { print $2 }' "$folder/$1/tollgate.yaml")
	answers "${admin##*:}"
	"$program" ban "$2" --for 1h --admin "$admin" >/dev/null 2>&1
}

# Per request, from a total.
each() {
	awk -v total="$1" -v requests="$requests" 'BEGIN { printf "%.2f", total / requests }'
}

too_many=0
declare -A figures
tell() {
	local name=$1 what=$2 figure=$3 bound
	figures[$name $what]=$figure
	bound=$(awk -v name="$name" -v what="$what" '$1 == name && $2 == what { print $3 }' benches/bounds)
	echo "$name: $figure $what a request, bound $bound"
	awk -v figure="$figure" -v bound="$bound" 'BEGIN { exit !(figure > 0 && figure <= bound * 1.05) }' || too_many=1
}

# Sends requests; all answers are of this class.
all() {
	send "$2" 64 "$port" | grep -q " $2 $1" || {
		echo "not all answers were $1" >&2
		exit 1
	}
}

# All system calls of a gateway that has so many requests.
calls() {
	local name=$1
	run "$name" "$2" strace -f -c -o "$folder/$name/calls"
	all "$3" "$4"
	# What is traced ends, and then strace.
	pkill -P "$gateway"
	wait "$gateway" || true
	awk '$NF == "total" { print $4 }' "$folder/$name/calls"
}

measure() {
	local name=$1 rate=$2 status=$3 few many
	run "$name" "$rate" valgrind --tool=callgrind --instr-atstart=no --separate-threads=yes \
		--callgrind-out-file="$folder/$name/out"
	callgrind_control -i on "$gateway" >/dev/null 2>&1
	all "$status" "$requests"
	callgrind_control -i off "$gateway" >/dev/null 2>&1
	kill "$gateway"
	wait "$gateway" || true
	# The one thread that serves requests. What the others do they do once a second, however many requests there are,
	# and valgrind makes a second short.
	tell "$name" instructions "$(each "$(awk '/^totals:/ { print $2 }' "$folder/$name"/out-* | sort -n | tail -1)")"

	few=$(calls "$name" "$rate" "$status" 1000)
	many=$(calls "$name" "$rate" "$status" "$((requests + 1000))")
	tell "$name" calls "$(each "$((many - few))")"
}

# Compares the instructions of requests of this name with those of refused ones.
share() {
	local name=$1 bound
	bound=$(awk -v name="$name" '$1 == name && $2 == "share" { print $3 }' benches/bounds)
	awk -v name="$name" -v figure="${figures[$name instructions]}" -v refused="${figures[refused instructions]}" -v bound="$bound" 'BEGIN {
		printf "%s: %.2f of the instructions of a refused request, bound %s\n", name, figure / refused, bound
		exit !(figure / refused <= bound)
	}' || too_many=1
}

measure proxied 1000000000/h 2xx
measure refused 1/h 4xx
# No limit refuses these, so that the ban alone does.
measure banned 1000000000/h 4xx
measure banned-key 1000000000/h 4xx
share banned
share banned-key
exit "$too_many"
