//! Reads the files that the field `overrides` names. Their entries are `LIMIT: { KEY: RATE }`.
//!
//! From each limit this file makes variants: copies of the limit, one for each different rate of its keys. `rules.rs`
//! compiles them. In other files a variant is the limit of one plan.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::super::check::{check_issuer_of_name, check_override, check_value_of_path_part};
use super::super::context::LoadContext;
use super::super::decode::{
    DefaultsConfig, GatewayConfig, LimitConfig, LimitUse, OverrideConfig, PolicyConfig,
    RatesConfig, ThrottleConfig, read_override,
};
use super::super::shared_limits::{SharedLimit, SharedLimits};
use super::super::source::Files;
use super::super::tree::{self, Located, MapKey, Node, SourceLocation, YamlValue};
use super::files::read_list_file;
use crate::base::suggest::{list_words, nearest_word};
use crate::identity::custom_value::IdentityValue;
use crate::identity::key_text::KeyError;
use crate::identity::{self, ClientIdentity, Identifier, Keyer};
use crate::limit::{Fingerprint, Identity, KeyLimit, KeySpec, OverrideSet};

/// Maximum number of different rates of the keys of a limit with `gcra` or `leaky-bucket`, because the store has a slot
/// for each of them.
const MAX_GCRA_RATES: u16 = 1_000;

const FILE_HELP: &str = "write for instance `per-user: { user=acme: 5000/m }`";

/// Reads files of overrides, and numbers the sets of keys in them.
pub(super) struct OverrideReader<'g> {
    gateway: &'g GatewayConfig,
    /// The limits that several routes may have.
    shared_limits: &'g SharedLimits<'g>,
    files: &'g dyn Files,
    /// The folder of the gateway file, to which names of files are relative.
    base: &'g Path,
    /// Parses keys. Its fingerprints only tell keys of one load apart, because its secret is random.
    identifier: Identifier,
    /// The number of sets so far, which is the [`OverrideSet::index`] of the next one.
    set_count: usize,
}

/// The overrides of one limit.
pub(super) struct LimitOverrides {
    /// The name of the limit.
    pub(super) limit_name: String,
    /// The keys, each with the number of its variant.
    pub(super) set: Arc<OverrideSet>,
    /// The variants of the limit. The variant at index 0 has the number 1 in [`KeyLimit::Override`].
    pub(super) variants: Vec<LimitConfig>,
}

/// The overrides of the limits that several routes have, by [`SharedLimit::index`]; `None` for a limit without.
pub(super) type SharedOverrides = Vec<Option<Arc<LimitOverrides>>>;

impl LimitOverrides {
    /// Whether these are the overrides of `limit`. Only names are compared, so the file that names the overrides must
    /// define `limit`.
    pub(super) fn is_of(&self, limit: &LimitConfig) -> bool {
        self.limit_name == limit.name.value.as_str()
    }
}

/// The variants that were made of one limit so far.
#[derive(Default)]
struct Variants {
    limits: Vec<LimitConfig>,
    /// The number of each variant, from 1, by its rates.
    numbers: HashMap<OverrideConfig, u16>,
}

