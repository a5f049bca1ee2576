//! [`HeaderStyle`]: which rate-limit header fields a response carries.

/// The style of the rate-limit header fields in responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HeaderStyle {
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-10.
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    Legacy,
    /// The fields of [`HeaderStyle::Ietf`] and of [`HeaderStyle::Legacy`].
    Both,
    /// No rate-limit fields at all.
    None,
}
