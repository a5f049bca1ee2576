//! What the process knows of the servers of one upstream, for all workers: what one of them finds out
//! serves all. Made anew by a reload that changes the upstream; what is known of servers that stay is
//! kept. Reads no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use super::addresses::Addresses;
use super::gate::Gate;
use super::health::{EJECTED, FAILING, FULL, Health, LEAST, STARTING, TRIAL};
use super::{Server, Settings};
use crate::clock::Nanos;
use crate::pressure::{Around, Controller, Pressure};

/// See the module.
#[derive(Debug)]
pub struct Servers {
    /// What it was made from.
    pub settings: Settings,
    all: Vec<Known>,
    /// Which flags count here.
    mask: u8,
    /// Requests that count for the bounds.
    open: AtomicU32,
    pending: AtomicU32,
    steering: Option<Arc<Steering>>,
    /// Outlives reloads.
    core: Arc<Core>,
}

/// How much the upstream bears, where something gives way to it.
#[derive(Debug)]
struct Steering {
    pressure: Arc<Pressure>,
    controller: Mutex<Controller>,
}

#[derive(Debug, Default)]
struct Core {
    gate: Gate,
    /// Held while servers are counted to eject one, and never across a wait.
    ejecting: Mutex<()>,
}

/// One server.
#[derive(Clone, Debug)]
pub struct Known {
    /// `host:port`.
    pub name: Arc<str>,
    /// Whether it may be asked.
    pub health: Arc<Health>,
    /// Where it is.
    pub addresses: Arc<Addresses>,
}

/// How a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is asked.
    Up,
    /// It is asked less than its weight says.
    Starting,
    /// It is left alone because requests to it failed.
    Ejected,
    /// It is left alone because its checks fail.
    Failing,
}

impl State {
    /// Whether requests go to it.
    pub fn is_asked(self) -> bool {
        matches!(self, State::Up | State::Starting)
    }

    /// As the admin listener writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Up => "up",
            State::Starting => "starting",
            State::Ejected => "ejected",
            State::Failing => "failing",
        }
    }
}

/// Which bound an upstream has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Open requests.
    Open,
    /// Requests that wait for a connection.
    Pending,
}

/// That of before, if there was one: what it has learnt holds, however it is steered from now on.
fn steering(
    settings: &Settings,
    before: Option<&Arc<Servers>>,
    now: Nanos,
) -> Option<Arc<Steering>> {
    let wanted = settings.pressure.clone()?;
    if let Some(kept) = before.and_then(|before| before.steering.clone()) {
        kept.controller.lock().set(wanted);
        return Some(kept);
    }
    let (pressure, controller) = Controller::new(wanted, 1, now);
    let controller = Mutex::new(controller);
    Some(Arc::new(Steering {
        pressure,
        controller,
    }))
}

impl Servers {
    /// Knows what `before` knew of servers that stay.
    pub fn new(settings: Settings, before: Option<&Arc<Servers>>, now: Nanos) -> Arc<Servers> {
        if let Some(before) = before.filter(|before| before.settings == settings) {
            return before.clone();
        }
        let kept = |server: &Server| {
            let before = before?;
            let same = |other: &Server| other.is(server);
            let place = before.settings.servers.iter().position(same)?;
            before.all.get(place).cloned()
        };
        let all = settings.servers.iter().map(|server| {
            kept(server).unwrap_or_else(|| {
                let health = Arc::new(Health::default());
                if before.is_some() {
                    health.start_slowly(now);
                }
                Known {
                    name: server.authority().into(),
                    health,
                    addresses: Arc::new(Addresses::new(server)),
                }
            })
        });
        let counts = |flag, on| if on { flag } else { 0 };
        Arc::new(Servers {
            all: all.collect(),
            mask: counts(EJECTED | TRIAL, settings.eject.is_some())
                | counts(FAILING, settings.check.is_some())
                | counts(STARTING, settings.slow_start.is_some()),
            open: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            steering: steering(&settings, before, now),
            core: before.map_or_else(Arc::default, |before| before.core.clone()),
            settings,
        })
    }

    /// The pressure on it, where something gives way to that.
    pub fn pressure(&self) -> Option<&Arc<Pressure>> {
        self.steering.as_ref().map(|steering| &steering.pressure)
    }

