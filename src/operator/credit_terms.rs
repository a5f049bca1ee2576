//! [`CreditTerms`]: the orders of an account of credits, as a part of an entry's text. Its names must not change. Changes
//! of an account by several gateways are joined, so that no order is lost, whichever gateway took it.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use super::error::GrantOrderError;
use crate::limit::Rate;

/// For so long an order keeps its id, in milliseconds. Within this time all gateways must have seen it.
const KEPT_MILLIS: u64 = 7 * 86_400_000;
/// An account of at most so many orders keeps the ids of all of them, however old they are.
const KEPT_ORDERS: usize = 8;
/// The largest total of orders that are counted together.
const MAX_EARLIER_UNITS: u64 = 1_000_000_000_000_000;

/// The account of a key of a limit with credits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditTerms {
    /// The limit, as grants name it.
    pub limit: String,
    /// What is kept of orders that have lost their ids.
    #[serde(default)]
    pub earlier: EarlierOrders,
    /// The other orders: ascending, each id once. At most [`CreditTerms::MAX_JOINED_ORDERS`].
    pub orders: Vec<CreditOrder>,
}

/// Orders of an account that are counted together. The greater one has more of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EarlierOrders {
    /// The time of the last one, in milliseconds since 1970. All orders until then are among them.
    pub through: u64,
    /// How many there are.
    pub count: u64,
    /// The sum of their units.
    pub units: i64,
}

/// One order of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CreditOrder {
    /// When it was ordered, in milliseconds since 1970.
    pub at: u64,
    /// The credits that it adds; below 0 if it takes some back.
    pub units: i64,
    /// The id that the caller has given, or a random one.
    pub id: String,
}

impl CreditOrder {
    /// Most bytes of an id.
    pub const MAX_ID_BYTES: usize = 64;

    /// Whether a text is an id.
    pub fn is_id(text: &str) -> bool {
        let is_id_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        (1..=CreditOrder::MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(is_id_byte)
    }
}

impl CreditTerms {
    /// Most orders of an account within [`KEPT_MILLIS`].
    pub const MAX_ORDERS: usize = 64;
    /// Most orders of an account that gateways have taken while they were apart: those of four gateways. Beyond that the
    /// earliest ones lose their ids early.
    pub const MAX_JOINED_ORDERS: usize = 4 * CreditTerms::MAX_ORDERS;

    /// The account of a key that has none yet.
    pub fn new(limit: String) -> CreditTerms {
        CreditTerms {
            limit,
            earlier: EarlierOrders::default(),
            orders: Vec::new(),
        }
    }

    /// The credits that were added in all, without those that were taken back. From 0 to [`Rate::MAX_QUOTA`].
    pub fn added(&self) -> u32 {
        let units = self.total().clamp(0, i64::from(Rate::MAX_QUOTA));
        u32::try_from(units).unwrap_or_default()
    }

    /// The order with this id; `None` if there is none, or if it is too old to have an id.
    pub fn order(&self, id: &str) -> Option<&CreditOrder> {
        self.orders.iter().find(|order| order.id == id)
    }

    /// Adds an order that is made now, and forgets the ids of old ones. Returns whether it is new: an order that the
    /// account has already is not added again.
    ///
    /// # Errors
    ///
    /// Another order has the id, there are too many orders, or there would be too many credits.
    pub fn add(
        &mut self,
        id: String,
        units: i64,
        wall_millis: u64,
    ) -> Result<bool, GrantOrderError> {
        if let Some(held) = self.order(&id) {
            return match held.units == units {
                true => Ok(false),
                false => Err(GrantOrderError::OtherOrder(id, held.units)),
            };
        }
        if self.total().saturating_add(units) > i64::from(Rate::MAX_QUOTA) {
            return Err(GrantOrderError::TooManyCredits(self.added()));
        }
        if self.orders.len() > KEPT_ORDERS {
            let oldest_kept = wall_millis.saturating_sub(KEPT_MILLIS);
            let is_old = |order: &CreditOrder| order.at < oldest_kept;
            self.fold(self.orders.partition_point(is_old));
        }
        // What is taken back needs an order before it, so it needs no bound.
        if self.orders.len() >= CreditTerms::MAX_ORDERS && units > 0 {
            return Err(GrantOrderError::TooManyOrders(CreditTerms::MAX_ORDERS));
        }
        // An order whose time is covered would count as one of the earlier ones.
        let at = wall_millis.max(self.earlier.through.saturating_add(1));
        self.orders.push(CreditOrder { at, units, id });
        self.orders.sort_unstable();
        Ok(true)
    }

