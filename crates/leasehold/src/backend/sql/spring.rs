//! The layout that Spring Integration shares: whoever holds a key has a row of `INT_LOCK` too.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::url::Url;

/// How a holder is written for other programs to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// In our own tables, which only we read.
    #[default]
    Canonical,
    /// Beside them in the table of Spring Integration's `JdbcLockRegistry`, so that programs on the JVM exclude us and are
    /// excluded by us. Exclusive locks only.
    Spring(Spring),
}

/// Which rows of Spring's table are ours to write, and how they are read.
///
/// ```
/// # use std::time::Duration;
/// # #[cfg(feature = "postgres")]
/// use leasehold::backend::postgres::Spring;
/// # #[cfg(all(feature = "mysql", not(feature = "postgres")))]
/// # use leasehold::backend::mysql::Spring;
/// let orders = Spring::default().region("ORDERS")?.ttl(Duration::from_secs(30))?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spring {
    pub(in crate::backend) region: String,
    pub(in crate::backend) ttl: Duration,
}

/// What stands before a line of SQL that is for this layout alone.
const MARK: &str = "--[spring] ";

/// Where the text of this layout alone is put in.
const PLACE: &str = "--[spring.sql]\n";

/// What tables of this layout are numbered from, so that neither layout takes the other's for its own.
const VERSIONS_FROM: i32 = 100;

/// The column has so many characters.
const REGION_CHARS_MAX: usize = 100;

/// What Spring takes if it is not told otherwise.
const TTL: Duration = Duration::from_secs(10);

/// A day: a longer one is a mistake of the unit.
const TTL_MAX: Duration = Duration::from_secs(86_400);

impl Default for Spring {
    fn default() -> Self {
        Self { region: "DEFAULT".into(), ttl: TTL }
    }
}

impl Spring {
    /// The region that Spring's `DefaultLockRepository` was given, `DEFAULT` by default, as with `?region=`.
    pub fn region(mut self, region: &str) -> Result<Self> {
        // It is put into statements, so it has nothing in it that could end one, or be mistaken for a place to put something
        // else; and compared with columns of any collation.
        let ordinary = |c: char| matches!(c, ' '..='~') && !r"'\/{}$".contains(c);
        if region.trim().is_empty() || region.len() > REGION_CHARS_MAX || !region.chars().all(ordinary) {
            let why = format!(
                "must be 1 to {REGION_CHARS_MAX} characters of ASCII, not all blank, and none of ' \\ / {{ }} $"
            );
            return Err(Error::option("region", why));
        }
        self.region = region.into();
        Ok(self)
    }

    /// The time to live that Spring Integration 6 was given, 10 seconds by default, as with `?spring-ttl=` in milliseconds.
    /// Spring 6 takes a lock over that is older than that, whoever has it. Spring 7 writes the end of each lock down, and
    /// this has no effect.
    pub fn ttl(mut self, ttl: Duration) -> Result<Self> {
        if ttl < Duration::from_millis(1) || ttl > TTL_MAX {
            return Err(Error::option("spring-ttl", "must be from 1 to 86400000 milliseconds"));
        }
        self.ttl = ttl;
        Ok(self)
    }

    pub(in crate::backend) fn ttl_ms(&self) -> i64 {
        i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX)
    }
}

