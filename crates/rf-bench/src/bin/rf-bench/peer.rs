//! `--peer`: builds a comparison with another engine from the command line and runs it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use rf_bench::model::ModelFile;
use rf_bench::peer::{self, Peer, Programs, Test};

use crate::options::{BackendName, Options, OutputFormat, PeerName};
use crate::output;
use crate::terminal::{self, TerminalBar};

/// Measures both engines and prints the ratios. The exit code is 0, or 130 after Ctrl-C, which ends
/// the comparison after the current repetition.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let test = test(options)?;
    if options.format == OutputFormat::Html {
        bail!("--peer has no HTML report; use --format table, json or csv");
    }
    let models: Vec<ModelFile> = match &options.model[..] {
        [] => vec![ModelFile::new(root, None)],
        given => given.iter().map(|path| ModelFile::new(root, Some(path))).collect(),
    };
    for model in &models {
        model.open()?;
    }
    let programs = programs(root, options)?;
    let interrupt = terminal::interrupt_by_ctrl_c(3);
    let bar = TerminalBar::new();
    let compared =
        peer::compare(&models, &programs, test, &interrupt, &mut |progress| bar.show(progress));
    bar.clear();
    let comparisons = match compared {
        Err(_) if interrupt.is_urgent() => return Ok(output::ended_at_once()),
        compared => compared?,
    };
    let hardware = options.target()?.hardware();
    let text = match options.format {
        OutputFormat::Json => peer::json(&comparisons, &hardware)?,
        OutputFormat::Csv => peer::csv(&comparisons)?,
        OutputFormat::Table | OutputFormat::Html => peer::table(&comparisons, &hardware),
    };
    output::write(options.output.as_deref(), &text)?;
    if interrupt.is_requested() {
        output::note("ended by Ctrl-C; the output has the complete repetitions");
        return Ok(ExitCode::from(output::INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures this engine once and prints its speeds.
pub(crate) fn run_self(root: &Path, options: &Options) -> Result<ExitCode> {
    let test = test(options)?;
    let model = ModelFile::new(root, options.model.first().map(PathBuf::as_path));
    let speeds = peer::measure_own(root, &model, &options.target()?, test)?;
    writeln!(io::stdout().lock(), "{}", serde_json::to_string(&speeds)?)?;
    Ok(ExitCode::SUCCESS)
}

fn test(options: &Options) -> Result<Test> {
    let peer = &options.peer;
    if peer.prompt == 0 && peer.generate == 0 {
        bail!("-p 0 and -n 0 leave nothing to measure; give one of them");
    }
    // Both engines get the same number; llama.cpp's default differs.
    let threads = match options.threads {
        Some(threads) => threads,
        None => options.target()?.threads().unwrap_or(1),
    };
    Ok(Test {
        prompt_tokens: peer.prompt,
        generated_tokens: peer.generate,
        depth_tokens: peer.depth,
        threads,
        repetitions: peer.repetitions,
    })
}

fn programs(root: &Path, options: &Options) -> Result<Programs> {
    Ok(Programs {
        own: env::current_exe().context("path of this program")?,
        peer: peer(root, options)?,
        root: root.to_owned(),
        gpu: options.backend == BackendName::Gpu,
        isa: options.isa.clone(),
    })
}

fn peer(root: &Path, options: &Options) -> Result<Peer> {
    let given = &options.peer;
    let is_own = given.peer == Some(PeerName::Rocmforge);
    if let Some(program) = &given.peer_bench {
        let program = existing(program, "--peer-bench")?;
        return Ok(if is_own { Peer::OtherBuild(program) } else { Peer::LlamaBench(program) });
    }
    if is_own {
        bail!(
            "--peer rocmforge needs the rf-bench of the other build; give it as --peer-bench PROGRAM"
        );
    }
    if let Some(python) = &given.peer_python {
        return Ok(Peer::Python(existing(python, "--peer-python")?));
    }
    if let Some(python) = peer::installed_python(root) {
        return Ok(Peer::Python(python));
    }
    let folder = peer::PYTHON_FOLDER;
    if !given.peer_install {
        bail!(
            "no llama.cpp to compare with; name a Python with llama-cpp-python (--peer-python) or a \
             llama-bench (--peer-bench), or build llama-cpp-python in {folder} with --peer-install"
        );
    }
    output::note(format_args!("building llama-cpp-python in {folder}; this takes minutes"));
    Ok(Peer::Python(peer::install_python(root)?))
}

/// Checks a program given on the command line. A path with a folder must exist; a plain name is
/// left to the search in PATH.
fn existing(program: &Path, option: &str) -> Result<PathBuf> {
    let has_folder = program.parent().is_some_and(|folder| !folder.as_os_str().is_empty());
    if has_folder {
        fs::metadata(program).with_context(|| format!("{option} '{}'", program.display()))?;
    }
    Ok(program.to_owned())
}
