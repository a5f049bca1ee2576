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
                distance(&written, &word.to_lowercase().replace('_', "-")),
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

/// How many letters must be put in, taken out, replaced or swapped with their neighbour to make one
/// word of the other (Damerau's distance in its restricted form).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
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