impl<'g> OverrideReader<'g> {
    pub(super) fn new(
        gateway: &'g GatewayConfig,
        shared_limits: &'g SharedLimits<'g>,
        identity: &identity::Settings,
        files: &'g dyn Files,
        base: &'g Path,
    ) -> OverrideReader<'g> {
        OverrideReader {
            gateway,
            shared_limits,
            files,
            base,
            identifier: Identifier::new(identity.clone(), Keyer::random()),
            set_count: 0,
        }
    }

    /// Reads the overrides of the limits that several routes have, from the files that the gateway file and each
    /// `_defaults.yaml` name.
    pub(super) fn read_shared_overrides(
        &mut self,
        cx: &mut LoadContext,
        gateway: &GatewayConfig,
        defaults: &[DefaultsConfig],
    ) -> SharedOverrides {
        let all = self.shared_limits.all();
        let mut overrides = vec![None; all.len()];
        let folder_files = defaults.iter().map(|defaults| {
            let folder = defaults.name.value.as_str();
            (Some(folder), &defaults.overrides)
        });
        for (folder, file) in [(None, &gateway.overrides)].into_iter().chain(folder_files) {
            let Some(file) = file else { continue };
            let limits = all.iter().filter(|limit| limit.folder == folder);
            let owner = folder.unwrap_or("");
            for limit_overrides in self.read(
                cx,
                owner,
                None,
                file,
                limits.clone().map(|shared| shared.limit),
            ) {
                let mut limits = limits.clone();
                let shared = limits.find(|shared| limit_overrides.is_of(shared.limit));
                if let Some(entry) = shared.and_then(|shared| overrides.get_mut(shared.index)) {
                    *entry = Some(Arc::new(limit_overrides));
                }
            }
        }
        overrides
    }

    /// Reads the overrides of a policy's own limits.
    pub(super) fn read_policy_overrides(
        &mut self,
        cx: &mut LoadContext,
        policy: &PolicyConfig,
    ) -> Vec<LimitOverrides> {
        let own = policy.limits.iter().filter_map(LimitUse::own);
        match &policy.overrides {
            Some(file) => self.read(cx, &policy.name, Some(policy), file, own),
            None => Vec::new(),
        }
    }

    /// Reads a file with overrides of `limits`, which the policy or the folder called `owner` defines. For the gateway file
    /// `owner` is empty; for a folder and the gateway file `policy` is `None`. Entries with a mistake, which is reported, are
    /// left out.
    fn read<'l>(
        &mut self,
        cx: &mut LoadContext,
        owner: &str,
        policy: Option<&PolicyConfig>,
        file: &Located<String>,
        limits: impl Iterator<Item = &'l LimitConfig>,
    ) -> Vec<LimitOverrides> {
        let limits: Vec<&LimitConfig> = limits.collect();
        let Some(text) = read_list_file(cx, self.files, self.base, file, "the overrides") else {
            return Vec::new();
        };
        // A key may be a credential.
        let name = self.base.join(&file.value).display().to_string();
        let file_number = cx.sources.add_secret(&name);
        let root = match tree::parse_list(file_number, &text) {
            Ok(root) => root,
            Err(error) => {
                cx.error(error.location, error.message, error.help);
                return Vec::new();
            }
        };
        let entries = match &root.value {
            YamlValue::Map(entries) => entries,
            YamlValue::Null => return Vec::new(),
            _ => {
                let message = "overrides are a map from limits to keys";
                cx.error(root.location, message, Some(FILE_HELP.into()));
                return Vec::new();
            }
        };
        report_repeated_keys(cx, entries);
        let read_entry = |(name, node): &(MapKey, Node)| {
            let limit = find_limit(cx, self.shared_limits.above(owner), &limits, name)?;
            let overrides = self.read_limit(cx, policy, limit, node)?;
            self.set_count += 1;
            Some(overrides)
        };
        entries.iter().filter_map(read_entry).collect()
    }

    /// Reads the keys of one limit. `None` if `node` is no map, which is reported; keys with a mistake are left out.
    fn read_limit(
        &self,
        cx: &mut LoadContext,
        policy: Option<&PolicyConfig>,
        limit: &LimitConfig,
        node: &Node,
    ) -> Option<LimitOverrides> {
        let YamlValue::Map(entries) = &node.value else {
            let message = "the overrides of a limit are a map from keys to rates";
            cx.error(node.location, message, Some(FILE_HELP.into()));
            return None;
        };
        let spec = limit.key_spec();
        let mut locations: HashMap<Fingerprint, SourceLocation> = HashMap::new();
        let mut variants = Variants::default();
        let mut keys = Vec::with_capacity(entries.len());
        for (key, node) in entries {
            let fingerprint = self.fingerprint_of(cx, policy, &spec, key);
            if let Some(fingerprint) = fingerprint
                && let Some(first) = locations.insert(fingerprint, key.location)
            {
                let message = format!("this key stands in line {} already", first.line);
                cx.error(key.location, message, Some("remove one of them".into()));
            }
            let key_limit = variants.add(cx, self.gateway, limit, node);
            if let (Some(_), Some(key_limit)) = (fingerprint, key_limit) {
                keys.push((key.text.as_str().into(), key_limit));
            }
        }
        Some(LimitOverrides {
            limit_name: limit.name.value.as_str().to_owned(),
            set: Arc::new(OverrideSet {
                index: self.set_count,
                keys,
            }),
            variants: variants.limits,
        })
    }

    /// The fingerprint of a key, or `None` if the key has a mistake, which is reported.
    fn fingerprint_of(
        &self,
        cx: &mut LoadContext,
        policy: Option<&PolicyConfig>,
        spec: &KeySpec,
        key: &MapKey,
    ) -> Option<Fingerprint> {
        let is_hash = |part: &str| {
            part.split_once('=')
                .is_some_and(|(_, value)| value.starts_with('#'))
        };
        if key.text.split(',').any(is_hash) {
            let message = "a hash is another one after each start of the gateway";
            let help = "write the value itself";
            cx.error(key.location, message, Some(help.into()));
            return None;
        }
        match self.identifier.parse_key(&key.text, spec) {
            Ok(client) if client.plan.is_some() && !spec.has(Identity::Plan) => {
                let message = "`plan` is no part of this limit's key";
                let help = "remove it; the override holds whatever the plan";
                cx.error(key.location, message, Some(help.into()));
                None
            }
            Ok(client) => {
                self.check_names(cx, policy, &client, key.location);
                self.identifier.key(&client, spec)
            }
            Err(error) => {
                let help =
                    "write the key as `tollgate explain` shows it, for instance `ip=192.0.2.7`";
                cx.error(key.location, describe_mistake(&error), Some(help.into()));
                None
            }
        }
    }

    /// Reports names in a key that no request has: they lack their issuer, or have a format at the end of the path.
    fn check_names(
        &self,
        cx: &mut LoadContext,
        policy: Option<&PolicyConfig>,
        client: &ClientIdentity,
        location: SourceLocation,
    ) {
        let user_names = client.user.iter().map(|name| (Identity::User, name));
        let custom_names = client.custom.iter().flat_map(|custom| {
            let names = match &custom.value {
                IdentityValue::Names(names) => names.as_slice(),
                IdentityValue::Hash(_) | IdentityValue::Ambiguous => &[],
            };
            let identity = Identity::Custom(custom.identity);
            names.iter().map(move |name| (identity, name))
        });
        for (identity, name) in user_names.chain(custom_names) {
            let name = Located {
                value: name.as_ref(),
                location,
            };
            check_issuer_of_name(cx, self.gateway, identity, name);
            if let Some(policy) = policy {
                check_value_of_path_part(cx, self.gateway, policy, identity, name);
            }
        }
    }
}

