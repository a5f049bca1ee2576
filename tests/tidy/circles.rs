//! Files of the crate that lead back to each other by what they import. A re-export is followed to the file that has the
//! item; `mod` and `pub use` alone lead nowhere.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::File;

/// The segments of a path that begins at the root of the crate.
type Path = Vec<String>;

/// What one file imports, and what it hands on.
#[derive(Default)]
struct Imports {
    /// Its module.
    own: Path,
    /// Items and modules that it names.
    used: BTreeSet<Path>,
    /// Names under which it gives others an item of another file.
    exported: BTreeMap<String, Path>,
    /// Modules that it has imported, by the name it uses.
    modules: BTreeMap<String, Path>,
    /// Paths in its code that begin with a name, not with `crate` or `super`.
    plain: BTreeSet<Path>,
}

/// Every group of files from each of which a way leads to all others of it.
///
/// # Errors
///
/// A file is no Rust.
pub fn circles(files: &[File]) -> Result<Vec<String>, String> {
    let mut all: BTreeMap<Path, Imports> = BTreeMap::new();
    for file in files {
        let Some(own) = module_of(&file.path) else {
            continue;
        };
        let parsed = syn::parse_file(&file.text).map_err(|e| format!("{}: {e}", file.path))?;
        let mut imports = Imports {
            own: own.clone(),
            ..Imports::default()
        };
        imports.visit_file(&parsed);
        all.insert(own, imports);
    }
    let edges: BTreeMap<&Path, BTreeSet<&Path>> = all
        .iter()
        .map(|(own, imports)| (own, targets(imports, &all)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for start in edges.keys() {
        let forth = reached(start, &edges);
        if seen.contains(start) || !forth.contains(*start) {
            continue;
        }
        let group: Vec<_> = forth
            .into_iter()
            .filter(|other| reached(other, &edges).contains(*start))
            .collect();
        let names: Vec<_> = group.iter().map(|path| path.join("::")).collect();
        found.push(format!(
            "files lead back to each other: {}",
            names.join(", ")
        ));
        seen.extend(group);
    }
    Ok(found)
}

/// The module of a file; none for the crate's roots and for tests.
fn module_of(path: &str) -> Option<Path> {
    let path = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let segments: Path = path.split('/').map(str::to_owned).collect();
    let is_left_out = matches!(path, "lib" | "main") || segments.iter().any(|s| s == "tests");
    (!is_left_out).then_some(segments)
}

/// The files that have what a file names.
fn targets<'a>(imports: &Imports, all: &'a BTreeMap<Path, Imports>) -> BTreeSet<&'a Path> {
    let in_code = imports.plain.iter().filter_map(|path| {
        let (first, rest) = path.split_first()?;
        let child = [imports.own.as_slice(), std::slice::from_ref(first)].concat();
        let module = match imports.modules.get(first) {
            Some(module) => module.clone(),
            None if all.contains_key(&child) => child,
            None => return None,
        };
        Some([module.as_slice(), rest].concat())
    });
    let named = imports.used.iter().cloned().chain(in_code);
    let found = named.filter_map(|path| {
        let file = file_of(&path, all, 0)?;
        // A module that is only imported leads nowhere yet: what is used of it does.
        (*file != path).then_some(file)
    });
    found.filter(|file| **file != imports.own).collect()
}

/// The file that has the item of this path.
fn file_of<'a>(path: &[String], all: &'a BTreeMap<Path, Imports>, depth: u8) -> Option<&'a Path> {
    let known = |length: &usize| all.contains_key(&path[..*length]);
    let length = (1..=path.len()).rev().find(known)?;
    let (file, imports) = all.get_key_value(&path[..length])?;
    let exported = path.get(length).and_then(|name| imports.exported.get(name));
    match exported {
        // Only a crate that does not compile hands on in circles.
        Some(_) if depth > 8 => None,
        Some(other) => file_of(
            &[other.as_slice(), &path[length + 1..]].concat(),
            all,
            depth + 1,
        ),
        None => Some(file),
    }
}

fn reached<'a>(
    start: &'a Path,
    edges: &BTreeMap<&'a Path, BTreeSet<&'a Path>>,
) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        for next in edges.get(file).into_iter().flatten() {
            if found.insert(*next) {
                open.push(next);
            }
        }
    }
    found
}

