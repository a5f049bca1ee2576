//! [`RedisClient`]: the Redis or Valkey client that all workers of a gateway share. It runs the scripts that decide, and
//! checks with each call that the store still has the data by which it was identified. Each worker has connections of its
//! own. A call that a server may have executed is never sent again.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::{join_all, try_join_all};
use parking_lot::RwLock;
use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::connect::HostPort;
use super::link::RedisFault;
use super::partitions::{combine_marks, parts_on_partition};
use super::script::{Script, ScriptForm};
use super::settings::Settings;
use super::wire;
use super::worker_connections::WorkerConnections;
use crate::base::clock::{Clock, Nanos};
use crate::store::Taking;
use crate::store::shared::call::{
    Call, CallPart, CounterName, CounterReply, HeartbeatSender, LiveGateways, StoreError,
    StoreIdentity, StoreMark, StoreReply,
};

/// The longest pause between two attempts of a worker to connect.
const MAX_RECONNECT_DELAY: Nanos = Nanos::from_secs(5);
/// The longest pause between two attempts of the keeper to connect, by which it notices that the store is back.
const MAX_KEEPER_RECONNECT_DELAY: Nanos = Nanos::from_millis(400);

/// Calls Redis or Valkey for all workers of a gateway. Methods that call it fail without a connection or a usable reply.
/// With [`StoreError::MarkMismatch`] they fail if the store lacks its data; only those that identify it and remove a
/// gateway do not check that.
pub struct RedisClient {
    settings: Settings,
    /// The connections of each worker, and last those of the store's keeper, a thread that watches over the store.
    worker_connections: Vec<WorkerConnections>,
    /// The mark of each partition; without a cluster there is one partition.
    marks: RwLock<Vec<StoreMark>>,
    /// With sentinels: the master that was last identified. All masters have the same mark.
    master: RwLock<Option<HostPort>>,
    /// The number of live gateways by the last heartbeat; 1 before.
    gateway_count: AtomicU32,
    decide_script: Script,
    heartbeat_script: Script,
    pub(super) entries_script: Script,
    pub(super) permits_script: Script,
    pub(super) lease_script: Script,
    clock: Clock,
}

impl RedisClient {
    /// A client with this many connections: one for each worker, and the last for the keeper. Other methods take the
    /// index of a connection.
    pub fn new(settings: Settings, connection_count: usize, clock: Clock) -> RedisClient {
        let connections = |connection_index| match connection_index + 1 == connection_count {
            true => WorkerConnections::new(&settings, MAX_KEEPER_RECONNECT_DELAY),
            false => WorkerConnections::new(&settings, MAX_RECONNECT_DELAY),
        };
        RedisClient {
            worker_connections: (0..connection_count).map(connections).collect(),
            settings,
            marks: RwLock::default(),
            master: RwLock::default(),
            gateway_count: AtomicU32::new(1),
            decide_script: Script::decide(),
            heartbeat_script: Script::heartbeat(),
            entries_script: Script::entries(),
            permits_script: Script::permits(),
            lease_script: Script::lease(),
            clock,
        }
    }

    /// Connects where there is no connection, on the caller's runtime. To be called ten times a second.
    pub fn keep_connected(&self, connection_index: usize) {
        self.worker_connections[connection_index].keep_connected(&self.settings, &self.clock);
    }

    /// Drops the connection; the next [`RedisClient::keep_connected`] makes a new one.
    pub fn reconnect(&self, connection_index: usize) {
        self.worker_connections[connection_index].disconnect("the store is away", &self.clock);
    }

    /// Connects at the next [`RedisClient::keep_connected`], however many attempts have failed.
    pub fn skip_delay(&self, connection_index: usize) {
        self.worker_connections[connection_index].skip_delay(&self.clock);
    }

    /// Whether there is a connection to the master that was last identified, or none was ever needed.
    pub fn is_ready(&self, connection_index: usize) -> bool {
        let connections = &self.worker_connections[connection_index];
        connections.is_ready() && connections.leads_to(&self.master.read())
    }

    /// Whether a connection leads to another server than the one at `other_index`, because sentinels named another master
    /// between the two.
    pub fn leads_elsewhere(&self, connection_index: usize, other_index: usize) -> bool {
        let (connections, other_connections) = (
            &self.worker_connections[connection_index],
            &self.worker_connections[other_index],
        );
        other_connections.is_ready() && !connections.leads_to(&other_connections.server())
    }

