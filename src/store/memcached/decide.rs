//! Carries out one call to memcached: counts the wanted units first, reads all buckets that count, and decides. Then it
//! gives back the units that are too many: all, if the call fails or is dropped, unless the connection breaks.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::bucket_plan::{
    BucketCounts, BucketPlan, BucketView, NEEDS_ARRIVAL_TIMES, PartVerdict, neutral_reply,
};
use super::client::MemcachedClient;
use super::incarnation::ServerIncarnation;
use super::keys::{bucket_exptime, bucket_key, exptime_until};
use super::link::{PendingReplies, Replies, unexpected_reply};
use super::taking::{PartVerdicts, effective_taking, is_admitted, may_fit_with_less};
use super::wire::{CommandBatch, MetaReply, Replaces};
use crate::store::Taking;
use crate::store::shared::call::{
    Call, CallPart, CounterReply, StoreError, StoreReply, UNGRANTED_UNITS_BIT,
};

/// How long a server is young after its data began, in microseconds. Gateways then report what they were granted before.
const YOUNG_SERVER_MICROS: u64 = 10_000_000;

/// A gateway's report of units that it was granted or admitted. An item holds the total of its last report.
struct UnitReport {
    /// The index of the reply that holds the last report.
    reply_index: usize,
    /// The key of the item with the last report.
    key: String,
    /// The exptime that the item gets with the next report.
    exptime: u64,
    /// Whether the report is of ungranted units, not of granted ones.
    is_of_ungranted: bool,
}

/// The commands of one part, in the batch of the server that holds its counter.
struct PendingPart<'a> {
    part: &'a CallPart,
    plan: BucketPlan,
    server_index: usize,
    counter_prefix: String,
    /// Units that each track's increment counts before the decision.
    counted_units: u32,
    /// The index of the reply to each track's increment; empty where no units are counted.
    increment_replies: SmallVec<[usize; 2]>,
    /// The index of the reply to each track's give-back, and the bucket's key.
    give_back_replies: SmallVec<[(usize, String); 2]>,
    /// The index of the reply to each track's first read.
    first_read_replies: SmallVec<[usize; 2]>,
    /// The gateway's report, if the part has one.
    report: Option<UnitReport>,
}

/// The parts of a call; `None` for networks around a key, which are not counted.
type PendingParts<'a> = SmallVec<[Option<PendingPart<'a>>; 2]>;
/// The counts that the parts have read.
type PartViews<'a> = SmallVec<[Option<BucketView<'a>>; 2]>;

impl PendingPart<'_> {
    /// The buckets' counts before this call.
    fn counts_before(
        &self,
        replies: &Replies,
        now_micros: u64,
    ) -> Result<BucketCounts, StoreError> {
        let mut counts = BucketCounts::new();
        for (index, track) in self.plan.tracks.iter().enumerate() {
            let current_bucket = track.bucket_at(now_micros);
            let mut read_reply = self.first_read_replies[index];
            let mut track_counts = Vec::new();
            for bucket_number in track.counting_buckets(now_micros) {
                if bucket_number == current_bucket
                    && let Some(increment_reply) = self.increment_replies.get(index)
                {
                    let count = replies.count(*increment_reply)?;
                    track_counts.push(count.saturating_sub(u64::from(self.counted_units)));
                } else {
                    track_counts.push(replies.count(read_reply)?);
                    read_reply += 1;
                }
            }
            counts.push(track_counts);
        }
        Ok(counts)
    }
}

impl MemcachedClient {
    /// Decides about one call. A future that is dropped early takes no units, but may have given back or reported some.
    ///
    /// # Errors
    ///
    /// When there is no connection or no usable reply, or a limit needs arrival times; [`StoreError::MarkMismatch`] when a
    /// server has lost its data.
    pub async fn decide(
        &self,
        connection_index: usize,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        let may_repeat = may_fit_with_less(call);
        if let Some(reply) = self.try_call(connection_index, call, may_repeat).await? {
            return Ok(reply);
        }
        // Requests that want more than they need hide the units that are left from each other.
        let mut needed_only = call.clone();
        for part in &mut needed_only.parts {
            part.wanted_units = part.cost;
        }
        let reply = self.try_call(connection_index, &needed_only, false).await?;
        // Without `may_repeat` there is always a reply.
        reply.ok_or(StoreError::NotConnected)
    }

