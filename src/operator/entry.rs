//! [`OperatorEntry`]: one order of an operator, as it is kept on the disk and shared by gateways. Its text is one line of
//! JSON, whose names must not change. A gateway skips lines of kinds that it does not know.

use std::borrow::Cow;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::credit_terms::CreditTerms;
use super::entry_terms::{EntryTerms, GrantTerms, granted_subject};
use crate::limit::Fingerprint;
use crate::store::shared::shared_entries::{ORDER_BYTES, YIELDING_MARK};

/// Hexadecimal digits of a hash.
const HASH_DIGITS: usize = 32;
/// How far ahead the clock of another gateway may be: a day, in milliseconds.
const MAX_AHEAD_MILLIS: u64 = 86_400_000;
/// The longest time until an entry need not be kept any more: a ban of ten years, kept for as long again, in milliseconds.
const MAX_KEPT_MILLIS: u64 = 21 * 366 * 86_400_000;
/// The beginning of the year 3000, in milliseconds since 1970. No clock says so by mistake of some years.
const MAX_TIME_MILLIS: u64 = 32_503_680_000_000;

/// What an entry orders. The shared store gets entries in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// Requests of the clients with this key are refused, by an operator.
    Ban,
    /// A key has more of a limit than the files say.
    Grant,
    /// The account of a key of a limit with credits.
    Credit,
    /// A credential of a client.
    ApiKey,
    /// A ban by a limit. It is an entry of its own, so that it never takes the place of what an operator has ordered. It
    /// gives way to orders where there is no room.
    LimitBan,
}

/// Kinds of entries that share one bound, so that many entries of other kinds displace none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryGroup {
    /// Bans, by operators and by limits.
    Bans,
    /// What operators grant single keys beyond their limits.
    Grants,
    /// Accounts of credits.
    Credits,
    /// API keys.
    ApiKeys,
}

impl EntryKind {
    /// All kinds.
    pub const ALL: [EntryKind; 5] = [
        EntryKind::Ban,
        EntryKind::Grant,
        EntryKind::Credit,
        EntryKind::ApiKey,
        EntryKind::LimitBan,
    ];
    /// The kinds of bans; that of operators comes first.
    pub const BANS: [EntryKind; 2] = [EntryKind::Ban, EntryKind::LimitBan];

    /// The kinds with which this one shares its bound.
    pub fn group(self) -> EntryGroup {
        match self {
            EntryKind::Ban | EntryKind::LimitBan => EntryGroup::Bans,
            EntryKind::Grant => EntryGroup::Grants,
            EntryKind::Credit => EntryGroup::Credits,
            EntryKind::ApiKey => EntryGroup::ApiKeys,
        }
    }

    /// The word before the key in the name of an entry.
    fn name_prefix(self) -> &'static str {
        match self {
            EntryKind::Ban | EntryKind::LimitBan => "ban",
            EntryKind::Grant => "grant",
            EntryKind::Credit => "credit",
            EntryKind::ApiKey => "key",
        }
    }
}

impl EntryGroup {
    /// All groups.
    pub const ALL: [EntryGroup; 4] = [
        EntryGroup::Bans,
        EntryGroup::Grants,
        EntryGroup::Credits,
        EntryGroup::ApiKeys,
    ];

    /// The most entries of the group.
    pub const fn max_entries(self) -> usize {
        match self {
            EntryGroup::Bans | EntryGroup::ApiKeys => 10_000,
            EntryGroup::Grants => 5_000,
            // More than can be ordered: two gateways may open accounts at once, and what was paid must not be dropped.
            EntryGroup::Credits => 12_000,
        }
    }
}

/// What changes of one entry have in common: the kind and the subject.
pub type SlotKey = (EntryKind, String);

/// An order of an operator about one key. All times are in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorEntry {
    /// What is ordered.
    pub kind: EntryKind,
    /// The key or the network in its canonical form, such as `user=alice` or `ip=192.0.2.0/24`. Without line breaks.
    pub key: String,
    /// The hash of the key, of 32 hexadecimal digits, if the text shows only a hash of a value. It is made with the
    /// gateway's secret, or that of its store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Why, in the operator's words; may be empty.
    pub reason: String,
    /// Who has ordered it.
    pub by: String,
    /// When it began.
    pub since: u64,
    /// When it ends.
    pub until: u64,
    /// Until when the entry is kept, although it may have ended: the latest end that the key ever had. Otherwise a gateway
    /// that was away could bring an older order back.
    pub keep_until: u64,
    /// When the entry was changed last. The newest change of a key wins.
    pub changed_at: u64,
    /// The number of the gateway that changed it, which decides between changes of one millisecond.
    pub origin: u32,
    /// How many bans by a limit the key had shortly before.
    #[serde(default)]
    pub earlier_bans: u8,
    /// What only entries of this kind have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<EntryTerms>,
    /// Whether the order was taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_revoked: bool,
}

