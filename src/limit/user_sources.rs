//! Sets of the sources that verify users, as the gateway file names them: a trusted header, API keys, certificates, and each
//! issuer of tokens. A client's user has one of them, and a route may require some.

/// A set of sources of users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserSources(u32);

impl UserSources {
    /// Every source, and no source at all too: nothing is required.
    pub const ALL: UserSources = UserSources(u32::MAX);
    /// No source.
    pub const NONE: UserSources = UserSources(0);
    /// The header field of a trusted peer.
    pub const HEADER: UserSources = UserSources(1);
    /// The file of API keys.
    pub const API_KEYS: UserSources = UserSources(1 << 1);
    /// The client's certificate.
    pub const CLIENT_CERT: UserSources = UserSources(1 << 2);

    /// Maximum number of issuers of tokens.
    pub const MAX_ISSUERS: usize = 16;

    /// The issuer of tokens with this index among the sources `jwt`; [`NONE`](UserSources::NONE) from
    /// [`MAX_ISSUERS`](UserSources::MAX_ISSUERS) on.
    pub fn issuer(index: usize) -> UserSources {
        match index < UserSources::MAX_ISSUERS {
            true => UserSources(1 << (3 + index)),
            false => UserSources::NONE,
        }
    }

    /// Whether a user of `source` is accepted where this set is required.
    #[inline]
    pub fn accepts(self, source: UserSources) -> bool {
        self == UserSources::ALL || self.0 & source.0 != 0
    }

    /// Whether every user that this set accepts is accepted by `other`.
    pub fn is_within(self, other: UserSources) -> bool {
        self.0 & other.0 == self.0
    }

    /// The sources of both sets.
    pub fn union(self, other: UserSources) -> UserSources {
        UserSources(self.0 | other.0)
    }

    /// The sources that both sets have.
    pub fn intersection(self, other: UserSources) -> UserSources {
        UserSources(self.0 & other.0)
    }
}

impl FromIterator<UserSources> for UserSources {
    fn from_iter<I: IntoIterator<Item = UserSources>>(sets: I) -> UserSources {
        sets.into_iter().fold(UserSources::NONE, UserSources::union)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let (first, second) = (UserSources::issuer(0), UserSources::issuer(1));
        let both: UserSources = [first, second].into_iter().collect();
        assert!(both.accepts(first) && both.accepts(second));
        assert!(!both.accepts(UserSources::API_KEYS) && !both.accepts(UserSources::NONE));
        assert!(UserSources::ALL.accepts(UserSources::NONE));
        assert!(first.is_within(both) && both.is_within(UserSources::ALL));
        assert!(!both.is_within(first) && !UserSources::ALL.is_within(both));
        // Two policies that hold for one request may accept nobody together.
        let nobody = first.intersection(UserSources::API_KEYS);
        assert!(!nobody.accepts(first) && !nobody.accepts(UserSources::API_KEYS));
        assert_eq!(UserSources::ALL.intersection(both), both);
        let last = UserSources::issuer(UserSources::MAX_ISSUERS - 1);
        assert!(!last.accepts(first) && last != UserSources::NONE);
        assert_eq!(
            UserSources::issuer(UserSources::MAX_ISSUERS),
            UserSources::NONE
        );
    }
}
