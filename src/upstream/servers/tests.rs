//! The state of servers: their health, the addresses of their names, and what reloads keep.

use std::task::{Context, Waker};
use std::time::Duration;

use super::*;
use crate::upstream::settings::{Bounds, Ejection, HealthCheck};
use crate::upstream::tests::{server, settings};

const NOW: Nanos = Nanos::from_secs(1_000);

fn servers(count: usize) -> Arc<Servers> {
    Servers::new(settings(count), None, NOW)
}

fn endpoint(servers: &Servers, server: usize) -> Endpoint {
    servers.endpoints()[server].clone()
}

fn fail(servers: &Servers, server: usize, times: usize) {
    (0..times).for_each(|_| servers.record_failure(&endpoint(servers, server), NOW));
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn states(servers: &Servers, now: Nanos) -> Vec<ServerState> {
    let endpoints = servers.endpoints();
    endpoints
        .iter()
        .map(|endpoint| servers.state(endpoint, now))
        .collect()
}

/// Callers that give up do not start a lookup each.
#[tokio::test]
async fn a_lookup_goes_on_without_its_caller() {
    let mut settings = settings(1);
    settings.servers[0].location = Location::Host("localhost".into(), 80);
    let servers = Servers::new(settings, None, NOW);
    let mut lookup = Box::pin(servers.look_up_name(0, NOW));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(lookup.as_mut().poll(cx).is_pending());
    drop(lookup);
    let changed = tokio::time::timeout(Duration::from_secs(30), servers.wait_for_change());
    changed.await.unwrap();
    assert!(endpoint(&servers, 0).address.is_some());
}

#[test]
fn never_more_than_half_is_ejected() {
    for count in 1..=7 {
        let servers = servers(count);
        (0..count).for_each(|server| fail(&servers, server, 10));
        let states = states(&servers, NOW);
        let ejected_count = states
            .iter()
            .filter(|state| **state == ServerState::Ejected)
            .count();
        assert_eq!(ejected_count, count / 2, "of {count}");
    }
}

#[test]
fn one_whose_time_is_over_is_asked_again_on_trial() {
    let servers = servers(3);
    let ejected = endpoint(&servers, 1);
    fail(&servers, 1, 2);
    assert!(servers.has_full_weight(&ejected));
    fail(&servers, 1, 1);
    assert_eq!(
        (
            servers.has_full_weight(&ejected),
            servers.weight_factor(&ejected, NOW)
        ),
        (false, 0)
    );
    let returned_at = NOW.after(Nanos::from_secs(10));
    assert_eq!(servers.weight_factor(&ejected, returned_at), MIN_FACTOR);
    assert_eq!(servers.state(&ejected, returned_at), ServerState::Starting);
    servers.record_failure(&ejected, returned_at);
    assert_eq!(servers.state(&ejected, returned_at), ServerState::Ejected);
    let returned_at = returned_at.after(Nanos::from_secs(20));
    assert_eq!(servers.weight_factor(&ejected, returned_at), MIN_FACTOR);
    ejected.health.record_response();
    assert!(servers.has_full_weight(&ejected));
    ejected.health.record_success();
    servers.record_failure(&ejected, returned_at);
    assert_eq!(servers.state(&ejected, returned_at), ServerState::Up);
}

#[test]
fn checks_may_take_all_out_and_leave_none_to_eject() {
    let mut settings = settings(2);
    settings.health_check = Some(HealthCheck {
        path: None,
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        fall: 3,
        rise: 2,
    });
    settings.slow_start = Some(Duration::from_secs(10));
    let servers = Servers::new(settings, None, NOW);
    servers.record_verdict(&endpoint(&servers, 0), false, NOW);
    fail(&servers, 1, 10);
    assert_eq!(
        states(&servers, NOW),
        [ServerState::Failing, ServerState::Up]
    );
    servers.record_verdict(&endpoint(&servers, 1), false, NOW);
    assert_eq!(
        states(&servers, NOW),
        [ServerState::Failing, ServerState::Failing]
    );
    servers.record_verdict(&endpoint(&servers, 0), true, NOW);
    assert_eq!(
        states(&servers, NOW),
        [ServerState::Starting, ServerState::Failing]
    );
    let later = NOW.after(Nanos::from_secs(10));
    assert_eq!(
        states(&servers, later),
        [ServerState::Up, ServerState::Failing]
    );
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
    let expected = [ServerState::Ejected, ServerState::Up, ServerState::Starting];
    assert_eq!(states(&after, NOW), expected);
    // Without the setting, an ejection no longer counts.
    changed.ejection = None;
    let after = Servers::new(changed, Some(&after), NOW);
    assert_eq!(after.state(&endpoint(&after, 0), NOW), ServerState::Up);
}

#[test]
fn bounds_hold() {
    let mut settings = settings(1);
    settings.bounds = Bounds {
        open: Some(2),
        pending: None,
    };
    settings.ejection = None::<Ejection>;
    let servers = Servers::new(settings, None, NOW);
    assert_eq!(servers.try_count_request(RequestBound::Open), Ok(()));
    assert_eq!(servers.try_count_request(RequestBound::Open), Ok(()));
    assert_eq!(servers.try_count_request(RequestBound::Open), Err(2));
    servers.uncount_request(RequestBound::Open);
    assert_eq!(servers.try_count_request(RequestBound::Open), Ok(()));
    assert!((0..100).all(|_| servers.try_count_request(RequestBound::Pending).is_ok()));
}

#[test]
fn each_address_of_a_name_is_a_server_of_its_own() {
    let mut settings = settings(1);
    settings.servers.insert(0, server("shop.internal", 80));
    settings.slow_start = Some(Duration::from_secs(10));
    let servers = Servers::new(settings.clone(), None, NOW);
    assert_eq!(endpoint(&servers, 0).address, None);
    let [first, second, third] = ["10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80"].map(address);
    servers.set_addresses(0, vec![second, first], NOW);
    assert_eq!(states(&servers, NOW), [ServerState::Up; 3]);
    let endpoints = servers.endpoints();
    servers.set_addresses(0, vec![first, second, first], NOW);
    assert!(servers.is_current(&endpoints), "the order does not count");
    assert_eq!(endpoints[1].to_string(), "shop.internal:80 at 10.1.0.2");
    assert_eq!(endpoints[2].to_string(), "10.0.0.1:9001");
    fail(&servers, 1, 3);
    assert_eq!(
        states(&servers, NOW),
        [ServerState::Up, ServerState::Ejected, ServerState::Up]
    );
    // One address stays, one is new, one is removed.
    let removed = endpoints[0].clone();
    servers.set_addresses(0, vec![third, second], NOW);
    let expected = [ServerState::Ejected, ServerState::Starting, ServerState::Up];
    assert_eq!(states(&servers, NOW), expected);
    assert!(
        !servers
            .endpoints()
            .iter()
            .any(|endpoint| endpoint.is_same(&removed))
    );
    // A reload keeps the states, and the counts stay when their address is removed.
    settings.servers.swap(0, 1);
    let after = Servers::new(settings, Some(&servers), NOW);
    let expected = [ServerState::Up, ServerState::Ejected, ServerState::Starting];
    assert_eq!(states(&after, NOW), expected);
    after.set_addresses(1, vec![first], NOW);
    let mut visited = Vec::new();
    after.for_each_server(|name, endpoints, removed_counts| {
        visited.push((name.to_owned(), endpoints.len(), removed_counts.ejections));
    });
    let expected = [
        ("10.0.0.1:9001".into(), 1, 0),
        ("shop.internal:80".into(), 1, 1),
    ];
    assert_eq!(visited, expected);
}
