//! Sentences of comments and pages are short.

/// Most words of a sentence.
const MOST_WORDS: usize = 25;

/// A stretch of prose and the number of its first line.
struct Paragraph {
    line: usize,
    text: String,
}

/// Sentences of a page with too many words. Code blocks and rows of tables are no sentences.
pub fn long_on_page(page: &str, path: &str) -> Vec<String> {
    let mut in_code = false;
    let lines = page.lines().map(|line| {
        let line = line.trim();
        in_code ^= line.starts_with("```");
        let is_prose = !in_code && !line.starts_with(['|', '#', '`']);
        is_prose.then_some(line).filter(|line| !line.is_empty())
    });
    too_long(paragraphs(lines), path)
}

/// Sentences of a Rust file's comments with too many words.
pub fn long_in_code(source: &str, path: &str) -> Vec<String> {
    too_long(comments(source), path)
}

fn comments(source: &str) -> Vec<Paragraph> {
    let mut in_code = false;
    let lines = source.lines().map(|line| {
        let line = line.trim();
        let text = ["///", "//!", "//"]
            .iter()
            .find_map(|mark| line.strip_prefix(mark));
        let Some(text) = text.map(str::trim) else {
            in_code = false;
            return None;
        };
        in_code ^= text.starts_with("```");
        let is_prose = !in_code && !text.starts_with(['|', '#', '`']) && !text.is_empty();
        // An outer doc and the inner comment behind it are two texts; a blank line parts them anyway.
        is_prose.then_some(text)
    });
    paragraphs(lines)
}

/// Lines that follow each other as one text; list items are texts of their own.
fn paragraphs<'a>(lines: impl Iterator<Item = Option<&'a str>>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    for (index, line) in lines.enumerate() {
        let Some(line) = line else {
            is_open = false;
            continue;
        };
        let number = line.split_once(". ").map_or("", |(number, _)| number);
        let is_item = line.starts_with("- ")
            || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        match found.last_mut() {
            Some(last) if is_open && !is_item => {
                last.text.push(' ');
                last.text.push_str(line);
            }
            _ => found.push(Paragraph {
                line: index + 1,
                text: line.to_owned(),
            }),
        }
        is_open = true;
    }
    found
}

fn too_long(paragraphs: Vec<Paragraph>, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for Paragraph { line, text } in &paragraphs {
        for sentence in sentences(text) {
            let words = sentence.split_whitespace().count();
            if words > MOST_WORDS {
                found.push(format!("{path}:{line}: {words} words: {sentence}"));
            }
        }
    }
    found
}

/// A text, cut behind what ends a sentence or a clause that could be one.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(' ') {
        let end = text[..at].trim_end_matches(['*', ')', '"', '`']);
        if end.ends_with(['.', ':', ';', '!', '?']) {
            found.push(&text[start..at]);
            start = at + 1;
        }
    }
    found.push(&text[start..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen \
        fifteen sixteen seventeen eighteen nineteen twenty and one two three four five six";

    #[test]
    fn sentences_of_pages() {
        assert_eq!(long_on_page(LONG, "a.md").len(), 1);
        assert_eq!(
            long_on_page(&LONG.replacen(" ten", ". Ten", 1), "a.md").len(),
            0
        );
        assert_eq!(
            long_on_page(&LONG.replacen(" ten", ".** Ten", 1), "a.md").len(),
            0
        );
        assert_eq!(
            long_on_page(&format!("```\n{LONG}\n```\n| {LONG} |"), "a.md").len(),
            0
        );
        assert_eq!(
            long_on_page(&LONG.replacen(" ten", "\n- ten", 1), "a.md").len(),
            0
        );
        assert_eq!(
            long_on_page(&LONG.replacen(" ten", "\nten", 1), "a.md").len(),
            1
        );
    }

    #[test]
    fn sentences_of_comments() {
        assert_eq!(
            long_in_code(&format!("fn f() {{}}\n/// {LONG}\n"), "a.rs").len(),
            1
        );
        assert_eq!(
            long_in_code(&format!("let text = \"{LONG}\";"), "a.rs").len(),
            0
        );
        let parted = LONG.replacen(" ten", "\nfn f() {}\n// ten", 1);
        assert_eq!(long_in_code(&format!("// {parted}"), "a.rs").len(), 0);
    }
}
