//! Spellings of one mailbox folded into one, so that a limit counts whom a message would reach. What is folded
//! is only counted by: upstreams get the address as the client wrote it.

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

/// Longest address, in bytes (RFC 5321: 64 before the `@`, 255 after it).
pub const MAX_EMAIL: usize = 320;

/// Domains that lead to the mailboxes of another one.
const ALIASES: [(&str, &str); 11] = [
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

/// What is folded by choice, for it may be what tells two accounts apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    /// Letters count without accents.
    pub accents: bool,
    /// What stands behind a `+` before the `@` does not count, nor behind a `-` at Yahoo.
    pub tags: bool,
    /// Dots before the `@` do not count, and the domains of one provider that lead to the same mailbox are one.
    pub dots: bool,
}

/// How a text counts as an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mailbox {
    /// There is none.
    Absent,
    /// It could be read as several, or is none although it has an `@`.
    Ambiguous,
    /// The address, folded.
    Address(String),
    /// Text without an `@`, such as the name of an account, folded.
    Name(String),
}

impl Mailbox {
    /// What two texts say together.
    pub(super) fn or(self, other: Mailbox) -> Mailbox {
        match (self, other) {
            (Mailbox::Absent, mailbox) | (mailbox, Mailbox::Absent) => mailbox,
            (one, other) if one == other => one,
            _ => Mailbox::Ambiguous,
        }
    }
}

/// The mailbox that `text` names.
pub fn read(text: &str, fold: Fold) -> Mailbox {
    if text.len() > MAX_EMAIL {
        return Mailbox::Ambiguous;
    }
    let link = unlinked(text);
    let folded = folded(&link, fold.accents);
    let text = folded.trim_matches(is_blank);
    if text.is_empty() {
        Mailbox::Absent
    } else if text.contains(char::is_control) {
        Mailbox::Ambiguous
    } else if !text.contains('@') {
        Mailbox::Name(text.split_whitespace().collect::<Vec<_>>().join(" "))
    } else {
        address(text, fold).map_or(Mailbox::Ambiguous, Mailbox::Address)
    }
}

/// The address of a link to it (RFC 6068), or the text.
fn unlinked(text: &str) -> Cow<'_, str> {
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

/// NFKC with full case folding and without characters that show nothing.
fn folded(text: &str, accents: bool) -> Cow<'_, str> {
    if text.is_ascii() {
        let lower = text.bytes().all(|byte| !byte.is_ascii_uppercase());
        return if lower {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.to_ascii_lowercase())
        };
    }
    let ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>();
    let compose = ComposingNormalizer::new_nfkc();
    let mut text: String = text.chars().filter(|c| !ignorable.contains(*c)).collect();
    // Each may make room for the other: twice is enough (Unicode, section 3.13, D146).
    for _ in 0..2 {
        text = CaseMapper::new().fold_string(&text).into_owned();
        text = compose.normalize(&text).into_owned();
    }
    // The dotted and the dotless letter are one to who folds by Turkish rules, and to who does not.
    text = text.replace("i\u{307}", "i").replace('\u{131}', "i");
    if accents {
        without_accents(&text)
    } else {
        text
    }
    .into()
}

fn without_accents(text: &str) -> String {
    let categories = CodePointMapData::<GeneralCategory>::new();
    let apart = DecomposingNormalizer::new_nfkd().normalize(text);
    let bare = apart
        .chars()
        .filter(|c| categories.get(*c) != GeneralCategory::NonspacingMark);
    let mut out = String::with_capacity(text.len());
    for c in bare {
        // Letters with a stroke and joined ones, which have no decomposition.
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

/// The one address in a folded text that has an `@`.
fn address(text: &str, fold: Fold) -> Option<String> {
    let text = match bracket(text) {
        Some(at) => {
            let (display, inner) = (&text[..at], &text[at + 1..]);
            if unquoted(display).any(|(_, c)| "@,;:".contains(c)) {
                return None;
            }
            inner.strip_suffix('>')?
        }
        None => text,
    };
    let text = text.trim_start_matches(is_blank);
    let text = text.strip_prefix("mailto:").unwrap_or(text);
    let (local, domain) = halves(text)?;
    let mut domain = self::domain(&domain, fold.accents)?;
    // PHP's `FILTER_SANITIZE_EMAIL` takes it out.
    let mut local = local.replace('/', "");
    if fold.tags {
        let marks: &[char] = if is_yahoo(&domain) {
            &['+', '-']
        } else {
            &['+']
        };
        if let Some(tag) = local.find(marks).filter(|tag| *tag > 0) {
            local.truncate(tag);
        }
    }
    if fold.dots {
        let same = ALIASES.iter().find(|(alias, _)| *alias == domain);
        if let Some((_, provider)) = same {
            domain = (*provider).to_owned();
        }
        // Yandex takes each for the other.
        local.retain(|c| c != '.' && !(c == '-' && domain == "yandex.ru"));
    }
    let whole = format!("{local}@{domain}");
    (!local.is_empty() && whole.len() <= MAX_EMAIL).then_some(whole)
}

/// Whether addresses of this domain have tags behind a `-`.
fn is_yahoo(domain: &str) -> bool {
    domain.starts_with("yahoo.") || matches!(domain, "ymail.com" | "rocketmail.com")
}

/// Where the address in angle brackets begins.
fn bracket(text: &str) -> Option<usize> {
    unquoted(text).find(|(_, c)| *c == '<').map(|(at, _)| at)
}

/// The characters that stand outside quotes, and where.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().filter(move |(_, c)| {
        let plain = !quoted;
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        plain
    })
}

