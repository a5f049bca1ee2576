//! [`CreditTerms`]: the orders of an account of credits, as a part of an entry's text. Its names must not change. Changes
//! of an account by several gateways are joined, so that no order is lost, whichever gateway took it.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use super::error::GrantOrderError;
use crate::identity::Keyer;
use crate::limit::Rate;

/// For so long an order keeps its id, in milliseconds. Within this time all gateways must have seen it.
const KEPT_MILLIS: u64 = 7 * 86_400_000;
/// An account of at most so many orders keeps the ids of all of them, however old they are.
const KEPT_ORDERS: usize = 8;
/// The largest total of orders that are counted together.
const MAX_EARLIER_UNITS: i64 = 1_000_000_000_000_000;

/// The account of a key of a limit with credits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditTerms {
    /// The limit, as grants name it.
    pub limit: String,
    /// What is kept of orders that have lost their ids.
    #[serde(default)]
    pub earlier: EarlierOrders,
    /// The other orders: ascending by time and id, each id once. At most [`CreditTerms::MAX_JOINED_ORDERS`].
    pub orders: Vec<CreditOrder>,
}

/// Orders of an account that are counted together. The greater one has more of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EarlierOrders {
    /// The time of the last one, in milliseconds since 1970. All orders until then are among them.
    pub through: u64,
    /// How many there are.
    pub count: u64,
    /// What the account had in all after them. Never below 0.
    pub units: i64,
}

/// One order of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CreditOrder {
    /// When it was ordered, in milliseconds since 1970: later than all orders that its gateway knew.
    pub at: u64,
    /// The id that the caller has given, or a random one.
    pub id: String,
    /// The credits that it adds; below 0 if it takes some back.
    pub units: i64,
    /// What the account has in all after an order that takes credits back, whatever came before: those that were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
}

impl CreditOrder {
    /// Most bytes of an id.
    pub const MAX_ID_BYTES: usize = 64;

    /// An id for an order that has none: without it, a repeated order would count twice.
    pub fn random_id() -> String {
        format!("{:016x}", Keyer::random().seed())
    }

    /// Whether a text is an id.
    pub fn is_id(text: &str) -> bool {
        let is_id_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        (1..=CreditOrder::MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(is_id_byte)
    }
}

impl CreditTerms {
    /// Most orders of an account within [`KEPT_MILLIS`].
    pub const MAX_ORDERS: usize = 64;
    /// Most orders of an account that several gateways have taken before they knew of each other's: those of 16 gateways.
    /// What has more of them is not taken over.
    pub const MAX_JOINED_ORDERS: usize = 16 * CreditTerms::MAX_ORDERS;

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
        units: u32,
        wall_millis: u64,
    ) -> Result<bool, GrantOrderError> {
        let units = i64::from(units);
        if let Some(held) = self.order(&id) {
            return match held.units == units {
                true => Ok(false),
                false => Err(GrantOrderError::OtherOrder(id, held.units)),
            };
        }
        if self.total().saturating_add(units) > i64::from(Rate::MAX_QUOTA) {
            return Err(GrantOrderError::TooManyCredits(self.added()));
        }
        self.fold_old(wall_millis);
        if self.orders.len() >= CreditTerms::MAX_ORDERS {
            return Err(GrantOrderError::TooManyOrders(CreditTerms::MAX_ORDERS));
        }
        self.push(id, units, None, wall_millis);
        Ok(true)
    }

    /// Takes back what is beyond the credits that were used. Returns whether that is anything. Such an order needs no
    /// bound: between two of them there is one that adds credits.
    pub fn take_back(&mut self, id: String, used: u32, wall_millis: u64) -> bool {
        let taken = self.total() - i64::from(used);
        if taken <= 0 {
            return false;
        }
        self.fold_old(wall_millis);
        let units = taken.min(i64::from(Rate::MAX_QUOTA));
        self.push(id, -units, Some(used), wall_millis);
        true
    }

    /// Adds an order after all others: before an order that takes credits back, it would be taken back too.
    fn push(&mut self, id: String, units: i64, to: Option<u32>, wall_millis: u64) {
        let last = self.orders.last().map_or(0, |order| order.at);
        let at = wall_millis.max(last.max(self.earlier.through).saturating_add(1));
        self.orders.push(CreditOrder { at, id, units, to });
    }

