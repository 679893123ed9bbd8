//! The help of `-h`: the options that most people need, on one screen. `--help` has all of them.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// Commands whose help does not fit on a screen.
const LONG: [&str; 8] =
    ["run", "serve", "embed", "rerank", "perplexity", "bench", "fit", "quantize"];

/// The options of the short form, for every command that has them.
const COMMON: [&str; 36] = [
    "model",
    "hf-repo",
    "models",
    "alias",
    "prompt",
    "file",
    "predict",
    "ctx-size",
    "system",
    "image",
    "audio",
    "raw",
    "json",
    "temp",
    "json-schema",
    "grammar",
    "device",
    "gpu-layers",
    "threads",
    "host",
    "port",
    "api-key",
    "max-num-seqs",
    "embedding",
    "pooling",
    "chunks",
    "n-prompt",
    "n-gen",
    "n-depth",
    "repetitions",
    "output",
    "allow-requantize",
    "tensor-type",
    "imatrix",
    "dry-run",
    "help",
];

/// Names the two forms in the help of `-h` itself, where they differ.
pub(crate) fn with_flag(command: Command) -> Command {
    if !is_long(&command) {
        return command;
    }
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help);
    let help = help.help("Print all options; -h prints the common ones").help_heading(None);
    command.disable_help_flag(true).arg(help)
}

/// Returns true if the arguments ask for the short form.
pub(crate) fn is_asked_for(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "-h")
}

/// The command line with the options of the short form only.
pub(crate) fn shortened(cli: Command) -> Command {
    cli.mut_subcommands(|command| if is_long(&command) { short(command) } else { command })
}

pub(crate) fn is_long(command: &Command) -> bool {
    LONG.contains(&command.get_name())
}

fn short(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = examples.find("Examples:").map_or("", |start| &examples[start..]);
    let examples: Vec<_> = examples.lines().take(3).collect();
    let pointer = format!("{}\n\n`rf-cli {name} --help` lists all options.", examples.join("\n"));
    let command = command.mut_args(|arg| {
        let is_shown =
            arg.is_positional() || arg.get_long().is_some_and(|long| COMMON.contains(&long));
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        arg.hide(!is_shown).help(first_sentence(&help).to_owned())
    });
    command.after_help(pointer.trim_start().to_owned())
}

/// The help up to its first full stop, semicolon or bracket.
fn first_sentence(help: &str) -> &str {
    let ends = [". ", "; ", " ["].into_iter().filter_map(|end| help.find(end));
    &help[..ends.min().unwrap_or(help.len())]
}
