//! Requests pass or are refused by each kind of key, and mistakes are named when the layer is built.

use std::convert::Infallible;
use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;

use super::*;

type Reply = Response<ThrottledBody<Full<Bytes>>>;

/// What a request gets with these header fields, over a connection from `peer`.
fn send(throttle: &Throttle, peer: Option<&str>, fields: &[(&str, &str)]) -> Reply {
    let service = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::from("items")))
    });
    let throttle = match peer {
        Some(peer) => throttle.for_peer(peer.parse().unwrap()),
        None => throttle.clone(),
    };
    let mut request = Request::get("/items");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let reply = throttle.layer(service).oneshot(request.body(()).unwrap());
    block_on(reply).unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.build().unwrap().block_on(future)
}

fn text(reply: Reply) -> String {
    let body = block_on(reply.into_body().collect()).unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

fn field<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    reply.headers().get(name)?.to_str().ok()
}

fn limited(key: Key, rate: &str) -> Throttle {
    let builder = Throttle::builder().limit("a", key, rate).unwrap();
    builder.build().unwrap()
}

/// The number of `count` requests that are admitted; `peer` gets the number of each.
fn admitted(throttle: &Throttle, count: usize, peer: impl Fn(usize) -> String) -> usize {
    let statuses = (0..count).map(|number| send(throttle, Some(&peer(number)), &[]).status());
    statuses.filter(|status| *status == 200).count()
}

#[test]
fn a_field_has_counts_for_each_value() {
    let throttle = limited(Key::header("X-Api-Key"), "2/h");
    for remaining in [1, 0] {
        let reply = send(&throttle, None, &[("x-api-key", "abc")]);
        assert_eq!(reply.status(), 200);
        assert_eq!(field(&reply, "ratelimit-policy"), Some("\"a\";q=2;w=3600"));
        let left = field(&reply, "ratelimit").unwrap();
        assert!(
            left.starts_with(&format!("\"a\";r={remaining};t=")),
            "{left}"
        );
        assert_eq!(text(reply), "items");
    }
    let refused = send(&throttle, None, &[("x-api-key", "abc"), ("x-api-key", "x")]);
    assert_eq!(refused.status(), 429);
    let wait: u64 = field(&refused, "retry-after").unwrap().parse().unwrap();
    assert!((3590..=3600).contains(&wait), "{wait}");
    assert_eq!(
        field(&refused, "content-type"),
        Some("application/problem+json")
    );
    let size = refused.body().size_hint().exact();
    let document = text(refused);
    assert_eq!(size, Some(document.len() as u64));
    assert!(
        document.ends_with("\"violated-policies\":[\"a\"]}"),
        "{document}"
    );
    assert_eq!(send(&throttle, None, &[("x-api-key", "x")]).status(), 200);
    let uncounted = send(&throttle, None, &[]);
    assert_eq!(
        (uncounted.status().as_u16(), field(&uncounted, "ratelimit")),
        (200, None)
    );
}

#[test]
fn calls_of_grpc_get_a_status_of_grpc() {
    let throttle = limited(Key::Everyone, "1/h");
    let call = || {
        send(
            &throttle,
            None,
            &[("content-type", "application/grpc+proto")],
        )
    };
    assert_eq!(field(&call(), "grpc-status"), None);
    let refused = call();
    assert_eq!(
        (refused.status().as_u16(), field(&refused, "grpc-status")),
        (200, Some("8"))
    );
    assert!(field(&refused, "grpc-retry-pushback-ms").is_some());
    assert!(refused.body().is_end_stream());
}

#[test]
fn functions_and_several_rates() {
    let by_path = Key::from_fn(|request| Some(request.uri.path().to_owned()));
    let throttle = limited(by_path, "100/d, 2/h");
    assert_eq!(send(&throttle, None, &[]).status(), 200);
    let reply = send(&throttle, None, &[]);
    assert_eq!(field(&reply, "ratelimit-policy"), Some("\"a\";q=2;w=3600"));
    assert_eq!(send(&throttle, None, &[]).status(), 429);
}

#[test]
fn addresses_and_networks_around_them() {
    let throttle = limited(Key::Ip, "5/h");
    assert_eq!(admitted(&throttle, 9, |_| "192.0.2.1".into()), 5);
    assert_eq!(
        admitted(&throttle, 9, |_| "::ffff:192.0.2.1".into()),
        0,
        "the same address"
    );
    assert_eq!(
        admitted(&throttle, 9, |number| format!("192.0.3.{number}")),
        9
    );
    assert_eq!(
        admitted(&throttle, 9, |number| format!("2001:db8::{number:x}")),
        5,
        "one /64"
    );
    let subnets = |number| format!("2001:db8:1:{number:x}::1");
    assert_eq!(
        admitted(&throttle, 40, subnets),
        20,
        "one /56 has four quotas"
    );
}

