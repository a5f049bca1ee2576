//! Folds the spellings of one mailbox into one, so that a limit counts the person that a message would reach.
//!
//! The folded address is only hashed: upstreams get the address as the client wrote it.

use std::borrow::Cow;
use std::net::IpAddr;

use icu_casemap::CaseMapper;
use icu_normalizer::{ComposingNormalizer, DecomposingNormalizer};
use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};
use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

use super::body::is_blank;
use super::form;

/// Maximum bytes of a text that is read as an address, and of the folded address. An address has at most 64 bytes before
/// the `@` and 255 after it (RFC 5321, section 4.5.3.1).
pub const MAX_ADDRESS_BYTES: usize = 320;

/// Domains of providers that deliver to the same mailboxes under several domains, and the domain that stands for all.
const DOMAIN_ALIASES: [(&str, &str); 11] = [
    ("googlemail.com", "gmail.com"),
    ("ya.ru", "yandex.ru"),
    ("yandex.by", "yandex.ru"),
    ("yandex.com", "yandex.ru"),
    ("yandex.kz", "yandex.ru"),
    ("yandex.ua", "yandex.ru"),
    ("protonmail.com", "proton.me"),
    ("protonmail.ch", "proton.me"),
    ("pm.me", "proton.me"),
    ("me.com", "icloud.com"),
    ("mac.com", "icloud.com"),
];

/// The differences that are folded only if the settings say so, because some providers tell accounts apart by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    /// Ignores accents on letters, and other marks that take no width of their own. Spells some letters plainly, such
    /// as `ø` and `æ`.
    pub accents: bool,
    /// Ignores the text from the first `+` to the `@`, at Yahoo also from the first `-`, unless the address begins with it.
    pub tags: bool,
    /// Ignores dots before the `@`, at Yandex also hyphens, and joins the domains under which a provider delivers to
    /// the same mailboxes.
    pub dots: bool,
}

/// A text that was read as an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mailbox {
    /// The text is empty, or only blank and invisible characters.
    Absent,
    /// The text could be several addresses, or has an `@` and is no address. A text is ambiguous too if it is too long
    /// or has control characters.
    Ambiguous,
    /// A folded address.
    Address(String),
    /// A folded text without an `@`, such as the name of an account.
    Name(String),
}

impl Mailbox {
    /// Combines the mailboxes of two texts: an absent one adds nothing, and different ones are ambiguous.
    pub(super) fn combine(self, other: Mailbox) -> Mailbox {
        match (self, other) {
            (Mailbox::Absent, mailbox) | (mailbox, Mailbox::Absent) => mailbox,
            (mailbox, same_mailbox) if mailbox == same_mailbox => mailbox,
            _ => Mailbox::Ambiguous,
        }
    }
}

/// Parses `text`: an address, a `mailto:` link, a display name with an address in angle brackets, or a name without `@`.
pub fn parse(text: &str, fold: Fold) -> Mailbox {
    if text.len() > MAX_ADDRESS_BYTES {
        return Mailbox::Ambiguous;
    }
    let unlinked = without_link(text);
    let folded = fold_text(&unlinked, fold.accents);
    let text = folded.trim_matches(is_blank);
    if text.is_empty() {
        Mailbox::Absent
    } else if text.contains(char::is_control) {
        Mailbox::Ambiguous
    } else if !text.contains('@') {
        Mailbox::Name(text.split_whitespace().collect::<Vec<_>>().join(" "))
    } else {
        parse_address(text, fold).map_or(Mailbox::Ambiguous, Mailbox::Address)
    }
}

/// The address in a `mailto:` link (RFC 6068); any other text as it is.
fn without_link(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim_start_matches(is_blank);
    match trimmed.split_at_checked("mailto:".len()) {
        Some((scheme, link)) if scheme.eq_ignore_ascii_case("mailto:") => {
            let link = link.split('?').next().unwrap_or_default();
            let address = form::unescape(link.as_bytes(), b'+').0;
            String::from_utf8_lossy(&address).into_owned().into()
        }
        _ => text.into(),
    }
}