    /// Tries the call once. With `may_repeat`, returns `None` instead of a refusal, and takes no units then.
    async fn try_call(
        &self,
        connection_index: usize,
        call: &Call,
        may_repeat: bool,
    ) -> Result<Option<StoreReply>, StoreError> {
        let now_micros = self.now_micros();
        let (parts, batches) = self.prepare_batches(connection_index, call, now_micros)?;
        let mut replies = self.send_batches(connection_index, batches).await?;
        if let Err(error) = self.check_incarnations(&replies) {
            self.undo_give_backs(connection_index, &parts, &replies);
            return Err(error);
        }
        let mut views = PartViews::new();
        for pending in &parts {
            views.push(match pending {
                Some(pending) => {
                    let replies = replies_of(&replies, pending.server_index)?;
                    Some(BucketView {
                        part: pending.part,
                        plan: &pending.plan,
                        counts: pending.counts_before(replies, now_micros)?,
                        now_micros,
                    })
                }
                None => None,
            });
        }
        self.count_reports(connection_index, &parts, &mut views, &replies)
            .await?;
        let verdicts: PartVerdicts = views
            .iter()
            .map(|view| view.as_ref().map(BucketView::evaluate))
            .collect();
        let is_call_admitted = is_admitted(call, &verdicts);
        if may_repeat && !is_call_admitted {
            return Ok(None);
        }
        let counters = keep_granted(
            call,
            &parts,
            views,
            verdicts,
            &mut replies,
            is_call_admitted,
            now_micros,
        );
        Ok(Some(StoreReply {
            is_admitted: is_call_admitted,
            now_micros,
            counters,
        }))
    }

