//! `rf-cli completions`: prints a completion script for a shell.

use std::fmt::Write as _;
use std::io::{self, Write};

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Command};
use clap_complete::Shell;
use rf_convert::Mix;
use rf_quant::DType;
use rocmforge::engine::KvType;
use rocmforge::hub::{Hub, ShortName};
use rocmforge::messages::ChatTemplate;

use super::list;

/// Arguments of `rf-cli completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Values are completed, too: downloaded models, short names and files (bash, zsh and fish), formats, chat templates \
and devices.

Examples:
  rf-cli completions bash > ~/.local/share/bash-completion/completions/rf-cli
  rf-cli completions zsh > ~/.zfunc/_rf-cli
  rf-cli completions fish > ~/.config/fish/completions/rf-cli.fish
  rf-cli completions powershell >> $PROFILE")]
pub(crate) struct CompletionsArgs {
    /// Print the completion script of this shell
    shell: Shell,
}

/// Commands whose words may be models. The word of `launch` is a client.
const MODEL_COMMANDS: &str = "run serve info pull rm fit";

/// Runs `rf-cli completions` for the command line `cli`.
pub(crate) fn completions(arguments: &CompletionsArgs, cli: Command) -> Result<()> {
    let mut script = Vec::new();
    let mut cli = with_values(cli);
    clap_complete::generate(arguments.shell, &mut cli, "rf-cli", &mut script);
    let script = String::from_utf8(script)?;
    let script = match arguments.shell {
        // clap_complete sets one name of a subcommand and compares with another one, if the name of
        // the program has a dash.
        Shell::Bash => script.replace("rf__subcmd__cli", "rf__cli") + &bash_models(),
        Shell::Fish => script + &fish_words(&cli),
        Shell::Zsh => zsh_words(&script),
        _ => script,
    };
    io::stdout().lock().write_all(script.as_bytes())?;
    Ok(())
}

/// Prints the models that `-m` takes by a name: those that are downloaded, then all short names.
/// The completion scripts call it.
pub(crate) fn complete_models() -> Result<()> {
    let cached = Hub::from_env()?.cached();
    let mut names: Vec<_> = cached.iter().map(list::name_of).collect();
    for short in ShortName::all() {
        let name = short.to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // The name of a file may have any character.
    names.retain(|name| !name.chars().any(|c| c.is_control() || c.is_whitespace()));
    writeln!(io::stdout().lock(), "{}", names.join("\n"))?;
    Ok(())
}

/// The command line with the values of options that have few. A value of another form is parsed
/// all the same: the parsers are for the scripts only.
fn with_values(cli: Command) -> Command {
    let cli = cli.mut_args(|arg| match arg.get_long().and_then(values) {
        Some(values) => arg.value_parser(PossibleValuesParser::new(values)),
        None => arg,
    });
    cli.mut_subcommands(with_values)
}

fn values(long: &str) -> Option<Vec<&'static str>> {
    let kv_types = || KvType::ALL.iter().map(|kv_type| kv_type.name()).collect();
    Some(match long {
        "device" => vec!["auto", "cpu", "gpu"],
        "gpu-layers" => vec!["auto", "all"],
        "split-mode" => vec!["none", "layer", "tensor"],
        "graphs" => vec!["auto", "on", "off"],
        "cache-type" | "cache-type-k" | "cache-type-v" => kv_types(),
        "chat-template" => ChatTemplate::builtin_names().collect(),
        "output-tensor-type" | "token-embedding-type" => {
            DType::ALL.into_iter().map(DType::name).collect()
        }
        _ => return None,
    })
}

