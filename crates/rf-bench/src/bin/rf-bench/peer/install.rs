//! A virtual environment with llama-cpp-python.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::output;

/// Below the checkout.
const FOLDER: &str = "target/peers/llama-cpp-python";

/// The interpreter of the environment, which is made where `install` asks for it.
pub(super) fn python(root: &Path, install: bool) -> Result<PathBuf> {
    let folder = root.join(FOLDER);
    let python = folder.join("bin/python");
    let done = folder.join("installed");
    if done.exists() {
        return Ok(python);
    }
    if !install {
        bail!(
            "no llama.cpp to compare with: name a Python that has llama-cpp-python (--peer-python) or a llama-bench \
             (--peer-bench), or have --peer-install build llama-cpp-python in {FOLDER}"
        );
    }
    output::note(format_args!("building llama-cpp-python in {FOLDER}: that takes minutes"));
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    // From source, so that it has the instructions of this machine.
    let requirements = root.join("benchmarks/peers/requirements.txt");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", "-r"]);
    succeed(pip.arg(requirements))?;
    fs::write(&done, "").with_context(|| done.display().to_string())?;
    Ok(python)
}

/// Runs a command that says on stderr what it does.
fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("could not start '{program}'"))?;
    if !status.success() {
        bail!("'{program}' failed with {status}");
    }
    Ok(())
}
