//! Flags of llama.cpp and Ollama: spelt as ours, accepted without effect, or refused with advice.
//!
//! `docs/llama-cpp-flags.md` lists the same rows, which a test compares. Flags that clap knows by
//! the same name have no row here.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;

use anyhow::Result;
use clap::Command;
use rocmforge::hub::ShortName;

use crate::failure::bad_input;
use crate::{short_help, terminal};

#[cfg(test)]
mod llama_cpp;
mod rows;

use rows::{FlagRow, FlagValues, Meaning, ROWS};

/// Rewrites the arguments for clap, from the name of the program on: flags of [`ROWS`], a model in
/// place of a command, a flag of `-m`, or a prompt, and commands of the names that llama.cpp has.
pub(crate) fn prepare(
    arguments: impl IntoIterator<Item = OsString>,
    cli: &Command,
) -> Result<Vec<OsString>> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(first) = arguments.get(1).and_then(|first| first.to_str()) {
        match first {
            "cli" | "chat" | "completion" => arguments[1] = "run".into(),
            "server" => arguments[1] = "serve".into(),
            "version" => arguments[1] = "--version".into(),
            _ if is_model(first, cli) || is_flag_of_run(first, cli) => {
                arguments.insert(1, "run".into());
            }
            _ => {}
        }
    }
    let (command, words) = named_command(cli, &arguments);
    if words == 0 || command.has_subcommands() {
        return Ok(arguments);
    }
    let rest = arguments.split_off(1 + words);
    Preparation { command, prepared: arguments, dashed: Vec::new(), has_model: false }.finish(rest)
}

/// The command that the first arguments name, and the number of its words. A command may be within
/// another one.
pub(crate) fn named_command<'c>(cli: &'c Command, arguments: &[OsString]) -> (&'c Command, usize) {
    let (mut command, mut words) = (cli, 0);
    for name in arguments.iter().skip(1) {
        match name.to_str().and_then(|name| command.find_subcommand(name)) {
            Some(inner) => (command, words) = (inner, words + 1),
            None => break,
        }
    }
    (command, words)
}

/// The arguments of a command while they are rewritten.
struct Preparation<'c> {
    command: &'c Command,
    prepared: Vec<OsString>,
    /// Arguments that begin with a dash, which come last.
    dashed: Vec<OsString>,
    has_model: bool,
}

impl Preparation<'_> {
    fn finish(mut self, rest: Vec<OsString>) -> Result<Vec<OsString>> {
        let mut rest = rest.into_iter().peekable();
        let mut literal = Vec::new();
        while let Some(argument) = rest.next() {
            let Some(text) = argument.to_str() else {
                self.prepared.push(argument);
                continue;
            };
            if text == "--" {
                literal.extend(rest);
                break;
            }
            if text == "--version" && find(self.command, text).is_none() {
                self.prepared.truncate(1);
                self.prepared.push(argument);
                return Ok(self.prepared);
            }
            self.add(text, &mut rest)?;
        }
        if !literal.is_empty() || !self.dashed.is_empty() {
            self.prepared.push("--".into());
            self.prepared.extend(self.dashed.into_iter().chain(literal));
        }
        Ok(self.prepared)
    }

    /// Adds an argument, and its value from the rest.
    fn add(
        &mut self,
        text: &str,
        rest: &mut Peekable<impl Iterator<Item = OsString>>,
    ) -> Result<()> {
        if !text.starts_with('-') {
            if self.is_model(text) {
                self.prepared.push("--model".into());
                self.has_model = true;
            }
            self.prepared.push(text.into());
            return Ok(());
        }
        let (flag, value) = match text.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (text, None),
        };
        let flag = &*self.spelt(flag);
        match meaning(self.command, flag) {
            Some(Meaning::Is(ours)) => self.add_flag(ours, value, rest),
            Some(Meaning::Argument) => {
                let value = value.map(OsString::from).or_else(|| rest.next());
                let Some(value) = value else {
                    return Err(bad_input!("{flag} needs a value"));
                };
                let is_dashed = value.as_encoded_bytes().starts_with(b"-");
                if is_dashed { &mut self.dashed } else { &mut self.prepared }.push(value);
            }
            Some(Meaning::NoEffect(values, _)) => {
                let is_switch = |next: &OsString| {
                    let words = ["on", "off", "auto", "0", "1", "-1"];
                    // llama-bench takes lists.
                    let is_word = |next: &str| next.split(',').all(|word| words.contains(&word));
                    next.to_str().is_some_and(is_word)
                };
                let skips = match values {
                    FlagValues::None => false,
                    FlagValues::One => value.is_none(),
                    FlagValues::Switch => value.is_none() && rest.peek().is_some_and(is_switch),
                };
                if skips {
                    drop(rest.next());
                }
            }
            Some(Meaning::Refused(advice)) => {
                return Err(bad_input!("{flag} is not supported: {advice}"));
            }
            None => {
                check_cluster(self.command, flag)?;
                self.add_flag(flag, value, rest);
            }
        }
        Ok(())
    }

    /// Adds a flag that clap knows, or that is none.
    fn add_flag(
        &mut self,
        flag: &str,
        value: Option<&str>,
        rest: &mut impl Iterator<Item = OsString>,
    ) {
        self.has_model |= matches!(flag, "-m" | "--model" | "--hf-repo");
        self.prepared.push(match value {
            Some(value) => format!("{flag}={value}").into(),
            None => flag.into(),
        });
        // Whatever it looks like, the value of a flag is not a flag.
        if value.is_none() && takes_value(self.command, flag) {
            self.prepared.extend(rest.next());
        }
    }

    /// The name of a flag with dashes, if it is known with dashes only: llama.cpp takes
    /// underscores.
    fn spelt(&self, flag: &str) -> String {
        let is_known = |flag: &str| {
            find(self.command, flag).is_some() || meaning(self.command, flag).is_some()
        };
        let dashed = flag.replace('_', "-");
        let is_other = flag.starts_with("--") && !is_known(flag) && is_known(&dashed);
        if is_other { dashed } else { flag.to_owned() }
    }

    /// Returns true if a word is the model of a command that names it with `-m`.
    fn is_model(&self, word: &str) -> bool {
        // These look at their words by themselves.
        let reads_words = matches!(self.command.get_name(), "run" | "info");
        let takes_several = self.command.get_name() == "serve";
        !reads_words
            && (takes_several || !self.has_model)
            && find(self.command, "--model").is_some()
            && (is_gguf_name(OsStr::new(word)) || ShortName::find(word).is_some())
    }
}