/// Normalises a text to NFKC, folds its case and drops invisible characters, and accents if `ignores_accents`.
fn fold_text(text: &str, ignores_accents: bool) -> Cow<'_, str> {
    if text.is_ascii() {
        let is_lower = text.bytes().all(|byte| !byte.is_ascii_uppercase());
        return if is_lower {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.to_ascii_lowercase())
        };
    }
    let invisible = CodePointSetData::new::<DefaultIgnorableCodePoint>();
    let nfkc = ComposingNormalizer::new_nfkc();
    let mut text: String = text.chars().filter(|c| !invisible.contains(*c)).collect();
    // Normalising may bring out letters to fold, and folding letters to normalise. Two rounds are enough (Unicode,
    // section 3.13, D146).
    for _ in 0..2 {
        text = CaseMapper::new().fold_string(&text).into_owned();
        text = nfkc.normalize(&text).into_owned();
    }
    // Upstreams fold the dotted and the dotless `i` by Turkish rules or by others, so all are one.
    text = text.replace("i\u{307}", "i").replace('\u{131}', "i");
    if ignores_accents {
        without_accents(&text)
    } else {
        text
    }
    .into()
}

/// Removes the marks that take no width of their own, such as accents, and spells some letters that Unicode does not
/// decompose by plain ones. The result is decomposed: NFKD.
fn without_accents(text: &str) -> String {
    let categories = CodePointMapData::<GeneralCategory>::new();
    let decomposed = DecomposingNormalizer::new_nfkd().normalize(text);
    let base_letters = decomposed
        .chars()
        .filter(|c| categories.get(*c) != GeneralCategory::NonspacingMark);
    let mut out = String::with_capacity(text.len());
    for c in base_letters {
        match c {
            'ø' => out.push('o'),
            'đ' => out.push('d'),
            'ł' => out.push('l'),
            'æ' => out.push_str("ae"),
            'œ' => out.push_str("oe"),
            _ => out.push(c),
        }
    }
    out
}

/// Parses the one address in a folded text; `None` if there may be several, or if the text or its fold is no address.
fn parse_address(text: &str, fold: Fold) -> Option<String> {
    let address = without_display_name(text)?.trim_start_matches(is_blank);
    let address = address.strip_prefix("mailto:").unwrap_or(address);
    let (local, domain) = split_address(address)?;
    let mut domain = canonical_domain(&domain, fold.accents)?;
    // PHP's `FILTER_SANITIZE_EMAIL` drops slashes.
    let mut local = local.replace('/', "");
    if fold.tags {
        let tag_marks: &[char] = match has_hyphen_tags(&domain) {
            true => &['+', '-'],
            false => &['+'],
        };
        if let Some(tag_start) = local.find(tag_marks).filter(|start| *start > 0) {
            local.truncate(tag_start);
        }
    }
    if fold.dots {
        let mut aliases = DOMAIN_ALIASES.iter();
        if let Some((_, provider)) = aliases.find(|(alias, _)| *alias == domain) {
            domain = (*provider).to_owned();
        }
        // Yandex takes a dot and a hyphen for each other.
        local.retain(|c| c != '.' && !(c == '-' && domain == "yandex.ru"));
    }
    let address = format!("{local}@{domain}");
    (!local.is_empty() && address.len() <= MAX_ADDRESS_BYTES).then_some(address)
}

/// The address in angle brackets; the whole text if there are none. `None` if the name before them could hold another
/// address, or if the text does not end with the closing bracket.
fn without_display_name(text: &str) -> Option<&str> {
    let Some((bracket, _)) = unquoted_chars(text).find(|(_, c)| *c == '<') else {
        return Some(text);
    };
    let (display_name, address) = (&text[..bracket], &text[bracket + 1..]);
    let may_be_address = unquoted_chars(display_name).any(|(_, c)| "@,;:".contains(c));
    if may_be_address {
        return None;
    }
    address.strip_suffix('>')
}

