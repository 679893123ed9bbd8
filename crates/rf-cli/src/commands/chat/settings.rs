//! `/set`: the options of sampling, and the length of answers.

use anyhow::Result;
use clap::{Args, Command, FromArgMatches};
use rocmforge::engine::Model;
use rocmforge::engine::sampling::SamplerConfig;

use crate::args::SamplingArgs;
use crate::failure::bad_input;
use crate::usage;

/// The options that a chat may change.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChatSettings {
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Generate at most N tokens; -1 = until the model ends its answer or the context is full
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    predict: Option<i64>,
}

impl ChatSettings {
    /// The options of the command line.
    pub(crate) fn new(sampling: SamplingArgs, predict: i64) -> Self {
        Self { sampling, predict: Some(predict) }
    }

    /// The parameters of sampling for a model.
    pub(super) fn sampler(&self, model: &Model) -> Result<SamplerConfig> {
        self.sampling.for_model(model)
    }

    /// The largest number of tokens of an answer.
    pub(super) fn max_tokens(&self) -> Option<usize> {
        self.predict.and_then(|tokens| usize::try_from(tokens).ok())
    }

    /// Sets the option of `NAME VALUE`, with or without dashes before the name.
    pub(super) fn set(&self, text: &str) -> Result<Self> {
        let (name, value) = text
            .split_once(|c: char| c.is_whitespace() || c == '=')
            .ok_or_else(|| bad_input!("a value is missing: use it as /set NAME VALUE"))?;
        let name = long_name(name);
        let command = command();
        if !command.get_arguments().any(|arg| long_names(arg).contains(&&*name)) {
            return Err(bad_input!("there is no option {name}: /set lists the options"));
        }
        let words = [format!("--{name}={}", value.trim())];
        let matches = command
            .try_get_matches_from(words)
            .map_err(|error| bad_input!("{name}: {}", usage::value_problem(&error)))?;
        let mut set = self.clone();
        set.update_from_arg_matches(&matches)?;
        if set.predict == Some(0) {
            return Err(bad_input!("predict 0 generates nothing: give 1 or more, or -1"));
        }
        set.sampling.check()?;
        Ok(set)
    }

    /// The names of the options.
    pub(super) fn names() -> Vec<String> {
        let command = command();
        let names = command.get_arguments().filter_map(clap::Arg::get_long);
        names.map(str::to_owned).collect()
    }

    /// A list of the options.
    pub(super) fn list() -> String {
        let command = command();
        let rows: Vec<(String, String)> = command
            .get_arguments()
            .filter_map(|arg| {
                let value = arg.get_value_names()?.first()?;
                let help = arg.get_help()?.to_string();
                let help = help.split('\n').next().unwrap_or_default().to_owned();
                Some((format!("{} {value}", arg.get_long()?), help))
            })
            .collect();
        let width = rows.iter().map(|(usage, _)| usage.len()).max().unwrap_or(0);
        let lines: Vec<String> =
            rows.iter().map(|(usage, help)| format!("{usage:width$}  {help}")).collect();
        lines.join("\n")
    }
}

/// A command line without defaults, so that it holds only what a user gives.
fn command() -> Command {
    let command = ChatSettings::augment_args_for_update(Command::new("set"));
    let command = command.no_binary_name(true).disable_help_flag(true);
    command.mut_args(|arg| arg.default_value(None::<&str>).allow_hyphen_values(true))
}

fn long_names(arg: &clap::Arg) -> Vec<&str> {
    arg.get_long_and_visible_aliases().unwrap_or_default()
}

/// The name of an option: `top_k`, `--top-k` and `top-k` are the same.
fn long_name(name: &str) -> String {
    name.trim_start_matches('-').replace('_', "-")
}