impl OperatorEntry {
    /// Most bytes of a key.
    pub const MAX_KEY_BYTES: usize = 512;
    /// Most bytes of a reason.
    pub const MAX_REASON_BYTES: usize = 256;
    /// Most bytes of the name of who ordered it.
    pub const MAX_BY_BYTES: usize = 64;

    /// The end of an order that has none.
    pub const NO_END: u64 = MAX_TIME_MILLIS - 1;

    /// When it ends; `None` if it has no end.
    pub fn end(&self) -> Option<u64> {
        (self.until != OperatorEntry::NO_END).then_some(self.until)
    }

    /// Whether the order holds at this time.
    pub fn is_active(&self, wall_millis: u64) -> bool {
        !self.is_revoked && wall_millis < self.until
    }

    /// Whether no later change counts: an API key was revoked. Its id is never used again.
    pub fn is_final(&self) -> bool {
        self.kind == EntryKind::ApiKey && self.is_revoked
    }

    /// Makes what is final newer than another change of the key, and keeps it until the other one has ended.
    pub fn supersede(&mut self, other: &OperatorEntry) {
        // Without an end the revocation would be kept for ever, and has a bound of its own.
        if other.end().is_some() {
            self.keep_until = self.keep_until.max(other.keep_until);
        }
        if !self.is_newer_than(other) {
            self.changed_at = (other.changed_at + 1).min(MAX_TIME_MILLIS - 1);
        }
    }

    /// The account with the orders of both changes, of which the newer one says who and why. Its time is later than both if
    /// the newer one lacks an order, or else stores would keep that one.
    pub(super) fn join_account(&self, other: &OperatorEntry) -> OperatorEntry {
        let rank = |entry: &OperatorEntry| (entry.change(), entry.by.clone(), entry.reason.clone());
        let (newer, older) = match rank(self) >= rank(other) {
            true => (self, other),
            false => (other, self),
        };
        let mut joined = newer.clone();
        if let (Some(EntryTerms::Credit(terms)), Some(EntryTerms::Credit(others))) =
            (&newer.terms, &older.terms)
        {
            let all = terms.join(others);
            let is_complete = all == *terms && (newer.is_newer_than(older) || terms == others);
            if !is_complete {
                joined.changed_at = (newer.changed_at + 1).min(MAX_TIME_MILLIS - 1);
                joined.terms = Some(EntryTerms::Credit(all));
            }
        }
        joined
    }

    /// About how many bytes the entry has in a store.
    pub(super) fn approximate_bytes(&self) -> usize {
        let orders = self
            .credit_terms()
            .into_iter()
            .flat_map(|terms| &terms.orders);
        let order_bytes: usize = orders.map(|order| order.id.len() + 60).sum();
        320 + self.key.len() + self.reason.len() + order_bytes
    }

    /// The account's terms; `None` if the entry is of another kind.
    pub fn credit_terms(&self) -> Option<&CreditTerms> {
        match &self.terms {
            Some(EntryTerms::Credit(terms)) => Some(terms),
            _ => None,
        }
    }

    /// Whether a limit has ordered it, not an operator.
    pub fn is_automatic(&self) -> bool {
        self.kind == EntryKind::LimitBan
    }

