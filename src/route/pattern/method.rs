//! The methods that a pattern takes.

use std::fmt;

use http::Method;

use super::error::{PatternError, PatternErrorKind};

/// The methods that have a bit of their own; others are listed.
const STANDARD: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::PATCH,
    Method::OPTIONS,
    Method::TRACE,
    Method::CONNECT,
];

/// Any method, or those that are named.
///
/// A set that names GET takes HEAD too, as in nginx or Go's mux; where another equally specific route
/// names HEAD itself, that one gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodSet {
    any: bool,
    bits: u16,
    others: Vec<Method>,
}

/// How exactly a set takes a method; the smaller, the more exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::route) enum MethodFit {
    /// It names the method.
    Named,
    /// It names GET and the method is HEAD.
    HeadOfGet,
    /// It takes any method.
    Any,
}

impl MethodSet {
    /// The set of all methods.
    pub fn any() -> MethodSet {
        MethodSet {
            any: true,
            bits: 0,
            others: Vec::new(),
        }
    }

    /// Whether all methods are in it.
    pub fn is_any(&self) -> bool {
        self.any
    }

    /// Whether a request with this method is taken.
    pub fn contains(&self, method: &Method) -> bool {
        self.fit(method).is_some()
    }

    pub(in crate::route) fn fit(&self, method: &Method) -> Option<MethodFit> {
        if self.any {
            Some(MethodFit::Any)
        } else if self.names(method) {
            Some(MethodFit::Named)
        } else if method == Method::HEAD && self.names(&Method::GET) {
            Some(MethodFit::HeadOfGet)
        } else {
            None
        }
    }

    fn names(&self, method: &Method) -> bool {
        match bit(method) {
            Some(bit) => self.bits & bit != 0,
            None => self.others.contains(method),
        }
    }

    /// Whether some method would not know which of the two sets to prefer.
    pub(in crate::route) fn conflicts(&self, other: &MethodSet) -> bool {
        if self.any || other.any {
            return self.any && other.any;
        }
        self.bits & other.bits != 0 || self.others.iter().any(|method| other.names(method))
    }

    /// Whether some method is in both.
    pub(super) fn overlaps(&self, other: &MethodSet) -> bool {
        self.any || other.any || self.iter().any(|method| other.contains(method))
    }

    /// The methods that it names, and HEAD where GET brings it; none when any is taken.
    pub fn iter(&self) -> impl Iterator<Item = &Method> {
        STANDARD
            .iter()
            .filter(|method| !self.any && self.contains(method))
            .chain(self.others.iter())
    }

    /// Reads `METHOD[,METHOD]`.
    ///
    /// # Errors
    ///
    /// What is wrong, with the byte offset in `text`.
    pub fn parse(text: &str) -> Result<MethodSet, PatternError> {
        let mut set = MethodSet {
            any: false,
            bits: 0,
            others: Vec::new(),
        };
        let mut offset = 0;
        for word in text.split(',') {
            let mistake = |kind: fn(String) -> PatternErrorKind| PatternError {
                offset,
                kind: kind(word.into()),
            };
            let Ok(method) = Method::from_bytes(word.as_bytes()) else {
                return Err(mistake(PatternErrorKind::Method));
            };
            if word.bytes().any(|byte| byte.is_ascii_lowercase()) {
                return Err(mistake(PatternErrorKind::LowerCase));
            }
            if !word.bytes().any(|byte| byte.is_ascii_uppercase()) {
                return Err(mistake(PatternErrorKind::Method));
            }
            if set.names(&method) {
                return Err(mistake(PatternErrorKind::Repeated));
            }
            match bit(&method) {
                Some(bit) => set.bits |= bit,
                None => set.others.push(method),
            }
            offset += word.len() + 1;
        }
        Ok(set)
    }
}

fn bit(method: &Method) -> Option<u16> {
    STANDARD
        .iter()
        .position(|standard| standard == method)
        .map(|place| 1 << place)
}

/// `GET,POST`; empty when any method is taken.
impl fmt::Display for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = STANDARD
            .iter()
            .filter(|method| !self.any && self.names(method));
        for (place, method) in named.chain(&self.others).enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            f.write_str(method.as_str())?;
        }
        Ok(())
    }
}
