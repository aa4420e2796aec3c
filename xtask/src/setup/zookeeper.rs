//! A ZooKeeper server for tests, and Curator beside it, which are not services of the machine.

use std::path::Path;
use std::process::Command;

use crate::sh;

/// A file of each package, and the package. Installed so, no service starts.
const PACKAGES: [(&str, &str); 3] = [
    ("/usr/share/java/zookeeper.jar", "libzookeeper-java"),
    ("/usr/share/java/curator-recipes.jar", "libcurator-recipes-java"),
    ("/usr/share/java/slf4j-simple.jar", "libslf4j-java"),
];

/// What of it is missing.
pub(super) fn packages() -> Vec<&'static str> {
    let missing = PACKAGES.iter().filter(|(file, _)| !Path::new(file).is_file()).map(|(_, package)| *package);
    let java = if sh::succeeds(Command::new("javac").arg("-version")) { None } else { Some("default-jdk-headless") };
    missing.chain(java).collect()
}

/// Curator, and its version.
pub(super) fn curator() -> Option<String> {
    let asked = Command::new("dpkg-query").args(["--show", "--showformat=${Version}", PACKAGES[1].1]).output().ok()?;
    Some(format!("Curator {}", String::from_utf8(asked.stdout).ok()?))
}
