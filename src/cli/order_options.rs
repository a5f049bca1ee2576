//! What the commands have in common that order something of a running gateway: their options, the signature of an order, and
//! the warning of what a restart would lose.

use serde_json::Value;

use super::admin_client::{AdminAddress, percent_encode};
use super::output::{self, CommandError};

/// What must be so for orders about a hashed key to outlive a restart.
pub const HASHED_KEY_NEEDS: &str =
    "a key that is shown as a hash needs `snapshots` or a shared store";

/// The options of an order.
#[derive(clap::Args)]
pub struct OrderOptions {
    /// Who orders it. Default: the user of this shell. With a token: for whom its owner orders it.
    #[arg(long)]
    by: Option<String>,
    /// Print the JSON of the gateway.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

impl OrderOptions {
    /// Signs an order and sends it to this path. Returns what has become of it.
    ///
    /// # Errors
    ///
    /// As those of [`AdminAddress::request`].
    pub fn send(&self, path: &str, mut order: Value) -> Result<Value, CommandError> {
        if let Some(by) = self.signature() {
            order["by"] = by.into();
        }
        self.admin.request("POST", path, &order.to_string())
    }

    /// Takes an order back, by its path. Returns it as it was.
    ///
    /// # Errors
    ///
    /// As those of [`AdminAddress::request`].
    pub fn take_back(&self, path: &str) -> Result<Value, CommandError> {
        let path = match self.signature() {
            Some(by) => format!("{path}?by={}", percent_encode(&by)),
            None => path.to_owned(),
        };
        self.admin.request("DELETE", &path, "")
    }

    /// Who signs the order: as written, or else the user of this shell. `None` if the name of a token signs alone.
    fn signature(&self) -> Option<String> {
        if self.by.is_some() || self.admin.token_file.is_some() {
            return self.by.clone();
        }
        let mut names = ["USER", "LOGNAME"].into_iter();
        let of_shell = names.find_map(|name| std::env::var(name).ok());
        Some(of_shell.unwrap_or_else(|| "operator".into()))
    }
}

/// Warns of what a restart does, if a change is not on the disk.
pub fn warn_unless_kept(change: &Value, consequence: &str) {
    if change["kept"] == false {
        output::print_stderr(format_args!(
            "this is not kept over restarts: the gateway file has neither `record: {{ dir: .. }}` nor `store: {{ snapshots: .. }}`, \
             or their disk failed; {consequence}"
        ));
    }
}
