//! Errors of the command line in our words: what is wrong, its name, and the cure.

use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::bad_input;
use crate::flags;
use crate::terminal::shown;

/// The error of a command line in our words. `None` for what clap prints by itself, as the help.
pub(crate) fn explained(
    error: &clap::Error,
    cli: &clap::Command,
    arguments: &[OsString],
) -> Option<anyhow::Error> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    let (command, words) = flags::named_command(cli, arguments);
    let names = arguments.iter().skip(1).take(words);
    let of_command = names.fold(String::new(), |text, name| text + " " + &name.to_string_lossy());
    let explained = match error.kind() {
        ErrorKind::ValueValidation => {
            let name = context(ContextKind::InvalidArg).unwrap_or_default();
            let value = shown(context(ContextKind::InvalidValue).unwrap_or_default());
            let name = variable(name, command, arguments).unwrap_or_else(|| name.to_owned());
            bad_input!("invalid value '{value}' for '{name}': {}", value_problem(error))
        }
        ErrorKind::InvalidValue => {
            let name = context(ContextKind::InvalidArg).unwrap_or_default();
            let value = shown(context(ContextKind::InvalidValue).unwrap_or_default());
            if value.is_empty() {
                bad_input!("{name} needs a value{}", one_of(error))
            } else {
                bad_input!("invalid value '{value}' for '{name}'{}", one_of(error))
            }
        }
        ErrorKind::UnknownArgument => {
            let given = context(ContextKind::InvalidArg).unwrap_or_default();
            if !given.starts_with('-') {
                return Some(bad_input!(
                    "unexpected argument '{}': a text of several words stands in quotation marks, and \
                     `rf-cli{of_command} --help` lists the arguments",
                    shown(given)
                ));
            }
            let similar = context(ContextKind::SuggestedArg);
            let similar = similar.map_or(String::new(), |name| format!(", did you mean {name}"));
            bad_input!(
                "unknown flag '{}'{similar}: `rf-cli{of_command} --help` lists the flags, and a text that \
                 begins with a dash comes after `--`",
                shown(given)
            )
        }
        ErrorKind::InvalidSubcommand if words > 0 => {
            let given = shown(context(ContextKind::InvalidSubcommand).unwrap_or_default());
            let similar = context(ContextKind::SuggestedSubcommand);
            let similar = similar.map_or(String::new(), |name| format!(", did you mean {name}"));
            bad_input!(
                "'{given}' is no command of `rf-cli{of_command}`{similar}: `rf-cli{of_command} --help` \
                 lists them"
            )
        }
        ErrorKind::InvalidSubcommand => {
            let given = shown(context(ContextKind::InvalidSubcommand).unwrap_or_default());
            let similar = context(ContextKind::SuggestedSubcommand);
            let similar = similar.map_or(String::new(), |name| format!(", did you mean {name}"));
            bad_input!(
                "'{given}' is no command, file or short name{similar}: `rf-cli --help` lists the commands, \
                 `rf-cli list --all` the names, and `rf-cli run \"{given}\"` asks a model"
            )
        }
        _ => return None,
    };
    Some(explained)
}

/// Why the value of an argument is refused. The words of the standard library name neither the kind
/// of value nor the cure.
pub(crate) fn value_problem(error: &clap::Error) -> String {
    let Some(source) = error.source() else { return "the value is invalid".to_owned() };
    let is_negative = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.parse::<i128>().is_ok_and(|value| value < 0),
        _ => false,
    };
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        let problem = match error.kind() {
            IntErrorKind::PosOverflow => "the number is too large",
            IntErrorKind::NegOverflow => "the number is too small",
            _ if is_negative => "expected a whole number of 0 or more",
            _ => "expected a whole number",
        };
        return problem.to_owned();
    }
    if source.is::<ParseFloatError>() {
        return "expected a number, as in 0.8".to_owned();
    }
    let problem = source.to_string();
    // clap's words for a number that is too large or too small for its type.
    let range = problem.rsplit_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
    match range {
        Some((least, most)) => format!("expected a whole number from {least} to {most}"),
        None => problem,
    }
}

/// The values that are possible, if there is a list of them.
fn one_of(error: &clap::Error) -> String {
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !values.is_empty() => {
            format!(": expected one of {}", values.join(", "))
        }
        _ => String::new(),
    }
}

/// The environment variable from which the value of an argument comes, if it does.
fn variable(argument: &str, command: &clap::Command, arguments: &[OsString]) -> Option<String> {
    let flag = argument.split(' ').next()?;
    let variable = flags::find(command, flag)?.get_env()?;
    let is_given = |given: &OsString| given.as_encoded_bytes().starts_with(flag.as_bytes());
    let is_set = std::env::var_os(variable).is_some();
    (is_set && !arguments.iter().any(is_given)).then(|| variable.to_string_lossy().into_owned())
}