/// Lets values begin with a dash, and the last of repeated flags count.
pub(crate) fn configured(cli: Command) -> Command {
    cli.mut_subcommands(|command| {
        let command = short_help::with_flag(configured(command));
        command.args_override_self(true).mut_args(|arg| {
            if arg.is_positional() {
                arg.allow_negative_numbers(true)
            } else if arg.get_action().takes_values() {
                arg.allow_hyphen_values(true)
            } else {
                arg
            }
        })
    })
}

/// The treatment of a flag; `None` if clap knows it, or nobody.
fn meaning(command: &Command, flag: &str) -> Option<Meaning> {
    if !flag.starts_with('-') {
        return None;
    }
    let is_row = |row: &&FlagRow| {
        row.commands.split(' ').any(|known| known == command.get_name())
            && row.names.split(' ').any(|known| known == flag)
    };
    // A flag of one command may take a value that the same flag of others does not.
    let commands = |row: &&FlagRow| row.commands.split(' ').count();
    let row = ROWS.iter().filter(is_row).min_by_key(commands)?;
    let is_general = row.commands == rows::ANY;
    (!is_general || find(command, flag).is_none()).then_some(row.meaning)
}

/// Returns true if the first argument is a flag of `run`, and not of the program.
fn is_flag_of_run(first: &str, cli: &Command) -> bool {
    let flag = first.split_once('=').map_or(first, |(flag, _)| flag);
    let is_known = |run: &Command| find(run, flag).is_some() || meaning(run, flag).is_some();
    first.starts_with('-')
        && !matches!(first, "-h" | "--help" | "-V" | "--version")
        && cli.find_subcommand("run").is_some_and(is_known)
}

/// Returns true if the first argument is a model file instead of a command.
fn is_model(first: &str, cli: &Command) -> bool {
    !first.starts_with('-')
        && cli.find_subcommand(first).is_none()
        && (is_gguf_name(OsStr::new(first))
            || ShortName::find(first).is_some()
            || std::path::Path::new(first).is_file())
}

/// Returns true if a name ends as those of model files do.
pub(crate) fn is_gguf_name(name: &OsStr) -> bool {
    let extension = std::path::Path::new(name).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Returns true if clap reads the next argument as the value of `flag`.
fn takes_value(command: &Command, flag: &str) -> bool {
    find(command, flag).is_some_and(|arg| arg.get_action().takes_values())
}

/// The argument with this name, in full.
pub(crate) fn find<'c>(command: &'c Command, flag: &str) -> Option<&'c clap::Arg> {
    let long = flag.strip_prefix("--");
    let short = flag.strip_prefix('-').filter(|rest| rest.chars().count() == 1);
    let short = short.and_then(|rest| rest.chars().next());
    command.get_arguments().find(|arg| {
        let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
        let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
        long.is_some_and(|long| longs.contains(&long))
            || short.is_some_and(|short| shorts.contains(&short))
    })
}

