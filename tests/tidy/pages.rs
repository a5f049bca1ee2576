//! What the pages that people read must say.

/// Shipped files that `pages` do not name by their last part.
pub fn unnamed(shipped: &[&str], pages: &str) -> Vec<String> {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let missing = shipped.iter().filter(|path| !path.ends_with("README.md"));
    let missing = missing.filter(|path| !pages.contains(&name(path)));
    missing
        .map(|path| format!("{path}: no README names it"))
        .collect()
}

/// Commands that the first code block of a page does not have as lines of their own.
pub fn first_block_lacks(commands: &[&str], page: &str) -> Vec<String> {
    let block = page
        .lines()
        .skip_while(|line| !line.starts_with("```"))
        .skip(1);
    let block: Vec<_> = block.take_while(|line| !line.starts_with("```")).collect();
    let has = |command: &str| block.iter().any(|line| bare(line) == command);
    let missing = commands.iter().filter(|command| !has(command));
    missing
        .map(|command| format!("README.md: its first code block lacks `{command}`"))
        .collect()
}

/// A command line without the remark behind it.
fn bare(line: &str) -> &str {
    line.split(" #").next().unwrap_or_default().trim()
}

/// Modules that a page does not name as `` `name/ `` or `` `name.rs` ``.
pub fn modules_missing(modules: &[&str], page: &str) -> Vec<String> {
    let named = |module: &str| {
        page.contains(&format!("`{module}/")) || page.contains(&format!("`{module}.rs`"))
    };
    let missing = modules.iter().filter(|module| !named(module));
    missing
        .map(|module| format!("ARCHITECTURE.md: `{module}` is not named"))
        .collect()
}

/// Files and folders of the repository that a page names in backticks, from its root or from `src/`, and that are not there.
pub fn missing_files(page: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let named = page.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./".contains(&byte);
        text.bytes().all(plain) && (text.ends_with(".rs") || text.ends_with('/'))
    };
    let missing = named
        .filter(is_path)
        .filter(|path| !is_there(path) && !is_there(&format!("src/{path}")));
    missing
        .map(|path| format!("ARCHITECTURE.md: nothing is at `{path}`"))
        .collect()
}

/// The anchors of a page's headings, as renderers make them.
pub fn anchors(page: &str) -> Vec<String> {
    let mut in_code = false;
    let mut anchors: Vec<String> = Vec::new();
    for line in page.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code || !line.starts_with('#') {
            continue;
        }
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then_some(letter),
        });
        anchors.push(kept.collect());
    }
    anchors
}

/// Relative links of a page to files that are not there, or to headings that a page does not have.
pub fn broken_links(
    page: &str,
    path: &str,
    is_there: impl Fn(&str) -> bool,
    anchors: impl Fn(&str) -> Option<Vec<String>>,
) -> Vec<String> {
    let targets = page
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target);
    let relative = targets.filter(|target| !target.contains("://") && !target.contains(' '));
    let broken = relative.filter(|target| {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() {
            path.to_owned()
        } else {
            beside(path, file)
        };
        let lacks = || anchors(&file).is_some_and(|all| !all.iter().any(|known| known == anchor));
        !is_there(&file) || (!anchor.is_empty() && lacks())
    });
    broken
        .map(|target| format!("{path}: nothing is at `{target}`"))
        .collect()
}

/// The path that a link on the page at `path` leads to.
fn beside(path: &str, link: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_gone() {
        let page = "`limit/` and `limit/rate.rs`, `src/gone.rs`, `LISTEN_FDS`, `a b/`";
        let found = missing_files(page, |path| path.starts_with("src/limit"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("src/gone.rs"));
    }

    #[test]
    fn names() {
        assert!(
            unnamed(
                &["policies/api.yaml", "policies/README.md"],
                "see `api.yaml`"
            )
            .is_empty()
        );
        assert_eq!(
            unnamed(&["policies/api.yaml"], "nothing"),
            ["policies/api.yaml: no README names it"]
        );
    }

    #[test]
    fn first_blocks() {
        let page = "# Name\n```sh\none two   # why\nthree\n```\n```\nfour\n```\n";
        assert!(first_block_lacks(&["one two", "three"], page).is_empty());
        assert_eq!(first_block_lacks(&["four"], page).len(), 1);
        assert_eq!(first_block_lacks(&["one"], page).len(), 1);
        assert_eq!(first_block_lacks(&["one"], "no block: one").len(), 1);
    }

    #[test]
    fn links() {
        assert_eq!(
            anchors("# A `b`: c\n```\n# no\n```\n## D-e_f"),
            ["a-b-c", "d-e_f"]
        );
        let page = "[a](x.md#one) [b](../y.md) [c](#here) [d](https://z/#q) ![e](gone.png)";
        let there = |path: &str| ["docs/x.md", "y.md", "docs/p.md"].contains(&path);
        let anchors = |path: &str| (path == "docs/x.md").then(|| vec!["two".to_owned()]);
        let broken = broken_links(page, "docs/p.md", there, anchors);
        assert_eq!(
            broken,
            [
                "docs/p.md: nothing is at `x.md#one`",
                "docs/p.md: nothing is at `gone.png`"
            ]
        );
    }

    #[test]
    fn modules() {
        assert!(modules_missing(&["clock", "limit"], "`clock.rs` and `limit/rate.rs`").is_empty());
        assert_eq!(modules_missing(&["clock"], "the clock").len(), 1);
    }
}
