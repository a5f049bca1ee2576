//! Which spellings of their paths routes take.

/// Whether routes match other spellings of their paths that frameworks accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathMatching {
    /// A route also takes paths that frameworks read as its own ([`RouteTable::find_folded`](super::RouteTable::find_folded)), if otherwise a broader
    /// route on the same upstream would take them. A route that the gateway answers by itself takes them from every
    /// upstream. Methods in bodies count too.
    #[default]
    Fold,
    /// A route takes only its own path, normalised. Methods in bodies do not count.
    Exact,
}
