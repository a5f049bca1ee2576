//! The script with a clock of the test's, asked directly.

use redis::aio::MultiplexedConnection;
use redis::{Client, Value};
use tollgate::base::clock::Nanos;
use tollgate::limit::{Fingerprint, RateLimit, Scale};
use tollgate::store::redis::wire;
use tollgate::store::shared::call::{Call, CallPart, CounterName, StoreError, StoreReply};

use crate::common::redis::Redis;
use tollgate::store::Taking;

pub const MARK: &[u8] = b"the store's life";

pub struct Scripted {
    _server: Redis,
    runtime: tokio::runtime::Runtime,
    connection: MultiplexedConnection,
    script: String,
    heartbeat: String,
    pub now: u64,
    /// That there are, as the one that asks knows.
    pub gateways: u32,
}

impl Scripted {
    /// In Redis, then in Valkey.
    pub fn each() -> impl Iterator<Item = Scripted> {
        [Redis::start, Redis::valkey]
            .into_iter()
            .map(|start| Scripted::new(start()))
    }

    fn new(server: Redis) -> Scripted {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection();
        let connection = runtime.block_on(connection).unwrap();
        let text = concat!(
            include_str!("../../src/store/redis/cell.lua"),
            include_str!("../../src/store/redis/decide.lua")
        );
        let mut scripted = Scripted {
            _server: server,
            runtime,
            connection,
            script: timed(text),
            heartbeat: timed(include_str!("../../src/store/redis/heartbeat.lua")),
            now: 0,
            gateways: 1,
        };
        scripted.run(redis::cmd("SET").arg("mark").arg(MARK));
        scripted
    }

    pub fn run(&mut self, command: &redis::Cmd) -> Value {
        let answer = command.query_async(&mut self.connection);
        self.runtime.block_on(answer).unwrap()
    }

    pub fn key(name: &CounterName) -> String {
        format!("{:x}:{:x}", name.limit, name.key.0)
    }

    pub fn ask(&mut self, call: &Call) -> StoreReply {
        self.send(call, wire::encode_call(call, self.gateways))
    }

    /// Forgets what the parts count; whether there was something.
    pub fn forget(&mut self, call: &Call) -> bool {
        let said = self.send(call, wire::encode_forget(call));
        said.counters.iter().any(|answer| answer.granted_units > 0)
    }

    fn set_clock(&mut self) {
        let (seconds, micros) = (self.now / 1_000_000, self.now % 1_000_000);
        self.run(redis::cmd("DEL").arg("clock"));
        self.run(redis::cmd("RPUSH").arg("clock").arg(seconds).arg(micros));
    }

    /// A gateway says that it is there, and that it has reported; who is, in order.
    pub fn heartbeat(&mut self, gateway: u32) -> Vec<u32> {
        let listed = self.heartbeat_with_state(gateway, true);
        listed.into_iter().map(|(gateway, _)| gateway).collect()
    }

    /// The same, with whether it and each of the others has reported.
    pub fn heartbeat_with_state(&mut self, gateway: u32, has_reported: bool) -> Vec<(u32, bool)> {
        self.set_clock();
        let mut command = redis::cmd("EVAL");
        let keys = command.arg(&self.heartbeat).arg(2).arg("mark").arg("list");
        keys.arg(MARK).arg(gateway).arg(u8::from(has_reported));
        let live_gateways = wire::decode_live_gateways(self.run(&command)).unwrap();
        let senders = live_gateways
            .heartbeats
            .iter()
            .map(|heartbeat| heartbeat.sender);
        let mut listed: Vec<(u32, bool)> = senders
            .map(|sender| (sender.gateway, sender.has_reported))
            .collect();
        listed.sort_unstable();
        listed
    }

    /// What the error says of a call that fails.
    pub fn fail(&mut self, call: &Call) -> String {
        let failure = self.try_send(call, wire::encode_call(call, self.gateways));
        format!("{:?}", failure.unwrap_err())
    }

    fn send(&mut self, call: &Call, input: Vec<u8>) -> StoreReply {
        self.try_send(call, input).unwrap()
    }

    fn try_send(&mut self, call: &Call, input: Vec<u8>) -> Result<StoreReply, StoreError> {
        self.set_clock();
        let mut command = redis::cmd("EVAL");
        command
            .arg(&self.script)
            .arg(call.parts.len() + 1)
            .arg("mark");
        for part in &call.parts {
            command.arg(Scripted::key(&part.name));
        }
        command.arg(MARK).arg(input);
        match self.run(&command) {
            Value::BulkString(text) => wire::decode_reply(&text, call),
            other => panic!("{other:?}"),
        }
    }

    /// Bytes that a key takes.
    pub fn bytes(&mut self, name: &CounterName) -> i64 {
        let mut command = redis::cmd("MEMORY");
        command
            .arg("USAGE")
            .arg(Scripted::key(name))
            .arg("SAMPLES")
            .arg(0);
        redis::from_redis_value(self.run(&command)).unwrap()
    }
}

/// A script that reads the test's clock.
fn timed(text: &str) -> String {
    let timed = text.replace("redis.call('TIME')", "redis.call('LRANGE', 'clock', 0, -1)");
    assert_ne!(timed, text);
    timed
}

pub fn part(limit: &RateLimit, number: u64, key: u128, cost: u32, scale: Scale) -> CallPart {
    part_at(limit, number, key, cost, scale, Nanos::ZERO)
}

/// A part of a gateway whose clock shows `wall`.
pub fn part_at(
    limit: &RateLimit,
    number: u64,
    key: u128,
    cost: u32,
    scale: Scale,
    wall: Nanos,
) -> CallPart {
    let key = Fingerprint(key);
    let name = CounterName { limit: number, key };
    CallPart::new(name, limit.spec(key, scale, wall), cost)
}

pub fn call(gateway: u32, parts: impl IntoIterator<Item = CallPart>) -> Call {
    Call {
        gateway,
        taking: Taking::All,
        parts: parts.into_iter().collect(),
    }
}