    /// What the order is about and how, for logs and events: the key, and the terms of a grant or an API key.
    pub fn description(&self) -> Cow<'_, str> {
        match &self.terms {
            Some(EntryTerms::Grant(terms)) => Cow::Owned(terms.description(&self.key)),
            Some(EntryTerms::Credit(terms)) => Cow::Owned(terms.description(&self.key)),
            Some(EntryTerms::ApiKey(terms)) => Cow::Owned(terms.description(&self.key)),
            None => Cow::Borrowed(&self.key),
        }
    }

    /// What changes of this entry have in common.
    pub fn slot_key(&self) -> SlotKey {
        (self.kind, self.subject().into_owned())
    }

    /// What the order is about: its key, and the limit before it for a grant or an account.
    fn subject(&self) -> Cow<'_, str> {
        match &self.terms {
            Some(EntryTerms::Grant(GrantTerms { limit, .. }))
            | Some(EntryTerms::Credit(CreditTerms { limit, .. })) => {
                Cow::Owned(granted_subject(limit, &self.key))
            }
            Some(EntryTerms::ApiKey(_)) | None => Cow::Borrowed(&self.key),
        }
    }

    /// What is greater for a newer change of one key.
    pub fn change(&self) -> (u64, u32) {
        (self.changed_at, self.origin)
    }

    /// Whether this change of the key is newer than another one.
    pub fn is_newer_than(&self, other: &OperatorEntry) -> bool {
        self.change() > other.change()
    }

    /// Whether the text of the key shows the hash of a value, which depends on the gateway's secret.
    pub fn needs_secret(&self) -> bool {
        self.key.contains("=#") || self.key.contains("+#")
    }

    /// Whether a gateway may have made it. Its times are of this millennium, or else no later change could be newer. Its
    /// terms are those of its kind. No ban is about every address: a firewall that loads the bans would drop all packets.
    pub fn is_possible(&self) -> bool {
        let times = [self.since, self.until, self.keep_until, self.changed_at];
        let is_of_kind = match (self.kind, &self.terms) {
            (EntryKind::Ban | EntryKind::LimitBan, None) => !self.is_about_everyone(),
            (EntryKind::Grant, Some(EntryTerms::Grant(terms))) => terms.is_possible(),
            (EntryKind::ApiKey, Some(EntryTerms::ApiKey(terms))) => terms.is_possible(&self.key),
            (EntryKind::Credit, Some(EntryTerms::Credit(terms))) => {
                let is_kept = self.until.min(self.keep_until) == OperatorEntry::NO_END;
                is_kept && !self.is_revoked && terms.is_possible(MAX_TIME_MILLIS)
            }
            _ => false,
        };
        is_of_kind && times.iter().all(|time| *time < MAX_TIME_MILLIS)
    }

    fn is_about_everyone(&self) -> bool {
        let network = self.key.strip_prefix("ip=");
        let network = network.and_then(|text| text.parse::<IpNet>().ok());
        network.is_some_and(|network| network.prefix_len() == 0)
    }

    /// Whether a gateway whose clock is right may have made this change by now. Of an account, what is counted together
    /// is of the past, or else orders of today would be taken for parts of it.
    pub fn is_credible(&self, wall_millis: u64) -> bool {
        let latest_change = wall_millis.saturating_add(MAX_AHEAD_MILLIS);
        if let Some(terms) = self.credit_terms() {
            return self.changed_at <= latest_change
                && terms.is_credible(wall_millis, latest_change);
        }
        let latest_end = latest_change.saturating_add(MAX_KEPT_MILLIS);
        let ends_in_time = self.until.max(self.keep_until) <= latest_end;
        let may_have_no_end = self.kind == EntryKind::ApiKey && self.end().is_none();
        self.changed_at <= latest_change && (ends_in_time || may_have_no_end)
    }

    /// Moves times that are not credible to the last ones that are.
    pub fn make_credible(&mut self, wall_millis: u64) {
        let latest_change = wall_millis.saturating_add(MAX_AHEAD_MILLIS);
        let latest_end = latest_change.saturating_add(MAX_KEPT_MILLIS);
        self.changed_at = self.changed_at.min(latest_change);
        self.keep_until = self.keep_until.min(latest_end);
        if self.end().is_some() {
            self.until = self.until.min(latest_end);
        }
    }

    /// The hash of the key as a number; `None` if the entry has none, or if the text of the key leads to it. Otherwise
    /// somebody who writes to the store could list one key and mean another.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        if !self.needs_secret() {
            return None;
        }
        let number = u128::from_str_radix(self.hash.as_deref()?, 16).ok();
        number.map(Fingerprint)
    }

    /// The digits of a hash, for [`OperatorEntry::hash`].
    pub fn format_fingerprint(Fingerprint(hash): Fingerprint) -> String {
        format!("{hash:0HASH_DIGITS$x}")
    }

    /// The name of the entry in a shared store: the same for all changes of a key.
    pub fn name(&self) -> String {
        let name = format!("{} {}", self.kind.name_prefix(), self.subject());
        match self.is_automatic() {
            true => format!("{YIELDING_MARK}{name}"),
            false => name,
        }
    }

    /// The entry as a shared store keeps it: digits that are greater for a newer change, then the line.
    pub fn to_stored_value(&self) -> String {
        self.order_digits() + &self.to_line()
    }

    /// Parses what [`OperatorEntry::to_stored_value`] has made; `None` for any other text.
    pub fn parse_stored_value(value: &str) -> Option<OperatorEntry> {
        OperatorEntry::parse(value.get(ORDER_BYTES..)?)
    }

    /// Whether a stored value begins with the order of this entry. Any other beginning could hide all later changes.
    pub fn has_order_of(&self, value: &str) -> bool {
        value.starts_with(&self.order_digits())
    }

    fn order_digits(&self) -> String {
        let (changed_at, origin) = self.change();
        format!("{changed_at:020}{origin:010}")
    }

    /// The entry as one line of JSON.
    pub fn to_line(&self) -> String {
        // A struct of texts and numbers can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a line that [`OperatorEntry::to_line`] has made, perhaps of another version; `None` if it is none, or if a
    /// part is too long.
    pub fn parse(line: &str) -> Option<OperatorEntry> {
        let entry: OperatorEntry = serde_json::from_str(line).ok()?;
        entry.is_bounded().then_some(entry)
    }

    /// Whether [`OperatorEntry::parse`] reads its line: no part is too long.
    pub(super) fn is_bounded(&self) -> bool {
        let has_valid_hash = self.hash.as_ref().is_none_or(|hash| {
            hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        has_valid_hash
            && self.key.len() <= OperatorEntry::MAX_KEY_BYTES
            && self.reason.len() <= OperatorEntry::MAX_REASON_BYTES
            && self.by.len() <= OperatorEntry::MAX_BY_BYTES
            && self.terms.as_ref().is_none_or(EntryTerms::is_bounded)
    }
}
