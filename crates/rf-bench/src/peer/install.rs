//! Installation of llama-cpp-python in a virtual environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// Folder of the environment, relative to the checkout.
pub const PYTHON_FOLDER: &str = "target/peers/llama-cpp-python";

/// The interpreter of the environment; `None` if it is not installed.
pub fn installed_python(root: &Path) -> Option<PathBuf> {
    let folder = root.join(PYTHON_FOLDER);
    done(&folder).exists().then(|| python(&folder))
}

/// Builds the environment, which takes minutes, and returns its interpreter. The output of the
/// installation goes to the terminal.
///
/// # Errors
///
/// [`Error::Io`] and [`Error::Program`] if a step fails.
pub fn install_python(root: &Path) -> Result<PathBuf, Error> {
    let folder = root.join(PYTHON_FOLDER);
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let python = python(&folder);
    // The build from source uses the instruction sets of this machine.
    let requirements = root.join("benchmarks/peers/requirements.txt");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", "-r"]);
    succeed(pip.arg(requirements))?;
    let done = done(&folder);
    fs::write(&done, "")
        .map_err(|source| Error::io(format_args!("write '{}'", done.display()), source))?;
    Ok(python)
}

fn python(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

/// The file that marks a complete installation.
fn done(folder: &Path) -> PathBuf {
    folder.join("installed")
}

/// Runs a command whose output goes to the terminal; a non-zero exit status is an error.
fn succeed(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().display().to_string();
    let starting = |source| Error::io(format_args!("start '{program}'"), source);
    let status = command.status().map_err(starting)?;
    if status.success() { Ok(()) } else { Err(Error::Program { program, status }) }
}
