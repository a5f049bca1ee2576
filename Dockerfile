# docker build -t tollgate:0.1.0 .
# docker run --read-only -p 8080:8080 -v "$PWD/gateway:/etc/tollgate:ro" tollgate:0.1.0
# In a container the gateway file must say `listen: 0.0.0.0:8080`.
#
# Both architectures: docker buildx build --platform linux/amd64,linux/arm64 .
# packaging/image.sh puts the program of `make dist` in the place of the first stage.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -qy --no-install-recommends build-essential ca-certificates cmake musl-tools \
 && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /build

# Dependencies first: this layer is built again only when the manifest changes.
COPY Cargo.toml Cargo.lock build.rs ./
RUN mkdir src \
 && echo 'fn main() {}' > src/main.rs \
 && touch src/lib.rs \
 && cargo build --locked --profile production --bin tollgate --target "$(uname -m)-unknown-linux-musl" \
 && rm -r src

COPY src src
# What was copied may be older than the stand-ins above.
RUN touch src/main.rs src/lib.rs \
 && cargo build --locked --profile production --bin tollgate --target "$(uname -m)-unknown-linux-musl" \
 && install -D -s target/*-unknown-linux-musl/production/tollgate /out/usr/bin/tollgate \
 && install -D -m 644 /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ca-certificates.crt \
 && install -d -o 10001 -g 10001 /out/var/lib/tollgate

# Nothing but the program, and authorities for servers that are written https://: no shell, no C library.
FROM scratch
COPY --from=build /out /
# The folder of the configuration is mounted; /var/lib/tollgate is the only place to write to, if a volume is there.
USER 10001:10001
WORKDIR /var/lib/tollgate
EXPOSE 8080 9900
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["tollgate", "ready", "--config", "/etc/tollgate/tollgate.yaml"]
ENTRYPOINT ["/usr/bin/tollgate"]
CMD ["run", "--config", "/etc/tollgate/tollgate.yaml"]
