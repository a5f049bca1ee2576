//! [`Script`]: the scripts that servers run, and the commands that run them. A server remembers a script by its hash,
//! so that most commands need not carry the text.

use redis::Cmd;

/// A script, and the hash by which servers remember it.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

/// How a command names its script.
#[derive(Clone, Copy)]
pub(super) enum ScriptForm {
    /// By its hash, which a server may have forgotten.
    Hash,
    /// By its text, which makes the server remember the hash.
    Text,
}

impl Script {
    /// The script that decides about all limits of a request.
    pub(super) fn decide() -> Script {
        Script::new(concat!(
            include_str!("cell.lua"),
            include_str!("decide.lua")
        ))
    }

    /// The script that keeps the list of live gateways.
    pub(super) fn heartbeat() -> Script {
        Script::new(include_str!("heartbeat.lua"))
    }

    /// The script that stores entries which gateways share.
    pub(super) fn entries() -> Script {
        Script::new(include_str!("entries.lua"))
    }

    /// The script that sets the permits of a gateway.
    pub(super) fn permits() -> Script {
        Script::new(include_str!("permits.lua"))
    }

    /// The script that keeps the leases of permits.
    pub(super) fn lease() -> Script {
        Script::new(include_str!("lease.lua"))
    }

    fn new(text: &'static str) -> Script {
        let hash = redis::Script::new(text).get_hash().to_owned();
        Script { text, hash }
    }

    /// The command that runs the script. `add_arguments` adds the number of keys, the keys and the other arguments.
    pub(super) fn command(&self, form: ScriptForm, add_arguments: impl Fn(&mut Cmd)) -> Cmd {
        let (name, script) = match form {
            ScriptForm::Hash => ("EVALSHA", &self.hash[..]),
            ScriptForm::Text => ("EVAL", self.text),
        };
        let mut command = redis::cmd(name);
        command.arg(script);
        add_arguments(&mut command);
        command
    }
}