/// What stands before and behind the `@`, without comments, quotes and blanks beside these (RFC 5322).
fn halves(text: &str) -> Option<(String, String)> {
    let mut halves = [String::new(), String::new()];
    let (mut half, mut depth, mut quoted) = (0, 0_usize, false);
    // A blank in the middle of a word would make two of it.
    let (mut blank, mut inside) = (false, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted => halves[half].push(chars.next()?),
            '\\' if depth > 0 => drop(chars.next()?),
            '"' if depth == 0 && half == 0 => quoted = !quoted,
            _ if quoted => halves[half].push(c),
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ if depth > 0 => {}
            '@' => {
                half += 1;
                if half > 1 {
                    return None;
                }
                (blank, inside) = (false, false);
            }
            _ if is_blank(c) => blank |= inside,
            _ if "<>,;:\\\"".contains(c) && !(c == ':' && halves[half].starts_with('[')) => {
                return None;
            }
            _ if blank => return None,
            _ => {
                inside = true;
                halves[half].push(c);
            }
        }
    }
    let [local, domain] = halves;
    (!quoted && depth == 0 && half == 1).then_some((local, domain))
}

/// A domain as UTS 46 has it, in ASCII.
fn domain(text: &str, accents: bool) -> Option<String> {
    if let Some(literal) = text.strip_prefix('[') {
        let literal = literal.strip_suffix(']')?;
        return address_literal(literal);
    }
    let uts46 = Uts46::new();
    let (unicode, read) = uts46.to_unicode(text.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow);
    read.ok()?;
    let unicode = folded(&unicode, accents);
    let unicode = unicode.trim_end_matches(['.', '。']);
    let ascii = uts46.to_ascii(
        unicode.as_bytes(),
        AsciiDenyList::EMPTY,
        Hyphens::Allow,
        DnsLength::Ignore,
    );
    let ascii = ascii.ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let label = |label: &str| !label.is_empty() && label.bytes().all(plain);
    ascii.split('.').all(label).then(|| ascii.into_owned())
}

