//! Carries out one call: counts first, reads all buckets that count, decides, and takes back what is too much.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::client::MemcachedClient;
use super::keys::{bucket_key, life_of, life_until};
use super::link::{PendingReplies, Replies, unexpected};
use super::membership::LATELY;
use super::plan::{BucketCounts, BucketPlan, BucketView, IMPOSSIBLE, nothing};
use super::wire::{CommandBatch, MetaReply, Replaces};
use crate::store::Taking;
use crate::store::shared::call::{ALONE, Call, CallPart, CounterReply, StoreError, StoreReply};

/// A gateway's report of units that it was granted or admitted, and the item that holds its last report.
struct GrantReport {
    place: usize,
    key: String,
    life: u64,
    /// Whether the units were admitted without the store.
    alone: bool,
}

/// What one part sends to its server.
struct PendingPart<'a> {
    part: &'a CallPart,
    plan: BucketPlan,
    server: usize,
    name: String,
    /// Units that are counted before the decision.
    units: u32,
    /// Indices of replies, for each track: to the increment, to the give-back, to the first read.
    adds: SmallVec<[usize; 2]>,
    gives: SmallVec<[(usize, String); 2]>,
    gets: SmallVec<[usize; 2]>,
    /// The gateway's report, if the part has one.
    pushes: Option<GrantReport>,
}

impl PendingPart<'_> {
    /// The buckets' counts before this call.
    fn counts(&self, replies: &Replies, now: u64) -> Result<BucketCounts, StoreError> {
        let mut counts = BucketCounts::new();
        for (index, track) in self.plan.tracks.iter().enumerate() {
            let (current, mut place) = (track.number(now), self.gets[index]);
            let mut each = Vec::new();
            for bucket in track.numbers(now) {
                if bucket == current
                    && let Some(add) = self.adds.get(index)
                {
                    let count = replies.count(*add)?;
                    each.push(count.saturating_sub(u64::from(self.units)));
                } else {
                    each.push(replies.count(place)?);
                    place += 1;
                }
            }
            counts.push(each);
        }
        Ok(counts)
    }
}

impl MemcachedClient {
    /// Asks about one request. A future that is dropped early takes no units, but a give-back may have been done.
    ///
    /// # Errors
    ///
    /// When there is no connection or no usable reply; [`StoreError::Renewed`] when a server has lost its data.
    pub async fn decide(&self, number: usize, call: &Call) -> Result<StoreReply, StoreError> {
        if let Some(said) = self.attempt(number, call, greedy(call)).await? {
            return Ok(said);
        }
        // Requests that want more than they need hide the units that are left from each other.
        let mut modest = call.clone();
        for part in &mut modest.parts {
            part.want = part.cost;
        }
        let said = self.attempt(number, &modest, false).await?;
        said.ok_or(StoreError::NotConnected)
    }

    /// One attempt. `None`, with no unit taken, where `again` is set and a second attempt with less may be admitted.
    async fn attempt(
        &self,
        number: usize,
        call: &Call,
        again: bool,
    ) -> Result<Option<StoreReply>, StoreError> {
        let now = self.now();
        let mut batches: Vec<Option<CommandBatch>> = self.servers.iter().map(|_| None).collect();
        let mut asked: SmallVec<[Option<PendingPart<'_>>; 2]> = SmallVec::new();
        let taking = possible(call);
        for part in &call.parts {
            if part.around.is_some() {
                asked.push(None);
                continue;
            }
            let server = self.place(&part.name);
            let batch = match &mut batches[server] {
                Some(batch) => batch,
                empty => {
                    let link = self.servers[server].link(number)?;
                    if !link.connected() {
                        return Err(StoreError::NotConnected);
                    }
                    let batch = empty.insert(link.batch());
                    batch.get(&self.mark_key());
                    batch
                }
            };
            asked.push(Some(self.count(part, server, taking, now, batch)?));
        }
        for (part, batch) in call.parts.iter().zip(&mut asked) {
            if let Some(asked) = batch
                && let Some(batch) = &mut batches[asked.server]
            {
                self.read(call.gateway, part, asked, now, batch);
            }
        }
        let mut heard = self.send(number, batches).await?;
        if let Err(failure) = self.check(&heard) {
            self.restore(number, &asked, &heard);
            return Err(failure);
        }
        let mut views: SmallVec<[Option<BucketView<'_>>; 2]> = SmallVec::new();
        for asked in &asked {
            views.push(match asked {
                Some(asked) => Some(BucketView {
                    part: asked.part,
                    plan: &asked.plan,
                    counts: asked.counts(replies(&heard, asked.server)?, now)?,
                    now,
                }),
                None => None,
            });
        }
        self.push(number, &asked, &mut views, &heard).await?;
        let stands: PartVerdicts = views
            .iter()
            .map(|v| v.as_ref().map(BucketView::stand))
            .collect();
        let admitted = admits(call, &stands);
        if again && !admitted {
            return Ok(None);
        }
        let counters = settle(call, &asked, (views, stands), &mut heard, admitted, now);
        Ok(Some(StoreReply {
            admitted,
            now,
            counters,
        }))
    }

    /// Adds the commands that count or give back.
    fn count<'a>(
        &self,
        part: &'a CallPart,
        server: usize,
        taking: Taking,
        now: u64,
        batch: &mut CommandBatch,
    ) -> Result<PendingPart<'a>, StoreError> {
        let plan = BucketPlan::new(&part.spec).ok_or(IMPOSSIBLE)?;
        let mut asked = PendingPart {
            part,
            server,
            name: self.name(&part.name),
            units: 0,
            adds: SmallVec::new(),
            gives: SmallVec::new(),
            gets: SmallVec::new(),
            pushes: None,
            plan,
        };
        let tracks = asked.plan.tracks.iter().enumerate();
        if let Some(back) = part.give_back {
            if taking != Taking::Nothing && part.cost > 0 {
                for (index, track) in tracks {
                    let key = bucket_key(&asked.name, index, track.number(back.stamped));
                    asked.gives.push((batch.give(&key, part.cost), key));
                }
            }
            return Ok(asked);
        }
        let takes = match taking {
            Taking::All => true,
            Taking::Shadows => part.shadow,
            Taking::Nothing => false,
        };
        let ceiling = part.spec.windows.iter().map(|span| span.ceiling).min();
        let ceiling = ceiling.unwrap_or(u32::MAX);
        if takes && part.cost <= ceiling {
            asked.units = part.want.max(part.cost).min(ceiling);
        }
        if asked.units > 0 {
            for (index, track) in tracks {
                let bucket = track.number(now);
                let key = bucket_key(&asked.name, index, bucket);
                let life = life_of(track, bucket, now);
                asked.adds.push(batch.add(key, asked.units, life));
            }
        }
        Ok(asked)
    }

