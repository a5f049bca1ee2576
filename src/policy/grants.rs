//! Applies grants to the limits of a ruleset, and reads which limit and key an operator means.

use std::collections::HashMap;

use super::grant_mistake::GrantMistake;
use super::granting::{Granting, parse_key};
use super::settings::Ruleset;
use crate::identity::Identifier;
use crate::limit::{Fingerprint, LimitGrant};
use crate::operator::{EntryKind, GrantTerms, ListedGrant, SlotKey};

/// A limit and a key that an operator names, in the form in which they always have the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantSubject {
    /// The limit: see [`Rule::granted_limit`]. The scope of one of the routes that count for themselves, too.
    pub limit: String,
    /// The key.
    pub key: String,
    /// The hash of the key, if the text does not lead to it.
    pub fingerprint: Option<Fingerprint>,
    /// Whether the limit counts credits.
    pub has_credits: bool,
}

/// Why single grants and accounts do not hold.
pub type GrantObstacles = HashMap<SlotKey, String>;
impl Ruleset {
    /// Reads the limit and the key of a grant. `identifier` must be that of the ruleset without grants.
    ///
    /// # Errors
    ///
    /// No limit or several limits have this name, or the text is no key of the limit.
    pub fn grant_subject(
        &self,
        limit: &str,
        key: &str,
        identifier: &Identifier,
    ) -> Result<GrantSubject, GrantMistake> {
        let (limit, key) = (limit.trim(), key.trim());
        let (limit, rules) = self.find_limit(limit)?;
        let Some(first_rule) = rules.first() else {
            return Err(self.unknown_limit(&limit));
        };
        let client = parse_key(key, first_rule, identifier)?;
        let spec = &first_rule.key;
        let text = identifier.format_key(&client, spec);
        let fingerprint = identifier.key(&client, spec);
        let reparsed = identifier.parse_key(&text, spec).ok();
        let is_readable =
            reparsed.is_some_and(|client| identifier.key(&client, spec) == fingerprint);
        Ok(GrantSubject {
            has_credits: first_rule.limit.is_credits(),
            limit,
            key: text,
            fingerprint: fingerprint.filter(|_| !is_readable),
        })
    }

    /// Checks that a grant can hold beside these others, of which it replaces that of the same subject.
    ///
    /// # Errors
    ///
    /// See [`GrantMistake`].
    pub fn check_grant(
        &self,
        subject: &GrantSubject,
        amount: LimitGrant,
        mut others: Vec<ListedGrant>,
        identifier: &Identifier,
    ) -> Result<(), GrantMistake> {
        let terms = GrantTerms {
            limit: subject.limit.clone(),
            times: amount.times,
            add: amount.add,
        };
        others.retain(|other| {
            other.is_account()
                || (&other.terms.limit, &other.entry.key) != (&subject.limit, &subject.key)
        });
        let (mut granting, _) = self.granting(others, identifier);
        granting.add(EntryKind::Grant, &terms, &subject.key, subject.fingerprint)
    }

    /// Checks that a key can have an account of credits beside all that are `held`.
    ///
    /// # Errors
    ///
    /// See [`GrantMistake`].
    pub fn check_account(
        &self,
        subject: &GrantSubject,
        add: u32,
        identifier: &Identifier,
    ) -> Result<(), GrantMistake> {
        let terms = GrantTerms {
            limit: subject.limit.clone(),
            times: 1,
            add,
        };
        // There is room for all accounts: they come first, and each is a copy of one rule.
        let mut granting = Granting::new(self, identifier);
        granting.add(EntryKind::Credit, &terms, &subject.key, subject.fingerprint)
    }

    /// The ruleset with these grants and accounts in force, and why single ones do not hold. `identifier` must
    /// be that of the ruleset without grants.
    pub fn with_grants(
        &self,
        grants: Vec<ListedGrant>,
        identifier: &Identifier,
    ) -> (Ruleset, GrantObstacles) {
        let (granting, obstacles) = self.granting(grants, identifier);
        (granting.finish(), obstacles)
    }

    /// The grants and accounts that can hold, and why others cannot.
    fn granting<'a>(
        &'a self,
        mut grants: Vec<ListedGrant>,
        identifier: &'a Identifier,
    ) -> (Granting<'a>, GrantObstacles) {
        // Accounts come first, so that nobody loses what was paid for lack of room. Of two grants of one key the later one
        // counts.
        grants.sort_by_key(|grant| match grant.is_account() {
            true => (false, (grant.entry.since, 0)),
            false => (true, grant.entry.change()),
        });
        let mut granting = Granting::new(self, identifier);
        let mut obstacles = HashMap::new();
        for ListedGrant { entry, terms, .. } in grants {
            let added = granting.add(entry.kind, &terms, &entry.key, entry.fingerprint());
            if let Err(mistake) = added {
                obstacles.insert(entry.slot_key(), mistake.to_string());
            }
        }
        (granting, obstacles)
    }
}