    /// Fills a batch for each server that holds a counter of the call: reads its incarnation, counts, then reads buckets.
    fn prepare_batches<'a>(
        &self,
        connection_index: usize,
        call: &'a Call,
        now_micros: u64,
    ) -> Result<(PendingParts<'a>, Vec<Option<CommandBatch>>), StoreError> {
        let mut batches: Vec<Option<CommandBatch>> = self.servers.iter().map(|_| None).collect();
        let mut parts = PendingParts::new();
        let taking = effective_taking(call);
        for part in &call.parts {
            if part.key_part_index.is_some() {
                parts.push(None);
                continue;
            }
            let server_index = self.server_index(&part.name);
            let batch = match &mut batches[server_index] {
                Some(batch) => batch,
                empty => {
                    let link = self.servers[server_index].link(connection_index)?;
                    if !link.is_connected() {
                        return Err(StoreError::NotConnected);
                    }
                    let batch = empty.insert(link.new_batch());
                    batch.get(&self.incarnation_key());
                    batch
                }
            };
            parts.push(Some(self.add_counting(
                part,
                server_index,
                taking,
                now_micros,
                batch,
            )?));
        }
        for pending in parts.iter_mut().flatten() {
            if let Some(batch) = &mut batches[pending.server_index] {
                add_reading(call.gateway, pending, now_micros, batch);
            }
        }
        Ok((parts, batches))
    }

    /// Adds the commands that count units or give them back.
    fn add_counting<'a>(
        &self,
        part: &'a CallPart,
        server_index: usize,
        taking: Taking,
        now_micros: u64,
        batch: &mut CommandBatch,
    ) -> Result<PendingPart<'a>, StoreError> {
        let plan = BucketPlan::new(&part.spec).ok_or(NEEDS_ARRIVAL_TIMES)?;
        let mut pending = PendingPart {
            part,
            server_index,
            counter_prefix: self.counter_prefix(&part.name),
            counted_units: 0,
            increment_replies: SmallVec::new(),
            give_back_replies: SmallVec::new(),
            first_read_replies: SmallVec::new(),
            report: None,
            plan,
        };
        let tracks = pending.plan.tracks.iter().enumerate();
        if let Some(give_back) = part.give_back {
            if taking != Taking::Nothing && part.cost > 0 {
                for (index, track) in tracks {
                    let bucket_number = track.bucket_at(give_back.granted_at_micros);
                    let key = bucket_key(&pending.counter_prefix, index, bucket_number);
                    let reply_index = batch.decrement(&key, part.cost);
                    pending.give_back_replies.push((reply_index, key));
                }
            }
            return Ok(pending);
        }
        let takes_units = match taking {
            Taking::All => true,
            Taking::Shadows => part.is_shadow,
            Taking::Nothing => false,
        };
        let ceiling = part.spec.windows.iter().map(|window| window.ceiling).min();
        let ceiling = ceiling.unwrap_or(u32::MAX);
        if takes_units && part.cost <= ceiling {
            pending.counted_units = part.wanted_units.max(part.cost).min(ceiling);
        }
        if pending.counted_units > 0 {
            for (index, track) in tracks {
                let bucket_number = track.bucket_at(now_micros);
                let key = bucket_key(&pending.counter_prefix, index, bucket_number);
                let exptime = bucket_exptime(track, bucket_number, now_micros);
                let reply_index = batch.increment(key, pending.counted_units, exptime);
                pending.increment_replies.push(reply_index);
            }
        }
        Ok(pending)
    }

    /// Sends to all servers, then waits for all replies; both in the order of the servers.
    async fn send_batches(
        &self,
        connection_index: usize,
        batches: Vec<Option<CommandBatch>>,
    ) -> Result<Vec<Option<Replies>>, StoreError> {
        let mut pending: Vec<Option<PendingReplies>> = Vec::new();
        for (server, batch) in self.servers.iter().zip(batches) {
            let sent = batch.map(|batch| server.link(connection_index)?.send_batch(batch));
            pending.push(sent.transpose()?);
        }
        let mut replies = Vec::new();
        for pending in pending {
            replies.push(match pending {
                Some(pending) => Some(pending.wait().await?),
                None => None,
            });
        }
        Ok(replies)
    }

    /// Checks that all servers that replied have the incarnations by which they were identified.
    fn check_incarnations(&self, replies: &[Option<Replies>]) -> Result<(), StoreError> {
        for (server, replies) in self.servers.iter().zip(replies) {
            if let Some(replies) = replies {
                server.check_incarnation(replies, 0)?;
            }
        }
        Ok(())
    }

    /// Counts again the units that a call gave back. A server has lost its data, so the call is made once more.
    fn undo_give_backs(
        &self,
        connection_index: usize,
        parts: &[Option<PendingPart<'_>>],
        replies: &[Option<Replies>],
    ) {
        for pending in parts.iter().flatten() {
            let Ok(link) = self.servers[pending.server_index].link(connection_index) else {
                continue;
            };
            let replies = replies[pending.server_index].as_ref();
            let mut batch = link.new_batch();
            for (reply_index, key) in &pending.give_back_replies {
                let reply = replies.and_then(|replies| replies.get(*reply_index));
                if reply == Some(&MetaReply::Done) {
                    batch.restore(key, pending.part.cost);
                }
            }
            link.send_and_forget(batch);
        }
    }

    /// Counts those units of this gateway's reports that the servers do not know, and adds them to the views.
    async fn count_reports(
        &self,
        connection_index: usize,
        parts: &[Option<PendingPart<'_>>],
        views: &mut [Option<BucketView<'_>>],
        replies: &[Option<Replies>],
    ) -> Result<(), StoreError> {
        for (pending, view) in parts.iter().zip(views) {
            let (Some(pending), Some(view)) = (pending, view) else {
                continue;
            };
            let Some(report) = &pending.report else {
                continue;
            };
            let replies = replies_of(replies, pending.server_index)?;
            let (reported_total, replaces) = parse_report(replies.get(report.reply_index))?;
            let incarnation = self.servers[pending.server_index].check_incarnation(replies, 0)?;
            let units = unknown_units(pending, report, view, reported_total, incarnation);
            if units > 0 {
                self.count_report(connection_index, pending, report, view, units, replaces)
                    .await?;
            }
        }
        Ok(())
    }

    /// Counts the units of one report, and stores the report, in one batch. Without the report its units are given back.
    async fn count_report(
        &self,
        connection_index: usize,
        pending: &PendingPart<'_>,
        report: &UnitReport,
        view: &mut BucketView<'_>,
        units: u32,
        replaces: Replaces,
    ) -> Result<(), StoreError> {
        let total = pending.part.gateway_total.to_string();
        let mut report_index = 0;
        let counted = self.servers[pending.server_index].call(connection_index, |batch| {
            for (index, track) in pending.plan.tracks.iter().enumerate() {
                let bucket_number = track.bucket_at(view.now_micros);
                let key = bucket_key(&pending.counter_prefix, index, bucket_number);
                let exptime = bucket_exptime(track, bucket_number, view.now_micros);
                batch.increment(key, units, exptime);
            }
            report_index = batch.set(&report.key, total.as_bytes(), report.exptime, replaces);
            batch.report_index = Some(report_index);
        });
        let counted = counted.await?;
        if counted.get(report_index) != Some(&MetaReply::Done) {
            let message = "another call of this gateway has reported the same counter";
            return Err(StoreError::Other(Cow::Borrowed(message)));
        }
        for (index, track) in pending.plan.tracks.iter().enumerate() {
            view.counts[index][track.current_index(view.now_micros)] = counted.count(index)?;
        }
        Ok(())
    }
}

/// Adds the commands that read a part's buckets and its gateway's last report. They come after all that count.
fn add_reading(
    gateway: u32,
    pending: &mut PendingPart<'_>,
    now_micros: u64,
    batch: &mut CommandBatch,
) {
    for (index, track) in pending.plan.tracks.iter().enumerate() {
        pending.first_read_replies.push(batch.command_count);
        // An increment returns its bucket's count.
        let incremented = pending
            .increment_replies
            .get(index)
            .map(|_| track.bucket_at(now_micros));
        let buckets = track.counting_buckets(now_micros);
        for bucket_number in buckets.filter(|bucket| Some(*bucket) != incremented) {
            batch.get(&bucket_key(&pending.counter_prefix, index, bucket_number));
        }
    }
    let part = pending.part;
    if part.is_report() {
        let key = format!("{}:p{gateway}", pending.counter_prefix);
        let expires_at_micros = now_micros.saturating_add(part.spec.lifetime_micros);
        pending.report = Some(UnitReport {
            reply_index: batch.get_with_version(&key),
            key,
            exptime: exptime_until(expires_at_micros, now_micros),
            is_of_ungranted: gateway & UNGRANTED_UNITS_BIT != 0,
        });
    }
}

/// The total of a gateway's last report, and what the next report may replace. A total that is no number counts as the
/// largest number, so that nothing is counted twice.
fn parse_report(reply: Option<&MetaReply>) -> Result<(u64, Replaces), StoreError> {
    match reply {
        Some(MetaReply::Missing) => Ok((0, Replaces::Nothing)),
        Some(MetaReply::Value { bytes, version }) => {
            let total = std::str::from_utf8(bytes).ok();
            let total = total.and_then(|text| text.parse().ok());
            Ok((total.unwrap_or(u64::MAX), Replaces::Version(*version)))
        }
        other => Err(unexpected_reply(other)),
    }
}

/// The units of a report that the server does not know. `reported_total` is the total of the last report.
fn unknown_units(
    pending: &PendingPart<'_>,
    report: &UnitReport,
    view: &BucketView<'_>,
    reported_total: u64,
    incarnation: ServerIncarnation,
) -> u32 {
    let part = pending.part;
    if report.is_of_ungranted {
        let unreported_units = part.gateway_total.saturating_sub(reported_total);
        return unreported_units.min(u64::from(part.units_in_window)) as u32;
    }
    // Granted units are in the buckets already, unless the server has lost its data.
    let is_young = incarnation.age_micros(view.now_micros) < YOUNG_SERVER_MICROS;
    let has_counts = view.counts.iter().flatten().any(|count| *count > 0);
    let is_counted = reported_total > 0 || (!is_young && has_counts);
    if is_counted { 0 } else { part.units_in_window }
}

/// The replies of the server with this index.
fn replies_of(replies: &[Option<Replies>], server_index: usize) -> Result<&Replies, StoreError> {
    let replies = replies.get(server_index).and_then(Option::as_ref);
    replies.ok_or(StoreError::NotConnected)
}

/// Keeps the units that are granted, and completes the replies. Dropping the server's replies gives the other units back.
fn keep_granted(
    call: &Call,
    parts: &[Option<PendingPart<'_>>],
    views: PartViews<'_>,
    verdicts: PartVerdicts,
    replies: &mut [Option<Replies>],
    is_call_admitted: bool,
    now_micros: u64,
) -> SmallVec<[CounterReply; 2]> {
    let mut counters: SmallVec<[CounterReply; 2]> = SmallVec::new();
    for ((pending, view), verdict) in parts.iter().zip(views).zip(verdicts) {
        let (Some(pending), Some(mut view), Some(verdict)) = (pending, view, verdict) else {
            counters.push(neutral_reply(now_micros));
            continue;
        };
        let PartVerdict {
            mut reply,
            grantable_units,
        } = verdict;
        let shadow_admits = pending.part.is_shadow && reply.standing.admits();
        let granted_units = match (is_call_admitted && !pending.part.is_shadow) || shadow_admits {
            true => grantable_units.min(pending.counted_units),
            false => 0,
        };
        if let Some(Some(replies)) = replies.get_mut(pending.server_index) {
            for index in &pending.increment_replies {
                replies.keep_units(*index, granted_units);
            }
        }
        view.complete_reply(&mut reply, granted_units);
        // The store keeps no totals: the gateway does.
        let former_total = pending.part.gateway_total;
        reply.gateway_total = former_total.saturating_add(u64::from(granted_units));
        counters.push(reply);
    }
    // The reply of a network around a key names what the key's part is granted.
    for (index, part) in call.parts.iter().enumerate() {
        if let Some(key_index) = part.key_part_index {
            let key_counter = counters.get(usize::from(key_index));
            counters[index].granted_units = key_counter.map_or(0, |counter| counter.granted_units);
        }
    }
    counters
}
