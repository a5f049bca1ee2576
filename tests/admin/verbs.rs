//! Every order that operators give at run time, in each way to give it, with what it changes for a client.
//!
//! In all texts `{n}` stands for the number of the attempt, `{id}` for the id of an API key and `{key}` for the key.

/// A request to the admin listener: its method, its path and its body.
pub type Request = (&'static str, &'static str, &'static str);

pub struct Order {
    /// The verb as the audit writes it.
    pub verb: &'static str,
    /// On whom, as the audit writes it.
    pub target: &'static str,
    /// The arguments of the command; empty if there is none.
    pub command: &'static [&'static str],
    pub request: Request,
    /// The screen of the dashboard, the button that opens the form, and what is written into its fields.
    pub screen: &'static str,
    pub button: &'static str,
    pub fields: &'static [(&'static str, &'static str)],
    /// What was ordered before, so that there is something to take back.
    pub before: Option<Request>,
    /// The path and the header fields of the client's requests.
    pub path: &'static str,
    pub client: &'static str,
    /// The statuses of these requests before and after the order. `None` if the client cannot ask before it.
    pub statuses: (Option<u16>, u16),
    /// The event of the change in the record; empty if it has none.
    pub event: &'static str,
    /// With the number of requests before it, a request shows after a restart whether the order holds.
    pub used_first: usize,
}

const BAN_FORM: &str = "#bans header button.order";
const GRANT_FORM: &str = "#grants header button.order";
const KEY_FORM: &str = "#api-keys header button.order";

/// The requests that the limit `per-tenant` admits.
const QUOTA: usize = 8;

/// An order whose other fields are as in most.
const BAN: Order = Order {
    verb: "ban",
    target: "tenant=banned-{n}",
    command: &["ban", "tenant=banned-{n}", "--for", "1h"],
    request: (
        "POST",
        "/v1/bans",
        r#"{"key": "tenant=banned-{n}", "for": "1h"}"#,
    ),
    screen: "keys",
    button: BAN_FORM,
    fields: &[("key", "tenant=banned-{n}"), ("for", "1h")],
    before: None,
    path: "/free",
    client: "x-tenant: banned-{n}",
    statuses: (Some(200), 429),
    event: "banned",
    used_first: 0,
};

const GRANT: Order = Order {
    verb: "grant",
    target: "api/per-tenant tenant=granted-{n}",
    command: &[
        "grant",
        "per-tenant",
        "tenant=granted-{n}",
        "--times",
        "100",
        "--for",
        "1h",
    ],
    request: (
        "POST",
        "/v1/grants",
        r#"{"limit": "per-tenant", "key": "tenant=granted-{n}", "times": 100, "for": "1h"}"#,
    ),
    button: GRANT_FORM,
    fields: &[
        ("limit", "per-tenant"),
        ("key", "tenant=granted-{n}"),
        ("times", "100"),
        ("for", "1h"),
    ],
    path: "/api/x",
    client: "x-tenant: granted-{n}",
    statuses: (Some(429), 200),
    event: "granted",
    used_first: QUOTA,
    ..BAN
};

