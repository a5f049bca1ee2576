//! Orders about accounts of credits, as a part of [`GrantRegistry`]: an account is published and listed as a grant is, of
//! as many units as were ordered for it.

use super::credit_terms::{CreditOrder, CreditTerms};
use super::entry::{EntryKind, OperatorEntry};
use super::entry_terms::{EntryTerms, granted_subject};
use super::error::GrantOrderError;
use super::grant_registry::{GrantRegistry, ListedGrant, check_lengths};
use super::registry_state::{RegistryState, bounded_name};
use crate::limit::Fingerprint;

/// Credits that an operator adds to an account.
#[derive(Clone, Debug)]
pub struct NewCredits {
    /// The limit, in the form in which one limit always has the same text.
    pub limit: String,
    /// The key as the limit writes it.
    pub key: String,
    /// The hash of the key, if the text does not lead to it.
    pub fingerprint: Option<Fingerprint>,
    /// The credits, from 1 to [`Rate::MAX_QUOTA`](crate::limit::Rate::MAX_QUOTA).
    pub add: u32,
    /// The id of the order; `None` for a random one.
    pub order: Option<String>,
    /// Why; may be empty.
    pub reason: String,
    /// Who orders it.
    pub by: String,
}

/// An order that an account has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOrder {
    /// Its id.
    pub id: String,
    /// The credits that it has added.
    pub units: u32,
    /// Whether the account had it before, so that nothing was changed.
    pub is_repeated: bool,
}

/// The most that all accounts may have in a shared store, in MiB. Each gateway reads all entries at once.
const MAX_SHARED_MEBIBYTES: usize = 8;

impl GrantRegistry {
    /// The most accounts of credits.
    pub const MAX_ACCOUNTS: usize = 10_000;

    /// Adds credits to the account of a key, and opens it if there is none. An order that the account has already changes
    /// nothing. It is on the disk when this returns, if it can be kept.
    ///
    /// # Errors
    ///
    /// See [`GrantOrderError`].
    pub fn add_credits(
        &self,
        new_credits: NewCredits,
    ) -> Result<(ListedGrant, HeldOrder), GrantOrderError> {
        let NewCredits {
            limit,
            key,
            fingerprint,
            add,
            order,
            reason,
            by,
        } = new_credits;
        check_lengths(&limit, &key, &reason, &by)?;
        let id = match order {
            Some(id) if !CreditOrder::is_id(&id) => return Err(GrantOrderError::OrderId),
            Some(id) => id,
            None => CreditOrder::random_id(),
        };
        let mut state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let subject = granted_subject(&limit, &key);
        let new_terms = CreditTerms::new(limit);
        let held = state.entries.get(EntryKind::Credit, &subject);
        let held = held.map(|slot| slot.entry.clone());
        let count = || state.entries.active_count(EntryKind::Credit, wall_millis);
        if held.is_none() && count() >= GrantRegistry::MAX_ACCOUNTS {
            return Err(GrantOrderError::AccountsFull(GrantRegistry::MAX_ACCOUNTS));
        }
        let held_terms = held.as_ref().and_then(OperatorEntry::credit_terms).cloned();
        let mut terms = held_terms.unwrap_or(new_terms);
        let is_new = terms.add(id.clone(), add, wall_millis)?;
        if is_new {
            let most_bytes = MAX_SHARED_MEBIBYTES * 1024 * 1024;
            if state.is_shared && account_bytes(&state) > most_bytes {
                return Err(GrantOrderError::OrdersFull(MAX_SHARED_MEBIBYTES));
            }
            let entry = OperatorEntry {
                kind: EntryKind::Credit,
                key,
                hash: fingerprint.map(OperatorEntry::format_fingerprint),
                reason: reason.replace(char::is_control, " "),
                by: bounded_name(&by),
                since: held.map_or(wall_millis, |entry| entry.since),
                until: OperatorEntry::NO_END,
                keep_until: OperatorEntry::NO_END,
                changed_at: 0,
                origin: self.entries.origin(),
                earlier_bans: 0,
                terms: Some(EntryTerms::Credit(terms)),
                is_revoked: false,
            };
            self.change_account(&mut state, entry, wall_millis)?;
        }
        // A repeated order may have been taken while the disk was full.
        if is_new || state.is_unsaved {
            state.save();
        }
        let order = HeldOrder {
            id,
            units: add,
            is_repeated: !is_new,
        };
        let listed = self.listed(&state, (EntryKind::Credit, &subject), wall_millis);
        let listed = listed.ok_or(GrantOrderError::Superseded(subject))?;
        Ok((listed, order))
    }

    /// Takes back from an account what is left of it. Returns the account as it is then; it has had `left` credits less in
    /// all. The change is on the disk when this returns, if it is kept.
    ///
    /// # Errors
    ///
    /// The account has had another number of credits meanwhile, or it is gone, or it takes no order now.
    pub fn take_credits_back(
        &self,
        account: &ListedGrant,
        left: u32,
        by: &str,
    ) -> Result<ListedGrant, GrantOrderError> {
        let (_, subject) = account.entry.slot_key();
        let mut state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let held = state.entries.get(EntryKind::Credit, &subject);
        let held = held.map(|slot| slot.entry.clone());
        let terms = held.as_ref().and_then(OperatorEntry::credit_terms).cloned();
        let Some((held, mut terms)) = held.zip(terms) else {
            return Err(GrantOrderError::NotGranted {
                limit: account.terms.limit.clone(),
                key: account.entry.key.clone(),
            });
        };
        if terms.added() != account.terms.add {
            return Err(GrantOrderError::ChangedMeanwhile);
        }
        let id = format!("revoke-{}", CreditOrder::random_id());
        let used = terms.added().saturating_sub(left);
        if left > 0 && terms.take_back(id, used, wall_millis) {
            let entry = OperatorEntry {
                reason: String::new(),
                by: bounded_name(by),
                origin: self.entries.origin(),
                terms: Some(EntryTerms::Credit(terms)),
                ..held
            };
            self.change_account(&mut state, entry, wall_millis)?;
            state.save();
        }
        let listed = self.listed(&state, (EntryKind::Credit, &subject), wall_millis);
        listed.ok_or(GrantOrderError::Superseded(subject))
    }

    /// The account of this key and limit as it is listed; `None` if there is none.
    pub fn find_account(&self, limit: &str, key: &str) -> Option<ListedGrant> {
        let subject = granted_subject(limit, key);
        let state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        self.listed(&state, (EntryKind::Credit, &subject), wall_millis)
    }

    /// Takes over a change of an account that is made now.
    fn change_account(
        &self,
        state: &mut RegistryState,
        entry: OperatorEntry,
        wall_millis: u64,
    ) -> Result<(), GrantOrderError> {
        let (kind, subject) = entry.slot_key();
        let changed_at = state.entries.next_change(kind, &subject, wall_millis);
        let is_changed = state.change(OperatorEntry {
            changed_at,
            ..entry
        });
        match is_changed {
            true => Ok(()),
            false => Err(GrantOrderError::Superseded(subject)),
        }
    }
}

/// About how many bytes all accounts have in a shared store.
fn account_bytes(state: &RegistryState) -> usize {
    let slots = state.entries.slots();
    let of_accounts = slots.filter(|slot| slot.entry.kind == EntryKind::Credit);
    of_accounts.map(|slot| slot.entry.approximate_bytes()).sum()
}