    /// The account with the orders of both. The order of several joins does not matter, and none counts twice.
    pub fn join(&self, other: &CreditTerms) -> CreditTerms {
        let earlier = self.earlier.max(other.earlier);
        let mut by_id: BTreeMap<&str, &CreditOrder> = BTreeMap::new();
        for order in self.orders.iter().chain(&other.orders) {
            let held = by_id.entry(&order.id).or_insert(order);
            *held = (*held).max(order);
        }
        let orders = by_id
            .into_values()
            .filter(|order| order.at > earlier.through);
        let mut orders: Vec<CreditOrder> = orders.cloned().collect();
        orders.sort_unstable();
        let mut joined = CreditTerms {
            limit: self.limit.clone(),
            earlier,
            orders,
        };
        let count = joined.orders.len();
        joined.fold(count.saturating_sub(CreditTerms::MAX_JOINED_ORDERS));
        joined
    }

    /// The id of the order that takes back what is left of this account: the same at all gateways, or else two of them
    /// could take the same credits back.
    pub fn revocation_id(&self) -> String {
        let mut hasher = SipHasher13::new();
        hasher.write_u64(self.earlier.through);
        hasher.write_u64(self.earlier.count);
        for order in &self.orders {
            hasher.write(order.id.as_bytes());
            hasher.write_u8(b' ');
        }
        format!("revoke-{:016x}", hasher.finish())
    }

    /// Counts the first orders together, and all others of the same time as the last of them.
    fn fold(&mut self, count: usize) {
        let Some(last) = count.checked_sub(1).and_then(|last| self.orders.get(last)) else {
            return;
        };
        let through = last.at;
        let count = self.orders.partition_point(|order| order.at <= through);
        for order in self.orders.drain(..count) {
            self.earlier.units = self.earlier.units.saturating_add(order.units);
        }
        self.earlier.count = self.earlier.count.saturating_add(count as u64);
        self.earlier.through = through;
    }

    fn total(&self) -> i64 {
        let units = self.orders.iter().map(|order| order.units);
        units.fold(self.earlier.units, i64::saturating_add)
    }

    /// What an account of this key is about. Names of limits have no blanks.
    pub(super) fn subject(&self, key: &str) -> String {
        format!("{} {key}", self.limit)
    }

    /// The account of this key in a few words.
    pub(super) fn description(&self, key: &str) -> String {
        format!("{key} of {}: {} credits in all", self.limit, self.added())
    }

    /// Whether no part is too long. The limit has the bound of grants.
    pub(super) fn is_bounded(&self) -> bool {
        let mut orders = self.orders.iter();
        self.orders.len() <= CreditTerms::MAX_JOINED_ORDERS
            && orders.all(|order| order.id.len() <= CreditOrder::MAX_ID_BYTES)
    }

