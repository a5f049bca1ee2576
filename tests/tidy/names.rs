//! Types of the crate that share their name.

use std::collections::BTreeMap;

use crate::File;

/// Names that several types have, and the files of each. Types of tests are not looked at.
///
/// # Errors
///
/// A file is no Rust.
pub fn shared(files: &[File]) -> Result<BTreeMap<String, Vec<&str>>, String> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| !is_test(&file.path)) {
        let parsed = syn::parse_file(&file.text).map_err(|e| format!("{}: {e}", file.path))?;
        for name in parsed.items.iter().filter_map(type_name) {
            all.entry(name.to_string()).or_default().push(&file.path);
        }
    }
    all.retain(|_, files| files.len() > 1);
    Ok(all)
}

fn is_test(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
}

fn type_name(item: &syn::Item) -> Option<&syn::Ident> {
    match item {
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_with_one_name() {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: text.into(),
        };
        let files = [
            file("src/a.rs", "pub struct Same;\nenum Own {}"),
            file("src/b.rs", "trait Same {}\nfn f() { struct Own; }"),
            file("src/b/tests.rs", "struct Own;"),
        ];
        let found = shared(&files).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found["Same"], ["src/a.rs", "src/b.rs"]);
    }
}
