//! Bans over HTTP/2 and HTTP/3, of calls of gRPC too.

use std::time::Duration;

use serde_json::json;
use tollgate::operator::NewBan;
use tollgate::serve::admin::Control;

use crate::common::{Upstream, http2};
use crate::http3::{self, Client};
use crate::{GATEWAY, POLICY, Site};

const GRPC: &str = "application/grpc";

/// The fields of two clients: the first is banned by its address, the second by another identity.
const BANNED: [(&str, &str); 2] = [("x-forwarded-for", "192.0.2.7"), ("x-user", "alice")];

#[test]
fn a_ban_holds_on_open_connections_of_http2() {
    let site = Site::start("");
    http2::run(async {
        let mut client = http2::Client::connect(site.server.address).await;
        let mut status_of = async |name: &str, value: &str, kind: &str| {
            let request = http2::request("GET", "/a").header(name, value);
            let request = request.header("content-type", kind);
            let (response, _) = client.begin(request.body(()).unwrap(), true);
            let response = http2::whole(response.await.unwrap()).await.unwrap();
            let grpc_status = response.field("grpc-status").map(str::to_owned);
            (response.status, grpc_status)
        };
        for (name, value) in BANNED {
            assert_eq!(status_of(name, value, "text/plain").await.0, 200);
        }
        site.ban_key("192.0.2.0/24");
        site.ban_key("user=alice");
        for (name, value) in BANNED {
            for _ in 0..2 {
                assert_eq!(status_of(name, value, "text/plain").await, (429, None));
                let refused = (200, Some("8".into()));
                assert_eq!(status_of(name, value, GRPC).await, refused, "{name}");
            }
        }
        assert_eq!(status_of("x-user", "bob", "text/plain").await.0, 200);
        assert_eq!(site.unban("192.0.2.0/24").status(), 200);
        assert_eq!(site.unban("user=alice").status(), 200);
        for (name, value) in BANNED {
            assert_eq!(status_of(name, value, "text/plain").await.0, 200);
        }
    });
}

fn order(key: &str) -> NewBan {
    NewBan {
        key: key.into(),
        duration: Duration::from_secs(3_600),
        reason: String::new(),
        by: "ann".into(),
    }
}

/// The requests of both clients over HTTP/3, as `kind`.
fn fetch_as(client: &mut Client, kind: &str) -> Vec<serde_json::Value> {
    let request =
        |(name, value)| json!({ "path": "/a", "fields": [[name, value], ["content-type", kind]] });
    client.fetch(&BANNED.map(request))
}

#[test]
fn a_ban_holds_on_open_connections_of_http3() {
    let upstream = Upstream::plain();
    let gateway = GATEWAY.replace("admin: 127.0.0.1:0\n", "admin: off\n");
    let gateway = http3::start(&upstream, &gateway, &[("all", POLICY)]);
    let mut client = Client::connected(&gateway);
    let statuses = |responses: Vec<serde_json::Value>| {
        let status = |response: &serde_json::Value| response["status"].clone();
        responses.iter().map(status).collect::<Vec<_>>()
    };
    let plain = "text/plain";
    assert_eq!(statuses(fetch_as(&mut client, plain)), [200, 200]);
    gateway.app.ban(order("192.0.2.0/24")).unwrap();
    gateway.app.ban(order("user=alice")).unwrap();
    assert_eq!(statuses(fetch_as(&mut client, plain)), [429, 429]);
    for response in fetch_as(&mut client, GRPC) {
        assert_eq!(response["status"], 200, "{response}");
        assert_eq!(response["fields"]["grpc-status"], "8", "{response}");
    }
    for key in ["192.0.2.0/24", "user=alice"] {
        gateway.app.lift_ban(key, "ann").unwrap();
    }
    assert_eq!(statuses(fetch_as(&mut client, plain)), [200, 200]);
}

/// The stream is reset, and the connection goes on.
#[test]
fn banned_clients_may_get_no_response_over_http3() {
    let upstream = Upstream::plain();
    let gateway = GATEWAY.replace(
        "admin: 127.0.0.1:0\n",
        "admin: off\nbans: { response: none }\n",
    );
    let gateway = http3::start(&upstream, &gateway, &[("all", POLICY)]);
    let mut client = Client::connected(&gateway);
    gateway.app.ban(order("user=alice")).unwrap();
    let request = |user: &str| json!({ "path": "/a", "fields": [["x-user", user]] });
    let silent = client.fetch_one(request("alice"));
    assert!(silent.get("status").is_none(), "{silent}");
    assert!(silent["reset"].is_number(), "{silent}");
    assert_eq!(client.fetch_one(request("bob"))["status"], 200);
}
