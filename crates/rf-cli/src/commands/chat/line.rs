//! The commands of a chat: a table, and the lines that a user types.

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Empty,
    Say(&'a str),
    /// A command with its argument, which may be empty.
    Do(ChatCommand, &'a str),
    /// A command without the argument that it needs, or with one that it does not take.
    Misused(&'static CommandRow),
    Unknown(&'a str),
}

/// The command of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    Help,
    Set,
    System,
    Image,
    Audio,
    Retry,
    Edit,
    Undo,
    Copy,
    Save,
    Load,
    Model,
    Reset,
    Stats,
    Exit,
}

/// The argument of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    None,
    Optional(&'static str),
    Needed(&'static str),
}

/// A command of the chat.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandRow {
    pub(super) command: ChatCommand,
    /// Its name and its other names.
    pub(super) names: &'static [&'static str],
    pub(super) argument: Argument,
    help: &'static str,
}

const fn row(
    command: ChatCommand,
    names: &'static [&'static str],
    argument: Argument,
    help: &'static str,
) -> CommandRow {
    CommandRow { command, names, argument, help }
}

use Argument::{Needed, None as Nothing, Optional};

pub(super) const COMMANDS: &[CommandRow] = &[
    row(ChatCommand::Help, &["/help", "/?"], Nothing, "show this list"),
    row(
        ChatCommand::Set,
        &["/set"],
        Optional("NAME VALUE"),
        "set a sampling option or predict; alone, list them",
    ),
    row(
        ChatCommand::System,
        &["/system"],
        Optional("TEXT"),
        "set the system message; without TEXT, remove it",
    ),
    row(
        ChatCommand::Image,
        &["/image"],
        Needed("FILE"),
        "ask about a picture with the next message",
    ),
    row(
        ChatCommand::Audio,
        &["/audio"],
        Needed("FILE"),
        "ask about a sound, a WAV or MP3 file, with the next message",
    ),
    row(
        ChatCommand::Retry,
        &["/retry", "/regenerate", "/regen"],
        Nothing,
        "answer the last message again",
    ),
    row(ChatCommand::Edit, &["/edit"], Nothing, "change the last message and answer it again"),
    row(ChatCommand::Undo, &["/undo"], Nothing, "forget the last message and its answer"),
    row(ChatCommand::Copy, &["/copy"], Nothing, "copy the last answer to the clipboard (OSC 52)"),
    row(ChatCommand::Save, &["/save"], Needed("FILE"), "write the conversation to FILE, as JSON"),
    row(ChatCommand::Load, &["/load"], Needed("FILE"), "continue the conversation in FILE"),
    row(
        ChatCommand::Model,
        &["/model"],
        Optional("MODEL"),
        "continue with another model, a file or a short name; alone, show the model",
    ),
    row(ChatCommand::Reset, &["/reset", "/clear"], Nothing, "forget the conversation"),
    row(ChatCommand::Stats, &["/stats"], Nothing, "show throughput, memory and use of the context"),
    row(ChatCommand::Exit, &["/exit", "/quit", "/bye"], Nothing, "leave (as does Ctrl-D)"),
];

impl CommandRow {
    /// Returns true if the argument is the path of a file.
    pub(super) fn takes_path(&self) -> bool {
        matches!(self.argument, Optional("MODEL") | Needed("FILE"))
    }

    /// The command and its argument, as a user types them.
    pub(super) fn usage(&self) -> String {
        let name = self.names[0];
        match self.argument {
            Nothing => name.to_owned(),
            Optional(argument) | Needed(argument) => format!("{name} {argument}"),
        }
    }
}

/// The list of commands and keys.
pub(super) fn help() -> String {
    let rows: Vec<(String, &str)> = COMMANDS.iter().map(|row| (row.usage(), row.help)).collect();
    let width = rows.iter().map(|(usage, _)| usage.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        rows.iter().map(|(usage, help)| format!("{usage:width$}  {help}")).collect();
    lines.join("\n")
        + "\n\nAlt-Enter breaks a line, and so does \\ at its end. Lines between \"\"\" and \"\"\" are one \
           message,\nwhich may begin with a slash. Tab completes commands and files. Ctrl-C stops an answer."
}

impl<'a> Line<'a> {
    pub(super) fn parse(line: &'a str) -> Self {
        let line = line.trim();
        if line.is_empty() {
            return Self::Empty;
        }
        let (name, argument) = match line.split_once(char::is_whitespace) {
            Some((name, argument)) => (name, argument.trim()),
            None => (line, ""),
        };
        let Some(row) = COMMANDS.iter().find(|row| row.names.contains(&name)) else {
            return if is_command_name(name) { Self::Unknown(name) } else { Self::Say(line) };
        };
        match (row.argument, argument.is_empty()) {
            (Nothing, false) | (Needed(_), true) => Self::Misused(row),
            _ => Self::Do(row.command, argument),
        }
    }
}

/// Returns true if a word looks like a command. Paths, comments of C and the like do not.
fn is_command_name(word: &str) -> bool {
    word.strip_prefix('/').is_some_and(|name| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        name.chars().all(is_letter)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_start_with_a_slash() {
        use Line::{Do, Empty, Misused, Say, Unknown};
        let misused = |line| match Line::parse(line) {
            Misused(row) => row.usage(),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(Line::parse("  "), Empty);
        assert_eq!(Line::parse("/help"), Do(ChatCommand::Help, ""));
        assert_eq!(Line::parse(" /reset "), Do(ChatCommand::Reset, ""));
        assert_eq!(misused("/reset now"), "/reset");
        assert_eq!(Line::parse("/bye"), Do(ChatCommand::Exit, ""));
        assert_eq!(Line::parse("/system Be brief. "), Do(ChatCommand::System, "Be brief."));
        assert_eq!(Line::parse("/system"), Do(ChatCommand::System, ""));
        assert_eq!(Line::parse("/save a b.json"), Do(ChatCommand::Save, "a b.json"));
        assert_eq!(misused("/load"), "/load FILE");
        assert_eq!(Line::parse("/regenerate"), Do(ChatCommand::Retry, ""));
        for unknown in ["/nothing", "/set_x 5", "/nothing with words", "/"] {
            assert!(matches!(Line::parse(unknown), Unknown(_)), "{unknown}");
        }
        for text in ["/usr/bin is a folder", "hello", "// a comment", "/** documentation */"] {
            assert_eq!(Line::parse(text), Say(text));
        }
    }

    #[test]
    fn names_are_unique_and_the_help_has_all() {
        let names: Vec<&str> = COMMANDS.iter().flat_map(|row| row.names).copied().collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
        let help = help();
        for row in COMMANDS {
            assert!(help.contains(&row.usage()), "{}", row.names[0]);
        }
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
}
