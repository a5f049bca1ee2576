//! The example of tonic, built as a service of its own without the gateway: refused calls have a status of gRPC.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use bytes::Bytes;
use http::Request;

use super::common::child::Guard;
use super::common::http2::{Answer, Client, run, whole};
use super::lean::{build_folder, cargo, root};

const CLIENTS: usize = 64;
/// The messages of gRPC that are sent and expected: a byte and a length before `abc` and `hello, abc`, both as field 1.
const REQUEST: &[u8] = b"\0\0\0\0\x05\x0a\x03abc";
const RESPONSE: &[u8] = b"\0\0\0\0\x0c\x0a\x0ahello, abc";

async fn call(client: &mut Client, address: SocketAddr, key: &str) -> Answer {
    let request = Request::post(format!("http://{address}/example.Greeter/Greet"));
    let request = request.header("content-type", "application/grpc");
    let request = request.header("te", "trailers").header("x-api-key", key);
    let (response, mut body) = client.begin(request.body(()).unwrap(), false);
    body.send_data(Bytes::from_static(REQUEST), true).unwrap();
    whole(response.await.unwrap()).await.unwrap()
}

#[test]
fn calls_are_refused_by_a_status_of_grpc() {
    let folder = root().join("examples/tonic");
    cargo(&folder, &["build", "--locked", "--quiet"]);
    let mut command = Command::new(build_folder().join("debug/tollgate-tonic-example"));
    command.args(["--port", "0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Guard(command.spawn().unwrap());
    let line = server.said().recv().unwrap();
    let address = line.strip_prefix("listening on http://").expect(&line);
    let address: SocketAddr = address.parse().unwrap();

    // Each client calls over a connection of its own. The limit by address has room for all that are admitted.
    let client = move |number: usize| async move {
        let mut client = Client::connect(address).await;
        let mut admitted = 0;
        for key in [number % 20, 20] {
            let answer = call(&mut client, address, &format!("key-{key}")).await;
            match is_admitted(&answer) {
                true => admitted += 1,
                false => check_refusal(&answer),
            }
        }
        admitted
    };
    let admitted: usize = run(async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| tokio::spawn(client(number)))
            .collect();
        let mut admitted = 0;
        for client in clients {
            admitted += client.await.unwrap();
        }
        admitted
    });
    assert_eq!(admitted, 21 * 3);
}

fn is_admitted(answer: &Answer) -> bool {
    assert_eq!(answer.status, 200, "{answer:?}");
    let is_admitted = answer.field("grpc-status").is_none();
    assert!(!is_admitted || answer.body == RESPONSE, "{answer:?}");
    is_admitted
}

#[track_caller]
fn check_refusal(answer: &Answer) {
    assert_eq!(answer.field("grpc-status"), Some("8"), "{answer:?}");
    let message = answer.field("grpc-message").unwrap();
    assert!(message.contains("the limit per-key"), "{message}");
    assert!(answer.field("retry-after").is_some(), "{answer:?}");
    let policy = answer.field("ratelimit-policy").unwrap();
    assert!(policy.contains("\"per-key\";q=3;w=60"), "{policy}");
}
