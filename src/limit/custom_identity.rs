//! [`CustomIdentity`]: identities that the gateway file defines, such as `tenant: { jwt: org.id }`, and [`PREFLIGHT`]. Each
//! has a name and a slot, which it keeps until the process ends.

use std::fmt;
use std::sync::OnceLock;

/// The name of the identity that preflights of browsers have. No gateway file defines it: a limit does whose `for` names
/// it.
pub const PREFLIGHT: &str = "preflight";

/// The names of all custom identities since the process started. A name keeps its slot, so that an identity stays the
/// same over reloads and its name needs no lock.
static NAMES: [OnceLock<Box<str>>; CustomIdentity::MAX] =
    [const { OnceLock::new() }; CustomIdentity::MAX];

/// An identity that the gateway file defines, or [`PREFLIGHT`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomIdentity(u8);

impl CustomIdentity {
    /// Maximum number of custom identities of different names in the life of a process. With the built-in ones they fit
    /// the 64 bits of an [`IdentitySet`](super::IdentitySet).
    pub const MAX: usize = 48;

    /// The identity of this name, which is defined now if it was not defined before. `None` if there are
    /// [`CustomIdentity::MAX`] others.
    pub fn define(name: &str) -> Option<CustomIdentity> {
        // The first slot without a name gets this one, unless an earlier slot has it.
        let has_name = |slot: &OnceLock<Box<str>>| **slot.get_or_init(|| name.into()) == *name;
        CustomIdentity::from_slot(NAMES.iter().position(has_name)?)
    }

    /// The identity of this name; `None` if this process has never defined it.
    pub fn find(name: &str) -> Option<CustomIdentity> {
        CustomIdentity::all().find(|identity| identity.as_str() == name)
    }

    /// All custom identities that this process has ever defined.
    pub fn all() -> impl Iterator<Item = CustomIdentity> + Clone {
        let defined = NAMES.iter().take_while(|slot| slot.get().is_some());
        let slots = 0..defined.count();
        slots.filter_map(CustomIdentity::from_slot)
    }

    /// The name in policies; empty for a slot without one.
    pub fn as_str(self) -> &'static str {
        let name = NAMES.get(self.slot()).and_then(OnceLock::get);
        name.map_or("", |name| name)
    }

    /// The number of the name's slot, below [`CustomIdentity::MAX`].
    pub(super) fn slot(self) -> usize {
        usize::from(self.0)
    }

    /// The identity of a slot, which must be below [`CustomIdentity::MAX`]: a higher number gives an identity without a
    /// name, or `None` above 255.
    pub(super) fn from_slot(slot: usize) -> Option<CustomIdentity> {
        u8::try_from(slot).ok().map(CustomIdentity)
    }
}

impl fmt::Debug for CustomIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_identity() {
        let tenant = CustomIdentity::define("tenant").unwrap();
        let device = CustomIdentity::define("device").unwrap();
        assert_ne!(tenant, device);
        assert_eq!(CustomIdentity::define("tenant"), Some(tenant));
        assert_eq!(CustomIdentity::find("device"), Some(device));
        assert_eq!(CustomIdentity::find("devices"), None);
        assert_eq!(tenant.as_str(), "tenant");
        assert!(CustomIdentity::all().any(|identity| identity == device));
    }
}