    /// The account with the orders of both. The order of several joins does not matter, and none counts twice. Of two
    /// orders with one id the later one counts, and of those of one time the larger one.
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
        CreditTerms {
            limit: self.limit.clone(),
            earlier,
            orders,
        }
    }

    /// The first order of which the other account has one with the same id and other units.
    pub(super) fn conflict(&self, other: &CreditTerms) -> Option<&CreditOrder> {
        let mut orders = self.orders.iter();
        orders.find(|order| {
            let held = other.order(&order.id);
            held.is_some_and(|held| held.units != order.units)
        })
    }

    /// Counts old orders together, but not the last ones. A clock that is ahead makes none of them old, unless there is
    /// no other way to take one more.
    fn fold_old(&mut self, wall_millis: u64) {
        let last = self.orders.last().map_or(0, |order| order.at);
        let now = match self.orders.len() < CreditTerms::MAX_ORDERS {
            true => wall_millis.min(last),
            false => wall_millis,
        };
        let oldest_kept = now.saturating_sub(KEPT_MILLIS);
        let old_count = self.orders.partition_point(|order| order.at < oldest_kept);
        self.fold(old_count.min(self.orders.len().saturating_sub(KEPT_ORDERS)));
    }

    /// Counts the first orders together, except those of the time of the first one that stays.
    fn fold(&mut self, count: usize) {
        let count = match self.orders.get(count) {
            Some(kept) => self.orders.partition_point(|order| order.at < kept.at),
            None => self.orders.len(),
        };
        let Some(last) = count.checked_sub(1).and_then(|last| self.orders.get(last)) else {
            return;
        };
        self.earlier = EarlierOrders {
            through: last.at,
            count: self.earlier.count.saturating_add(count as u64),
            units: total_after(self.earlier.units, &self.orders[..count]),
        };
        self.orders.drain(..count);
    }

    fn total(&self) -> i64 {
        total_after(self.earlier.units, &self.orders)
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

    /// Whether a gateway whose clock is right may have taken these orders. It is too late for an order after `latest`.
    pub(super) fn is_credible(&self, wall_millis: u64, latest: u64) -> bool {
        let last = self.orders.last();
        self.earlier.through <= wall_millis && last.is_none_or(|order| order.at <= latest)
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
            && (0..=MAX_EARLIER_UNITS).contains(&self.earlier.units)
            && orders.all(|order| {
                order.at < latest
                    && CreditOrder::is_id(&order.id)
                    && (1..=u64::from(Rate::MAX_QUOTA)).contains(&order.units.unsigned_abs())
                    && order.to.is_some() == (order.units < 0)
                    && order.to.is_none_or(|to| to <= Rate::MAX_QUOTA)
            })
            && !self.limit.contains([' ', '\t', '\n', '\r'])
    }
}