impl Imports {
    /// The path from the crate's root, where it is one of the crate.
    fn absolute(&self, path: &[String]) -> Option<Path> {
        let ups = path
            .iter()
            .take_while(|segment| *segment == "super")
            .count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([self.own.as_slice(), &path[1..]].concat()),
            "super" => {
                let parent = self.own.len().checked_sub(ups)?;
                Some([&self.own[..parent], &path[ups..]].concat())
            }
            _ => None,
        }
    }

    fn import(&mut self, tree: &syn::UseTree, before: &[String], is_exported: bool) {
        let (path, name) = match tree {
            syn::UseTree::Path(path) => {
                let before = [before, &[path.ident.to_string()]].concat();
                return self.import(&path.tree, &before, is_exported);
            }
            syn::UseTree::Group(group) => {
                let trees = group.items.iter();
                return trees.for_each(|tree| self.import(tree, before, is_exported));
            }
            syn::UseTree::Glob(_) => (before.to_vec(), String::new()),
            syn::UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                (before.to_vec(), last)
            }
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                ([before, std::slice::from_ref(&name)].concat(), name)
            }
            syn::UseTree::Rename(rename) => {
                let path = [before, &[rename.ident.to_string()]].concat();
                (path, rename.rename.to_string())
            }
        };
        let child = || [self.own.as_slice(), path.as_slice()].concat();
        let absolute = self.absolute(&path).unwrap_or_else(child);
        if is_exported {
            self.exported.insert(name, absolute);
            return;
        }
        self.modules.insert(name, absolute.clone());
        self.used.insert(absolute);
    }
}

impl<'a> Visit<'a> for Imports {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let is_exported = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &[], is_exported);
    }

    /// Tests may use everything, and other modules inside a file have a `super` of their own.
    fn visit_item_mod(&mut self, _: &'a syn::ItemMod) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Path = path.segments.iter().map(|s| s.ident.to_string()).collect();
        match self.absolute(&segments) {
            Some(absolute) => drop(self.used.insert(absolute)),
            None => drop(self.plain.insert(segments)),
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.into(),
            text: text.into(),
        };
        let files: Vec<_> = files.iter().map(file).collect();
        let found = circles(&files).unwrap();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (circle, end) in found.iter().zip(expected) {
            assert!(circle.ends_with(end), "{circle}");
        }
    }

    #[test]
    fn a_file_may_use_another() {
        let b = ("src/m/b.rs", "pub struct B;");
        check(&[("src/m/a.rs", "use super::b::B;"), b], &[]);
        check(&[("src/m/mod.rs", "pub mod b; pub use b::B;"), b], &[]);
        check(
            &[("src/m/mod.rs", "mod b; use b::B; fn f() { b::f() }"), b],
            &[],
        );
    }

    #[test]
    fn two_files_may_not_use_each_other() {
        let a = ("src/m/a.rs", "use super::b::{B, f};\npub struct A;");
        check(&[a, ("src/m/b.rs", "use crate::m::a::A;")], &["m::a, m::b"]);
        check(
            &[a, ("src/m/b.rs", "fn f() -> super::a::A {}")],
            &["m::a, m::b"],
        );
        let by_module = "use super::a;\nfn f() { a::f() }";
        check(&[a, ("src/m/b.rs", by_module)], &["m::a, m::b"]);
        check(&[a, ("src/m/b.rs", "use super::a;")], &[]);
        let in_tests = "#[cfg(test)]\nmod tests { use super::super::a::A; }";
        check(&[a, ("src/m/b.rs", in_tests)], &[]);
    }

    #[test]
    fn a_parent_and_its_child_may_not_either() {
        let child = ("src/m/b.rs", "use super::A;\npub struct B;");
        check(
            &[("src/m/mod.rs", "mod b;\nuse b::B;\npub struct A;"), child],
            &["m, m::b"],
        );
        check(
            &[
                ("src/m/mod.rs", "mod b;\npub use b::B;\npub struct A;"),
                child,
            ],
            &[],
        );
    }

    #[test]
    fn what_is_handed_on_leads_to_its_file() {
        let front = (
            "src/m/mod.rs",
            "mod a; mod b;\npub use a::A;\npub use b::B;",
        );
        let a = ("src/m/a.rs", "use super::B;\npub struct A;");
        check(&[front, a, ("src/m/b.rs", "pub struct B;")], &[]);
        check(
            &[front, a, ("src/m/b.rs", "use super::A;\npub struct B;")],
            &["m::a, m::b"],
        );
    }

    #[test]
    fn longer_ways_count_too() {
        let files = [
            ("src/m/a.rs", "use super::b::B;"),
            ("src/m/b.rs", "use super::c::C;"),
            ("src/m/c.rs", "use super::a::A;"),
            ("src/m/d.rs", "use super::a::A;"),
        ];
        check(&files, &["m::a, m::b, m::c"]);
    }
}
