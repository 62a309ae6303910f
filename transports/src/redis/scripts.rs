//! What has to be done as one in the server, in its language.

use ::redis::{Cmd, cmd};

/// One of the scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Acknowledge,
    AddLetter,
    Declare,
    Discard,
    Extend,
    Publish,
    Settle,
    Take,
    Trim,
}

impl Script {
    pub(super) const ALL: [Self; 9] = [
        Self::Acknowledge,
        Self::AddLetter,
        Self::Declare,
        Self::Discard,
        Self::Extend,
        Self::Publish,
        Self::Settle,
        Self::Take,
        Self::Trim,
    ];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Acknowledge => include_str!("scripts/acknowledge.lua"),
            Self::AddLetter => include_str!("scripts/add_letter.lua"),
            Self::Declare => include_str!("scripts/declare.lua"),
            Self::Discard => include_str!("scripts/discard.lua"),
            Self::Extend => include_str!("scripts/extend.lua"),
            Self::Publish => include_str!("scripts/publish.lua"),
            Self::Settle => include_str!("scripts/settle.lua"),
            Self::Take => include_str!("scripts/take.lua"),
            Self::Trim => include_str!("scripts/trim.lua"),
        }
    }
}

/// The names by which a server knows the scripts: hashes of their texts.
#[derive(Debug)]
pub(super) struct Loaded(pub(super) [String; Script::ALL.len()]);

impl Loaded {
    /// A call of `script` with these keys. Its other arguments follow.
    pub(super) fn call(&self, script: Script, keys: &[&str]) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.0[script as usize]).arg(keys.len()).arg(keys);
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_is_found_at_its_place() {
        for (place, script) in Script::ALL.into_iter().enumerate() {
            assert_eq!(script as usize, place);
            assert!(script.text().starts_with("-- "), "{script:?} says what it does");
        }
    }
}
