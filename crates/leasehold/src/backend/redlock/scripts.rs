//! The scripts, each a verb of one server. Names and values reach them as keys and arguments only.

use std::sync::LazyLock;

use crate::backend::redis::scripts::Script;

pub(super) struct Scripts {
    pub(super) grant: Script,
    pub(super) commit: Script,
    pub(super) extend: Script,
    pub(super) give: Script,
    pub(super) release: Script,
    pub(super) wish: Script,
    pub(super) inspect: Script,
    pub(super) greet: Script,
    pub(super) survey: Script,
    pub(super) admit: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let line = include_str!("scripts/line.lua");
    Scripts {
        grant: Script::of(&[line, include_str!("scripts/grant.lua")]),
        commit: Script::of(&[include_str!("scripts/commit.lua")]),
        extend: Script::of(&[line, include_str!("scripts/extend.lua")]),
        give: Script::of(&[include_str!("scripts/give.lua")]),
        release: Script::of(&[line, include_str!("scripts/release.lua")]),
        wish: Script::of(&[line, include_str!("scripts/wish.lua")]),
        inspect: Script::of(&[line, include_str!("scripts/inspect.lua")]),
        greet: Script::of(&[include_str!("scripts/greet.lua")]),
        survey: Script::of(&[include_str!("scripts/survey.lua")]),
        admit: Script::of(&[include_str!("scripts/admit.lua")]),
    }
});
