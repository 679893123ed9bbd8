//! Installation of llama-cpp-python in a virtual environment.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::output;

/// Folder of the environment, relative to the checkout.
const FOLDER: &str = "target/peers/llama-cpp-python";

/// Returns the interpreter of the environment. With `install`, a missing environment is built.
pub(super) fn python(root: &Path, install: bool) -> Result<PathBuf> {
    let folder = root.join(FOLDER);
    let python = folder.join("bin/python");
    let done = folder.join("installed");
    if done.exists() {
        return Ok(python);
    }
    if !install {
        bail!(
            "no llama.cpp to compare with; name a Python with llama-cpp-python (--peer-python) or a \
             llama-bench (--peer-bench), or build llama-cpp-python in {FOLDER} with --peer-install"
        );
    }
    output::note(format_args!("building llama-cpp-python in {FOLDER}; this takes minutes"));
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    // The build from source uses the instruction sets of this machine.
    let requirements = root.join("benchmarks/peers/requirements.txt");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", "-r"]);
    succeed(pip.arg(requirements))?;
    fs::write(&done, "").with_context(|| done.display().to_string())?;
    Ok(python)
}

/// Runs a command whose output goes to the terminal; a non-zero exit status is an error.
fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("could not start '{program}'"))?;
    if !status.success() {
        bail!("'{program}' failed with {status}");
    }
    Ok(())
}