    /// How often the connection was made; 0 for a cluster. The next may lead to a server with older data of the same mark.
    pub fn connection_count(&self, connection_index: usize) -> u32 {
        self.worker_connections[connection_index].connection_count()
    }

    /// Sends a command to the server of a partition, and waits for its reply.
    pub(super) async fn send(
        &self,
        connection_index: usize,
        partition: usize,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        let connections = &self.worker_connections[connection_index];
        let reply = connections.send(partition, command, &self.settings, &self.clock);
        reply.await.map_err(RedisFault::into)
    }

    /// Runs a script by its hash, and again by its text where the server has forgotten it.
    pub(super) async fn run_script(
        &self,
        connection_index: usize,
        partition: usize,
        script: &Script,
        add_arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let command = script.command(ScriptForm::Hash, &add_arguments);
        let connections = &self.worker_connections[connection_index];
        let reply = connections.send(partition, &command, &self.settings, &self.clock);
        match reply.await {
            Err(fault) if fault.code() == Some("NOSCRIPT") => {
                let command = script.command(ScriptForm::Text, add_arguments);
                self.send(connection_index, partition, &command).await
            }
            reply => reply.map_err(RedisFault::into),
        }
    }

    pub(super) fn partition_count(&self) -> usize {
        self.worker_connections
            .first()
            .map_or(1, WorkerConnections::partition_count)
    }

    /// The partition of a counter, by the first byte of its fingerprint.
    pub(super) fn partition_of(&self, name: &CounterName) -> usize {
        match self.partition_count() {
            1 => 0,
            count => (name.key.0 >> (u128::BITS - u8::BITS)) as usize % count,
        }
    }

    /// The prefix of a partition's keys. In a cluster the part in braces decides which server has them.
    pub(super) fn key_prefix(&self, partition: usize) -> String {
        let prefix = &self.settings.prefix;
        match self.partition_count() {
            1 => format!("{prefix}:"),
            _ => format!("{prefix}:{{{partition:02x}}}:"),
        }
    }

    fn counter_key(&self, name: &CounterName) -> String {
        let mut key = self.key_prefix(self.partition_of(name));
        URL_SAFE_NO_PAD.encode_string(name.limit.to_be_bytes(), &mut key);
        key.push(':');
        URL_SAFE_NO_PAD.encode_string(name.key.0.to_be_bytes(), &mut key);
        key
    }

    /// Decides about one call.
    ///
    /// # Errors
    ///
    /// When there is no connection or no usable reply; [`StoreError::MarkMismatch`] when the store has lost its data.
    pub async fn decide(
        &self,
        connection_index: usize,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        let partition = call
            .parts
            .first()
            .map_or(0, |part| self.partition_of(&part.name));
        if call
            .parts
            .iter()
            .all(|part| self.partition_of(&part.name) == partition)
        {
            return self
                .decide_on_partition(connection_index, partition, call)
                .await;
        }
        self.decide_across_partitions(connection_index, call).await
    }

    /// Decides about a call whose parts are all on one partition.
    async fn decide_on_partition(
        &self,
        connection_index: usize,
        partition: usize,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        let input = wire::encode_call(call, self.gateway_count.load(Relaxed));
        self.run_decide_script(connection_index, partition, call, input)
            .await
    }

    /// Deletes a counter. Returns whether it existed, by the units in the reply. Totals of gateways stay.
    pub async fn forget_counter(
        &self,
        connection_index: usize,
        part: &CallPart,
    ) -> Result<bool, StoreError> {
        let call = Call {
            gateway: 0,
            taking: Taking::All,
            parts: smallvec::smallvec![part.clone()],
        };
        let (partition, input) = (self.partition_of(&part.name), wire::encode_forget(&call));
        let reply = self.run_decide_script(connection_index, partition, &call, input);
        Ok(reply
            .await?
            .counters
            .iter()
            .any(|counter| counter.granted_units > 0))
    }

    /// Runs the deciding script with an encoded call.
    async fn run_decide_script(
        &self,
        connection_index: usize,
        partition: usize,
        call: &Call,
        input: Vec<u8>,
    ) -> Result<StoreReply, StoreError> {
        let (mark, prefix) = (
            self.known_mark(connection_index, partition)?,
            self.key_prefix(partition),
        );
        let reply = self.run_script(
            connection_index,
            partition,
            &self.decide_script,
            |command| {
                command
                    .arg(call.parts.len() + 1)
                    .arg(format!("{prefix}mark"));
                for part in &call.parts {
                    command.arg(self.counter_key(&part.name));
                }
                command.arg(&mark[..]).arg(&input);
            },
        );
        match reply.await? {
            Value::BulkString(text) => wire::decode_reply(&text, call),
            _ => Err(StoreError::Other(Cow::Borrowed(
                "the script's reply is not a string",
            ))),
        }
    }

