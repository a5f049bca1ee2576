#!/usr/bin/env bash
# Seconds from a clone of the last commit to the first screen of the demo, built from nothing. The bound is 180 s on two
# cores; what cargo has downloaded before stays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source benches/common.sh
begin=$SECONDS
git clone --quiet . "$folder/tollgate"
cd "$folder/tollgate"
unset CARGO_TARGET_DIR
cargo run --release -- demo --for 5 --listen "127.0.0.1:$(free_port)" --admin "127.0.0.1:$(free_port)" >out &
demo=$!
while [ ! -s out ] && kill -0 "$demo" 2>/dev/null; do sleep 0.2; done
seconds=$((SECONDS - begin))
cat out
echo "first screen after $seconds s, bound 180 s"
[ -s out ] && [ "$seconds" -le 180 ]