    /// Adds the commands that read; they come after all that count.
    fn read(
        &self,
        gateway: u32,
        part: &CallPart,
        asked: &mut PendingPart<'_>,
        now: u64,
        batch: &mut CommandBatch,
    ) {
        for (index, track) in asked.plan.tracks.iter().enumerate() {
            asked.gets.push(batch.count);
            let counted = asked.adds.get(index).map(|_| track.number(now));
            for bucket in track.numbers(now).filter(|bucket| Some(*bucket) != counted) {
                batch.get(&bucket_key(&asked.name, index, bucket));
            }
        }
        let pushes = part.cost == 0 && part.want == 0 && part.total > 0 && part.within > 0;
        if pushes && part.give_back.is_none() {
            let life = life_until(now.saturating_add(part.spec.lifetime), now);
            let key = format!("{}:p{gateway}", asked.name);
            asked.pushes = Some(GrantReport {
                place: batch.get_version(&key),
                key,
                life,
                alone: gateway & ALONE != 0,
            });
        }
    }

    /// Sends to all servers, then waits for all replies.
    async fn send(
        &self,
        number: usize,
        batches: Vec<Option<CommandBatch>>,
    ) -> Result<Vec<Option<Replies>>, StoreError> {
        let mut pending: Vec<Option<PendingReplies>> = Vec::new();
        for (server, batch) in self.servers.iter().zip(batches) {
            let sent = batch.map(|batch| server.link(number)?.ask(batch));
            pending.push(sent.transpose()?);
        }
        let mut heard = Vec::new();
        for pending in pending {
            heard.push(match pending {
                Some(pending) => Some(pending.replies().await?),
                None => None,
            });
        }
        Ok(heard)
    }

    /// Checks that all servers that replied have the life that was met.
    fn check(&self, heard: &[Option<Replies>]) -> Result<(), StoreError> {
        for (server, replies) in self.servers.iter().zip(heard) {
            if let Some(replies) = replies {
                server.check(replies, 0)?;
            }
        }
        Ok(())
    }

