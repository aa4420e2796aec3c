//! `leasehold man`: the manual, as roff.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::exit;

const ENVIRONMENT: [(&str, &str); 6] = [
    ("LEASEHOLD_URL", "The store, unless --store or --store-file names it. Commands that are run do not inherit it."),
    ("LEASEHOLD_KEY", "Given to a command that is run: the key that it holds."),
    (
        "LEASEHOLD_TOKEN",
        "Given to a command that holds its key alone: a number larger than that of every holder before.",
    ),
    ("LEASEHOLD_DEADLINE", "Given to a command that is run: until when the lock is believed in without a renewal."),
    ("NO_COLOR", "If it is set and not empty, there are no colours."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "Where the files below are, instead of ~/.config and ~/.local/state."),
];

const FILES: [(&str, &str); 3] = [
    ("~/.config/leasehold/config.toml", "May set store, namespace, ttl and label for whoever does not name them."),
    ("~/.local/state/leasehold/leasehold.db", "The store of whoever names none. Only its owner may use it."),
    (
        "~/.local/state/leasehold/leasehold.db-*",
        "What belongs to it: the log of the database, the door through which one writer enters at a time, and the pipes \
         of the processes that use it.",
    ),
];

/// Prints one page about everything, or writes one page for each command into a folder.
pub(crate) fn run(program: Command, into: Option<&Path>, out: &mut impl Write) -> anyhow::Result<()> {
    let program = built(program);
    match into {
        None => out.write_all(&page(&program)?)?,
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
            let mut save = |name: &str, page: &[u8]| {
                let file = folder.join(format!("{name}.1"));
                fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
                writeln!(out, "{}", file.display()).map_err(anyhow::Error::from)
            };
            save(program.get_name(), &page(&program)?)?;
            for command in commands(&program) {
                let mut page = Vec::new();
                let name = format!("{}-{}", program.get_name(), command.get_name());
                Man::new(command.clone()).render(&mut page)?;
                save(&name, &page)?;
            }
        }
    }
    Ok(())
}

/// The program as it is understood: every command with the options that all of them share.
fn built(mut program: Command) -> Command {
    program.build();
    program
}

fn commands(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|command| command.get_name() != "help")
}

/// The page about everything. Into memory first, so that a reader who leaves early is an ordinary error.
fn page(program: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    // The exit codes have a section of their own.
    let man = Man::new(program.clone().after_help("").after_long_help(""));
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for command in commands(program) {
        heading(&mut page, &format!("{} {}", program.get_name(), command.get_name()))?;
        let shared: Vec<_> = program.get_arguments().map(|argument| argument.get_id().clone()).collect();
        let own = command.clone().mut_args(|argument| {
            let hidden = shared.contains(argument.get_id()) || argument.get_id() == "help";
            argument.hide(hidden)
        });
        let man = Man::new(own);
        let mut part = Vec::new();
        man.render_description_section(&mut part)?;
        man.render_synopsis_section(&mut part)?;
        man.render_options_section(&mut part)?;
        // Under the command's own heading, its sections are one step lower.
        page.extend(String::from_utf8_lossy(&part).replace(".SH ", ".SS ").bytes());
    }
    heading(&mut page, "exit status")?;
    let codes = exit::HELP.lines().skip(1).map(|line| line.trim().split_once("  ").unwrap_or((line.trim(), "")));
    list(&mut page, codes.map(|(code, meaning)| (code, meaning.trim())))?;
    heading(&mut page, "environment")?;
    list(&mut page, ENVIRONMENT)?;
    heading(&mut page, "files")?;
    list(&mut page, FILES)?;
    Ok(page)
}

fn heading(page: &mut Vec<u8>, title: &str) -> io::Result<()> {
    Roff::new().control("SH", [title.to_uppercase().as_str()]).to_writer(page)
}

fn list<'a>(page: &mut Vec<u8>, items: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
    for (term, meaning) in items {
        Roff::new().control("TP", []).text([bold(term)]).text([roman(meaning)]).to_writer(page)?;
    }
    Ok(())
}