const KEY_ADD: Order = Order {
    verb: "key add",
    target: "{id} of added-{n}",
    command: &["key", "add", "added-{n}"],
    request: ("POST", "/v1/keys", r#"{"user": "added-{n}"}"#),
    button: KEY_FORM,
    fields: &[("user", "added-{n}")],
    path: "/keyed",
    client: "x-api-key: {key}",
    statuses: (None, 200),
    event: "key_added",
    ..BAN
};

const CREDITS: Order = Order {
    verb: "grant",
    target: "+500 inv-{n} paid/prepaid tenant=paid-{n}",
    command: &[
        "grant",
        "prepaid",
        "tenant=paid-{n}",
        "--add",
        "500",
        "--order",
        "inv-{n}",
    ],
    request: (
        "POST",
        "/v1/grants",
        r#"{"limit": "prepaid", "key": "tenant=paid-{n}", "add": 500, "order": "inv-{n}"}"#,
    ),
    fields: &[
        ("limit", "prepaid"),
        ("key", "tenant=paid-{n}"),
        ("add", "500"),
        ("order", "inv-{n}"),
    ],
    path: "/paid",
    client: "x-tenant: paid-{n}",
    used_first: 0,
    ..GRANT
};

/// Orders that hold until others end them.
pub const LASTING: [Order; 10] = [
    BAN,
    Order {
        target: "ip=198.51.{n}.0/24",
        command: &["ban", "198.51.{n}.0/24", "--for", "1h"],
        request: (
            "POST",
            "/v1/bans",
            r#"{"key": "198.51.{n}.0/24", "for": "1h"}"#,
        ),
        fields: &[("key", "198.51.{n}.0/24"), ("for", "1h")],
        client: "x-forwarded-for: 198.51.{n}.7",
        ..BAN
    },
    Order {
        verb: "unban",
        target: "tenant=lifted-{n}",
        command: &["unban", "tenant=lifted-{n}"],
        request: ("DELETE", "/v1/bans/tenant%3Dlifted-{n}", ""),
        button: "#bans button[aria-label='Lift tenant=lifted-{n}']",
        fields: &[],
        before: Some(("POST", "/v1/bans", r#"{"key": "tenant=lifted-{n}"}"#)),
        client: "x-tenant: lifted-{n}",
        statuses: (Some(429), 200),
        event: "ban_lifted",
        ..BAN
    },
    GRANT,
    Order {
        verb: "revoke",
        target: "api/per-tenant tenant=revoked-{n}",
        command: &["revoke", "per-tenant", "tenant=revoked-{n}"],
        request: ("DELETE", "/v1/grants/per-tenant/tenant%3Drevoked-{n}", ""),
        button: "#grants button[aria-label='Revoke tenant=revoked-{n}']",
        fields: &[],
        before: Some((
            "POST",
            "/v1/grants",
            r#"{"limit": "per-tenant", "key": "tenant=revoked-{n}", "times": 100, "for": "1h"}"#,
        )),
        client: "x-tenant: revoked-{n}",
        statuses: (Some(200), 429),
        event: "grant_revoked",
        ..GRANT
    },
    Order {
        verb: "reset",
        target: "tenant=reset-{n} of per-tenant",
        command: &[],
        request: (
            "DELETE",
            "/v1/limits/per-tenant/keys/tenant%3Dreset-{n}",
            "",
        ),
        screen: "keys?key=tenant%3Dreset-{n}",
        button: "#key button[aria-label='Reset tenant=reset-{n}']",
        fields: &[],
        client: "x-tenant: reset-{n}",
        event: "",
        used_first: 0,
        ..GRANT
    },
    CREDITS,
    Order {
        verb: "revoke",
        // After the number of the credits, which depends on the requests before.
        target: "paid/prepaid tenant=spent-{n}",
        command: &["revoke", "prepaid", "tenant=spent-{n}"],
        request: ("DELETE", "/v1/grants/prepaid/tenant%3Dspent-{n}", ""),
        button: "#grants button[aria-label='Revoke tenant=spent-{n}']",
        fields: &[],
        before: Some((
            "POST",
            "/v1/grants",
            r#"{"limit": "prepaid", "key": "tenant=spent-{n}", "add": 500}"#,
        )),
        client: "x-tenant: spent-{n}",
        statuses: (Some(200), 429),
        event: "grant_revoked",
        // A kill forgives what was used since the last snapshot.
        used_first: 20,
        ..CREDITS
    },
    KEY_ADD,
    Order {
        verb: "key revoke",
        target: "{id} of left-{n}",
        command: &["key", "revoke", "{id}"],
        request: ("DELETE", "/v1/keys/{id}", ""),
        button: "#api-keys button[aria-label='Revoke {id}']",
        fields: &[],
        before: Some(("POST", "/v1/keys", r#"{"user": "left-{n}"}"#)),
        statuses: (Some(200), 401),
        event: "key_revoked",
        ..KEY_ADD
    },
];

/// Orders that end by themselves, with the list that says when, the member and the text by which it names them, and the
/// status after the end.
pub const ENDING: [(Order, &str, [&str; 2], u16); 3] = [
    (
        Order {
            target: "tenant=short-{n}",
            command: &["ban", "tenant=short-{n}", "--for", "4s"],
            request: (
                "POST",
                "/v1/bans",
                r#"{"key": "tenant=short-{n}", "for": "4s"}"#,
            ),
            fields: &[("key", "tenant=short-{n}"), ("for", "4s")],
            client: "x-tenant: short-{n}",
            ..BAN
        },
        "bans",
        ["key", "tenant=short-{n}"],
        200,
    ),
    (
        Order {
            target: "api/per-tenant tenant=brief-{n}",
            command: &[
                "grant",
                "per-tenant",
                "tenant=brief-{n}",
                "--add",
                "50000",
                "--for",
                "4s",
            ],
            request: (
                "POST",
                "/v1/grants",
                r#"{"limit": "per-tenant", "key": "tenant=brief-{n}", "add": 50000, "for": "4s"}"#,
            ),
            fields: &[
                ("limit", "per-tenant"),
                ("key", "tenant=brief-{n}"),
                ("add", "50000"),
                ("for", "4s"),
            ],
            client: "x-tenant: brief-{n}",
            ..GRANT
        },
        "grants",
        ["key", "tenant=brief-{n}"],
        429,
    ),
    (
        Order {
            target: "{id} of guest-{n}",
            command: &["key", "add", "guest-{n}", "--for", "4s"],
            request: ("POST", "/v1/keys", r#"{"user": "guest-{n}", "for": "4s"}"#),
            fields: &[("user", "guest-{n}"), ("for", "4s")],
            ..KEY_ADD
        },
        "keys",
        ["user", "guest-{n}"],
        401,
    ),
];
