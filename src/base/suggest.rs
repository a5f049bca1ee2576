//! The nearest right word for a wrong one.

/// Longest word that is compared; what is longer is no slip of the finger.
const LONGEST: usize = 48;

/// The word of `known` that is nearest to `written`, when it is near enough to be meant.
pub fn nearest<'w>(written: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let written = written.to_lowercase().replace('_', "-");
    let length = written.chars().count();
    if length == 0 || length > LONGEST {
        return None;
    }
    // About a third of the letters may differ, at least one.
    let most = (length / 3).max(1);
    known
        .into_iter()
        .filter(|word| word.len() <= LONGEST)
        .map(|word| {
            (
                // With swaps of neighbours: Damerau's distance in its restricted form.
                strsim::osa_distance(&written, &word.to_lowercase().replace('_', "-")),
                word,
            )
        })
        .filter(|(distance, word)| *distance <= most && *distance < word.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// `a`, `b` or `c`: a list of words for a message.
pub fn listed<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => String::from("nothing"),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} or {last}", before.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, known: &[&'static str], expected: Option<&str>) {
        assert_eq!(
            nearest(written, known.iter().copied()),
            expected,
            "{written}"
        );
    }

    #[test]
    fn nearest_words() {
        let known = [
            "throttle",
            "rate",
            "key",
            "count",
            "sliding-log",
            "sliding-window",
            "ip",
        ];
        check("throtle", &known, Some("throttle"));
        check("thorttle", &known, Some("throttle"));
        check("Rate", &known, Some("rate"));
        check("rates", &known, Some("rate"));
        check("sliding_log", &known, Some("sliding-log"));
        check("slidingwindow", &known, Some("sliding-window"));
        check("pi", &known, Some("ip"));
        check("i", &known, Some("ip"));
        check("xyz", &known, None);
        check("", &known, None);
        check(&"x".repeat(100_000), &known, None);
        check("é", &known, None);
    }

    #[test]
    fn lists() {
        assert_eq!(listed([]), "nothing");
        assert_eq!(listed(["a"]), "`a`");
        assert_eq!(listed(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