impl Variants {
    /// Adds the variant with the value of `node`, unless there is one or the value is `unlimited`. Returns what holds
    /// for the key. `None` for an invalid value, or if the bound on variants is reached; both are reported.
    fn add(
        &mut self,
        cx: &mut LoadContext,
        gateway: &GatewayConfig,
        limit: &LimitConfig,
        node: &Node,
    ) -> Option<KeyLimit> {
        let written = read_override(cx, node, limit)?;
        if let Some(number) = self.numbers.get(&written) {
            return Some(KeyLimit::Override(*number));
        }
        let mut variant = limit.clone();
        variant.fields.plans = None;
        match &written {
            OverrideConfig::Rates(rates) => {
                let located = |rate| Located {
                    value: rate,
                    location: node.location,
                };
                variant.fields.rates = RatesConfig {
                    of_all: rates.iter().copied().map(located).collect(),
                    by_plan: Vec::new(),
                };
                variant.fields.move_locations_to(node.location);
                check_override(cx, gateway, &variant);
            }
            OverrideConfig::Concurrent(max_open) => {
                variant.fields.concurrent = Some(Located {
                    value: *max_open,
                    location: node.location,
                });
            }
            OverrideConfig::Unlimited => return Some(KeyLimit::Unlimited),
        }
        self.limits.push(variant);
        // An arrival time depends on the rate of its key, so the store has a slot for each rate.
        let is_gcra = limit
            .algorithm
            .is_some_and(|algorithm| algorithm.value.is_gcra());
        let max_rates = if is_gcra { MAX_GCRA_RATES } else { u16::MAX };
        let number = u16::try_from(self.limits.len()).ok();
        let Some(number) = number.filter(|number| *number <= max_rates) else {
            let message =
                format!("the keys of this limit have at most {max_rates} different rates");
            let help = "give more of them the same rate";
            cx.error(node.location, message, Some(help.into()));
            return None;
        };
        self.numbers.insert(written, number);
        Some(KeyLimit::Override(number))
    }
}

