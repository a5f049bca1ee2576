//! Paths of rules as matches of policies.

use super::settings::IngressSettings;
use crate::import::nginx::location::read_location;
use crate::route::pattern::Pattern;

/// The matches of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulePath {
    /// Paths as `match` has them.
    pub paths: Vec<String>,
    /// What is taken off the path before it is forwarded.
    pub strip: Option<String>,
    /// What differs, if anything does.
    pub differences: Vec<String>,
}

/// Reads a path with its type.
///
/// # Errors
///
/// Why it is no match of a policy, and the nearest way by hand.
pub fn read_path(
    path: &str,
    path_type: &str,
    settings: &IngressSettings,
) -> Result<RulePath, String> {
    if let Some(target) = &settings.rewrite_target {
        return read_rewritten(path, target);
    }
    let begin = path.trim_end_matches('/');
    let read = match path_type {
        "Exact" => RulePath {
            paths: vec![if begin.is_empty() {
                "/".into()
            } else {
                begin.to_owned()
            }],
            ..RulePath::default()
        },
        "Prefix" => RulePath {
            paths: vec![format!("{begin}/**")],
            ..RulePath::default()
        },
        _ if settings.uses_regex => {
            let location = read_location(&["~*".into(), format!("^{path}")])?;
            RulePath {
                paths: location.paths,
                differences: location.differences,
                ..RulePath::default()
            }
        }
        _ => {
            let location = read_location(&[path.to_owned()])?;
            RulePath {
                paths: location.paths,
                differences: location.differences,
                ..RulePath::default()
            }
        }
    };
    let is_literal = settings.uses_regex && path_type == "ImplementationSpecific"
        || !path.contains(['*', '{', '}']);
    let is_path = |path: &String| Pattern::parse(path).is_ok();
    match is_literal && read.paths.iter().all(is_path) {
        true => Ok(read),
        false => Err(format!(
            "`{path}` is no path of a match; write policies for the paths that it stands for"
        )),
    }
}

/// Reads a path that `rewrite-target` changes: `/$2` behind `/api(/|$)(.*)` takes off `/api`.
fn read_rewritten(path: &str, target: &str) -> Result<RulePath, String> {
    let no_counterpart = || {
        format!(
            "`rewrite-target: {target}` has no counterpart for this path; write `strip` and `prefix` in a policy"
        )
    };
    let endings = [
        ("(/|$)(.*)", "/$2"),
        ("(?:/|$)(.*)", "/$1"),
        ("/?(.*)", "/$1"),
        ("/(.*)", "/$1"),
    ];
    let begin = endings
        .into_iter()
        .find_map(|(ending, wanted)| path.strip_suffix(ending).filter(|_| target == wanted));
    let begin = begin.ok_or_else(no_counterpart)?;
    let is_literal = |c: char| c.is_ascii_alphanumeric() || "/_-.~".contains(c);
    if !begin.chars().all(is_literal) || begin.ends_with('/') {
        return Err(no_counterpart());
    }
    let subtree = format!("{begin}/**");
    Pattern::parse(&subtree).map_err(|_| no_counterpart())?;
    Ok(RulePath {
        paths: vec![subtree],
        strip: (!begin.is_empty()).then(|| begin.to_owned()),
        differences: match path.ends_with("/?(.*)") {
            true => vec![format!(
                "nginx takes `{begin}x` too, which belongs to the next broader policy here"
            )],
            false => Vec::new(),
        },
    })
}
