//! Asks Redis or Valkey for all workers of a gateway.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::{join_all, try_join_all};
use parking_lot::RwLock;
use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::lane::Lane;
use super::link::RedisFault;
use super::reach::HostPort;
use super::settings::Settings;
use super::wire;
use crate::base::clock::{Clock, Nanos};
use crate::store::Taking;
use crate::store::shared::call::{
    Call, CallPart, CounterName, CounterReply, LiveGateways, StoreError, StoreIdentity, StoreMark,
    StoreReply,
};

const DECIDE: &str = concat!(include_str!("cell.lua"), include_str!("decide.lua"));
const BEAT: &str = include_str!("beat.lua");
/// The longest pause between two attempts to connect: of workers, and of the last connection, by which the keeper
/// notices that the store is back.
const PAUSES: (Nanos, Nanos) = (Nanos::from_secs(5), Nanos::from_millis(400));

/// Asks the store for all workers of a gateway.
pub struct RedisClient {
    settings: Settings,
    lanes: Vec<Lane>,
    /// The mark of each shelf; without a cluster there is one shelf.
    marks: RwLock<Vec<StoreMark>>,
    /// With sentinels: the master that was met last. All masters have the same mark.
    master: RwLock<Option<HostPort>>,
    /// The number of gateways, from the last beat.
    gateways: AtomicU32,
    decide: Script,
    beat: Script,
    clock: Clock,
}

struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    fn new(text: &'static str) -> Script {
        let hash = redis::Script::new(text).get_hash().to_owned();
        Script { text, hash }
    }

    /// Runs the script by its hash, or by its text where the server has forgotten it.
    fn command(&self, known: bool, fill: impl Fn(&mut Cmd)) -> Cmd {
        let mut command = match known {
            true => redis::cmd("EVALSHA"),
            false => redis::cmd("EVAL"),
        };
        command.arg(if known { &self.hash[..] } else { self.text });
        fill(&mut command);
        command
    }
}

impl RedisClient {
    /// A client with this many connections, numbered from 0: one for each worker, and the last for the keeper.
    pub fn new(settings: Settings, connections: usize, clock: Clock) -> RedisClient {
        let lane = |number| match number + 1 == connections {
            true => Lane::new(&settings, PAUSES.1),
            false => Lane::new(&settings, PAUSES.0),
        };
        RedisClient {
            lanes: (0..connections).map(lane).collect(),
            settings,
            marks: RwLock::default(),
            master: RwLock::default(),
            gateways: AtomicU32::new(1),
            decide: Script::new(DECIDE),
            beat: Script::new(BEAT),
            clock,
        }
    }

    /// Connects where there is no connection, on the caller's runtime. To be called ten times a second.
    pub fn tend(&self, number: usize) {
        self.lanes[number].tend(&self.settings, &self.clock);
    }

    /// Drops the connection; the next [`RedisClient::tend`] makes a new one.
    pub fn reset(&self, number: usize) {
        self.lanes[number].broken("the store is away", &self.clock);
    }

    /// Connects at the next [`RedisClient::tend`], however many attempts have failed.
    pub fn hurry(&self, number: usize) {
        self.lanes[number].hurry(&self.clock);
    }

    /// Whether there is a connection to the master that was met, or none was ever needed.
    pub fn ready(&self, number: usize) -> bool {
        let lane = &self.lanes[number];
        lane.ready() && lane.leads_to(&self.master.read())
    }

    /// Whether a connection leads to another server than `other`, because sentinels have named another master between
    /// the two.
    pub fn strays(&self, number: usize, other: usize) -> bool {
        let (lane, other) = (&self.lanes[number], &self.lanes[other]);
        other.ready() && !lane.leads_to(&other.place())
    }

    /// Connections so far: the next one may lead to another server, with older data under the same mark.
    pub fn made(&self, number: usize) -> u32 {
        self.lanes[number].made()
    }

    async fn call_server(
        &self,
        number: usize,
        shelf: usize,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        let lane = &self.lanes[number];
        let answer = lane.ask(shelf, command, &self.settings, &self.clock).await;
        answer.map_err(RedisFault::into)
    }