/// Refuses several letters after one dash that are no flags of ours: clap would take the first
/// letter for a flag and print the help for `-hello`.
fn check_cluster(command: &Command, flag: &str) -> Result<()> {
    let Some(letters) = flag.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
        return Ok(());
    };
    let is_number = letters.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if letters.chars().count() < 2 || is_number {
        return Ok(());
    }
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let Some(arg) = find(command, &format!("-{letter}")) else { break };
        if letter == 'h' && rest.as_str() != "" {
            break;
        }
        // `-n5` and `-t4`: the rest is the value.
        if arg.get_action().takes_values() {
            if rest.as_str().starts_with(|c: char| c.is_ascii_digit()) {
                return Ok(());
            }
            break;
        }
        if rest.as_str().is_empty() {
            return Ok(());
        }
    }
    Err(bad_input!(
        "unknown flag '{}': `rf-cli {} --help` lists the flags, and a text that begins with a dash \
         comes after `--`",
        terminal::shown(flag),
        command.get_name()
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn prepared(words: &[&str]) -> Result<Vec<String>, String> {
        let cli = configured(Cli::command());
        let words = ["rf-cli"].iter().chain(words).map(OsString::from);
        let prepared = prepare(words, &cli).map_err(|error| error.to_string())?;
        Ok(prepared[1..].iter().map(|word| word.to_str().unwrap().to_owned()).collect())
    }

    /// Prepares and parses.
    fn parsed(words: &[&str]) -> Result<clap::ArgMatches, String> {
        let words = prepared(words)?;
        let words = ["rf-cli".to_owned()].into_iter().chain(words);
        configured(Cli::command()).try_get_matches_from(words).map_err(|error| error.to_string())
    }

    /// The words of a row with one flag, and values that our flag takes.
    fn line<'a>(command: &'a str, flag: &'a str, value: &'a str) -> Vec<&'a str> {
        let mut words = vec![command];
        words.extend([flag, value].iter().filter(|word| !word.is_empty()));
        match command {
            "perplexity" => words.extend(["-f", "text.txt"]),
            "quantize" => words.extend(["in.gguf", "out.gguf", "Q4_0"]),
            "rerank" => words.extend(["--query", "q"]),
            _ => {}
        }
        words
    }

    #[test]
    fn every_row_does_what_it_says() {
        let cli = configured(Cli::command());
        for row @ FlagRow { commands, names, meaning } in ROWS {
            for (command, flag) in commands
                .split(' ')
                .flat_map(|command| names.split(' ').map(move |flag| (command, flag)))
            {
                let own = cli.find_subcommand(command).expect(command);
                let is_general = *commands == rows::ANY;
                if is_general && super::meaning(own, flag) != Some(*meaning) {
                    // The command itself has the flag, or a more specific row applies.
                    continue;
                }
                match meaning {
                    Meaning::Is(ours) => {
                        assert!(find(own, ours).is_some(), "{command} {flag}: no {ours}");
                    }
                    Meaning::Argument => {
                        let words = prepared(&[command, flag, "text", flag, "-x"]).unwrap();
                        assert_eq!(words, [command, "text", "--", "-x"]);
                    }
                    Meaning::NoEffect(values, _) => {
                        let value = match values {
                            FlagValues::None => "",
                            FlagValues::One => "3",
                            FlagValues::Switch => "on",
                        };
                        let words = prepared(&line(command, flag, value)).unwrap();
                        assert_eq!(words, prepared(&line(command, "", "")).unwrap(), "{flag}");
                    }
                    Meaning::Refused(advice) => {
                        let error = prepared(&line(command, flag, "")).unwrap_err();
                        assert_eq!(error, format!("{flag} is not supported: {advice}"));
                    }
                }
                // A row would hide a flag of ours.
                if !is_general && find(own, flag).is_some() {
                    let is_it = *meaning == Meaning::Is(names.split(' ').next_back().unwrap());
                    assert!(is_it, "{command} {flag} is a flag of clap and a row");
                }
            }
            assert!(!row.names.is_empty());
        }
    }

    #[test]
    fn every_option_of_llama_cpp_is_taken_mapped_or_refused_with_advice() {
        let cli = configured(Cli::command());
        let mut tried = 0;
        for command in rows::ANY.split(' ') {
            let own = cli.find_subcommand(command).unwrap();
            for name in llama_cpp::OPTIONS.split_whitespace() {
                tried += 1;
                let is_known = find(own, name).is_some() || meaning(own, name).is_some();
                assert!(is_known, "{command} {name}");
            }
        }
        assert!(tried > 4000, "{tried}");
    }

    #[test]
    fn the_document_lists_the_rows() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/llama-cpp-flags.md");
        let Ok(document) = std::fs::read_to_string(path) else {
            rf_testing::skip!("no docs beside the crate");
            return;
        };
        let listed: Vec<&str> =
            document.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
        let rows = ROWS.iter().map(|row| {
            let names: Vec<_> = row.names.split(' ').map(|name| format!("`{name}`")).collect();
            let commands = match row.commands {
                rows::COMPUTE => "all that compute",
                rows::MODEL => "all with a model",
                rows::ANY => "all that have no such flag",
                commands => commands,
            };
            let meaning = match row.meaning {
                Meaning::Is(ours) => format!("is `{ours}`"),
                Meaning::NoEffect(_, reason) => format!("no effect: {reason}"),
                Meaning::Argument => "is an argument without a flag".to_owned(),
                Meaning::Refused(advice) => format!("not supported: {advice}"),
            };
            format!("| {commands} | {} | {meaning} |", names.join(" "))
        });
        let rows: Vec<String> = rows.collect();
        assert_eq!(listed, rows);
    }

    #[test]
    fn values_may_begin_with_a_dash_and_the_last_flag_counts() {
        let value = |words: &[&str], name: &str| {
            let matches = parsed(words).unwrap();
            let (_, command) = matches.subcommand().unwrap();
            let mut raw = command.get_raw(name).unwrap();
            raw.next_back().unwrap().to_str().unwrap().to_owned()
        };
        for text in ["- buy milk", "--", "-fa", "-x", "--unknown", "-5"] {
            assert_eq!(value(&["run", "-p", text], "prompt_flag"), text);
            assert_eq!(value(&["run", "--stop", text, "hi"], "stop"), text);
            assert_eq!(value(&["run", "--system", text, "hi"], "system"), text);
        }
        assert_eq!(value(&["run", "-n", "5", "-n", "7", "hi"], "predict"), "7");
        assert_eq!(value(&["run", "--temp", "1", "hi", "--temp", "0"], "temp"), "0");
        assert_eq!(value(&["run", "-ngl=0", "hi"], "gpu_layers"), "0");
        assert_eq!(value(&["run", "-t4", "hi"], "threads"), "4");
    }

    #[test]
    fn flags_end_at_the_double_dash() {
        assert_eq!(
            prepared(&["run", "-ctk", "f16", "--", "-sys"]).unwrap(),
            ["run", "--cache-type-k", "f16", "--", "-sys"]
        );
    }

    #[test]
    fn a_model_in_place_of_a_command_runs() {
        assert_eq!(prepared(&["x.gguf", "Hi"]).unwrap(), ["run", "x.gguf", "Hi"]);
        assert_eq!(prepared(&["server", "-np", "2"]).unwrap(), ["serve", "--parallel", "2"]);
    }

    #[test]
    fn the_first_line_of_a_user_of_llama_cpp_runs() {
        assert_eq!(prepared(&["-m", "x.gguf", "-p", "Hi"]).unwrap()[0], "run");
        assert_eq!(prepared(&["--temp", "0", "Hi"]).unwrap()[0], "run");
        assert_eq!(prepared(&["--version"]).unwrap(), ["--version"]);
        assert_eq!(prepared(&["run", "--version"]).unwrap(), ["--version"]);
        assert_eq!(prepared(&["version"]).unwrap(), ["--version"]);
        assert_eq!(
            prepared(&["run", "--no-warmup", "-fa", "on", "--mlock", "--top_k=5", "hi"]).unwrap(),
            ["run", "--top-k=5", "hi"]
        );
        assert_eq!(prepared(&["bench", "-fa", "0,1", "-p", "5"]).unwrap(), ["bench", "-p", "5"]);
    }

    #[test]
    fn a_model_is_understood_without_its_flag() {
        assert_eq!(
            prepared(&["serve", "a.gguf", "b.gguf"]).unwrap(),
            ["serve", "--model", "a.gguf", "--model", "b.gguf"]
        );
        assert_eq!(
            prepared(&["embed", "a.gguf", "b.gguf"]).unwrap(),
            ["embed", "--model", "a.gguf", "b.gguf"]
        );
        assert_eq!(
            prepared(&["tokenize", "-m", "a.gguf", "-p", "b.gguf"]).unwrap(),
            ["tokenize", "-m", "a.gguf", "b.gguf"]
        );
        assert_eq!(
            prepared(&["quantize", "-m", "a.gguf", "q4_0"]).unwrap(),
            ["quantize", "a.gguf", "q4_0"]
        );
        assert_eq!(prepared(&["embed", "--", "a.gguf"]).unwrap(), ["embed", "--", "a.gguf"]);
    }

    #[test]
    fn unknown_letters_after_one_dash_are_named() {
        for words in [&["run", "-hello"][..], &["run", "-xyz"], &["bench", "-foo"]] {
            let error = prepared(words).unwrap_err();
            assert!(error.starts_with(&format!("unknown flag '{}'", words[1])), "{error}");
        }
        assert!(prepared(&["run", "-qv"]).is_ok());
    }
}