/// What an account has in all after these orders, one by one.
fn total_after(units: i64, orders: &[CreditOrder]) -> i64 {
    orders.iter().fold(units, |total, order| match order.to {
        Some(used) => total.min(i64::from(used)),
        None => total.saturating_add(order.units),
    })
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
            steps in proptest::collection::vec((0usize..3, 0usize..3, 0u8..3, 1u32..1_000, 0u64..40), 0..120),
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
                    0 => gateways[gateway] = gateways[gateway].join(&gateways[other]),
                    _ => {
                        let added = gateways[gateway].add(id.clone(), units, wall_millis);
                        prop_assume!(added == Ok(true));
                        prop_assert_eq!(gateways[gateway].add(id.clone(), units, wall_millis + 1), Ok(false));
                        if kind == 2 {
                            // The client has got no response.
                            prop_assume!(gateways[other].add(id, units, wall_millis + 1_000).is_ok());
                        }
                        expected += i64::from(units);
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
            orders in proptest::collection::vec((0usize..3, 0u8..9, -2i64..4, 0u64..20), 0..60),
            through in [0u64..12, 0u64..12, 0u64..12],
        ) {
            let mut accounts = [account(), account(), account()];
            for (index, id, units, at) in orders {
                let to = (units < 0).then_some(2);
                let order = CreditOrder { at: 1 + at, id: format!("o{id}"), units, to };
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
        // The last order but one was made on the day 18, so those before the day 11 are counted together.
        assert_eq!((terms.earlier.count, terms.earlier.units), (11, 110));
        assert_eq!((terms.orders.len(), terms.added()), (9, 200));
        assert!(terms.order("o10").is_none() && terms.order("o11").is_some());
        let full = START + 19 * day;
        for number in 20..76 {
            assert_eq!(terms.add(format!("o{number}"), 1, full), Ok(true));
        }
        let refused = terms.add("more".into(), 1, full);
        assert_eq!(refused, Err(GrantOrderError::TooManyOrders(64)));
        // Only a full account believes the clock alone. The last eight orders keep their ids also then.
        assert_eq!(terms.add("later".into(), 1, full + 8 * day), Ok(true));
        assert_eq!((terms.orders.len(), terms.added()), (9, 257));
        assert_eq!(terms.add("o68".into(), 1, full + 30 * day), Ok(false));
    }

    /// An order a month: the client of the last but two repeats it.
    #[test]
    fn the_last_orders_keep_their_ids_however_old_they_are() {
        let mut terms = account();
        for month in 0..12 {
            let at = START + month * 30 * 24 * HOUR;
            assert_eq!(terms.add(format!("inv-{month}"), 100, at), Ok(true));
            if let Some(repeated) = month.checked_sub(7) {
                assert_eq!(terms.add(format!("inv-{repeated}"), 100, at), Ok(false));
            }
        }
        assert_eq!((terms.added(), terms.earlier.count), (1_200, 3));
    }

    #[test]
    fn a_clock_that_is_ahead_makes_no_order_old() {
        let mut terms = account();
        for number in 0..20 {
            assert_eq!(terms.add(format!("o{number}"), 1, START), Ok(true));
        }
        let ahead = START + 30 * 24 * HOUR;
        assert_eq!(terms.add("ahead".into(), 1, ahead), Ok(true));
        assert_eq!((terms.earlier.count, terms.orders.len()), (0, 21));
    }

    /// Two gateways take back at once, and know different orders.
    #[test]
    fn what_is_taken_back_twice_takes_nothing_of_the_next_credits() {
        let (mut first, mut second) = (account(), account());
        for terms in [&mut first, &mut second] {
            assert_eq!(terms.add("a".into(), 500, START), Ok(true));
        }
        assert_eq!(second.add("b".into(), 300, START + 1), Ok(true));
        assert!(first.take_back("r1".into(), 100, START + 2));
        assert!(second.take_back("r2".into(), 100, START + 2));
        assert!(!first.take_back("r3".into(), 100, START + 3));
        let mut joined = first.join(&second);
        assert_eq!(joined.added(), 100);
        // Also by a clock that is behind.
        assert_eq!(joined.add("c".into(), 50, START - HOUR), Ok(true));
        assert_eq!(joined.added(), 150);
        let whole = joined.total();
        joined.fold(3);
        assert_eq!(
            (joined.total(), joined.is_possible(u64::MAX)),
            (whole, true)
        );
    }

    #[test]
    fn there_are_never_too_many_credits() {
        let mut terms = account();
        let most = Rate::MAX_QUOTA;
        assert_eq!(terms.add("all".into(), most, START), Ok(true));
        let refused = terms.add("more".into(), 1, START);
        assert_eq!(
            refused,
            Err(GrantOrderError::TooManyCredits(Rate::MAX_QUOTA))
        );
        assert!(terms.take_back("back".into(), 0, START));
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
        // All of that is taken back.
        assert!(joined.take_back("again".into(), 7, START + 2));
        assert_eq!((joined.added(), joined.is_possible(u64::MAX)), (7, true));
    }

    #[test]
    fn what_no_gateway_has_made_is_not_possible() {
        let mut sound = account();
        for (id, units) in [("a", 5), ("b", 2)] {
            assert_eq!(sound.add(id.into(), units, START), Ok(true));
        }
        assert!(sound.is_possible(START + 2) && !sound.is_possible(START + 1));
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
        check(|terms| terms.orders[1].units = -2);
        check(|terms| terms.orders[0].to = Some(3));
        check(|terms| terms.earlier.units = -1);
        check(|terms| terms.orders[1].id = "no id".into());
        check(|terms| terms.earlier.through = START);
        check(|terms| terms.earlier.units = i64::MAX);
        check(|terms| terms.limit = "a b".into());
    }
}
