//! Routes that hold on listeners of some names only.

use futures_util::FutureExt;
use serde_json::Value;
use tollgate::serve::stack::explain::explain;
use tollgate::serve::stack::request_to_explain::RequestToExplain;

use crate::common::{Client, Gateway, Upstream, write};
use crate::{Clock, Nanos};

const LISTEN: &str = "listen:
  - { name: public, address: 127.0.0.1:0 }
  - { name: inside, address: 127.0.0.1:0 }
  - 127.0.0.1:0
";

/// A gateway with the listeners `public` and `inside`, and one without a name.
fn start(policies: &[(&str, &str)]) -> (Gateway, Upstream) {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream.address, "", policies);
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", LISTEN)).unwrap();
    let clock = Clock::manual(Nanos::from_secs(1_800_000_000));
    (Gateway::start_in(folder, clock), upstream)
}

/// A connection to each listener, in the order of the file.
fn connect_to_all(gateway: &Gateway) -> [Client; 3] {
    [0, 1, 2].map(|index| Client::connect(gateway.app.addresses()[index].tcp().unwrap()))
}

/// Sends the request on the connection to each listener, and returns the statuses.
fn send(clients: &mut [Client; 3], request: &str) -> [u16; 3] {
    clients.each_mut().map(|client| {
        client.send(format!(
            "{request} HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n"
        ));
        client.answer().status()
    })
}

#[test]
fn a_route_holds_on_its_listeners() {
    let (gateway, _upstream) = start(&[
        ("one", "match: GET /one\nlisten: public\nupstream: up\n"),
        (
            "two",
            "match: GET /two\nlisten: [inside, public]\nupstream: up\n",
        ),
        ("all", "match: GET /all\nupstream: up\n"),
        ("post", "match: POST /one\nlisten: inside\nupstream: up\n"),
    ]);
    let mut clients = connect_to_all(&gateway);
    // Each connection sends the same head again.
    for _ in 0..2 {
        assert_eq!(send(&mut clients, "GET /one"), [200, 405, 404]);
        assert_eq!(send(&mut clients, "GET /two"), [200, 200, 404]);
        assert_eq!(send(&mut clients, "GET /all"), [200, 200, 200]);
        assert_eq!(send(&mut clients, "POST /one"), [405, 200, 404]);
        assert_eq!(send(&mut clients, "GET /"), [404, 404, 404]);
    }
}

#[test]
fn a_less_specific_route_takes_what_other_listeners_do_not_see() {
    let limit =
        |name: &str| format!("upstream: up\nlimits: {{ {name}: {{ key: ip, rate: 1/h }} }}\n");
    let (gateway, _upstream) = start(&[
        (
            "few",
            &format!("match: /a/b\nlisten: public\n{}", limit("few")),
        ),
        ("rest", "match: /a/**\nupstream: up\n"),
        (
            "same",
            &format!("match: /same\nlisten: public\n{}", limit("one")),
        ),
        ("other", "match: /same\nlisten: inside\nupstream: up\n"),
    ]);
    let mut clients = connect_to_all(&gateway);
    assert_eq!(send(&mut clients, "GET /a/b"), [200, 200, 200]);
    assert_eq!(send(&mut clients, "GET /a/b"), [429, 200, 200]);
    // Another spelling of the path leads to the route of the listener, and to no other.
    assert_eq!(send(&mut clients, "GET /a/B"), [429, 200, 200]);
    assert_eq!(send(&mut clients, "GET /same"), [200, 200, 404]);
    assert_eq!(send(&mut clients, "GET /same"), [429, 200, 404]);
}

#[test]
fn a_reload_changes_the_listeners_of_a_route() {
    let policy = |name: &str| format!("match: /**\nlisten: {name}\nupstream: up\n");
    let (gateway, _upstream) = start(&[("all", &policy("public"))]);
    let mut clients = connect_to_all(&gateway);
    assert_eq!(send(&mut clients, "GET /"), [200, 404, 404]);
    let file = gateway.folder.path().join("policies/all.yaml");
    std::fs::write(file, policy("inside")).unwrap();
    gateway.reload().unwrap();
    assert_eq!(send(&mut clients, "GET /"), [404, 200, 404]);
    // The second listener loses its name to the third.
    let file = gateway.folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("name: inside", "name: outside");
    let text = text.replace(
        "  - 127.0.0.1:0",
        "  - { name: inside, address: 127.0.0.1:0 }",
    );
    std::fs::write(&file, text).unwrap();
    gateway.reload().unwrap();
    assert_eq!(send(&mut clients, "GET /"), [404, 404, 200]);
}

#[test]
fn a_route_is_explained_for_a_listener() {
    let (gateway, _upstream) = start(&[
        ("one", "match: /**\nlisten: public\nupstream: up\n"),
        ("two", "match: /**\nlisten: inside\nupstream: up\n"),
    ]);
    let explained = |listen: Option<&str>| -> Result<Value, String> {
        let request = RequestToExplain {
            method: "GET".into(),
            path: "/".into(),
            listen: listen.map(str::to_owned),
            host: None,
            headers: Vec::new(),
            ip: None,
            body: String::new(),
            client_cert: None,
            ja4: None,
            descriptor: None,
        };
        let running = gateway.app.running();
        let explanation = explain(&running, &request, gateway.app.clock()).now_or_never();
        let explanation = explanation.unwrap();
        explanation.map_err(|error| error.to_string())
    };
    let route = |listen| explained(listen).unwrap()["route"].clone();
    assert_eq!(route(None)["name"], "one");
    assert_eq!(route(Some("inside"))["name"], "two");
    assert_eq!(route(Some("inside"))["listen"][0], "inside");
    let error = explained(Some("nowhere")).unwrap_err();
    assert_eq!(error, "no listener has the name `nowhere`");
}
