//! The scripts, each a verb of one server. Names and values reach them as keys and arguments only.

use std::sync::LazyLock;

/// A script, and the digest by which a server knows it that has seen it before.
pub(super) struct Script {
    pub(super) code: String,
    pub(super) digest: String,
}

pub(super) struct Scripts {
    pub(super) grant: Script,
    pub(super) commit: Script,
    pub(super) extend: Script,
    pub(super) release: Script,
    pub(super) wish: Script,
    pub(super) inspect: Script,
    pub(super) greet: Script,
    pub(super) survey: Script,
    pub(super) admit: Script,
}

/// What is quick comes first: a script's functions are made anew with each call, which takes longer than what is quick.
pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let line = include_str!("scripts/line.lua");
    let script = |parts: &[&str]| {
        let code = parts.concat();
        Script { digest: redis::Script::new(&code).get_hash().into(), code }
    };
    Scripts {
        grant: script(&[include_str!("scripts/quick_grant.lua"), line, include_str!("scripts/grant.lua")]),
        commit: script(&[include_str!("scripts/commit.lua")]),
        extend: script(&[line, include_str!("scripts/extend.lua")]),
        release: script(&[include_str!("scripts/quick_release.lua"), line, include_str!("scripts/release.lua")]),
        wish: script(&[line, include_str!("scripts/wish.lua")]),
        inspect: script(&[line, include_str!("scripts/inspect.lua")]),
        greet: script(&[include_str!("scripts/greet.lua")]),
        survey: script(&[include_str!("scripts/survey.lua")]),
        admit: script(&[include_str!("scripts/admit.lua")]),
    }
});
