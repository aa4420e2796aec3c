//! Packages of the system, by apt.

use std::process::Command;

use crate::{Result, sh};

/// Installs packages, if there are any to install, as root or through sudo. Where neither is possible the error names the command to run.
pub(super) fn install(packages: &[&str]) -> Result {
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get update && apt-get install {}", packages.join(" "));
    let missing = || {
        format!(
            "missing: {}. Run this as root, or what your system has in its place:\n  {by_hand}",
            packages.join(", ")
        )
    };
    let route = Route::find().ok_or_else(missing)?;
    let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    sh::run(&mut route.apt_get(&["update"])).map_err(|failure| format!("{failure}\n{}", missing()))?;
    sh::run(&mut route.apt_get(&install)).map_err(|failure| format!("{failure}\n{}", missing()))
}

/// How apt may be used.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    AsRoot,
    Sudo,
}

impl Route {
    fn find() -> Option<Self> {
        let runs = |program: &str| sh::succeeds(Command::new(program).arg("--version"));
        let user = Command::new("id").arg("-u").output().ok()?;
        Self::of(runs("apt-get"), user.stdout.trim_ascii() == b"0", runs("sudo"))
    }

    fn of(apt: bool, root: bool, sudo: bool) -> Option<Self> {
        match (apt, root, sudo) {
            (true, true, _) => Some(Self::AsRoot),
            (true, false, true) => Some(Self::Sudo),
            _ => None,
        }
    }

    /// Sudo drops our environment, so the variable goes through `env`.
    fn apt_get(&self, args: &[&str]) -> Command {
        let words = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"];
        let (program, words) = match self {
            Self::AsRoot => (words[0], &words[1..]),
            Self::Sudo => ("sudo", &words[..]),
        };
        sh::command(program, words.iter().chain(args))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn whoever_is_not_root_needs_sudo_and_nobody_goes_without_apt() {
        assert_eq!(Route::of(true, true, false), Some(Route::AsRoot));
        assert_eq!(Route::of(true, false, true), Some(Route::Sudo));
        assert_eq!(Route::of(true, false, false), None);
        assert_eq!(Route::of(false, true, true), None);
    }

    #[test]
    fn apt_never_asks_a_question() {
        assert_eq!(
            words(&Route::AsRoot.apt_get(&["update"])),
            "env DEBIAN_FRONTEND=noninteractive apt-get --quiet update"
        );
        assert!(
            words(&Route::Sudo.apt_get(&["update"])).starts_with("sudo env DEBIAN_FRONTEND=noninteractive apt-get")
        );
    }
}
