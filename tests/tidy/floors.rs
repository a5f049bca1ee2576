//! The floors of the crate, read from the table in `src/lib.rs`: no module names one above it, and
//! none that leads back to it.

use std::collections::BTreeSet;

use crate::File;
use crate::code::code_of;

/// Every module and the floor it stands on.
pub struct Floors(Vec<(String, u8)>);

/// One place where a file names a module of the crate.
#[derive(Debug, PartialEq, Eq)]
struct Mention {
    line: usize,
    module: String,
}

impl Floors {
    /// Reads lines like ``//! | 3 | [`policy`] | what it is |``.
    pub fn read(library: &str) -> Result<Floors, String> {
        let mut floors = Vec::new();
        for line in library.lines() {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let [_, floor, module, ..] = cells[..] else {
                continue;
            };
            let name = module
                .strip_prefix("[`")
                .and_then(|name| name.strip_suffix("`]"));
            if let (Ok(floor), Some(name)) = (floor.parse(), name) {
                floors.push((name.to_owned(), floor));
            }
        }
        if floors.is_empty() {
            Err("no floors table".to_owned())
        } else {
            Ok(Floors(floors))
        }
    }

    /// All modules in reading order.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn floor(&self, module: &str) -> Option<u8> {
        self.0
            .iter()
            .find(|(name, _)| name == module)
            .map(|&(_, floor)| floor)
    }

    /// Modules that the table lacks or has too many, mentions that go up, and circles.
    pub fn mistakes(&self, files: &[File]) -> Vec<String> {
        let mut mistakes = Vec::new();
        let mut edges = BTreeSet::new();
        let modules: BTreeSet<_> = files
            .iter()
            .filter_map(|file| module_of(&file.path))
            .collect();
        for name in self
            .names()
            .into_iter()
            .filter(|name| !modules.contains(name))
        {
            mistakes.push(format!(
                "src/lib.rs: the table names `{name}`, which has no file"
            ));
        }
        for file in files {
            let Some(own) = module_of(&file.path) else {
                continue;
            };
            let Some(floor) = self.floor(own) else {
                mistakes.push(format!(
                    "{}: `{own}` is not in the table of src/lib.rs",
                    file.path
                ));
                continue;
            };
            for Mention { line, module } in self.mentions(file, own, files) {
                match self.floor(&module) {
                    None => mistakes.push(format!("{}:{line}: no floor has `{module}`", file.path)),
                    Some(other) if other > floor => mistakes.push(format!(
                        "{}:{line}: `{own}` on floor {floor} names `{module}` on floor {other}",
                        file.path
                    )),
                    Some(_) if module != own => drop(edges.insert((own.to_owned(), module))),
                    Some(_) => {}
                }
            }
        }
        mistakes.extend(circles(&edges));
        mistakes
    }

    /// What a file names through `crate::`, and through `super::` where that leaves its module.
    fn mentions(&self, file: &File, own: &str, files: &[File]) -> Vec<Mention> {
        let code = code_of(&file.text);
        let inside = |name: &str| {
            let (leaf, folder) = (format!("src/{own}/{name}.rs"), format!("src/{own}/{name}/"));
            files
                .iter()
                .any(|f| f.path == leaf || f.path.starts_with(&folder))
        };
        let mut mentions = heads(&code, "crate");
        let up = heads(&code, "super").into_iter().filter(|mention| {
            self.floor(&mention.module).is_some()
                && mention.module != own
                && !inside(&mention.module)
        });
        mentions.extend(up);
        mentions
    }
}

/// `limit` for `src/limit.rs` and for everything in `src/limit/`; nothing for the crate's roots.
fn module_of(path: &str) -> Option<&str> {
    let path = path.strip_prefix("src/")?;
    let name = path.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (!matches!(name, "lib" | "main")).then_some(name)
}