/// Completes models after `-m`, and as words of some commands. Bash splits words at colons, which
/// names have, so the words are found in the line.
fn bash_models() -> String {
    let mixes = mixes();
    // The word before is the command itself.
    let commands = MODEL_COMMANDS.split(' ').map(|name| format!("\"{name} {name}\""));
    let commands = commands.collect::<Vec<_>>().join(" | ");
    format!(
        r#"
_rf_cli_values() {{
    local line word rest previous names head
    line="${{COMP_LINE:0:COMP_POINT}}"
    word="${{line##*[[:space:]]}}"
    rest="${{line%"$word"}}"
    rest="${{rest%"${{rest##*[![:space:]]}}"}}"
    previous="${{rest##*[[:space:]]}}"
    case "${{COMP_WORDS[1]}} $previous" in
        *" -m" | *" --model" | *" -md" | *" --model-draft") ;;
        "quantize "*.gguf)
            local IFS=$'\n'
            COMPREPLY=($(compgen -f -- "$word") $(IFS=' '; compgen -W "{mixes}" -- "$word"))
            return ;;
        {commands})
            if [[ "$word" == -* ]]; then _rf__cli "$@"; return; fi ;;
        *) _rf__cli "$@"; return ;;
    esac
    local IFS=$'\n'
    names="$("$1" complete-models 2>/dev/null)"
    COMPREPLY=($(compgen -W "$names" -- "$word") $(compgen -f -- "$word"))
    if [[ "$word" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        head="${{word%"${{word##*:}}"}}"
        COMPREPLY=("${{COMPREPLY[@]#"$head"}}")
    fi
}}
complete -F _rf_cli_values -o bashdefault -o default rf-cli
"#
    )
}

/// Completes models and formats, and the values of words that have few: `clap_complete` leaves
/// those out.
fn fish_words(cli: &Command) -> String {
    let models = "-a '(rf-cli complete-models 2>/dev/null)'";
    let after_command = "complete -c rf-cli -n 'not __fish_rf_cli_needs_command'";
    let after =
        |command: &str| format!("complete -c rf-cli -n '__fish_seen_subcommand_from {command}'");
    let mut script = format!(
        "{after_command} -s m -l model -r {models}\n{after_command} -l model-draft -r {models}\n{} {models}\n{} -a '{}'\n",
        after(MODEL_COMMANDS),
        after("quantize"),
        mixes()
    );
    for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
        for arg in command.get_positionals() {
            let values: Vec<_> = arg.get_possible_values();
            let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
            if !names.is_empty() {
                let after = after(command.get_name());
                // Writing into a String cannot fail.
                _ = writeln!(script, "{after} -f -a '{}'", names.join(" "));
            }
        }
    }
    script
}

/// Words of commands that are models, by the beginning of their lines in the script of zsh.
const ZSH_MODELS: [&str; 8] = [
    "-m+[",
    "--model=[",
    "--model-draft=[",
    ":words -- Answer ",
    ":name -- Download ",
    ":model -- Examine ",
    ":names -- Remove ",
    ":file -- Show ",
];

/// Replaces the completion of files by that of models and files, and of formats.
fn zsh_words(script: &str) -> String {
    let functions = format!(
        "_rf_cli_models() {{\n    local -a models\n    \
         models=(${{(f)\"$(rf-cli complete-models 2>/dev/null)\"}})\n    \
         compadd -a models\n    _files\n}}\n\n\
         _rf_cli_formats() {{\n    compadd {}\n    _files\n}}\n\n",
        mixes()
    );
    let completing = |line: &str, function: &str| {
        let line = line.replace(":_files'", &format!(":{function}'"));
        line.replace(":_default'", &format!(":{function}'"))
    };
    let mut text = String::new();
    for (index, line) in script.lines().enumerate() {
        let word = line.trim_start_matches(['\'', '*']);
        let word = word.strip_prefix(':').unwrap_or(word);
        text += &if ZSH_MODELS.iter().any(|name| word.starts_with(name)) {
            completing(line, "_rf_cli_models")
        } else if word.starts_with(":words -- Convert ") {
            completing(line, "_rf_cli_formats")
        } else {
            line.to_owned()
        };
        text.push('\n');
        // After the line that names the command.
        if index == 0 {
            text.push('\n');
            text += &functions;
        }
    }
    text
}

/// The formats of `quantize`.
fn mixes() -> String {
    Mix::ALL.iter().map(Mix::name).collect::<Vec<_>>().join(" ")
}