    async fn run_script(
        &self,
        number: usize,
        shelf: usize,
        script: &Script,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let command = script.command(true, &fill);
        let lane = &self.lanes[number];
        match lane.ask(shelf, &command, &self.settings, &self.clock).await {
            Err(fault) if fault.code() == Some("NOSCRIPT") => {
                self.call_server(number, shelf, &script.command(false, fill))
                    .await
            }
            other => other.map_err(RedisFault::into),
        }
    }

    fn shelves(&self) -> usize {
        self.lanes.first().map_or(1, Lane::shelves)
    }

    fn shelf(&self, name: &CounterName) -> usize {
        match self.shelves() {
            1 => 0,
            shelves => (name.key.0 >> 120) as usize % shelves,
        }
    }

    /// The prefix of a shelf's keys. In a cluster the part in braces decides which server has them.
    fn key_prefix(&self, shelf: usize) -> String {
        let prefix = &self.settings.prefix;
        match self.shelves() {
            1 => format!("{prefix}:"),
            _ => format!("{prefix}:{{{shelf:02x}}}:"),
        }
    }

    fn key(&self, name: &CounterName) -> String {
        let mut key = self.key_prefix(self.shelf(name));
        URL_SAFE_NO_PAD.encode_string(name.limit.to_be_bytes(), &mut key);
        key.push(':');
        URL_SAFE_NO_PAD.encode_string(name.key.0.to_be_bytes(), &mut key);
        key
    }

    /// Asks about one request.
    ///
    /// # Errors
    ///
    /// When there is no connection or no usable reply; [`StoreError::Renewed`] when the store has lost its data.
    pub async fn decide(&self, number: usize, call: &Call) -> Result<StoreReply, StoreError> {
        let shelf = call.parts.first().map_or(0, |part| self.shelf(&part.name));
        if call
            .parts
            .iter()
            .all(|part| self.shelf(&part.name) == shelf)
        {
            return self.decide_on(number, shelf, call).await;
        }
        self.decide_across(number, call).await
    }

    async fn decide_on(
        &self,
        number: usize,
        shelf: usize,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        let input = wire::encode(call, self.gateways.load(Relaxed));
        self.run_on(number, shelf, call, input).await
    }

    /// Forgets a counter. Returns whether there was one. Totals that gateways have reported stay known.
    pub async fn forget(&self, number: usize, part: &CallPart) -> Result<bool, StoreError> {
        let call = Call {
            gateway: 0,
            taking: Taking::All,
            parts: smallvec::smallvec![part.clone()],
        };
        let (shelf, input) = (self.shelf(&part.name), wire::encode_forget(&call));
        let reply = self.run_on(number, shelf, &call, input).await?;
        Ok(reply.counters.iter().any(|answer| answer.took > 0))
    }

    async fn run_on(
        &self,
        number: usize,
        shelf: usize,
        call: &Call,
        input: Vec<u8>,
    ) -> Result<StoreReply, StoreError> {
        let (mark, place) = (self.mark(number, shelf)?, self.key_prefix(shelf));
        let answer = self.run_script(number, shelf, &self.decide, |command| {
            command
                .arg(call.parts.len() + 1)
                .arg(format!("{place}mark"));
            for part in &call.parts {
                command.arg(self.key(&part.name));
            }
            command.arg(&mark[..]).arg(&input);
        });
        match answer.await? {
            Value::BulkString(text) => wire::decode(&text, call),
            _ => Err(StoreError::Other(Cow::Borrowed(
                "the script's reply is not a string",
            ))),
        }
    }

