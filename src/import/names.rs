//! Names of policies, limits, upstreams and listeners that tollgate accepts, made from any text, each one once.

use std::collections::HashSet;

/// Maximum number of characters of a name before a number that makes it unique. A name has at most 64.
const MAX_NAME_CHARS: usize = 48;

/// The names of one kind that are in use.
#[derive(Clone, Debug, Default)]
pub struct UniqueNames {
    used: HashSet<String>,
}

impl UniqueNames {
    /// A name from `text`, or from `fallback` if `text` has no letter or digit. It differs from all names before, also
    /// where case does not matter.
    pub fn name(&mut self, text: &str, fallback: &str) -> String {
        let base = match safe_name(text) {
            name if name.is_empty() => safe_name(fallback),
            name => name,
        };
        let mut name = base.clone();
        let mut number = 1_u32;
        while is_yaml_word(&name) || !self.used.insert(name.clone()) {
            number = number.saturating_add(1);
            name = format!("{base}-{number}");
        }
        name
    }
}

/// Whether YAML parsers may read a plain text as something else.
pub fn is_yaml_word(text: &str) -> bool {
    let words = [
        "true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf",
    ];
    words.contains(&text.to_ascii_lowercase().as_str())
}

/// Small letters, digits and single hyphens, beginning with a letter; empty if `text` has none of them.
pub fn safe_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        if name.len() >= MAX_NAME_CHARS {
            break;
        }
        match c.to_ascii_lowercase() {
            c if c.is_ascii_digit() && name.is_empty() => {
                name.push_str("r-");
                name.push(c);
            }
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(name.trim_end_matches('-').len());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::LimitName;

    #[test]
    fn names_are_valid_and_differ() {
        let mut names = UniqueNames::default();
        let long = "x".repeat(200);
        let texts = [
            "Api", "api", "API ", "9/lives", "__", "ü", "", &long, &long, "a--b__c-",
        ];
        let made: Vec<String> = texts.iter().map(|text| names.name(text, "limit")).collect();
        assert_eq!(
            made[..7],
            [
                "api",
                "api-2",
                "api-3",
                "r-9-lives",
                "limit",
                "limit-2",
                "limit-3"
            ]
        );
        assert_eq!(made[9], "a-b-c");
        assert_eq!(names.name("NULL", "limit"), "null-2");
        for name in &made {
            assert!(LimitName::new(name).is_ok(), "{name}");
        }
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), made.len());
    }
}