/// The first names of all paths that start with the word `root`, groups taken apart.
fn heads(code: &str, root: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    let start = format!("{root}::");
    for (at, _) in code.match_indices(&start) {
        if code[..at].ends_with(is_word) {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let rest = code[at + start.len()..].trim_start();
        let names = match rest.strip_prefix('{') {
            Some(group) => group_heads(group),
            None => vec![word(rest)],
        };
        let names = names
            .into_iter()
            .filter(|name| !matches!(*name, "" | "self" | "super"));
        found.extend(names.map(|name| Mention {
            line,
            module: name.to_owned(),
        }));
    }
    found
}

/// `a` and `b` of `a::{c, d}, b}`.
fn group_heads(group: &str) -> Vec<&str> {
    let mut heads = vec![word(group.trim_start())];
    let mut depth = 0;
    for (at, mark) in group.char_indices() {
        match mark {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.push(word(group[at + 1..].trim_start())),
            _ => {}
        }
    }
    heads
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn word(text: &str) -> &str {
    text.split(|letter| !is_word(letter))
        .next()
        .unwrap_or_default()
}

/// Modules from which a way leads back to themselves.
fn circles(edges: &BTreeSet<(String, String)>) -> Vec<String> {
    let mut mistakes = Vec::new();
    for start in edges.iter().map(|(from, _)| from).collect::<BTreeSet<_>>() {
        let mut reached = BTreeSet::from([start]);
        let mut open = vec![start];
        while let Some(module) = open.pop() {
            for (_, to) in edges.iter().filter(|(from, _)| from == module) {
                if to == start {
                    mistakes.push(format!(
                        "src/: `{start}` leads back to itself by `{module}`"
                    ));
                } else if reached.insert(to) {
                    open.push(to);
                }
            }
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "//! | floor | module | what |\n//! |---|---|---|\n\
        //! | 0 | [`clock`] | time |\n//! | 1 | [`limit`] | sums |\n//! | 1 | [`route`] | ways |\n\
        //! | 3 | [`policy`] | files |\n";

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let floors = Floors::read(TABLE).unwrap();
        let mut all = vec![
            ("src/lib.rs", ""),
            ("src/clock.rs", ""),
            ("src/policy.rs", ""),
        ];
        all.extend([
            ("src/limit/mod.rs", ""),
            ("src/limit/rate.rs", ""),
            ("src/route/mod.rs", ""),
        ]);
        all.retain(|(path, _)| files.iter().all(|(other, _)| other != path));
        all.extend(files);
        let file = |&(path, text): &(&str, &str)| File {
            path: path.into(),
            text: text.into(),
        };
        let found = floors.mistakes(&all.iter().map(file).collect::<Vec<_>>());
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (mistake, part) in found.iter().zip(expected) {
            assert!(mistake.contains(part), "{mistake}");
        }
    }

    #[test]
    fn downward_is_fine() {
        check(
            &[(
                "src/limit/rate.rs",
                "use crate::clock::Nanos;\nuse super::rate::X;",
            )],
            &[],
        );
        check(
            &[(
                "src/policy.rs",
                "use crate::{clock, limit::{Rate, rule::X}, route};",
            )],
            &[],
        );
        check(
            &[(
                "src/limit/rate.rs",
                "/// [`crate::policy`]\nfn f() {} // crate::policy::x",
            )],
            &[],
        );
    }

    #[test]
    fn upward_is_not() {
        check(
            &[("src/clock.rs", "\nuse crate::limit::Rate;")],
            &["src/clock.rs:2: `clock`"],
        );
        check(
            &[("src/clock.rs", "use crate::{limit::{A, B}, route};")],
            &["`limit`", "`route`"],
        );
        check(
            &[("src/limit/mod.rs", "fn f() -> crate::policy::Model {}")],
            &["floor 3"],
        );
        check(
            &[("src/limit/rate.rs", "use super::super::policy::Model;")],
            &["floor 3"],
        );
        check(&[("src/limit/mod.rs", "use super::policy;")], &["floor 3"]);
    }

    #[test]
    fn a_submodule_may_be_called_like_a_floor() {
        let files = [
            ("src/limit/policy.rs", ""),
            ("src/limit/rate.rs", "use super::policy::X;"),
        ];
        check(&files, &[]);
    }

    #[test]
    fn neighbours_do_not_go_in_circles() {
        let there = ("src/limit/mod.rs", "use crate::route::Route;");
        check(&[there], &[]);
        let back = ("src/route/mod.rs", "use crate::limit::Rule;");
        check(
            &[there, back],
            &["`limit` leads back", "`route` leads back"],
        );
    }

    #[test]
    fn the_table_is_complete() {
        check(&[("src/extra.rs", "")], &["`extra` is not in the table"]);
        check(
            &[("src/limit/mod.rs", "use crate::nowhere::X;")],
            &["no floor has `nowhere`"],
        );
        let floors = Floors::read(TABLE).unwrap();
        assert_eq!(floors.mistakes(&[]).len(), 4);
        assert!(Floors::read("//! nothing").is_err());
    }
}