    /// To be called every [`STEP`](crate::pressure::STEP), by one worker.
    pub fn steer(&self, now: Nanos, around: &Around) {
        if let Some(steering) = &self.steering {
            steering.controller.lock().step(now, around);
        }
    }

    /// All of them, in the order of the settings.
    pub fn all(&self) -> &[Known] {
        &self.all
    }

    /// Whether anybody may be asked for a connection.
    pub fn gate(&self) -> &Gate {
        &self.core.gate
    }

    /// Nothing is wrong with it.
    pub fn is_plain(&self, server: usize) -> bool {
        self.all[server].health.flags(self.mask) == 0
    }

    /// How much of its weight counts now, of [`FULL`]. Ends an ejection whose time is over.
    pub fn share(&self, server: usize, now: Nanos) -> u32 {
        let health = &self.all[server].health;
        self.readmit(server, now);
        let flags = health.flags(self.mask);
        if flags & (EJECTED | FAILING) != 0 {
            return 0;
        }
        match self.settings.slow_start {
            _ if flags & TRIAL != 0 => LEAST,
            Some(span) if flags & STARTING != 0 => health.started(span, now),
            _ => FULL,
        }
    }

    fn readmit(&self, server: usize, now: Nanos) {
        let Known { name, health, .. } = &self.all[server];
        let Some(eject) = self.settings.eject.filter(|_| health.is_due(now)) else {
            return;
        };
        let _one = self.core.ejecting.lock();
        if health.is_due(now) {
            health.readmit(eject, now);
            tracing::info!(upstream = %self.settings.name, server = %name, "asked again, on trial");
        }
    }

    /// It has begun to answer a request.
    pub fn answers(&self, server: usize) {
        self.all[server].health.answers();
    }

    /// A request to it was answered to the end.
    pub fn succeeded(&self, server: usize) {
        self.all[server].health.succeeded();
    }

    /// A request to it failed. Ejects it when that is too often, but never so that less than half of
    /// the servers are left.
    pub fn failed(&self, server: usize, now: Nanos) {
        let Known { name, health, .. } = &self.all[server];
        let Some(eject) = self.settings.eject else {
            return;
        };
        if !health.failed(eject.after) {
            return;
        }
        let _one = self.core.ejecting.lock();
        let out = |known: &&Known| known.health.flags(self.mask) & (EJECTED | FAILING) != 0;
        let others = self.all.iter().filter(out).count();
        if health.flags(EJECTED) != 0 || (others + 1) * 2 > self.all.len() {
            return;
        }
        let length = health.eject(eject, now);
        tracing::warn!(upstream = %self.settings.name, server = %name, ?length, "ejected");
    }

    /// Its checks have come to a verdict.
    pub fn judged(&self, server: usize, well: bool, now: Nanos) {
        let Known { name, health, .. } = &self.all[server];
        health.judged(well, now);
        let upstream = &self.settings.name;
        if well {
            tracing::info!(%upstream, server = %name, "its checks succeed again");
        } else {
            tracing::warn!(%upstream, server = %name, "its checks fail");
        }
    }

    /// How it stands.
    pub fn state(&self, server: usize, now: Nanos) -> State {
        let starting = self.share(server, now) < FULL;
        match self.all[server].health.flags(self.mask) {
            flags if flags & FAILING != 0 => State::Failing,
            flags if flags & EJECTED != 0 => State::Ejected,
            _ if starting => State::Starting,
            _ => State::Up,
        }
    }

    /// Counts a request in, or says which bound forbids it. Undone by [`Servers::leave`].
    pub fn enter(&self, bound: Bound) -> Result<(), u32> {
        let (count, most) = self.bound(bound);
        let Some(most) = most else { return Ok(()) };
        if count.fetch_add(1, Relaxed) < most {
            return Ok(());
        }
        count.fetch_sub(1, Relaxed);
        Err(most)
    }

