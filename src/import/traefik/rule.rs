//! Reads the rules of routers, of both versions of the language: matchers with `&&`, `||`, `!` and parentheses.

use super::matchers::read_matcher;
use crate::import::routing::region::Region;

/// Maximum number of alternatives of a rule.
const MAX_ALTERNATIVES: usize = 64;
/// Maximum nesting of parentheses and negations.
const MAX_DEPTH: usize = 32;

/// Reads a rule as the regions that it takes. `work` is the number of comparisons that are left for it and the rules
/// behind; without any left, the rule may take all requests.
///
/// # Errors
///
/// The text is no rule, so that Traefik does not serve the router either.
pub fn read_rule(text: &str, work: &mut usize) -> Result<Vec<Region>, String> {
    let tokens = tokens(text)?;
    let mut reader = RouterRuleReader {
        tokens: &tokens,
        next: 0,
        work,
    };
    let regions = reader.alternatives(0)?;
    match reader.peek() {
        None => Ok(regions),
        Some(token) => Err(format!("the rule goes on with `{}`", token.text())),
    }
}

/// All hosts that matchers of a rule name, whatever it takes of them; none if it is no rule.
pub fn named_hosts(text: &str) -> Vec<String> {
    let tokens = tokens(text).unwrap_or_default();
    let mut hosts = Vec::new();
    let mut is_host = false;
    for token in tokens {
        match token {
            RuleToken::Word(name) => {
                is_host =
                    name.eq_ignore_ascii_case("Host") || name.eq_ignore_ascii_case("HostHeader");
            }
            RuleToken::Text(text) if is_host => hosts.push(text),
            _ => {}
        }
    }
    hosts
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RuleToken {
    Word(String),
    Text(String),
    Sign(&'static str),
}

impl RuleToken {
    fn text(&self) -> &str {
        match self {
            RuleToken::Word(text) | RuleToken::Text(text) => text,
            RuleToken::Sign(sign) => sign,
        }
    }
}

fn tokens(text: &str) -> Result<Vec<RuleToken>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let signs = ["&&", "||", "!", "(", ")", ","];
        if let Some(sign) = signs.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(RuleToken::Sign(sign));
            rest = rest.get(sign.len()..).unwrap_or("");
        } else if first == '`' {
            let (quoted, after) = rest
                .get(1..)
                .and_then(|inner| inner.split_once('`'))
                .ok_or("a backtick is not closed")?;
            tokens.push(RuleToken::Text(quoted.to_owned()));
            rest = after;
        } else if matches!(first, '"' | '\'') {
            let (quoted, after) = unquote(rest.get(1..).unwrap_or(""), first)?;
            tokens.push(RuleToken::Text(quoted));
            rest = after;
        } else if first.is_ascii_alphabetic() {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            tokens.push(RuleToken::Word(word.to_owned()));
            rest = after;
        } else {
            return Err(format!("the rule has `{first}` where none can be"));
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// The text up to the quote that ends it, and what follows.
fn unquote(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped @ ('\\' | '"' | '\''))) => out.push(escaped),
                _ => return Err("an escape in quotes is not read; write backticks".into()),
            },
            c if c == quote => return Ok((out, text.get(index + 1..).unwrap_or(""))),
            c => out.push(c),
        }
    }
    Err("a quote is not closed".into())
}

struct RouterRuleReader<'t> {
    tokens: &'t [RuleToken],
    next: usize,
    work: &'t mut usize,
}

impl<'t> RouterRuleReader<'t> {
    fn peek(&self) -> Option<&'t RuleToken> {
        self.tokens.get(self.next)
    }

    fn take_sign(&mut self, sign: &'static str) -> bool {
        let is_next = self.peek() == Some(&RuleToken::Sign(sign));
        self.next += usize::from(is_next);
        is_next
    }

    fn alternatives(&mut self, depth: usize) -> Result<Vec<Region>, String> {
        let mut regions = self.conjunction(depth)?;
        while self.take_sign("||") {
            regions.extend(self.conjunction(depth)?);
            regions = bounded(regions);
        }
        Ok(regions)
    }

    fn conjunction(&mut self, depth: usize) -> Result<Vec<Region>, String> {
        let mut regions = self.operand(depth)?;
        while self.take_sign("&&") {
            let others = self.operand(depth)?;
            if !self.may_join(&regions, &others) {
                regions = too_many();
                continue;
            }
            let both = |one: &Region| {
                let found: Vec<Region> = others
                    .iter()
                    .filter_map(|other| one.intersect(other))
                    .collect();
                found
            };
            regions = bounded(regions.iter().flat_map(both).collect());
        }
        Ok(regions)
    }

    /// Whether the requests of both lists may be found: there are few alternatives, and their work is left.
    fn may_join(&mut self, regions: &[Region], others: &[Region]) -> bool {
        let pairs = regions
            .iter()
            .flat_map(|one| others.iter().map(move |other| (one, other)));
        let work = match regions.len().saturating_mul(others.len()) > 16 * MAX_ALTERNATIVES {
            true => usize::MAX,
            false => pairs
                .map(|(one, other)| one.intersect_work(other))
                .fold(0, usize::saturating_add),
        };
        match self.work.checked_sub(work) {
            Some(rest) => *self.work = rest,
            None => return false,
        }
        true
    }

    fn operand(&mut self, depth: usize) -> Result<Vec<Region>, String> {
        if depth > MAX_DEPTH {
            return Err(format!("the rule is more than {MAX_DEPTH} deep"));
        }
        if self.take_sign("!") {
            self.operand(depth + 1)?;
            return Ok(vec![Region::some_of_everything(
                "`!` has no counterpart in a match",
            )]);
        }
        if self.take_sign("(") {
            let regions = self.alternatives(depth + 1)?;
            return match self.take_sign(")") {
                true => Ok(regions),
                false => Err("a parenthesis is not closed".into()),
            };
        }
        let Some(RuleToken::Word(name)) = self.peek() else {
            return Err("the rule lacks a matcher".into());
        };
        self.next += 1;
        let arguments = self.arguments()?;
        read_matcher(name, &arguments)
    }

    fn arguments(&mut self) -> Result<Vec<String>, String> {
        if !self.take_sign("(") {
            return Err("a matcher lacks its parentheses".into());
        }
        let mut arguments = Vec::new();
        loop {
            match self.peek() {
                Some(RuleToken::Text(text)) => arguments.push(text.clone()),
                _ => return Err("a matcher lacks a text in backticks".into()),
            }
            self.next += 1;
            if self.take_sign(")") {
                return Ok(arguments);
            }
            if !self.take_sign(",") {
                return Err("a matcher is not closed".into());
            }
        }
    }
}

