//! The lock libraries of other languages with which we share a server, each at one version.

use std::process::Command;

use super::tools;
use crate::{Result, sh};

/// A library and its version.
type Pin = (&'static str, &'static str);

const PYTHON: [Pin; 3] = [("kazoo", "2.11.0"), ("redis", "8.1.0"), ("python-redis-lock", "4.0.1")];
const NODE: [Pin; 2] = [("redlock", "5.0.0-beta.2"), ("ioredis", "5.11.1")];

/// What the pinned libraries ask for, and what makes a virtual environment.
const PYTHON_FITS: &str = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))";
const NODE_FITS: &str = "process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)";

/// Each of them, as a word.
pub(super) fn pinned() -> impl Iterator<Item = String> {
    PYTHON.iter().chain(&NODE).map(|(name, version)| format!("{name} {version}"))
}

/// Which languages lack a library, or have another version of it.
pub(super) struct Missing {
    python: bool,
    node: bool,
}

impl Missing {
    pub(super) fn find() -> Self {
        Self { python: !has_python_libraries(), node: !has_node_libraries() }
    }

    /// What it takes to install them and is not there, or is too old.
    pub(super) fn packages(&self) -> Vec<&'static str> {
        let mut packages = Vec::new();
        if self.python && !fits("python3", &["-c", PYTHON_FITS]) {
            packages.extend(["python3", "python3-venv"]);
        }
        if self.node && !(fits("node", &["-e", NODE_FITS]) && fits("npm", &["--version"])) {
            packages.extend(["nodejs", "npm"]);
        }
        packages
    }

    pub(super) fn install(&self) -> Result {
        if self.python {
            install_python_libraries()?;
        }
        if self.node {
            install_node_libraries()?;
        }
        Ok(())
    }
}

fn fits(program: &str, args: &[&str]) -> bool {
    sh::succeeds(Command::new(program).args(args))
}

fn has_python_libraries() -> bool {
    let names = PYTHON.map(|(name, _)| format!("print(version('{name}'))")).join("; ");
    let asked = format!("from importlib.metadata import version; {names}");
    answers_with(Command::new(tools().join("python/bin/python")).args(["-c", &asked]), &PYTHON)
}

fn has_node_libraries() -> bool {
    // Not `require(name)`: that finds what is installed elsewhere too.
    let asked = "for (const name of process.argv.slice(2)) console.log(require(`${process.argv[1]}/${name}/package.json`).version)";
    let mut node = Command::new("node");
    node.args(["-e", asked]).arg(tools().join("node/node_modules")).args(NODE.map(|(name, _)| name));
    answers_with(&mut node, &NODE)
}

/// Whether the command prints these versions, line by line.
fn answers_with(command: &mut Command, pins: &[Pin]) -> bool {
    command.output().is_ok_and(|output| are_versions(&String::from_utf8_lossy(&output.stdout), pins))
}

fn are_versions(printed: &str, pins: &[Pin]) -> bool {
    // Some packages call themselves `v5` where everybody else says `5`.
    printed.lines().map(|line| line.trim_start_matches('v')).eq(pins.iter().map(|(_, version)| *version))
}

fn install_python_libraries() -> Result {
    let folder = tools().join("python");
    sh::run(sh::command("python3", ["-m", "venv", "--clear"]).arg(&folder))?;
    let pins = PYTHON.map(|(name, version)| format!("{name}=={version}"));
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    sh::run(sh::command(folder.join("bin/python"), install).args(pins))
}

fn install_node_libraries() -> Result {
    let pins = NODE.map(|(name, version)| format!("{name}@{version}"));
    let install = ["install", "--no-audit", "--no-fund", "--no-save", "--loglevel=error", "--prefix"];
    sh::run(sh::command("npm", install).arg(tools().join("node")).args(pins))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_or_a_missing_one_is_noticed() {
        assert!(are_versions("v5.0.0-beta.2\n5.11.1\n", &NODE));
        assert!(!are_versions("5.0.0-beta.2\n5.11.0\n", &NODE));
        assert!(!are_versions("5.0.0-beta.2\n", &NODE));
        assert!(!are_versions("", &NODE));
    }
}
