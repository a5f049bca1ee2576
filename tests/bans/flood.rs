//! Floods of clients that limits ban: what they take, and what they displace.

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tollgate::base::clock::{Clock, Nanos};
use tollgate::identity::{
    ClientIdentity, IdentificationStage, Identifier, Keyer, Settings as IdentitySettings,
};
use tollgate::limit::{BanPolicy, Identity, LimitName, RateLimit, Rule};
use tollgate::operator::{BanRegistry, EntryRegistry, NewBan};

use crate::common::wait_until;
use crate::{Site, from, json_of};

/// The clients that a flood brings; each is banned.
const OFFENDERS: u32 = 1_000_000;
/// The same by requests, of which each takes two.
const REQUESTING_OFFENDERS: u32 = 30_000;
/// The offenders between two refreshes: as many as a registry takes.
const BATCH: u32 = BanRegistry::MAX_BANS as u32;
/// What a flood may add to the peak memory of a registry, in MiB.
const MAX_MIB: u64 = 64;

/// Bans whoever is refused once, for an hour.
const POLICY: BanPolicy = BanPolicy {
    refusals: 1,
    within: Nanos::from_secs(60),
    first: Nanos::from_secs(3_600),
    up_to: Nanos::from_secs(3_600),
};

/// A line of a process's status in MiB, such as `VmHWM` for the most memory that it ever had.
fn mib(process: &str, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.unwrap().trim_start_matches(':').trim();
    kib.trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

fn order(key: &str, seconds: u64) -> NewBan {
    NewBan {
        key: key.into(),
        duration: std::time::Duration::from_secs(seconds),
        reason: "an order".into(),
        by: "ann".into(),
    }
}

/// The address of an offender.
fn address(number: u32) -> IpAddr {
    IpAddr::from((number + 0x0b00_0000).to_be_bytes())
}

/// All of a gateway's bans but its requests: the limit's reports, the refreshes that ban, the file and the index.
#[test]
fn a_million_banned_addresses_displace_no_order_and_take_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders");
    let clock = Clock::manual(Nanos::from_secs(1_000_000));
    let entries = EntryRegistry::open(Some(&path), true, clock.clone());
    let entries = Arc::new(entries.unwrap());
    let registry = BanRegistry::new(entries.clone());
    let identifier = || Identifier::new(IdentitySettings::default(), Keyer::new([3; 16]));
    let refresh = || {
        registry.ban_offenders();
        let refreshed = entries.refresh();
        registry.publish(&refreshed, 1, identifier);
        refreshed.changes.len()
    };
    let for_reports = identifier();
    let rate = "1/h".parse().unwrap();
    let name = LimitName::new("few").unwrap();
    let rule = Rule::new(name, 0, &[Identity::Ip], RateLimit::hard(rate));
    let users: Vec<String> = (0..100).map(|number| format!("u{number}")).collect();
    for user in &users {
        // They end before the others, and stay nevertheless.
        let order = order(&format!("user={user}"), 1_800);
        registry.ban(order, &for_reports).unwrap();
    }
    let before = mib("self", "VmHWM");
    let (mut begun, mut most) = (0, 0);
    for number in 0..OFFENDERS {
        let client = ClientIdentity::new(address(number));
        let key = for_reports.key(&client, &rule.key).unwrap();
        registry.report_refusal((&rule, &POLICY), key, &client, &for_reports, clock.now());
        if number % BATCH == BATCH - 1 {
            clock.advance(Nanos::from_millis(200));
            begun += refresh();
            most = most.max(registry.count());
        }
    }
    entries.save();
    let peak = mib("self", "VmHWM");
    let file_bytes = fs::metadata(&path).unwrap().len();
    println!(
        "{OFFENDERS} banned addresses: {before} MiB before, {peak} MiB at the peak, {most} bans at a time, \
         {file_bytes} bytes on the disk"
    );
    assert!(begun >= OFFENDERS as usize, "{begun} were banned");
    assert_eq!(most, BanRegistry::MAX_BANS);
    assert!(
        peak <= before + MAX_MIB,
        "{before} MiB before, {peak} MiB at the peak"
    );
    assert!(file_bytes < 5 << 20, "{file_bytes}");
    let index = registry.index();
    let latest = (OFFENDERS - BATCH..OFFENDERS).map(address);
    let refused = latest.filter(|ip| index.find_address(*ip, clock.now()).is_some());
    let room = BanRegistry::MAX_BANS - users.len();
    assert_eq!(refused.count(), room, "the latest offenders are refused");
    for user in &users {
        let mut client = ClientIdentity::new([203, 0, 113, 7].into());
        client.user = Some(user.as_str().into());
        let stage = IdentificationStage::Whole;
        let ban = index.find_client(&client, &for_reports, stage, clock.now());
        assert!(ban.is_some(), "{user} is still banned");
    }
    let listed = registry.list();
    let ordered = listed.iter().filter(|ban| !ban.entry.is_automatic());
    assert_eq!(ordered.count(), users.len(), "every order is left");
    registry
        .ban(order("198.51.100.1", 60), &for_reports)
        .unwrap();
}

/// The same by requests.
#[test]
fn a_spray_of_offenders_displaces_no_order() {
    let site = Site::start(
        "limits: { few: { key: ip, rate: 1/h, ban: { after: 1 refusal in 10m, for: 1h } } }\n",
    );
    let orders: Vec<String> = (0..100)
        .map(|number| format!("user=u{number:03}"))
        .collect();
    for key in &orders {
        assert_eq!(site.ban(&json!({ "key": key, "for": "30m" })).status(), 200);
    }
    let peak = || mib(&site.server.id().to_string(), "VmHWM");
    let before = peak();
    // Each address is refused once by its second request; a batch is pipelined on one connection.
    let offenders = REQUESTING_OFFENDERS;
    for batch in (0..offenders).collect::<Vec<u32>>().chunks(500) {
        let mut client = site.server.connect();
        let mut text = String::new();
        for number in batch {
            let [_, a, b, c] = number.to_be_bytes();
            let fields = from(&format!("100.{a}.{b}.{c}"));
            text += &crate::request(&fields).repeat(2);
        }
        client.send(text);
        for _ in 0..batch.len() * 2 {
            client.answer();
        }
    }
    wait_until("bans are full", || site.bans().len() == 10_000);
    let keys = site.keys();
    assert!(
        orders.iter().all(|key| keys.contains(key)),
        "every order is left"
    );
    let after = peak();
    println!("{offenders} offenders: {before} MiB before, {after} MiB at the peak");
    assert!(
        after < before + 200,
        "{before} MiB before, {after} MiB at the peak"
    );
    let order = site.ban(&json!({ "key": "user=late" }));
    assert_eq!(order.status(), 200, "there is room for orders");
    let events = |query: &str| {
        let path = format!("/v1/record/events?from=-1h&most=1000&{query}");
        let events = json_of(&site.server.ask("GET", &path, ""))["events"].clone();
        events.as_array().unwrap().clone()
    };
    assert_eq!(events("audit=true").len(), orders.len() + 1);
    let changes = events("audit=false");
    let is_offender = |event: &&Value| event["detail"].as_str().unwrap().starts_with("ip=100.");
    let named = changes.iter().filter(is_offender).count();
    assert_eq!(named, 60, "the record is for orders");
}