/// Whether addresses of this domain have tags behind a `-`, as at Yahoo.
fn has_hyphen_tags(domain: &str) -> bool {
    domain.starts_with("yahoo.") || matches!(domain, "ymail.com" | "rocketmail.com")
}

/// The characters outside quotes, with their byte offsets. The quote that begins a quoted part is one of them.
fn unquoted_chars(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut in_quotes, mut is_escaped) = (false, false);
    text.char_indices().filter(move |(_, c)| {
        let is_unquoted = !in_quotes;
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if in_quotes => is_escaped = true,
            '"' => in_quotes = !in_quotes,
            _ => {}
        }
        is_unquoted
    })
}

/// Splits an address at its `@` into local part and domain, and drops comments, quotes and the blanks beside them (RFC
/// 5322). `None` if the text is no single address.
fn split_address(text: &str) -> Option<(String, String)> {
    let mut parts = [String::new(), String::new()];
    let (mut part_index, mut comment_depth, mut in_quotes) = (0, 0_usize, false);
    // Each part is one word, quoted or not: blanks and comments may stand before and after it. `has_blank_after` is set
    // behind the word, and then no more text may follow: some readers take the text before for the name of the person.
    let (mut has_blank_after, mut has_word) = (false, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_quotes => parts[part_index].push(chars.next()?),
            '\\' if comment_depth > 0 => drop(chars.next()?),
            '"' if comment_depth == 0 && part_index == 0 && (in_quotes || !has_blank_after) => {
                (has_blank_after, has_word) = (in_quotes, true);
                in_quotes = !in_quotes;
            }
            _ if in_quotes => parts[part_index].push(c),
            '(' => {
                comment_depth += 1;
                has_blank_after |= has_word;
            }
            ')' => comment_depth = comment_depth.checked_sub(1)?,
            _ if comment_depth > 0 => {}
            '@' => {
                part_index += 1;
                if part_index > 1 {
                    return None;
                }
                (has_blank_after, has_word) = (false, false);
            }
            _ if is_blank(c) => has_blank_after |= has_word,
            _ if "<>,;:\\\"".contains(c) && !(c == ':' && parts[part_index].starts_with('[')) => {
                return None;
            }
            _ if has_blank_after => return None,
            _ => {
                has_word = true;
                parts[part_index].push(c);
            }
        }
    }
    let [local, domain] = parts;
    (!in_quotes && comment_depth == 0 && part_index == 1).then_some((local, domain))
}

/// The domain in ASCII without dots at its end, as UTS 46 maps it, or an IP address in brackets. `None` if the brackets
/// hold no address, UTS 46 rejects the domain, or a label is empty or not of letters, digits, `-` and `_`.
fn canonical_domain(text: &str, ignores_accents: bool) -> Option<String> {
    if let Some(literal) = text.strip_prefix('[') {
        let literal = literal.strip_suffix(']')?;
        return canonical_address_literal(literal);
    }
    let uts46 = Uts46::new();
    let (unicode, result) = uts46.to_unicode(text.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow);
    result.ok()?;
    let unicode = fold_text(&unicode, ignores_accents);
    let unicode = unicode.trim_end_matches(['.', '。']);
    let ascii = uts46.to_ascii(
        unicode.as_bytes(),
        AsciiDenyList::EMPTY,
        Hyphens::Allow,
        DnsLength::Ignore,
    );
    let ascii = ascii.ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_plain);
    ascii.split('.').all(is_label).then(|| ascii.into_owned())
}

/// The one spelling of an IP address in the brackets of a domain (RFC 5321, section 4.1.3). `None` if `text` is no IP
/// address, or if an IPv4 address is tagged as IPv6.
fn canonical_address_literal(text: &str) -> Option<String> {
    let (has_ipv6_tag, address) = match text.strip_prefix("ipv6:") {
        Some(address) => (true, address),
        None => (false, text),
    };
    match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(_) if has_ipv6_tag => None,
        address => Some(match address.to_canonical() {
            IpAddr::V4(address) => format!("[{address}]"),
            IpAddr::V6(address) => format!("[ipv6:{address}]"),
        }),
    }
}

#[cfg(test)]
mod tests;
