//! What a program printed, as a terminal shows it.

use std::fmt::Write as _;
use std::process::Command;

/// Runs a program and returns its command line and its output, as a terminal shows them:
/// `$ PROGRAM ARGUMENTS`, standard output, standard error, and `? CODE` unless the code is 0.
/// Several are a table of a program's answers, for one snapshot.
pub fn transcript(command: &mut Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.enumerate().map(|(i, word)| match word.to_string_lossy() {
        // The folder of the program is the build's.
        program if i == 0 => program.rsplit('/').next().unwrap_or_default().to_owned(),
        word => quoted(&word),
    });
    let line = words.collect::<Vec<_>>().join(" ");
    let output = command.output().unwrap();
    let mut text = format!("$ {line}\n");
    for stream in [&output.stdout, &output.stderr] {
        text += &String::from_utf8_lossy(stream);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if !output.status.success() {
        let code = output.status.code().map_or("a signal".to_owned(), |code| code.to_string());
        writeln!(text, "? {code}").unwrap();
    }
    text
}

/// A word as one types it for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_has_the_command_both_outputs_and_the_code() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo out; printf it\\'s >&2; exit 3"]);
        let expected = "$ sh -c 'echo out; printf it\\'\\''s >&2; exit 3'\nout\nit's\n? 3\n";
        assert_eq!(transcript(&mut command), expected);
        assert_eq!(transcript(&mut Command::new("true")), "$ true\n");
    }
}
