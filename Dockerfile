# docker build -t tollgate .
# docker run -p 8080:8080 -v "$PWD/gateway:/etc/tollgate:ro" tollgate
# In a container the gateway file must say `listen: 0.0.0.0:8080`.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /build

# Dependencies first: this layer is built again only when the manifest changes.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
 && echo 'fn main() {}' > src/main.rs \
 && touch src/lib.rs \
 && cargo build --locked --release --bin tollgate \
 && rm -r src

COPY src src
# What was copied may be older than the stand-ins above.
RUN touch src/main.rs src/lib.rs \
 && cargo build --locked --release --bin tollgate \
 && strip target/release/tollgate

FROM debian:bookworm-slim
COPY --from=build /build/target/release/tollgate /usr/local/bin/tollgate
# By which servers that are written https:// are verified.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# The folder of the configuration is mounted; /var/lib/tollgate is the only place to write to.
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin tollgate \
 && install -d -o tollgate -g tollgate /etc/tollgate /var/lib/tollgate
USER 10001
WORKDIR /var/lib/tollgate
EXPOSE 8080 9900
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["tollgate", "ready", "--config", "/etc/tollgate/tollgate.yaml"]
ENTRYPOINT ["tollgate", "run", "--config", "/etc/tollgate/tollgate.yaml"]
