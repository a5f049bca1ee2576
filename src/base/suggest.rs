//! Suggests the valid word that is nearest to a misspelled one, and lists words for messages. Checks of configurations
//! use it for names of fields and for values.

/// The longest words that are compared: a written word in characters, a valid one in bytes. A longer one is no
/// misspelled name.
const MAX_WORD_LENGTH: usize = 48;

/// Returns the word of `valid_words` that is nearest to `written`; the first one if several are.
///
/// At most a third of the letters of `written` may differ, and one in any case. At least one letter of the valid word
/// must match. `None` if no word is so near, and if `written` is empty or too long. Case does not matter, nor whether
/// `_` or `-` joins the parts of a word.
pub fn nearest_word<'w>(
    written: &str,
    valid_words: impl IntoIterator<Item = &'w str>,
) -> Option<&'w str> {
    let normalize = |word: &str| word.to_lowercase().replace('_', "-");
    let written = normalize(written);
    let letter_count = written.chars().count();
    if letter_count == 0 || letter_count > MAX_WORD_LENGTH {
        return None;
    }
    let max_distance = (letter_count / 3).max(1);
    valid_words
        .into_iter()
        .filter(|word| word.len() <= MAX_WORD_LENGTH)
        // Swapped neighbours count as one difference: Damerau's distance in its restricted form.
        .map(|word| (strsim::osa_distance(&written, &normalize(word)), word))
        .filter(|(distance, word)| *distance <= max_distance && *distance < word.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Lists words for a message, each in backticks: `a`, `b` or `c`. Without words the text is "nothing".
pub fn list_words<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => String::from("nothing"),
        Some((last, [])) => last.clone(),
        Some((last, earlier_words)) => format!("{} or {last}", earlier_words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, valid_words: &[&'static str], expected: Option<&str>) {
        assert_eq!(
            nearest_word(written, valid_words.iter().copied()),
            expected,
            "{written}"
        );
    }

    #[test]
    fn nearest_words() {
        let valid_words = [
            "throttle",
            "rate",
            "key",
            "count",
            "sliding-log",
            "sliding-window",
            "ip",
        ];
        check("throtle", &valid_words, Some("throttle"));
        check("thorttle", &valid_words, Some("throttle"));
        check("Rate", &valid_words, Some("rate"));
        check("rates", &valid_words, Some("rate"));
        check("sliding_log", &valid_words, Some("sliding-log"));
        check("slidingwindow", &valid_words, Some("sliding-window"));
        check("pi", &valid_words, Some("ip"));
        check("i", &valid_words, Some("ip"));
        check("xyz", &valid_words, None);
        check("", &valid_words, None);
        check(&"x".repeat(100_000), &valid_words, None);
        check("é", &valid_words, None);
    }

    #[test]
    fn lists() {
        assert_eq!(list_words([]), "nothing");
        assert_eq!(list_words(["a"]), "`a`");
        assert_eq!(list_words(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
