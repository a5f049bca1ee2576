//! An application of FastAPI: files arrive whole, and events arrive one by one.

use std::io::BufRead;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::Value;

use crate::application::{Application, python, script};
use crate::common::{Client, Gateway, Message, read_head};

const FILE_BYTES: usize = 50 << 20;
const BOUNDARY: &str = "a-boundary-of-the-test";

const POLICIES: &[(&str, &str)] = &[(
    "app",
    "match: /app/**\nupstream: up\nstrip: /app\nmap_back: true\nmax_body: 60MiB\n\
     limits: { per-client: { key: ip, rate: 100/m } }\n",
)];

fn start() -> (Application, Gateway) {
    let folder = std::env::temp_dir();
    let app = Application::start(&mut python(&folder, &[&script("fastapi_app.py")]));
    let gateway = Gateway::start(app.address, "", POLICIES);
    (app, gateway)
}

#[test]
fn a_file_of_50_mib_arrives_whole() {
    let (_app, gateway) = start();
    let file: Vec<u8> = (0..FILE_BYTES as u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let begin = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\
         content-type: application/octet-stream\r\n\r\n"
    );
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    let length = begin.len() + file.len() + end.len();
    let fields =
        format!("host: shop.test\r\ncontent-type: multipart/form-data; boundary={BOUNDARY}\r\n");
    let check = |answer: Message| {
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let read: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(read["size"], FILE_BYTES);
        let expected: String = digest(&SHA256, &file)
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(read["sha256"], expected);
    };

    let mut client = gateway.connect();
    client.send(format!(
        "POST /app/files HTTP/1.1\r\n{fields}content-length: {length}\r\n\r\n{begin}"
    ));
    client.send(&file);
    client.send(&end);
    check(client.answer());

    // The same in chunks.
    client.send(format!(
        "POST /app/files HTTP/1.1\r\n{fields}transfer-encoding: chunked\r\n\r\n"
    ));
    let chunks = [begin.as_bytes()].into_iter().chain(file.chunks(1 << 16));
    for chunk in chunks.chain([end.as_bytes()]) {
        client.send(format!("{:x}\r\n", chunk.len()));
        client.send(chunk);
        client.send("\r\n");
    }
    client.send("0\r\n\r\n");
    check(client.answer());
}

/// The application sends an event only after the client has read the one before.
#[test]
fn events_arrive_one_by_one() {
    let (_app, gateway) = start();
    let mut turns = gateway.connect();
    let mut client = gateway.connect();
    client.send("GET /app/events HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    let head = read_head(&mut client.reader).unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(
        head.field("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    for number in 0..5 {
        take_turn(&mut turns);
        let expected = format!("data: event {number}\n");
        let mut line = String::new();
        while line != expected {
            line.clear();
            client.reader.read_line(&mut line).unwrap();
        }
    }
}

fn take_turn(client: &mut Client) {
    client.send("POST /app/turn HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
}
