//! Random edits of a text that a program shall read, whatever becomes of it.

/// Cuts out what stands at one place of a text, and puts it in at another with more characters behind it: the two places as
/// shares of its length, the number of characters to cut out, and the characters to add.
pub type Edit = (f64, f64, usize, String);

/// The text after these edits.
pub fn mangle(text: &str, edits: &[Edit]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = |share: f64, len: usize| ((share * len as f64) as usize).min(len);
    for (from, to, length, more) in edits {
        let from = at(*from, chars.len());
        let cut: Vec<char> = chars
            .drain(from..(from + length).min(chars.len()))
            .collect();
        let to = at(*to, chars.len());
        chars.splice(to..to, cut.into_iter().chain(more.chars()));
    }
    chars.into_iter().collect()
}
