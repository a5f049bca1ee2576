//! The identities that limits may count clients by.

/// What a limit may count clients by. A key is made of one or several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// The address of the client, grouped by prefix.
    Ip,
    /// The user whose proven credential the request carries.
    User,
    /// The credential of the request, proven or not.
    Token,
    /// An email address in the body.
    Email,
    /// The plan of the client.
    Plan,
}

impl Identity {
    /// All identities, in the order of the documentation.
    pub const ALL: [Identity; 5] = [
        Identity::Ip,
        Identity::User,
        Identity::Token,
        Identity::Email,
        Identity::Plan,
    ];

    /// The word in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Identity::Ip => "ip",
            Identity::User => "user",
            Identity::Token => "token",
            Identity::Email => "email",
            Identity::Plan => "plan",
        }
    }
}