/// The regions, or in place of too many one that has them all.
fn bounded(regions: Vec<Region>) -> Vec<Region> {
    let total: usize = regions.iter().map(Region::size).sum();
    match regions.len() > MAX_ALTERNATIVES || total > 16 * MAX_ALTERNATIVES {
        true => too_many(),
        false => regions,
    }
}

fn too_many() -> Vec<Region> {
    vec![Region::some_of_everything(
        "the rule has too many alternatives",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::routing::region::path_text;

    /// Each region as `HOSTS PATHS METHODS FIT`.
    fn read(rule: &str) -> Vec<String> {
        let regions =
            read_rule(rule, &mut 100_000).unwrap_or_else(|error| panic!("{rule}: {error}"));
        let text = |region: &Region| {
            let hosts: Vec<String> = region.hosts.iter().map(ToString::to_string).collect();
            let paths: Vec<String> = region.paths.iter().map(|path| path_text(path)).collect();
            let fit = format!("{:?}", region.fit);
            let fit = fit.split('(').next().unwrap_or("").to_owned();
            format!(
                "{} {} {} {fit}",
                hosts.join(","),
                paths.join(","),
                region.methods.join(",")
            )
        };
        regions.iter().map(text).collect()
    }

    #[test]
    fn rules_as_regions() {
        for (rule, expected) in [
            ("Host(`A.example.com`)", vec!["a.example.com /**  Exact"]),
            (
                "Host(`a.b`, `c.d`) && PathPrefix(`/x`)",
                vec!["a.b,c.d /x/**  Exact"],
            ),
            (
                "(Host(`a.b`) || Host(`c.d`)) && Method(`GET`)",
                vec!["a.b /** GET Exact", "c.d /** GET Exact"],
            ),
            ("Host(`a.b`) && Host(`c.d`)", vec![]),
            (
                "PathPrefix(`/a`) && Header(`x`, `y`)",
                vec!["* /a/**  Superset"],
            ),
            (
                "Host(`a.b`) && !PathPrefix(`/admin`)",
                vec!["a.b /**  Superset"],
            ),
            (
                "HostRegexp(`^.+\\.example\\.com$`)",
                vec!["*.example.com /**  Exact"],
            ),
            (
                "HostRegexp(`{sub:[a-z]+}.example.com`)",
                vec!["*.example.com /**  Approximate"],
            ),
            ("PathRegexp(`^/users/[^/]+$`)", vec!["* /users/*  Exact"]),
            ("PathRegexp(`\\.php$`)", vec!["* /**  Superset"]),
            (
                "Path(\"/a\") || Path('/b')",
                vec!["* /a  Exact", "* /b  Exact"],
            ),
        ] {
            assert_eq!(read(rule), expected, "{rule}");
        }
    }

    #[test]
    fn texts_that_are_no_rules() {
        for rule in [
            "",
            "Host",
            "Host()",
            "Host(`a`",
            "Host(`a`) &&",
            "(Host(`a`)",
            "Nope(`a`)",
            "Host(`a`) Host(`b`)",
            "Host(`a) ",
            "Host(a)",
            "HostSNI(`*`)",
            "Host(`a`) & Host(`b`)",
        ] {
            assert!(read_rule(rule, &mut 100_000).is_err(), "{rule}");
        }
        let deep = format!("{}Host(`a.b`)", "!".repeat(50));
        assert!(read_rule(&deep, &mut 100_000).is_err());
    }

    #[test]
    fn rules_with_too_many_alternatives() {
        let one = "(Host(`a.b`) || Host(`c.d`) || Host(`e.f`) || PathPrefix(`/a`))";
        let rule = [one; 12].join(" && ");
        let regions = read(&rule);
        let is_superset = |region: &String| region.ends_with("Superset");
        assert!(regions.len() <= MAX_ALTERNATIVES && regions.iter().all(is_superset));
    }
}