/// What stands in the brackets of a domain (RFC 5321, section 4.1.3), written in one way.
fn address_literal(text: &str) -> Option<String> {
    let (tagged, address) = match text.strip_prefix("ipv6:") {
        Some(address) => (true, address),
        None => (false, text),
    };
    match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(_) if tagged => None,
        address => Some(match address.to_canonical() {
            IpAddr::V4(address) => format!("[{address}]"),
            IpAddr::V6(address) => format!("[ipv6:{address}]"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Fold = Fold {
        accents: false,
        tags: false,
        dots: false,
    };

    #[track_caller]
    fn same(fold: Fold, spellings: &[&str], expected: &str) {
        for text in spellings {
            let expected = Mailbox::Address(expected.into());
            assert_eq!(read(text, fold), expected, "{text:?}");
        }
    }

    #[test]
    fn spellings_of_one_mailbox() {
        let anna = [
            "anna@x.de",
            " Anna@X.DE\n",
            "\u{a0}anna@x.de\u{2003}",
            "\u{feff}anna@x.de",
            "anna＠x.de",
            "ａｎｎａ@x.de",
            "anna@ｘ.de",
            "anna@x。de",
            "anna@x．de",
            "anna@x.de.",
            "anna@x.de..",
            "\"anna\"@x.de",
            "\"a\\nna\"@x.de",
            "an\"na\"@x.de",
            "<anna@x.de>",
            "Anna A. <anna@x.de>",
            "\"A, B\" <anna@x.de>",
            "mailto:anna@x.de",
            "MAILTO:anna%40x.de?subject=x",
            "<mailto:anna@x.de>",
            "anna(c)@x.de",
            "(a(b))anna@(c)x.de(d)",
            "anna @ x.de",
            "an/na@x.de",
            "an\u{ad}na@x.de",
            "an\u{200b}na@x.de",
            "an\u{200d}na@x\u{2060}.de",
            "ann\u{aa}@x.de",
        ];
        same(PLAIN, &anna, "anna@x.de");
        same(PLAIN, &["andré@x", "andre\u{301}@x", "ANDRÉ@x"], "andré@x");
        same(
            PLAIN,
            &["straße@x", "STRASSE@x", "strasse@x", "straẞe@x"],
            "strasse@x",
        );
        same(
            PLAIN,
            &["İlker@x", "ilker@x", "ILKER@x", "ılker@x", "i\u{307}lker@x"],
            "ilker@x",
        );
        same(PLAIN, &["\u{212a}im@x", "kim@x"], "kim@x");
        same(PLAIN, &["ὈΔΥΣΣΕΎΣ@x", "ὀδυσσεύς@x"], "ὀδυσσεύσ@x");
        same(
            PLAIN,
            &[
                "a@bücher.de",
                "a@BÜCHER.de",
                "a@bu\u{308}cher.de",
                "a@xn--bcher-kva.de",
                "a@XN--BCHER-KVA.DE",
            ],
            "a@xn--bcher-kva.de",
        );
        same(
            PLAIN,
            &["a@straße.de", "a@strasse.de", "a@xn--strae-oqa.de"],
            "a@strasse.de",
        );
        let ipv4 = ["a@[192.0.2.1]", "a@[IPv6:::ffff:192.0.2.1]"];
        same(PLAIN, &ipv4, "a@[192.0.2.1]");
        let ipv6 = [
            "a@[IPv6:2001:db8::1]",
            "a@[ipv6:2001:0DB8:0::0001]",
            "a@[2001:db8:0:0:0:0:0:1]",
        ];
        same(PLAIN, &ipv6, "a@[ipv6:2001:db8::1]");
        same(PLAIN, &["a+b@c", "\"a+b\"@c"], "a+b@c");
        same(PLAIN, &["a.b@gmail.com"], "a.b@gmail.com");
    }

    #[test]
    fn what_is_folded_by_choice() {
        let accents = Fold {
            accents: true,
            ..PLAIN
        };
        same(
            accents,
            &["änñà@x", "anna@x", "ANNÁ@x", "a\u{301}nna@x"],
            "anna@x",
        );
        same(accents, &["øłđ@x", "old@x"], "old@x");
        same(
            accents,
            &["a@bücher.de", "a@xn--bcher-kva.de", "a@bucher.de"],
            "a@bucher.de",
        );
        let tags = Fold {
            tags: true,
            ..PLAIN
        };
        same(tags, &["anna+1@x", "anna@x", "anna+a+b@x"], "anna@x");
        same(tags, &["+a@x"], "+a@x");
        same(
            tags,
            &["anna-1@yahoo.com", "anna+1@yahoo.com"],
            "anna@yahoo.com",
        );
        same(tags, &["anna-1@x.de"], "anna-1@x.de");
        let dots = Fold {
            dots: true,
            ..PLAIN
        };
        same(
            dots,
            &[
                "an.na@gmail.com",
                "a.n.n.a@googlemail.com",
                "anna@gmail.com.",
            ],
            "anna@gmail.com",
        );
        same(dots, &["an.na@ya.ru", "an-na@yandex.kz"], "anna@yandex.ru");
        same(
            dots,
            &["anna@pm.me", "anna@protonmail.com"],
            "anna@proton.me",
        );
        same(dots, &["anna@mac.com"], "anna@icloud.com");
    }

    #[test]
    fn texts_that_are_no_single_mailbox() {
        for text in [
            "@",
            "a@",
            "@b",
            "a@b@c",
            "a b@c",
            "a@b c",
            "a@b\n.c",
            "a@\0",
            "a\0@b",
            "a@b,c@d",
            "a@b;c@d",
            "a@b, c",
            "<a@b> x",
            "a@b>",
            "<a@b",
            "<a@b><c@d>",
            "x <a@b>, y <c@d>",
            "<@x:a@b>",
            "\"a@b",
            "a(@b",
            "a)@b",
            "a\\b@c",
            "a@b..c",
            "a@.b",
            "a@b\"}",
            "a@b?c",
            "a@b/c",
            "a@[1",
            "a@[192.0.2.001]",
            "a@[ipv6:192.0.2.1]",
            "a@[x:1]",
            "a@xn--\u{fc}",
            "a@b\tc",
        ] {
            assert_eq!(read(text, PLAIN), Mailbox::Ambiguous, "{text:?}");
        }
        for text in ["", " ", "\u{200b}", "\n"] {
            assert_eq!(read(text, PLAIN), Mailbox::Absent, "{text:?}");
        }
        let name = |text: &str, expected: &str| {
            assert_eq!(
                read(text, PLAIN),
                Mailbox::Name(expected.into()),
                "{text:?}"
            );
        };
        name(" Anna ", "anna");
        name("Ａnna \u{a0} B", "anna b");
        let fits = format!("{}@b", "a".repeat(MAX_EMAIL - 2));
        assert_eq!(read(&fits, PLAIN), Mailbox::Address(fits.clone()));
        assert_eq!(read(&format!("a{fits}"), PLAIN), Mailbox::Ambiguous);
    }
}