fn report_repeated_keys(cx: &mut LoadContext, entries: &[(MapKey, Node)]) {
    for (first, repeated) in tree::find_repeated_keys(entries) {
        let message = format!("`{}` stands in line {} already", repeated.text, first.line);
        cx.error(
            repeated.location,
            message,
            Some("write its keys there".into()),
        );
    }
}

/// The mistake without the text of the key, which may be a credential.
fn describe_mistake(error: &KeyError) -> String {
    match error {
        KeyError::MissingEquals(_) => "a part of this key is not written NAME=VALUE".into(),
        KeyError::UncountedIdentity { counted, .. } => format!("this limit counts by {counted}"),
        KeyError::InvalidValue { identity, .. } => format!("this is not a value of `{identity}`"),
        KeyError::InvalidEmail(_) => "this is not an email address".into(),
        error => error.to_string(),
    }
}

/// The limit whose keys stand under `name`: one of `limits`, which the file may override. `None` for another name or an
/// elastic limit; both are reported. `above` are the limits of files above, which only the help names.
fn find_limit<'l>(
    cx: &mut LoadContext,
    mut above: impl Iterator<Item = SharedLimit<'l>>,
    limits: &[&'l LimitConfig],
    name: &MapKey,
) -> Option<&'l LimitConfig> {
    let mut candidates = limits.iter().copied();
    let Some(limit) = candidates.find(|limit| limit.name.value.as_str() == name.text) else {
        let help = match above.find(|shared| shared.limit.name.value.as_str() == name.text) {
            Some(shared) => Some(format!(
                "write it into the file that `overrides` of {} names",
                shared.defining_file()
            )),
            None => {
                let names = limits.iter().map(|limit| limit.name.value.as_str());
                Some(match nearest_word(&name.text, names.clone()) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None if limits.is_empty() => "it defines no limits".into(),
                    None => format!("its limits are {}", list_words(names)),
                })
            }
        };
        let message = match name.text.contains('=') {
            true => String::from("this is a key, and belongs under the name of its limit"),
            false => format!("the file with `overrides` defines no limit `{}`", name.text),
        };
        cx.error(name.location, message, help);
        return None;
    };
    let is_elastic = |throttle: Located<ThrottleConfig>| throttle.value == ThrottleConfig::Elastic;
    if limit.throttle.is_some_and(is_elastic) {
        let message = format!(
            "`{}` is elastic, and single keys have no `at_most` of their own",
            name.text
        );
        let help = "make the limit hard or soft, or remove its keys here";
        cx.error(name.location, message, Some(help.into()));
        return None;
    }
    Some(limit)
}
