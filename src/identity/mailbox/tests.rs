//! Spellings of mailboxes, and texts that are no single mailbox.

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
        assert_eq!(parse(text, fold), expected, "{text:?}");
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
        "\"x\" a@b",
        "\"x\"a@b",
        "a(c)x@b",
        "\"a\"(c)x@b",
        "x@b(c)d",
        "a \"x\"@b",
        "\"x\" \"a\"@b",
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
        assert_eq!(parse(text, PLAIN), Mailbox::Ambiguous, "{text:?}");
    }
    for text in ["", " ", "\u{200b}", "\n"] {
        assert_eq!(parse(text, PLAIN), Mailbox::Absent, "{text:?}");
    }
    let name = |text: &str, expected: &str| {
        assert_eq!(
            parse(text, PLAIN),
            Mailbox::Name(expected.into()),
            "{text:?}"
        );
    };
    name(" Anna ", "anna");
    name("Ａnna \u{a0} B", "anna b");
    let fits = format!("{}@b", "a".repeat(MAX_ADDRESS_BYTES - 2));
    assert_eq!(parse(&fits, PLAIN), Mailbox::Address(fits.clone()));
    assert_eq!(parse(&format!("a{fits}"), PLAIN), Mailbox::Ambiguous);
}