#[test]
fn requests_without_an_address_are_one_client() {
    let throttle = limited(Key::Ip, "3/h");
    let statuses = [(); 5].map(|()| send(&throttle, None, &[]).status().as_u16());
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(send(&throttle, Some("0.0.0.0"), &[]).status(), 200);

    let by_field = |field: &str| field.parse::<IpAddr>().ok();
    let builder = Throttle::builder().limit("a", Key::Ip, "1/h").unwrap();
    let builder = builder
        .peer_address(move |request| by_field(request.headers.get("x-real-ip")?.to_str().ok()?));
    let throttle = builder.build().unwrap();
    for (address, status) in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.1", 429)] {
        let reply = send(&throttle, Some("127.0.0.1"), &[("x-real-ip", address)]);
        assert_eq!(reply.status(), status, "{address}");
    }
}

#[test]
fn a_refused_request_takes_nothing() {
    let builder = Throttle::builder()
        .limit("all", Key::Everyone, "3/h")
        .unwrap();
    let builder = builder.limit("key", Key::header("k"), "1/h").unwrap();
    let throttle = builder.build().unwrap();
    let statuses = ["a", "a", "a", "b", "c", "d"]
        .map(|key| send(&throttle, None, &[("k", key)]).status().as_u16());
    assert_eq!(statuses, [200, 429, 429, 200, 200, 429]);
}

#[test]
fn permits_are_held_until_the_body_ends() {
    let builder = Throttle::builder()
        .limit("rate", Key::Everyone, "5/h")
        .unwrap();
    let builder = builder.concurrent("open", Key::Everyone, 2).unwrap();
    let throttle = builder.build().unwrap();
    let first = send(&throttle, None, &[]);
    let policies = "\"rate\";q=5;w=3600, \"open\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(field(&first, "ratelimit-policy"), Some(policies));
    let mut second = send(&throttle, None, &[]);
    let refused = send(&throttle, None, &[]);
    assert_eq!(
        (refused.status().as_u16(), field(&refused, "retry-after")),
        (429, Some("1"))
    );
    drop(first);
    let third = send(&throttle, None, &[]);
    assert_eq!(third.status(), 200);
    assert_eq!(send(&throttle, None, &[]).status(), 429);
    // The body has ended, though it is still there.
    while block_on(second.body_mut().frame()).is_some() {}
    let fourth = send(&throttle, None, &[]);
    let left = field(&fourth, "ratelimit").unwrap();
    assert!(left.starts_with("\"open\";r=0"), "{left}");
    drop((second, third, fourth));
    let fifth = send(&throttle, None, &[]);
    let left = field(&fifth, "ratelimit").unwrap();
    assert!(
        left.starts_with("\"rate\";r=0"),
        "refused requests took nothing: {left}"
    );
}

#[test]
fn mistakes_name_their_place_and_cure() {
    let add = |name, rates| Throttle::builder().limit(name, Key::Ip, rates).map(drop);
    let check = |result: Result<(), BuildError>, expected: &str| {
        assert_eq!(result.unwrap_err().to_string(), expected);
    };
    check(
        add("per ip", "1/s"),
        "limit `per ip`: a limit's name is 1 to 64 letters, digits, `-` or `_`, starting with a letter",
    );
    check(
        add("a", "100"),
        "limit `a`, rate `100`: a rate is written N/unit, for instance 10/s or 5/15m",
    );
    check(
        add("a", "1/s,"),
        "limit `a`, rate ``: a rate is written N/unit, for instance 10/s or 5/15m",
    );
    check(
        add("a", "1/s, 2/s"),
        "limit `a`, rates `1/s, 2/s`: two have the same window; keep the stricter one",
    );
    let twice = || {
        Throttle::builder()
            .limit("a", Key::Ip, "1/s")?
            .concurrent("a", Key::Ip, 1)
    };
    check(
        twice().map(drop),
        "limit `a` is there twice; give each limit a name of its own, because responses name it",
    );
    let field = Throttle::builder().limit("a", Key::header("x key"), "1/s");
    check(
        field.map(drop),
        "limit `a`: `x key` is not the name of a header field; use letters, digits and `-`, as in `x-api-key`",
    );
    let many = (0..65).try_fold(Throttle::builder(), |builder, number| {
        builder.limit(&format!("l{number}"), Key::Ip, "1/s")
    });
    check(
        many.map(drop),
        "limit `l64`: a layer has at most 64 limits; put the others into another layer",
    );
    let none = Throttle::builder().concurrent("a", Key::Ip, 0);
    check(
        none.map(drop),
        "limit `a`: 0 open requests would refuse every request; allow at least 1",
    );
    check(
        Throttle::builder().build().map(drop),
        "no limit is given; add one, as in `.limit(\"per-ip\", Key::Ip, \"100/m\")?`",
    );
    let little = Throttle::builder()
        .limit("a", Key::Ip, "1/s")
        .unwrap()
        .memory_bytes(7);
    let message = little.build().map(drop).unwrap_err().to_string();
    assert!(
        message.starts_with("memory for counts: the store takes 1048576 to"),
        "{message}"
    );
    let large = Throttle::builder().limit("a", Key::Ip, "1000/m").unwrap();
    let large = large.memory_bytes(1 << 20).build().map(drop);
    let message = large.unwrap_err().to_string();
    assert!(
        message.starts_with("limit `a`: a key may take"),
        "{message}"
    );
}