    /// Whether gateways may have made these terms by this time.
    pub(super) fn is_possible(&self, latest: u64) -> bool {
        let is_ascending = self.orders.is_sorted_by(|first, second| first < second);
        let first = self.orders.first();
        let mut orders = self.orders.iter();
        let ids: HashSet<&str> = self.orders.iter().map(|order| &*order.id).collect();
        is_ascending
            && ids.len() == self.orders.len()
            && first.is_none_or(|order| self.earlier.through < order.at)
            && self.earlier.through < latest
            && self.earlier.units.unsigned_abs() <= MAX_EARLIER_UNITS
            && orders.all(|order| {
                order.at < latest
                    && CreditOrder::is_id(&order.id)
                    && (1..=u64::from(Rate::MAX_QUOTA)).contains(&order.units.unsigned_abs())
            })
            && !self.limit.contains([' ', '\t', '\n', '\r'])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3_600_000;
    /// A day of this century.
    const START: u64 = 1_800_000_000_000;

    fn account() -> CreditTerms {
        CreditTerms::new("prepaid".into())
    }

    /// Lets all gateways know what each of them knows.
    fn exchange_all(gateways: &mut [CreditTerms; 3]) {
        let all = gateways.iter().fold(account(), |all, one| all.join(one));
        *gateways = [all.clone(), all.clone(), all];
    }

    proptest! {
        /// Three gateways take orders, of which a client repeats some at another gateway, and exchange what they know. Each
        /// order is known to all before a week is over.
        #[test]
        fn no_order_is_lost_or_counted_twice(
            steps in proptest::collection::vec((0usize..3, 0usize..3, 0u8..4, 1i64..1_000, 0u64..40), 0..120),
        ) {
            let mut gateways = [account(), account(), account()];
            let (mut hours, mut exchanged_at, mut expected, mut count) = (0, 0, 0_i64, 0);
            for (number, (gateway, other, kind, units, pause)) in steps.into_iter().enumerate() {
                if hours + pause - exchanged_at > 6 * 24 {
                    exchange_all(&mut gateways);
                    exchanged_at = hours;
                }
                hours += pause;
                let wall_millis = START + hours * HOUR + number as u64;
                let id = format!("order-{number}");
                match kind {
                    0 => {
                        let joined = gateways[gateway].join(&gateways[other]);
                        gateways[gateway] = joined;
                    }
                    _ => {
                        let units = if kind == 3 { -units } else { units };
                        let added = gateways[gateway].add(id.clone(), units, wall_millis);
                        prop_assume!(added == Ok(true));
                        prop_assert_eq!(gateways[gateway].add(id.clone(), units, wall_millis + 1), Ok(false));
                        if kind == 2 {
                            // The client has got no response.
                            prop_assume!(gateways[other].add(id, units, wall_millis + 1_000).is_ok());
                        }
                        expected += units;
                        count += 1;
                    }
                }
                for terms in &gateways {
                    prop_assert!(terms.is_possible(u64::MAX) && terms.is_bounded(), "{terms:?}");
                }
            }
            exchange_all(&mut gateways);
            let terms = &gateways[0];
            prop_assert_eq!(terms.total(), expected);
            prop_assert_eq!(terms.earlier.count + terms.orders.len() as u64, count);
        }

        #[test]
        fn joins_come_in_any_order(
            orders in proptest::collection::vec((0usize..3, 0u8..9, 1i64..4, 0u64..20), 0..60),
            through in [0u64..12, 0u64..12, 0u64..12],
        ) {
            let mut accounts = [account(), account(), account()];
            for (index, id, units, at) in orders {
                let order = CreditOrder { at: 1 + at, units, id: format!("o{id}") };
                let mut one = account();
                one.orders.push(order);
                accounts[index] = accounts[index].join(&one);
            }
            for (terms, through) in accounts.iter_mut().zip(through) {
                terms.fold(terms.orders.partition_point(|order| order.at < through));
            }
            let [a, b, c] = &accounts;
            prop_assert_eq!(a.join(b), b.join(a));
            prop_assert_eq!(a.join(b).join(c), a.join(&b.join(c)));
            prop_assert_eq!(&a.join(a), a);
            prop_assert_eq!(a.join(b).join(b), a.join(b));
        }
    }

    #[test]
    fn an_order_is_added_once_and_never_changed() {
        let mut terms = account();
        assert_eq!(terms.add("inv-1".into(), 500, START), Ok(true));
        assert_eq!(terms.add("inv-1".into(), 500, START + HOUR), Ok(false));
        let other = terms.add("inv-1".into(), 501, START);
        assert_eq!(other, Err(GrantOrderError::OtherOrder("inv-1".into(), 500)));
        assert_eq!((terms.added(), terms.orders.len()), (500, 1));
    }

    #[test]
    fn only_old_orders_lose_their_ids() {
        let mut terms = account();
        let day = 24 * HOUR;
        for number in 0..20 {
            let added = terms.add(format!("o{number}"), 10, START + number * day);
            assert_eq!(added, Ok(true));
        }
        // The last order was made on the day 19, so those before the day 12 are counted together.
        assert_eq!((terms.earlier.count, terms.earlier.units), (12, 120));
        assert_eq!((terms.orders.len(), terms.added()), (8, 200));
        assert!(terms.order("o11").is_none() && terms.order("o12").is_some());
        let full = START + 19 * day;
        for number in 20..76 {
            assert_eq!(terms.add(format!("o{number}"), 1, full), Ok(true));
        }
        let refused = terms.add("more".into(), 1, full);
        assert_eq!(refused, Err(GrantOrderError::TooManyOrders(64)));
        assert_eq!(terms.add("later".into(), 1, full + 8 * day), Ok(true));
        assert_eq!((terms.orders.len(), terms.added()), (1, 257));
    }

    #[test]
    fn there_are_never_too_many_credits() {
        let mut terms = account();
        let most = i64::from(Rate::MAX_QUOTA);
        assert_eq!(terms.add("all".into(), most, START), Ok(true));
        let refused = terms.add("more".into(), 1, START);
        assert_eq!(
            refused,
            Err(GrantOrderError::TooManyCredits(Rate::MAX_QUOTA))
        );
        assert_eq!(terms.add("back".into(), -most, START), Ok(true));
        assert_eq!(terms.added(), 0);
        // Two gateways at once may pass the bound.
        let mut other = account();
        for terms in [&mut terms, &mut other] {
            assert_eq!(terms.add("more".into(), most - 1, START + 1), Ok(true));
        }
        assert_eq!(other.add("one".into(), 1, START + 1), Ok(true));
        let mut joined = terms.join(&other);
        joined.orders.retain(|order| order.id != "back");
        assert_eq!(joined.added(), Rate::MAX_QUOTA);
    }

    /// Four gateways that were apart for days, and a fifth one.
    #[test]
    fn orders_beyond_the_bound_count_without_their_ids() {
        let gateways = (0..5).map(|gateway| {
            let mut terms = account();
            for number in 0..CreditTerms::MAX_ORDERS as u64 {
                let at = START + 10 * number + gateway;
                assert_eq!(terms.add(format!("{gateway}-{number}"), 1, at), Ok(true));
            }
            terms
        });
        let joined = gateways.fold(account(), |all, one| all.join(&one));
        assert_eq!(joined.orders.len(), CreditTerms::MAX_JOINED_ORDERS);
        assert!(joined.is_bounded() && joined.is_possible(u64::MAX));
    }

    #[test]
    fn what_no_gateway_has_made_is_not_possible() {
        let mut sound = account();
        for (id, units) in [("a", 5), ("b", -2)] {
            assert_eq!(sound.add(id.into(), units, START), Ok(true));
        }
        assert!(sound.is_possible(START + 1) && !sound.is_possible(START));
        let check = |change: fn(&mut CreditTerms)| {
            let mut terms = sound.clone();
            change(&mut terms);
            assert!(!terms.is_possible(START + 10), "{terms:?}");
        };
        check(|terms| terms.orders.reverse());
        check(|terms| terms.orders[1].id = terms.orders[0].id.clone());
        check(|terms| terms.orders[0].units = 0);
        check(|terms| terms.orders[1].units = 1_000_000_001);
        check(|terms| terms.orders[0].units = i64::MIN);
        check(|terms| terms.orders[1].id = "no id".into());
        check(|terms| terms.earlier.through = START);
        check(|terms| terms.earlier.units = i64::MAX);
        check(|terms| terms.limit = "a b".into());
    }
}
