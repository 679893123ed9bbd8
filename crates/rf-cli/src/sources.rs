//! Files that users name: sources of text, which may be standard input, and outputs.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result};

use crate::failure::{bad_input, missing_file_cure};

/// Reads a file, or standard input for `-`.
pub(crate) fn file_bytes(path: &Path) -> Result<Vec<u8>> {
    if path.as_os_str() == "-" {
        return stdin_bytes();
    }
    match fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::NotFound => {
                let cure = missing_file_cure(path);
                bad_input!("file '{}' does not exist: {cure}", path.display())
            }
            io::ErrorKind::IsADirectory => {
                bad_input!("'{}' is a directory: give the path of a file", path.display())
            }
            _ => anyhow::Error::new(error).context(format!("cannot read '{}'", path.display())),
        }),
    }
}

/// Checks, before any work, that an output is none of the inputs of a command.
pub(crate) fn check_is_no_input<'p>(
    output: &Path,
    inputs: impl IntoIterator<Item = &'p Path>,
) -> Result<()> {
    match inputs.into_iter().find(|input| rf_convert::is_same_file(input, output)) {
        Some(input) => Err(bad_input!(
            "the output '{}' is the input '{}': write to another file",
            output.display(),
            input.display()
        )),
        None => Ok(()),
    }
}

/// Checks, before any work, that the folder of an output file exists, and that the file is no model
/// and no flag.
pub(crate) fn check_output(path: &Path) -> Result<()> {
    let name = path.display();
    if path.as_os_str().as_encoded_bytes().starts_with(b"-") {
        return Err(bad_input!(
            "the output '{name}' begins as a flag does: for a file of this name write './{name}'"
        ));
    }
    if is_gguf(path) {
        return Err(bad_input!(
            "the output '{name}' is a model, which it would replace: give another file"
        ));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.exists() => Err(bad_input!(
            "the folder of '{}' does not exist: create it, or check the path",
            path.display()
        )),
        _ => Ok(()),
    }
}

/// Returns true if a file begins as GGUF files do.
pub(crate) fn is_gguf(path: &Path) -> bool {
    let mut magic = [0; 4];
    // Opening a pipe would wait for its other end.
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"GGUF"
}

/// Reads the text of a file, or of standard input for `-`.
pub(crate) fn file_text(path: &Path) -> Result<String> {
    into_text(file_bytes(path)?, &named(path))
}

/// The name of a source in a message.
pub(crate) fn named(path: &Path) -> String {
    if path.as_os_str() == "-" {
        return "standard input".to_owned();
    }
    format!("'{}'", path.display())
}

/// The texts of the arguments, or else the lines of a file or of standard input, without blank ones
/// at the end.
pub(crate) fn texts(arguments: &[String], file: Option<&Path>) -> Result<Vec<String>> {
    let lines = match file {
        _ if !arguments.is_empty() => return Ok(arguments.to_vec()),
        Some(file) => Some(file_text(file)?),
        None => piped_text()?,
    };
    let mut lines: Vec<String> =
        lines.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
    while lines.pop_if(|line| line.trim().is_empty()).is_some() {}
    if lines.is_empty() {
        return Err(bad_input!("no text: give it as an argument, with -f FILE, or by a pipe"));
    }
    Ok(lines)
}

/// Reads standard input, unless it is a terminal.
pub(crate) fn piped_text() -> Result<Option<String>> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    into_text(stdin_bytes()?, "standard input").map(Some)
}

/// Reads standard input to its end.
pub(crate) fn stdin_bytes() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    Ok(bytes)
}

/// Parses token ids, separated by white space, commas or brackets: JSON lists work.
pub(crate) fn ids(text: &str) -> Result<Vec<u32>> {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '[' | ']');
    let words = text.split(is_separator).filter(|word| !word.is_empty());
    words
        .map(|word| {
            word.parse().map_err(|_| {
                bad_input!(
                    "'{}' is not a token id: give whole numbers, separated by commas or spaces",
                    word.escape_debug()
                )
            })
        })
        .collect()
}

fn into_text(bytes: Vec<u8>, what: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        bad_input!(
            "{what} is not valid UTF-8 (at byte {}): convert the text to UTF-8",
            error.utf8_error().valid_up_to()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_be_written_in_several_ways() {
        for text in ["1 2 30", "1,2,30", "[1, 2, 30]\n", " 1\n2\t30 "] {
            assert_eq!(ids(text).unwrap(), [1, 2, 30], "{text}");
        }
        assert!(ids("").unwrap().is_empty());
        for bad in ["x", "1 -2", "1.5", "4294967296"] {
            assert!(ids(bad).is_err(), "{bad}");
        }
    }
}
