//! Reads the section `bans`: what banned clients get.

use super::super::section::section;
use super::field::word_fields;
use crate::operator::BanResponse;

section! {
    /// What holds for all bans.
    pub struct BansConfig, table BANS_TABLE = "`bans`", "What banned clients get.";
    response: BanResponseField = BanResponse::TooManyRequests,
        "The status, or `none`: the connection is closed, over HTTP/2 and HTTP/3 the stream is reset.", "none";
}

word_fields! {
    /// A field that says what banned clients get.
    pub struct BanResponseField: BanResponse = "429" => BanResponse::TooManyRequests, "403" => BanResponse::Forbidden,
        "none" => BanResponse::Silent;
}
