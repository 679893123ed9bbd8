//! The options in `docs/cli.md` and the help of each command, as the command line defines them.
//!
//! The page is written by hand up to [`MARKER`] and made here from there on. `SNAPSHOTS=overwrite`
//! in the environment of the tests writes the page and the snapshots of the help.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use snapbox::data::DataFormat;
use snapbox::{Data, assert_data_eq};

use crate::cli::Cli;
use crate::{flags, short_help};

const MARKER: &str = "<!-- Made from here on by `SNAPSHOTS=overwrite cargo test -p rf-cli`. -->\n";

#[test]
fn the_page_has_every_option() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let Ok(page) = fs::read_to_string(&path) else {
        rf_testing::skip!("no documents beside the crate");
        return;
    };
    let (by_hand, _) = page.split_once(MARKER).expect("the marker in docs/cli.md");
    let page = Data::read_from(&path, Some(DataFormat::Text)).raw();
    assert_data_eq!(format!("{by_hand}{MARKER}{}", reference(&cli())), page);
}

#[test]
fn the_help_is_that_of_the_snapshots() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let printed = |cli: Command, words: &[&str]| {
        let help = cli.try_get_matches_from(words).expect_err("the help instead of matches");
        help.to_string()
    };
    let help = |words: &[&str]| printed(cli(), words);
    let mut helps = BTreeMap::from([("rf-cli.txt".to_owned(), help(&["rf-cli", "--help"]))]);
    for command in commands(&cli()) {
        let words = ["rf-cli"].into_iter().chain(words(command));
        let words: Vec<_> = words.chain(["--help"]).collect();
        let is_long = short_help::is_long(command);
        // Long help has the options that docs/cli.md has, in the form of that of `serve`.
        if !is_long || command.get_name() == "serve" {
            helps.insert(format!("{}.txt", name(command).replace(' ', "-")), help(&words));
        }
        if is_long {
            let name = command.get_name();
            let short = printed(short_help::shortened(cli()), &["rf-cli", name, "-h"]);
            assert!(short.lines().count() <= 50, "a screen: {short}");
            assert!(!short.contains("--override-kv") && short.len() < help(&words).len());
            helps.insert(format!("{name}.short.txt"), short);
        }
    }
    for (name, help) in &helps {
        let snapshot = Data::read_from(&folder.join(name), Some(DataFormat::Text)).raw();
        assert_data_eq!(help, snapshot);
    }
    let files = fs::read_dir(folder).expect("the folder of the snapshots");
    let files = files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
    assert_eq!(files.collect::<BTreeSet<_>>(), helps.into_keys().collect());
}

/// The command line, with help that is 100 columns wide.
fn cli() -> Command {
    let mut cli = flags::configured(Cli::command()).term_width(100);
    cli.build();
    cli
}

/// The commands that the help lists, each before those within it.
fn commands(cli: &Command) -> Vec<&Command> {
    let is_shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let shown = cli.get_subcommands().filter(is_shown);
    shown.flat_map(|command| [vec![command], commands(command)].concat()).collect()
}

/// The words of a command after the name of the program.
fn words(command: &Command) -> impl Iterator<Item = &str> {
    command.get_bin_name().unwrap_or_default().split(' ').skip(1)
}

fn name(command: &Command) -> String {
    words(command).collect::<Vec<_>>().join(" ")
}

/// The options below one heading of a help, as the rows of a table.
#[derive(PartialEq, Eq)]
struct Group {
    heading: String,
    rows: String,
}

/// The sections of the page: one for each command, and one for the groups of options that several
/// commands have.
fn reference(cli: &Command) -> String {
    let commands = commands(cli);
    let groups: Vec<_> = commands.iter().map(|command| groups(command)).collect();
    let users = |group: &Group| {
        let has = |(_, theirs): &(_, &Vec<Group>)| theirs.contains(group);
        let users = commands.iter().zip(&groups).filter(has);
        users.map(|(command, _)| format!("`{}`", name(command))).collect::<Vec<_>>()
    };
    let mut page = String::from("\n## Reference\n");
    let mut shared = String::new();
    for (command, groups) in commands.iter().zip(&groups) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let usage = (*command).clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").trim();
        let _ = write!(page, "\n### {}\n\n{about}:\n`{usage}`\n", name(command));
        let mut links = Vec::new();
        for group in groups {
            let Group { heading, rows } = group;
            let users = users(group);
            if users.len() == 1 || heading.is_empty() {
                page += &table(heading, rows);
                continue;
            }
            links.push(format!("[{heading}](#{})", heading.to_lowercase().replace(' ', "-")));
            let section =
                format!("\n### {heading}\n\nFor {}:\n{}", users.join(", "), table("", rows));
            if !shared.contains(&section) {
                shared += &section;
            }
        }
        if !links.is_empty() {
            let _ = write!(page, "\nMore options:\n{}\n", links.join(",\n"));
        }
    }
    page + &shared
}

fn groups(command: &Command) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help") {
        let heading = arg.get_help_heading().unwrap_or_default();
        match groups.iter_mut().find(|group| group.heading == heading) {
            Some(group) => group.rows += &row(arg),
            None => groups.push(Group { heading: heading.to_owned(), rows: row(arg) }),
        }
    }
    groups
}

fn table(heading: &str, rows: &str) -> String {
    let heading = if heading.is_empty() { "option" } else { heading };
    format!("\n| {heading} | meaning | default |\n|---|---|---|\n{rows}")
}

/// The names of an option, its help and its default.
fn row(arg: &Arg) -> String {
    let mut names: Vec<_> =
        arg.get_short().map(|short| format!("`-{short}`")).into_iter().collect();
    names.push(format!("`{arg}`"));
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    names.extend(aliases.iter().map(|alias| format!("`--{alias}`")));

    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (mut help, default) = match help.rsplit_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), default.trim_end_matches(']').to_owned()),
        None => (help, default(arg)),
    };
    let takes_value = arg.get_action().takes_values();
    let values =
        arg.get_possible_values().into_iter().filter(|value| takes_value && !value.is_hide_set());
    let values: Vec<_> = values.map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() {
        let _ = write!(help, ": {}", values.join(", "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(help, "; also by `{}`", variable.display());
    }
    let cells = [names.join(", "), help, default].map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

fn default(arg: &Arg) -> String {
    if !arg.get_action().takes_values() || arg.is_hide_default_value_set() {
        return String::new();
    }
    let values = arg.get_default_values().iter().map(|value| format!("`{}`", value.display()));
    values.collect::<Vec<_>>().join(", ")
}