impl Layout {
    /// The options of a URL that are about the layout.
    pub(in crate::backend) const OPTIONS: [&'static str; 3] = ["layout", "region", "spring-ttl"];

    pub(in crate::backend) fn of(url: &mut Url) -> Result<Self> {
        let layout = url.take("layout")?;
        let region = url.take("region")?;
        let ttl_ms = url.take_number("spring-ttl")?;
        match layout.as_deref() {
            None | Some("canonical") => {
                let stray = region.map(|_| "region").or(ttl_ms.map(|_| "spring-ttl"));
                stray.map_or(Ok(Self::Canonical), |stray| Err(Error::option(stray, "is for layout=spring only")))
            }
            Some("spring") => {
                let mut spring = Spring::default();
                if let Some(region) = region {
                    spring = spring.region(&region)?;
                }
                if let Some(ttl_ms) = ttl_ms {
                    spring = spring.ttl(Duration::from_millis(ttl_ms))?;
                }
                Ok(Self::Spring(spring))
            }
            Some(_) => Err(Error::option("layout", "is neither \"canonical\" nor \"spring\"")),
        }
    }

    pub(in crate::backend) fn spring(&self) -> Option<&Spring> {
        match self {
            Self::Canonical => None,
            Self::Spring(spring) => Some(spring),
        }
    }

    /// The number that tables of this layout have, of that version.
    pub(in crate::backend) fn numbered(&self, version: i32) -> i32 {
        if self.spring().is_some() { VERSIONS_FROM + version } else { version }
    }

    /// Whether tables of that number are of the other layout.
    pub(in crate::backend) fn is_other(&self, number: i32) -> bool {
        (number > VERSIONS_FROM) != self.spring().is_some()
    }

    /// The statements of this layout: `text` without what is for the other one alone, and with `added` in its place.
    pub(in crate::backend) fn statements(&self, text: &str, added: &str) -> String {
        let Some(spring) = self.spring() else {
            let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("--[spring"));
            return lines.collect();
        };
        let text = text.replace(PLACE, added);
        let lines = text.split_inclusive('\n').map(|line| line.strip_prefix(MARK).unwrap_or(line));
        let text: String = lines.collect();
        text.replace("{region}", &spring.region).replace("{ttl_ms}", &spring.ttl_ms().to_string())
    }
}

/// `region "DEFAULT", time to live 10000 ms`
impl fmt::Display for Spring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region {:?}, time to live {} ms", self.region, self.ttl_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(options: &str) -> Result<Layout> {
        Layout::of(&mut Url::parse(&format!("x://h?{options}"), 1).unwrap())
    }

    #[test]
    fn a_url_says_layout_region_and_time_to_live() {
        assert_eq!(layout("").unwrap(), Layout::Canonical);
        assert_eq!(
            layout("layout=spring").unwrap().spring().unwrap().to_string(),
            "region \"DEFAULT\", time to live 10000 ms"
        );
        let other = layout("layout=spring&region=A%20b&spring-ttl=500").unwrap();
        assert_eq!(other.spring().unwrap().to_string(), "region \"A b\", time to live 500 ms");
    }

    #[test]
    fn options_that_make_no_sense_or_would_have_no_effect_are_refused_by_name() {
        for (options, why) in [
            ("layout=shedlock", "layout"),
            ("region=A", "region is for layout=spring only"),
            ("spring-ttl=5", "spring-ttl is for layout=spring only"),
            ("layout=spring&region=", "region"),
            ("layout=spring&region=%20", "region"),
            ("layout=spring&region=a'b", "region"),
            ("layout=spring&region=a//b", "region"),
            ("layout=spring&region=a$$b", "region"),
            ("layout=spring&region=%7Bttl_ms%7D", "region"),
            ("layout=spring&spring-ttl=0", "spring-ttl"),
            ("layout=spring&spring-ttl=10s", "spring-ttl"),
        ] {
            let error = layout(options).unwrap_err().to_string();
            assert!(error.contains(why), "{options}: {error}");
        }
    }

    #[test]
    fn each_layout_has_its_own_statements() {
        let text = "a\n--[spring.sql]\n--[spring]   b {region}\n-- c\n";
        assert_eq!(Layout::Canonical.statements(text, "d\n"), "a\n-- c\n");
        assert_eq!(Layout::Spring(Spring::default()).statements(text, "d\n"), "a\nd\n  b DEFAULT\n-- c\n");
    }

    #[test]
    fn neither_layout_takes_the_others_tables_for_its_own() {
        let (canonical, spring) = (Layout::Canonical, Layout::Spring(Spring::default()));
        assert!(canonical.is_other(spring.numbered(1)) && spring.is_other(canonical.numbered(1)));
        assert!(!canonical.is_other(canonical.numbered(2)) && !spring.is_other(spring.numbered(2)));
    }
}
