# What the scripts here share, to be sourced: a folder and programs that end with the script, free ports, and what the
# upstream answers.

folder=$(mktemp -d)
children=()
finish() {
	for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
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
