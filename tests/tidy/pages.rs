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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn modules() {
        assert!(modules_missing(&["clock", "limit"], "`clock.rs` and `limit/rate.rs`").is_empty());
        assert_eq!(modules_missing(&["clock"], "the clock").len(), 1);
    }
}