    /// Reserves on each shelf; where one refuses, the others take their units back.
    async fn decide_across(&self, number: usize, call: &Call) -> Result<StoreReply, StoreError> {
        let mut shelves: SmallVec<[(usize, SmallVec<[usize; 4]>); 4]> = SmallVec::new();
        for (index, part) in call.parts.iter().enumerate() {
            let shelf = self.shelf(&part.name);
            match shelves.iter_mut().find(|(other, _)| *other == shelf) {
                Some((_, places)) => places.push(index),
                None => shelves.push((shelf, SmallVec::from_slice(&[index]))),
            }
        }
        let each = shelves.iter().map(|(shelf, places)| {
            let call = parts_on_shelf(call, places);
            async move { self.decide_on(number, *shelf, &call).await }
        });
        let reply = join_all(each).await;
        let mut counters: SmallVec<[Option<CounterReply>; 4]> =
            smallvec::smallvec![None; call.parts.len()];
        let (mut admitted, mut now, mut failure) = (true, 0, None);
        for ((_, places), reply) in shelves.iter().zip(reply) {
            match reply {
                Ok(reply) => {
                    admitted &= reply.admitted;
                    now = now.max(reply.now);
                    for (place, answer) in places.iter().zip(reply.counters) {
                        counters[*place] = Some(answer);
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        if call.taking == Taking::All && (!admitted || failure.is_some()) {
            self.refund(number, call, &mut counters).await;
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let counters = counters.into_iter().flatten().collect();
        Ok(StoreReply {
            admitted,
            now,
            counters,
        })
    }

    async fn refund(&self, number: usize, call: &Call, counters: &mut [Option<CounterReply>]) {
        let each = call
            .parts
            .iter()
            .zip(counters)
            .filter_map(|(part, answer)| {
                let answer = answer
                    .as_mut()
                    .filter(|answer| answer.took > 0 && !part.shadow)?;
                let units = std::mem::take(&mut answer.took);
                let call = part.return_call(call.gateway, units, answer.stamped);
                let shelf = self.shelf(&part.name);
                Some(async move {
                    // Units that are not taken back count until they leave their window: never too much is admitted.
                    let _ = self.decide_on(number, shelf, &call).await;
                })
            });
        join_all(each).await;
    }

    /// The mark of a shelf, where this connection leads to the master that was met.
    fn mark(&self, number: usize, shelf: usize) -> Result<StoreMark, StoreError> {
        if !self.lanes[number].leads_to(&self.master.read()) {
            return Err(StoreError::Renewed);
        }
        self.marks
            .read()
            .get(shelf)
            .copied()
            .ok_or(StoreError::Renewed)
    }

    /// Meets the store: reads its marks and secret, which later calls are checked against. An empty store gets the
    /// `known` secret, so that keys stay the same; a new secret only where `begins` is set.
    ///
    /// # Errors
    ///
    /// [`StoreError::Empty`] where the store has no secret, none is known and `begins` is not set.
    pub async fn meet(
        &self,
        number: usize,
        known: Option<[u8; 16]>,
        begins: bool,
    ) -> Result<StoreIdentity, StoreError> {
        let key = format!("{}secret", self.key_prefix(0));
        if known.is_none() && !begins {
            let mut exists = redis::cmd("GET");
            if self.call_server(number, 0, exists.arg(&key)).await? == Value::Nil {
                return Err(StoreError::Empty);
            }
        }
        let secret = self.read_or_create(number, 0, key, known).await?;
        let each = |shelf| {
            let key = format!("{}mark", self.key_prefix(shelf));
            self.read_or_create(number, shelf, key, None)
        };
        // Each server is asked once before all shelves: where one is away, the others have less to do.
        try_join_all(self.lanes[number].heads().into_iter().map(each)).await?;
        let each = (0..self.shelves()).map(each);
        let marks = try_join_all(each).await?;
        let mut mark = StoreMark::default();
        for (place, byte) in marks.iter().flatten().enumerate() {
            let slot = &mut mark[place % 16];
            *slot = slot.rotate_left(3) ^ byte;
        }
        let time = self.call_server(number, 0, &redis::cmd("TIME")).await?;
        let (seconds, micros): (u64, u64) = redis::from_redis_value(time)
            .map_err(|_| StoreError::Other(Cow::Borrowed("the reply to TIME is malformed")))?;
        *self.marks.write() = marks;
        let place = self.lanes[number].place();
        let before = std::mem::replace(&mut *self.master.write(), place.clone());
        Ok(StoreIdentity {
            mark,
            secret,
            moved: before.is_some() && before != place,
            now: seconds.saturating_mul(1_000_000).saturating_add(micros),
        })
    }

    /// Reads the 16 bytes under `key`; where there are none, stores the `known` or new random ones first.
    async fn read_or_create(
        &self,
        number: usize,
        shelf: usize,
        key: String,
        known: Option<[u8; 16]>,
    ) -> Result<[u8; 16], StoreError> {
        let mut fresh = known.unwrap_or_default();
        if known.is_none() {
            let dry = |_| StoreError::Other(Cow::Borrowed("the system gives no random bytes"));
            getrandom::fill(&mut fresh).map_err(dry)?;
        }
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&fresh[..]).arg("NX");
        self.call_server(number, shelf, &set).await?;
        let found = self
            .call_server(number, shelf, redis::cmd("GET").arg(&key))
            .await?;
        let malformed = || StoreError::Other(Cow::Owned(format!("`{key}` holds something else")));
        match found {
            Value::BulkString(bytes) => bytes.try_into().map_err(|_| malformed()),
            _ => Err(malformed()),
        }
    }

    /// Says that `gateway` is alive and has reported all its units, where it is given. Returns the gateways that are.
    pub async fn beat(
        &self,
        number: usize,
        gateway: Option<u32>,
    ) -> Result<LiveGateways, StoreError> {
        let (mark, place) = (self.mark(number, 0)?, self.key_prefix(0));
        let id = gateway.map_or_else(String::new, |gateway| gateway.to_string());
        let answer = self.run_script(number, 0, &self.beat, |command| {
            command
                .arg(2)
                .arg(format!("{place}mark"))
                .arg(format!("{place}gateways"));
            command.arg(&mark[..]).arg(&id);
        });
        let answer = answer.await?;
        let malformed = || StoreError::Other(Cow::Borrowed("the list of gateways is malformed"));
        let numbers: Vec<i64> = redis::from_redis_value(answer).map_err(|_| malformed())?;
        let (now, rest) = numbers.split_first().ok_or_else(malformed)?;
        let now = u64::try_from(*now).map_err(|_| StoreError::Renewed)?;
        let gateways = rest
            .chunks_exact(2)
            .map(|pair| (pair[0] as u32, pair[1] as u64));
        let gateways: Vec<_> = gateways.collect();
        self.gateways.store(gateways.len() as u32, Relaxed);
        Ok(LiveGateways { now, gateways })
    }

    /// Checks that all servers reply and have their marks, also servers that no request asks.
    pub async fn look(&self, number: usize) -> Result<(), StoreError> {
        let heads = self.lanes[number].heads().into_iter();
        let each = heads.map(|shelf| async move {
            let (mark, place) = (self.mark(number, shelf)?, self.key_prefix(shelf));
            let mut command = redis::cmd("GET");
            command.arg(format!("{place}mark"));
            match self.call_server(number, shelf, &command).await? {
                Value::BulkString(found) if found == mark => Ok(()),
                _ => Err(StoreError::Renewed),
            }
        });
        try_join_all(each).await.map(|_| ())
    }

    /// Removes this gateway from the list.
    pub async fn leave(&self, number: usize, gateway: u32) -> Result<(), StoreError> {
        let mut command = redis::cmd("ZREM");
        command
            .arg(format!("{}gateways", self.key_prefix(0)))
            .arg(gateway);
        self.call_server(number, 0, &command).await.map(|_| ())
    }
}

/// The call with only the parts of one shelf.
fn parts_on_shelf(call: &Call, places: &[usize]) -> Call {
    let parts = places.iter().map(|place| {
        let part = &call.parts[*place];
        // Without its key, a network on another shelf is a counter like others.
        let around = part
            .around
            .and_then(|of| places.iter().position(|p| *p == usize::from(of)));
        CallPart {
            around: around.map(|place| place as u8),
            ..part.clone()
        }
    });
    Call {
        parts: parts.collect(),
        ..*call
    }
}
