//! Files that other files include: those of the input take the place of the directive that names them.

use super::syntax::Directive;
use crate::import::error::ImportError;
use crate::import::files::InputFile;
use crate::import::report::{Concern, ImportReport};

/// How deep files may include each other.
const MAX_DEPTH: usize = 8;
/// Maximum number of directives of all files, each as often as it is included.
const MAX_DIRECTIVES: usize = 100_000;

/// The directives of the first file, and of those that it does not include.
///
/// # Errors
///
/// The files become too many directives.
pub fn splice(
    files: &[InputFile],
    parsed: Vec<Vec<Directive>>,
    report: &mut ImportReport,
) -> Result<Vec<Directive>, ImportError> {
    let mut splicer = Splicer {
        files,
        parsed: &parsed,
        is_included: vec![false; files.len()],
        count: 0,
        report,
    };
    let mut spliced: Vec<Vec<Directive>> = Vec::with_capacity(parsed.len());
    for (index, directives) in parsed.iter().enumerate() {
        spliced.push(splicer.block(directives, &mut vec![index])?);
    }
    let is_included = splicer.is_included;
    let roots = spliced.into_iter().zip(is_included);
    Ok(roots
        .filter(|(_, is_included)| !is_included)
        .flat_map(|(directives, _)| directives)
        .collect())
}

struct Splicer<'s> {
    files: &'s [InputFile],
    parsed: &'s [Vec<Directive>],
    is_included: Vec<bool>,
    count: usize,
    report: &'s mut ImportReport,
}

impl Splicer<'_> {
    /// The directives of a block, with files in place of `include`. `open` are the files around it.
    fn block(
        &mut self,
        directives: &[Directive],
        open: &mut Vec<usize>,
    ) -> Result<Vec<Directive>, ImportError> {
        let mut spliced = Vec::with_capacity(directives.len());
        for directive in directives {
            self.count += 1;
            if self.count > MAX_DIRECTIVES {
                let file = self
                    .files
                    .get(directive.origin.file)
                    .map_or("", |file| file.path.as_str());
                let message = format!(
                    "the files have more than {MAX_DIRECTIVES} directives, as they include each other"
                );
                return Err(ImportError::at(file, directive.origin.line, 1, message)
                    .with_help("import them in parts"));
            }
            let pattern = directive.argument(0);
            let included: Vec<usize> = match directive.name == "include" && open.len() < MAX_DEPTH {
                true => (0..self.files.len())
                    .filter(|index| {
                        !open.contains(index)
                            && self
                                .files
                                .get(*index)
                                .is_some_and(|file| is_named(pattern, &file.path))
                    })
                    .collect(),
                false => Vec::new(),
            };
            if included.is_empty() {
                let block = directive.block.as_ref();
                let block = block.map(|block| self.block(block, open)).transpose()?;
                spliced.push(Directive {
                    block,
                    ..directive.clone()
                });
                continue;
            }
            self.report
                .taken(directive.origin, Concern::Other, &directive.text(), "");
            for index in included {
                if let Some(flag) = self.is_included.get_mut(index) {
                    *flag = true;
                }
                open.push(index);
                let parsed = self.parsed.get(index).map_or(&[][..], Vec::as_slice);
                spliced.extend(self.block(parsed, open)?);
                open.pop();
            }
        }
        Ok(spliced)
    }
}

/// Whether the pattern of an `include` names a file: the last parts of both paths are alike, as many as both have.
fn is_named(pattern: &str, path: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        text.split('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .map(str::to_owned)
            .collect()
    };
    let (pattern, path) = (parts(pattern), parts(path));
    let pairs = pattern.iter().rev().zip(path.iter().rev());
    !pattern.is_empty()
        && !path.is_empty()
        && pairs.take(2).all(|(pattern, part)| fits(pattern, part))
}

/// Whether a part of a path fits a pattern with at most one `*`.
fn fits(pattern: &str, part: &str) -> bool {
    match pattern.split_once('*') {
        Some((before, after)) => {
            part.len() >= before.len() + after.len()
                && part.starts_with(before)
                && part.ends_with(after)
        }
        None => pattern == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_includes() {
        for (pattern, path, expected) in [
            ("conf.d/*.conf", "etc/conf.d/a.conf", true),
            ("/etc/nginx/conf.d/*.conf", "conf.d/a.conf", true),
            ("/etc/nginx/conf.d/*.conf", "a.conf", true),
            ("conf.d/*.conf", "sites/a.conf", false),
            ("mime.types", "mime.types", true),
            ("*.conf", "a.txt", false),
            ("", "a", false),
        ] {
            assert_eq!(is_named(pattern, path), expected, "{pattern} {path}");
        }
    }
}