    /// Counts a request in, whatever the bound: one that is repeated has its place already, and leaves it when
    /// it has the next. Undone by [`Servers::leave`].
    pub fn enter_again(&self, bound: Bound) {
        if let (count, Some(_)) = self.bound(bound) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts it out again.
    pub fn leave(&self, bound: Bound) {
        if let (count, Some(_)) = self.bound(bound) {
            count.fetch_sub(1, Relaxed);
        }
    }

    fn bound(&self, bound: Bound) -> (&AtomicU32, Option<u32>) {
        match bound {
            Bound::Open => (&self.open, self.settings.bounds.open),
            Bound::Pending => (&self.pending, self.settings.bounds.pending),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::upstream::settings::{Bounds, Check, Eject};
    use crate::upstream::tests::settings;

    const NOW: Nanos = Nanos::from_secs(1_000);

    fn servers(count: usize) -> Arc<Servers> {
        Servers::new(settings(count), None, NOW)
    }

    fn fail(servers: &Servers, server: usize, times: usize) {
        (0..times).for_each(|_| servers.failed(server, NOW));
    }

    fn states(servers: &Servers, now: Nanos) -> Vec<State> {
        (0..servers.all.len())
            .map(|server| servers.state(server, now))
            .collect()
    }

    #[test]
    fn never_more_than_half_is_ejected() {
        for count in 1..=7 {
            let servers = servers(count);
            (0..count).for_each(|server| fail(&servers, server, 10));
            let out = states(&servers, NOW);
            let out = out.iter().filter(|state| **state == State::Ejected).count();
            assert_eq!(out, count / 2, "of {count}");
        }
    }

    #[test]
    fn one_whose_time_is_over_is_asked_again_on_trial() {
        let servers = servers(3);
        fail(&servers, 1, 2);
        assert!(servers.is_plain(1));
        fail(&servers, 1, 1);
        assert_eq!((servers.is_plain(1), servers.share(1, NOW)), (false, 0));
        let back = NOW.after(Nanos::from_secs(10));
        assert_eq!(servers.share(1, back), LEAST);
        assert_eq!(servers.state(1, back), State::Starting);
        servers.failed(1, back);
        assert_eq!(servers.state(1, back), State::Ejected);
        let back = back.after(Nanos::from_secs(20));
        assert_eq!(servers.share(1, back), LEAST);
        servers.answers(1);
        assert!(servers.is_plain(1));
        servers.succeeded(1);
        servers.failed(1, back);
        assert_eq!(servers.state(1, back), State::Up);
    }

    #[test]
    fn checks_may_take_all_out_and_leave_none_to_eject() {
        let mut settings = settings(2);
        settings.check = Some(Check {
            path: None,
            every: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            fall: 3,
            rise: 2,
        });
        settings.slow_start = Some(Duration::from_secs(10));
        let servers = Servers::new(settings, None, NOW);
        servers.judged(0, false, NOW);
        fail(&servers, 1, 10);
        assert_eq!(states(&servers, NOW), [State::Failing, State::Up]);
        servers.judged(1, false, NOW);
        assert_eq!(states(&servers, NOW), [State::Failing, State::Failing]);
        servers.judged(0, true, NOW);
        assert_eq!(states(&servers, NOW), [State::Starting, State::Failing]);
        let later = NOW.after(Nanos::from_secs(10));
        assert_eq!(states(&servers, later), [State::Up, State::Failing]);
    }

    #[test]
    fn a_reload_keeps_what_is_known_of_servers_that_stay() {
        let before = servers(2);
        fail(&before, 1, 3);
        assert!(Arc::ptr_eq(
            &before,
            &Servers::new(settings(2), Some(&before), NOW)
        ));
        let mut changed = settings(3);
        changed.servers.swap(0, 1);
        changed.servers[0].weight = 5;
        changed.slow_start = Some(Duration::from_secs(10));
        let after = Servers::new(changed.clone(), Some(&before), NOW);
        let expected = [State::Ejected, State::Up, State::Starting];
        assert_eq!(states(&after, NOW), expected);
        // What nobody decides any more does not count.
        changed.eject = None;
        let after = Servers::new(changed, Some(&after), NOW);
        assert_eq!(after.state(0, NOW), State::Up);
    }

    #[test]
    fn bounds_hold() {
        let mut settings = settings(1);
        settings.bounds = Bounds {
            open: Some(2),
            pending: None,
        };
        settings.eject = None::<Eject>;
        let servers = Servers::new(settings, None, NOW);
        assert_eq!(servers.enter(Bound::Open), Ok(()));
        assert_eq!(servers.enter(Bound::Open), Ok(()));
        assert_eq!(servers.enter(Bound::Open), Err(2));
        servers.leave(Bound::Open);
        assert_eq!(servers.enter(Bound::Open), Ok(()));
        assert!((0..100).all(|_| servers.enter(Bound::Pending).is_ok()));
    }
}
