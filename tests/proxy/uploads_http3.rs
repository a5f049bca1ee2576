//! The memory of a thousand uploads over HTTP/3 that are too large. Their connections are open before, because a connection
//! of QUIC holds more than an upload.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream};
use tokio::runtime::{Builder, Handle};
use tollgate::http::http3::frame::{self, FrameHead, frame_type};
use tollgate::http::http3::qpack;

use crate::common::certificate::Certificate;
use crate::common::child::{Server, line_with};
use crate::common::tls::{put, trusting};
use crate::common::write;
use crate::uploads::{FIRST_BYTES, GATEWAY, LENGTH, MORE_BYTES, POLICY, Scene, Steps};

const NAME: &str = "test";

/// Connections that share the uploads.
const CONNECTIONS: usize = 100;

/// A runtime with a thread of its own, which runs clients between the steps of a test.
fn runtime() -> Handle {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
}

/// An open connection.
struct Client {
    connection: Connection,
    /// It must live as long as the connection.
    _control: SendStream,
}

impl Client {
    async fn connect(endpoint: &Endpoint, address: SocketAddr) -> Client {
        let connection = endpoint.connect(address, NAME).unwrap().await.unwrap();
        let mut control = connection.open_uni().await.unwrap();
        let mut start = Vec::new();
        frame::write_control_start(&mut start);
        control.write_all(&start).await.unwrap();
        Client {
            connection,
            _control: control,
        }
    }
}

/// A request whose body is under way.
struct Upload {
    sender: SendStream,
    receiver: RecvStream,
}

impl Upload {
    async fn begin(client: &Client) -> Upload {
        let (mut sender, receiver) = client.connection.open_bi().await.unwrap();
        let mut block = Vec::new();
        qpack::begin_block(&mut block);
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", NAME),
            (":path", "/"),
        ] {
            qpack::write_field(&mut block, name.as_bytes(), value.as_bytes());
        }
        let mut start = Vec::new();
        write_head(&mut start, frame_type::HEADERS, block.len());
        start.extend(block);
        write_head(&mut start, frame_type::DATA, LENGTH);
        start.extend(vec![b'b'; FIRST_BYTES]);
        sender.write_all(&start).await.unwrap();
        Upload { sender, receiver }
    }
}

fn write_head(out: &mut Vec<u8>, frame_type: u64, length: usize) {
    let length = length as u64;
    FrameHead { frame_type, length }.write(out);
}

#[test]
fn a_thousand_uploads_over_http3_take_little_memory() {
    let certificate = Certificate::of(&[NAME]);
    let scene = Scene::start(|folder, upstream| {
        put(folder, 0, &certificate);
        write(folder, upstream.address, GATEWAY, &[("all", POLICY)]);
        let file = folder.path().join("tollgate.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let listen = "listen:\n  - 127.0.0.1:0\n  - { address: 127.0.0.1:0, tls: { cert: 0.pem, key: 0.key }, http3: true }\n";
        std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
    });
    let line = line_with(&scene.server.err, "listening on https://");
    let address: SocketAddr = line.rsplit('/').next().unwrap().parse().unwrap();
    let mut tls = (*trusting(&[&certificate], &[&rustls::version::TLS13])).clone();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let settings = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let runtime = runtime();
    let endpoint = {
        let _inside = runtime.enter();
        let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        endpoint.set_default_client_config(settings);
        endpoint
    };
    let clients: Vec<Client> = (0..CONNECTIONS)
        .map(|_| runtime.block_on(Client::connect(&endpoint, address)))
        .collect();
    let mut next = clients.iter().cycle();
    let steps = Steps {
        begin: |_: &Server| {
            let client = next.next().unwrap();
            runtime.block_on(Upload::begin(client))
        },
        go_on: |upload: &mut Upload| {
            let more = vec![b'b'; MORE_BYTES];
            // The gateway may refuse the upload while it goes on.
            let _ = runtime.block_on(upload.sender.write_all(&more));
        },
        assert_refused: |upload: &mut Upload| {
            let response = runtime.block_on(upload.receiver.read_to_end(4096)).unwrap();
            assert!(response.windows(3).any(|value| value == b"413"));
        },
        is_forwarded: true,
    };
    let (uploads, before) = scene.refuse_all(steps);
    // The rest of the bodies never comes, and the gateway stops waiting for it.
    for upload in uploads {
        let stopped = runtime.block_on(upload.sender.stopped()).unwrap();
        assert_eq!(stopped.map(u64::from), Some(0x100));
    }
    scene.assert_little_added("at the end", before);
}
