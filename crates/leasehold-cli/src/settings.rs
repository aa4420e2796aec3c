//! Which store, and how to use it: from the command line, the environment and the configuration file, in this order.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::Locks;
use serde::Deserialize;

use crate::args::{self, Color, Global};
use crate::exit::{self, Failure};
use crate::output::{self, Look};

/// The environment variable that names the store. It may hold a password, so no command that we start gets it.
pub(crate) const URL_VARIABLE: &str = "LEASEHOLD_URL";

/// How long a lease lives without renewal unless told otherwise: what the library would say.
const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// The file of this user, for whoever names no store.
const STORE_DEFAULT: &str = "sqlite:";

/// What holds for the whole run of the program.
pub(crate) struct Settings {
    url: String,
    namespace: Option<String>,
    pub(crate) ttl: Duration,
    label: String,
    pub(crate) verbose: bool,
    pub(crate) look: Look,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    store: Option<String>,
    namespace: Option<String>,
    ttl: Option<Ttl>,
    label: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ttl {
    Seconds(f64),
    Words(String),
}

impl Settings {
    /// Gathers what is set. `lease` comes from commands that take locks.
    pub(crate) fn gather(global: &Global, lease: Option<&args::LeaseOptions>) -> anyhow::Result<Self> {
        let config = config_file().map_or_else(|| Ok(Config::default()), |file| read_config(&file))?;
        let look = Look { json: global.json, quiet: global.quiet, color: color(global.color), width: output::width() };
        let url = match (&global.store, &global.store_file) {
            (Some(url), _) => {
                if holds_password(url) {
                    look.say(
                        "everybody on this machine can see a password in --store: \
                         put the URL into LEASEHOLD_URL or --store-file",
                    );
                }
                url.clone()
            }
            (None, Some(file)) => first_line(file)?,
            (None, None) => match std::env::var(URL_VARIABLE) {
                Ok(url) if !url.is_empty() => url,
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(Failure::usage(format!("{URL_VARIABLE} is not UTF-8")).into());
                }
                _ => config.store.unwrap_or_else(|| {
                    if global.verbose {
                        look.say("no store was named, so it is the file of this user, \"sqlite:\"");
                    }
                    STORE_DEFAULT.into()
                }),
            },
        };
        let config_ttl = match config.ttl {
            None => None,
            Some(Ttl::Seconds(seconds)) => Some(args::duration(&seconds.to_string())),
            Some(Ttl::Words(words)) => Some(args::duration(&words)),
        };
        let config_ttl = config_ttl.transpose().map_err(|why| Failure::usage(format!("config.toml: ttl: {why}")))?;
        let (ttl, label) = lease.map_or((None, None), |lease| (lease.ttl, lease.label.clone()));
        Ok(Self {
            url,
            namespace: global.namespace.clone().or(config.namespace),
            ttl: ttl.or(config_ttl).unwrap_or(TTL_DEFAULT),
            label: label.or(config.label).unwrap_or_default(),
            verbose: global.verbose,
            look,
        })
    }

    /// Opens the locks.
    pub(crate) async fn connect(&self) -> anyhow::Result<Locks> {
        self.connect_for(self.ttl).await
    }

    /// Opens the locks, with leases of that length whatever was set.
    pub(crate) async fn connect_for(&self, ttl: Duration) -> anyhow::Result<Locks> {
        let mut builder = Locks::builder(&self.url).ttl(ttl).label(self.label.as_str());
        if let Some(namespace) = &self.namespace {
            builder = builder.namespace(namespace.as_str());
        }
        Ok(builder.connect().await?)
    }

    /// The store's URL. It may hold a password, so it is never shown.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Says something on stderr if somebody asked for it.
    pub(crate) fn detail(&self, talk: &str) {
        if self.verbose {
            self.look.say(&exit::without_secrets(talk));
        }
    }
}

/// `$XDG_CONFIG_HOME/leasehold/config.toml`, by the rules for such files.
fn config_file() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")))?;
    Some(config.join("leasehold/config.toml"))
}

fn read_config(file: &Path) -> anyhow::Result<Config> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(Failure::usage(format!("cannot read {}: {error}", file.display())).into()),
    };
    toml::from_str(&text).map_err(|error| {
        // Not the error's own text: it quotes the line, and that may be the store's URL with its password.
        let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count()) + 1;
        let known = "it may set store, namespace, ttl and label";
        Failure::usage(format!("{}, line {line}: this is not understood; {known}", file.display())).into()
    })
}

fn first_line(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
    match text.lines().next().map(str::trim) {
        Some(url) if !url.is_empty() => Ok(url.into()),
        _ => Err(Failure::usage(format!("{} names no store in its first line", file.display())).into()),
    }
}

/// Whether a URL has something to hide, before its host or among its options.
fn holds_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) || rest.contains("sentinel-password=")
}

fn color(when: Color) -> bool {
    match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            !refused && std::io::stdout().is_terminal()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_url_with_a_password_is_warned_about() {
        assert!(holds_password("redis://:hunter2@host"));
        assert!(holds_password("postgres://me:p@ss@host/db"));
        assert!(holds_password("redis+sentinel://host/main?sentinel-password=hunter2"));
        assert!(!holds_password("postgres://me@host/db") && !holds_password("sqlite:/tmp/a:b@c"));
    }

    #[test]
    fn a_bad_configuration_names_its_line_and_hides_what_is_in_it() {
        let file = std::env::temp_dir().join(format!("leasehold-config-{}.toml", std::process::id()));
        std::fs::write(&file, "label = \"a\"\nstore = \"redis://:hunter2@host\" oops\n").unwrap();
        let error = read_config(&file).err().expect("it is broken").to_string();
        std::fs::remove_file(&file).unwrap();
        assert!(error.contains("line 2") && !error.contains("hunter2"), "{error}");
    }
}
