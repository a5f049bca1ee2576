//! What is mapped back to the client's view leads to the client's host and below the stripped prefix, and ends no field;
//! for requests the mapping is undone. Everything else stays.
#![no_main]

use http::Uri;
use libfuzzer_sys::fuzz_target;
use tollgate::route::canonical_host::canonical_host;
use tollgate::route::{BackMapping, ForwardedPlace, PathChange, ServerOrigin};

const CHANGES: [[&str; 2]; 5] = [
    ["/data", ""],
    ["/data", "/x/y"],
    ["", "/x"],
    ["", ""],
    ["/it's", ""],
];

fuzz_target!(|data: (u8, &str)| {
    let (choice, text) = data;
    let [strip, prefix] = CHANGES[usize::from(choice) % CHANGES.len()];
    let change = PathChange {
        strip: strip.into(),
        prefix: prefix.into(),
    };
    check_path(&change, text);
    let server = ServerOrigin {
        is_tls: false,
        name: "127.0.0.1".into(),
        port: 9001,
    };
    let mapping = BackMapping::new(&change, [server].into());
    let is_tls = choice & 0x80 != 0;
    let own_host = choice & 0x40 != 0;
    let place = ForwardedPlace {
        host: if own_host { "own.test" } else { "shop.test" },
        client_host: Some("shop.test"),
        is_tls,
    };
    if let Some(mapped) = mapping.map_url(text.as_bytes(), place) {
        check_value(&mapped);
        check_url(strip, &mapped);
        check_tail(text, &mapped);
    }
    if let Some(mapped) = mapping.map_refresh(text.as_bytes(), place) {
        check_value(&mapped);
    }
    if let Some(mapped) = mapping.map_cookie(text.as_bytes(), place) {
        check_value(&mapped);
        check_cookie(text, &mapped);
    }
});

/// A path that can be changed is changed back by the inverse, and the forwarded one begins with the prefix.
fn check_path(change: &PathChange, text: &str) {
    let Ok(target) = text.parse::<Uri>() else {
        return;
    };
    let Ok(forwarded) = change.forwarded_target(&target) else {
        return;
    };
    let path = forwarded.path();
    assert!(path.starts_with('/') && !(change.prefix.is_empty() && path.starts_with("//")));
    let below = path.strip_prefix(&*change.prefix);
    assert!(below.is_some_and(|below| below.is_empty() || below.starts_with('/')));
    assert_eq!(forwarded.query(), target.query());
    if let Ok(rest) = change.inverse().rest(path) {
        let back = format!("{}{rest}", change.strip);
        // The root of a path without a prefix is the prefix itself, or a slash behind it.
        assert!(back == target.path() || back == format!("{}/", target.path()));
    }
}

/// No value ends a field.
fn check_value(mapped: &str) {
    assert!(!mapped.bytes().any(|byte| byte.is_ascii_control()));
}

/// A mapped URL is a path, or has the client's host.
fn check_url(strip: &str, mapped: &str) {
    let absolute = mapped.split_once("://").filter(|(scheme, _)| {
        ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    });
    let parts = absolute.map(|(_, rest)| rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())));
    // The host may be spelled otherwise: in capitals, with a dot behind it, or with an empty port.
    if let Some((authority, _)) = parts {
        assert_eq!(canonical_host(authority).as_deref(), Some("shop.test"), "{mapped}");
    }
    let is_absolute = parts.is_some();
    let path = parts.map_or(mapped, |(_, path)| path);
    assert!(path.starts_with('/'), "{mapped}");
    assert!(is_absolute || !path.starts_with("//") && !path.starts_with("/\\"));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let below = path.strip_prefix(strip);
    assert!(below.is_some_and(|below| below.is_empty() || below.starts_with('/')));
    let mut segments = path.split('/');
    assert!(!segments.any(|segment| matches!(segment, "." | "..")));
}

/// The query and the fragment stay.
fn check_tail(text: &str, mapped: &str) {
    let tail = |url: &str| {
        let (_, rest) = url.split_once("//").unwrap_or(("", url));
        let rest = if url.starts_with('/') && !url.starts_with("//") { url } else { rest };
        rest.find(['?', '#']).map(|start| rest[start..].to_owned())
    };
    assert_eq!(tail(text), tail(mapped));
}

/// Only the path of a cookie changes, or its domain goes. Its name and value and the number of other attributes stay.
fn check_cookie(text: &str, mapped: &str) {
    let pair = |cookie: &str| cookie.split(';').next().map(str::to_owned);
    assert_eq!(pair(text), pair(mapped));
    let is_named = |attribute: &&str, name: &str| {
        let own_name = attribute.split('=').next().unwrap_or_default();
        own_name.trim().eq_ignore_ascii_case(name)
    };
    let others = |cookie: &str| {
        let attributes = cookie.split(';').skip(1);
        let others = attributes
            .filter(|attribute| !is_named(attribute, "path") && !is_named(attribute, "domain"));
        others.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(others(text), others(mapped));
    let count = |cookie: &str| {
        let attributes = cookie.split(';').skip(1);
        attributes.filter(|attribute| is_named(attribute, "path")).count()
    };
    assert_eq!(count(text), count(mapped));
}