    /// Decides on each partition. If one refuses or fails, the units that others took are given back, except by shadows.
    async fn decide_across_partitions(
        &self,
        connection_index: usize,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        let mut partitions: SmallVec<[(usize, SmallVec<[usize; 4]>); 4]> = SmallVec::new();
        for (index, part) in call.parts.iter().enumerate() {
            let partition = self.partition_of(&part.name);
            match partitions.iter_mut().find(|(other, _)| *other == partition) {
                Some((_, indices)) => indices.push(index),
                None => partitions.push((partition, SmallVec::from_slice(&[index]))),
            }
        }
        let decisions = partitions.iter().map(|(partition, indices)| {
            let call = parts_on_partition(call, indices);
            async move {
                self.decide_on_partition(connection_index, *partition, &call)
                    .await
            }
        });
        let replies = join_all(decisions).await;
        let mut counters: SmallVec<[Option<CounterReply>; 4]> =
            smallvec::smallvec![None; call.parts.len()];
        let (mut is_admitted, mut now_micros, mut error) = (true, 0, None);
        for ((_, indices), reply) in partitions.iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    is_admitted &= reply.is_admitted;
                    now_micros = now_micros.max(reply.now_micros);
                    for (index, counter) in indices.iter().zip(reply.counters) {
                        counters[*index] = Some(counter);
                    }
                }
                Err(partition_error) => error = Some(partition_error),
            }
        }
        if call.taking == Taking::All && (!is_admitted || error.is_some()) {
            self.give_back_all(connection_index, call, &mut counters)
                .await;
        }
        if let Some(error) = error {
            return Err(error);
        }
        let counters = counters.into_iter().flatten().collect();
        Ok(StoreReply {
            is_admitted,
            now_micros,
            counters,
        })
    }

    /// Gives back the units that the parts took, except for shadows.
    async fn give_back_all(
        &self,
        connection_index: usize,
        call: &Call,
        counters: &mut [Option<CounterReply>],
    ) {
        let parts = call.parts.iter().zip(counters);
        let give_backs = parts.filter_map(|(part, counter)| {
            let counter = counter.as_mut()?;
            if counter.granted_units == 0 || part.is_shadow {
                return None;
            }
            let units = std::mem::take(&mut counter.granted_units);
            let call = part
                .give_back_call(call.gateway, units, counter.granted_at_micros)
                .numbered();
            let partition = self.partition_of(&part.name);
            Some(async move {
                // If this fails, the units count until they leave their window, and credits stay used: never too much is
                // admitted.
                let _ = self
                    .decide_on_partition(connection_index, partition, &call)
                    .await;
            })
        });
        join_all(give_backs).await;
    }

    /// The mark by which a partition was identified.
    ///
    /// # Errors
    ///
    /// [`StoreError::MarkMismatch`] where it never was, or this connection leads to another master.
    pub(super) fn known_mark(
        &self,
        connection_index: usize,
        partition: usize,
    ) -> Result<StoreMark, StoreError> {
        if !self.worker_connections[connection_index].leads_to(&self.master.read()) {
            return Err(StoreError::MarkMismatch);
        }
        self.marks
            .read()
            .get(partition)
            .copied()
            .ok_or(StoreError::MarkMismatch)
    }

    /// Identifies the store: reads its secret, and its marks, against which later calls are checked. An empty store gets
    /// `known_secret`, so that keys stay the same; a new secret only where `may_initialize` is set.
    ///
    /// # Errors
    ///
    /// Also [`StoreError::Empty`] if the store has no secret, `known_secret` is `None` and `may_initialize` is not set.
    pub async fn identify(
        &self,
        connection_index: usize,
        known_secret: Option<[u8; 16]>,
        may_initialize: bool,
    ) -> Result<StoreIdentity, StoreError> {
        let key = format!("{}secret", self.key_prefix(0));
        if known_secret.is_none() && !may_initialize {
            let mut get = redis::cmd("GET");
            if self.send(connection_index, 0, get.arg(&key)).await? == Value::Nil {
                return Err(StoreError::Empty);
            }
        }
        let secret = self
            .read_or_create(connection_index, 0, key, known_secret)
            .await?;
        let read_mark = |partition| {
            let key = format!("{}mark", self.key_prefix(partition));
            self.read_or_create(connection_index, partition, key, None)
        };
        // Each server is called once before all partitions: if one is away, the other ones are spared.
        let one_partition_per_server =
            self.worker_connections[connection_index].one_partition_per_server();
        try_join_all(one_partition_per_server.into_iter().map(read_mark)).await?;
        let marks = try_join_all((0..self.partition_count()).map(read_mark)).await?;
        let time = self.send(connection_index, 0, &redis::cmd("TIME")).await?;
        let (seconds, micros): (u64, u64) = redis::from_redis_value(time)
            .map_err(|_| StoreError::Other(Cow::Borrowed("the reply to TIME is malformed")))?;
        let mark = combine_marks(&marks);
        *self.marks.write() = marks;
        let master = self.worker_connections[connection_index].server();
        let former_master = std::mem::replace(&mut *self.master.write(), master.clone());
        Ok(StoreIdentity {
            mark,
            secret,
            has_new_master: former_master.is_some() && former_master != master,
            now_micros: seconds.saturating_mul(1_000_000).saturating_add(micros),
        })
    }

    /// Reads the 16 bytes under `key`. If there are none, stores `initial_bytes` or random ones first.
    async fn read_or_create(
        &self,
        connection_index: usize,
        partition: usize,
        key: String,
        initial_bytes: Option<[u8; 16]>,
    ) -> Result<[u8; 16], StoreError> {
        let mut bytes_to_store = initial_bytes.unwrap_or_default();
        if initial_bytes.is_none() {
            let no_random =
                |_| StoreError::Other(Cow::Borrowed("the system gives no random bytes"));
            getrandom::fill(&mut bytes_to_store).map_err(no_random)?;
        }
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&bytes_to_store[..]).arg("NX");
        self.send(connection_index, partition, &set).await?;
        let mut get = redis::cmd("GET");
        let malformed = || StoreError::Other(Cow::Owned(format!("`{key}` holds something else")));
        match self
            .send(connection_index, partition, get.arg(&key))
            .await?
        {
            Value::BulkString(bytes) => bytes.try_into().map_err(|_| malformed()),
            _ => Err(malformed()),
        }
    }

    /// Lists the gateways that are alive. With a `sender`, first records that it is alive and what it states.
    pub async fn send_heartbeat(
        &self,
        connection_index: usize,
        sender: Option<HeartbeatSender>,
    ) -> Result<LiveGateways, StoreError> {
        let mark = self.known_mark(connection_index, 0)?;
        let prefix = self.key_prefix(0);
        let gateway = sender.map_or_else(String::new, |sender| sender.gateway.to_string());
        let has_reported = sender.is_some_and(|sender| sender.has_reported);
        let reply = self.run_script(connection_index, 0, &self.heartbeat_script, |command| {
            command
                .arg(2)
                .arg(format!("{prefix}mark"))
                .arg(format!("{prefix}gateways"));
            command.arg(&mark[..]).arg(&gateway);
            command.arg(u8::from(has_reported));
        });
        let live_gateways = wire::decode_live_gateways(reply.await?)?;
        self.gateway_count
            .store(live_gateways.heartbeats.len() as u32, Relaxed);
        Ok(live_gateways)
    }

    /// Checks that all servers reply and have their marks, also servers that no request needs.
    pub async fn check_marks(&self, connection_index: usize) -> Result<(), StoreError> {
        let partitions = self.worker_connections[connection_index]
            .one_partition_per_server()
            .into_iter();
        let checks = partitions.map(|partition| async move {
            let (mark, prefix) = (
                self.known_mark(connection_index, partition)?,
                self.key_prefix(partition),
            );
            let mut command = redis::cmd("GET");
            command.arg(format!("{prefix}mark"));
            match self.send(connection_index, partition, &command).await? {
                Value::BulkString(stored) if stored == mark => Ok(()),
                _ => Err(StoreError::MarkMismatch),
            }
        });
        try_join_all(checks).await.map(|_| ())
    }

    /// Removes a gateway from the list.
    pub async fn remove_gateway(
        &self,
        connection_index: usize,
        gateway: u32,
    ) -> Result<(), StoreError> {
        let mut command = redis::cmd("ZREM");
        command
            .arg(format!("{}gateways", self.key_prefix(0)))
            .arg(gateway);
        self.send(connection_index, 0, &command).await.map(|_| ())
    }
}
