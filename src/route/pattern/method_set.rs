//! Parses and compares the sets of methods that patterns take.

use std::fmt;

use http::Method;

use super::error::{PatternError, PatternErrorKind};

/// The methods that have a bit of their own in a set; other methods are listed.
const STANDARD_METHODS: [Method; 9] = [
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

/// A set of methods: any method, or those that it names.
///
/// A set that names GET takes HEAD too, as in nginx or Go's mux, unless another equally specific route names HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodSet {
    /// Whether this is the set of all methods. It names none then.
    is_any: bool,
    /// The standard methods that the set names: one bit for each of [`STANDARD_METHODS`], in their order.
    standard_bits: u16,
    /// The other methods that the set names.
    other_methods: Vec<Method>,
}

/// How specifically a set takes a method, the most specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::route) enum MethodFit {
    /// The set names the method.
    Named,
    /// The set names GET, and the method is HEAD.
    HeadOfGet,
    /// The set takes any method.
    Any,
}

impl MethodSet {
    /// The set of all methods.
    pub fn any() -> MethodSet {
        MethodSet {
            is_any: true,
            standard_bits: 0,
            other_methods: Vec::new(),
        }
    }

    /// Whether this is the set of all methods.
    pub fn is_any(&self) -> bool {
        self.is_any
    }

    /// Whether the set takes a request with this method.
    pub fn contains(&self, method: &Method) -> bool {
        self.fit(method).is_some()
    }

    /// How specifically the set takes the method; `None` if the set does not take it.
    pub(in crate::route) fn fit(&self, method: &Method) -> Option<MethodFit> {
        if self.is_any {
            Some(MethodFit::Any)
        } else if self.names_method(method) {
            Some(MethodFit::Named)
        } else if method == Method::HEAD && self.names_method(&Method::GET) {
            Some(MethodFit::HeadOfGet)
        } else {
            None
        }
    }

    /// Whether the set names the method itself.
    fn names_method(&self, method: &Method) -> bool {
        match standard_bit(method) {
            Some(bit) => self.standard_bits & bit != 0,
            None => self.other_methods.contains(method),
        }
    }

    /// Whether both sets take some method equally specifically, so that neither is preferred.
    pub(in crate::route) fn has_conflict_with(&self, other: &MethodSet) -> bool {
        if self.is_any || other.is_any {
            return self.is_any && other.is_any;
        }
        self.standard_bits & other.standard_bits != 0
            || self
                .other_methods
                .iter()
                .any(|method| other.names_method(method))
    }

    /// Whether some method is in both sets.
    pub(super) fn has_common_method_with(&self, other: &MethodSet) -> bool {
        self.is_any || other.is_any || self.iter().any(|method| other.contains(method))
    }

    /// The methods that the set names, with HEAD if it names GET. Empty for the set of all methods.
    pub fn iter(&self) -> impl Iterator<Item = &Method> {
        STANDARD_METHODS
            .iter()
            .filter(|method| !self.is_any && self.contains(method))
            .chain(self.other_methods.iter())
    }

    /// Parses `METHOD[,METHOD]`, the methods of a pattern.
    ///
    /// # Errors
    ///
    /// The first mistake, with its byte offset in `text`.
    pub fn parse(text: &str) -> Result<MethodSet, PatternError> {
        let mut set = MethodSet {
            is_any: false,
            standard_bits: 0,
            other_methods: Vec::new(),
        };
        let mut offset = 0;
        for word in text.split(',') {
            let mistake = |kind: fn(String) -> PatternErrorKind| PatternError {
                offset,
                kind: kind(word.into()),
            };
            let Ok(method) = Method::from_bytes(word.as_bytes()) else {
                return Err(mistake(PatternErrorKind::UnknownMethod));
            };
            if word.bytes().any(|byte| byte.is_ascii_lowercase()) {
                return Err(mistake(PatternErrorKind::LowerCase));
            }
            if !word.bytes().any(|byte| byte.is_ascii_uppercase()) {
                return Err(mistake(PatternErrorKind::UnknownMethod));
            }
            if set.names_method(&method) {
                return Err(mistake(PatternErrorKind::RepeatedMethod));
            }
            match standard_bit(&method) {
                Some(bit) => set.standard_bits |= bit,
                None => set.other_methods.push(method),
            }
            offset += word.len() + 1;
        }
        Ok(set)
    }
}

/// Whether RFC 9110 or RFC 5789 defines the method.
pub fn is_standard_method(method: &Method) -> bool {
    STANDARD_METHODS.contains(method)
}

/// The bit of a standard method in [`MethodSet::standard_bits`]; `None` for any other method.
fn standard_bit(method: &Method) -> Option<u16> {
    STANDARD_METHODS
        .iter()
        .position(|standard| standard == method)
        .map(|index| 1 << index)
}

/// Writes `GET,POST`; nothing for the set of all methods.
impl fmt::Display for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = STANDARD_METHODS
            .iter()
            .filter(|method| !self.is_any && self.names_method(method));
        for (index, method) in named.chain(&self.other_methods).enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(method.as_str())?;
        }
        Ok(())
    }
}