    /// Counts units again that were given back to a server without them.
    fn restore(&self, number: usize, asked: &[Option<PendingPart<'_>>], heard: &[Option<Replies>]) {
        for asked in asked.iter().flatten() {
            let Ok(link) = self.servers[asked.server].link(number) else {
                continue;
            };
            let mut batch = link.batch();
            for (place, key) in &asked.gives {
                let reply = heard[asked.server]
                    .as_ref()
                    .and_then(|replies| replies.get(*place));
                if reply == Some(&MetaReply::Done) {
                    batch.restore(key, asked.part.cost);
                }
            }
            link.tell(batch);
        }
    }

    /// Counts the units in this gateway's reports.
    async fn push(
        &self,
        number: usize,
        asked: &[Option<PendingPart<'_>>],
        views: &mut [Option<BucketView<'_>>],
        heard: &[Option<Replies>],
    ) -> Result<(), StoreError> {
        for (asked, view) in asked.iter().zip(views) {
            let (Some(asked), Some(view)) = (asked, view) else {
                continue;
            };
            let Some(push) = &asked.pushes else { continue };
            let (server, replies) = (&self.servers[asked.server], replies(heard, asked.server)?);
            let (told, replaces) = match replies.get(push.place) {
                Some(MetaReply::Missing) => (0, Replaces::Nothing),
                Some(MetaReply::Value { bytes, version }) => {
                    let total = std::str::from_utf8(bytes)
                        .ok()
                        .and_then(|text| text.parse().ok());
                    (total.unwrap_or(u64::MAX), Replaces::Version(*version))
                }
                other => return Err(unexpected(other)),
            };
            let young = view.now.saturating_sub(server.check(replies, 0)?.begun) < LATELY;
            let counted = view.counts.iter().flatten().any(|count| *count > 0);
            // Granted units are in the buckets already, unless the server has lost its data.
            let known = !push.alone && (told > 0 || (!young && counted));
            let units = match push.alone {
                true => {
                    let untold = asked.part.total.saturating_sub(told);
                    untold.min(u64::from(asked.part.within)) as u32
                }
                false => asked.part.within,
            };
            if known || units == 0 {
                continue;
            }
            let total = asked.part.total.to_string();
            // In one batch, so that the units are counted and the report is stored, or neither.
            let mut noted = 0;
            let pushed = server.ask(number, |batch| {
                for (index, track) in asked.plan.tracks.iter().enumerate() {
                    let bucket = track.number(view.now);
                    let life = life_of(track, bucket, view.now);
                    batch.add(bucket_key(&asked.name, index, bucket), units, life);
                }
                noted = batch.set(&push.key, total.as_bytes(), push.life, replaces);
                batch.noted = Some(noted);
            });
            let pushed = pushed.await?;
            if pushed.get(noted) != Some(&MetaReply::Done) {
                let twice = "another call of this gateway told of the same counter";
                return Err(StoreError::Other(Cow::Borrowed(twice)));
            }
            for (place, track) in asked.plan.tracks.iter().enumerate() {
                let current = track.number(view.now) - track.numbers(view.now).start();
                view.counts[place][current as usize] = pushed.count(place)?;
            }
        }
        Ok(())
    }
}

/// Which parts take units: only shadows, where a part asks for more than its limit ever allows.
fn possible(call: &Call) -> Taking {
    let never = |part: &CallPart| {
        let counts = !part.shadow && part.around.is_none() && part.give_back.is_none();
        counts
            && part
                .spec
                .windows
                .iter()
                .any(|span| part.cost > span.ceiling)
    };
    match call.taking {
        Taking::All if call.parts.iter().any(never) => Taking::Shadows,
        taking => taking,
    }
}

fn replies(heard: &[Option<Replies>], server: usize) -> Result<&Replies, StoreError> {
    heard
        .get(server)
        .and_then(Option::as_ref)
        .ok_or(StoreError::NotConnected)
}

/// Whether the call may be refused only because it wants more than it needs. Never for give-backs, which must not be
/// repeated.
fn greedy(call: &Call) -> bool {
    let wants = |part: &CallPart| part.want > part.cost && !part.shadow && part.around.is_none();
    let backs = call.parts.iter().any(|part| part.give_back.is_some());
    possible(call) == Taking::All && !backs && call.parts.iter().any(wants)
}

/// What the parts say before units are taken, and how many units they would grant.
type PartVerdicts = SmallVec<[Option<(CounterReply, u32)>; 2]>;

fn admits(call: &Call, stands: &PartVerdicts) -> bool {
    let refuses = |(part, stand): (&CallPart, &Option<(CounterReply, u32)>)| match stand {
        Some((answer, _)) => !part.shadow && !answer.standing.admits(),
        None => false,
    };
    call.taking != Taking::Shadows && !call.parts.iter().zip(stands).any(refuses)
}

/// Keeps the units that are taken; dropping the replies takes the rest back.
fn settle(
    call: &Call,
    asked: &[Option<PendingPart<'_>>],
    (views, stands): (SmallVec<[Option<BucketView<'_>>; 2]>, PartVerdicts),
    heard: &mut [Option<Replies>],
    admitted: bool,
    now: u64,
) -> SmallVec<[CounterReply; 2]> {
    let mut counters: SmallVec<[CounterReply; 2]> = SmallVec::new();
    for ((asked, view), stand) in asked.iter().zip(views).zip(stands) {
        let (Some(asked), Some(mut view), Some((mut answer, granted))) = (asked, view, stand)
        else {
            counters.push(nothing(now));
            continue;
        };
        let alone = asked.part.shadow && answer.standing.admits();
        let took = match (admitted && !asked.part.shadow) || alone {
            true => granted.min(asked.units),
            false => 0,
        };
        if let Some(Some(replies)) = heard.get_mut(asked.server) {
            for place in &asked.adds {
                replies.keep(*place, took);
            }
        }
        view.finish(&mut answer, took);
        // The store keeps no totals: the gateway does.
        answer.total = asked.part.total.saturating_add(u64::from(took));
        counters.push(answer);
    }
    for (place, part) in call.parts.iter().enumerate() {
        if let Some(of) = part.around {
            let took = counters
                .get(usize::from(of))
                .map_or(0, |answer| answer.took);
            counters[place].took = took;
        }
    }
    counters
}
