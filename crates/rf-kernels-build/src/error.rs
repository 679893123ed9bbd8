//! Errors of the kernel build.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use crate::targets::{OLDEST_CLANG, target_names};

/// Why kernels could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A list of targets names one that does not exist.
    #[error("unknown kernel target {name:?}: use all, none, default, or one of {}", target_names())]
    UnknownTarget {
        /// The name from the list.
        name: String,
    },
    /// A source file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of the cache, or a temporary file, cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An `#include` directive cannot be resolved.
    #[error("cannot resolve the include in {}:{line}", path.display())]
    Include {
        /// The file with the directive.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The cause: [`Error::ForeignInclude`], or an error in the header.
        source: Box<Self>,
    },
    /// An `#include` directive names something other than a header of the project.
    #[error("include of {operand}: kernels include only their own headers, in quotes")]
    ForeignInclude {
        /// The operand of the directive.
        operand: String,
    },
    /// No usable clang is installed.
    #[error(
        "no clang {OLDEST_CLANG} or newer: install clang-{OLDEST_CLANG} and lld-{OLDEST_CLANG}, or \
         set ROCFORGE_CLANG{}",
        list(rejected)
    )]
    NoCompiler {
        /// Why each installed candidate was rejected.
        rejected: Vec<Self>,
    },
    /// `ROCFORGE_CLANG` names a program that cannot be used.
    #[error("ROCFORGE_CLANG does not name a usable compiler")]
    NamedCompiler {
        /// The cause.
        source: Box<Self>,
    },
    /// The compiler cannot be started.
    #[error("cannot run {}", path.display())]
    Run {
        /// The compiler.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program is not clang, or is Apple's clang, which targets neither AMD nor NVIDIA.
    #[error("{} is not clang: its version is {version:?}", path.display())]
    NotClang {
        /// The program.
        path: PathBuf,
        /// The first line that it prints for `--version`.
        version: String,
    },
    /// A clang is too old.
    #[error("{} is clang {major}, but {OLDEST_CLANG} or newer is required", path.display())]
    OldClang {
        /// The compiler.
        path: PathBuf,
        /// Major version of the compiler.
        major: u32,
    },
    /// The compiler cannot build for a target that was selected by name.
    #[error("{compiler} does not build for {target}: {message}")]
    UnsupportedTarget {
        /// The compiler's version line.
        compiler: String,
        /// The name of the target.
        target: &'static str,
        /// The compiler's first error message.
        message: String,
    },
    /// A kernel source does not compile.
    #[error("kernels/{unit}.hip does not compile for {target}:\n{log}")]
    Compile {
        /// The name of the unit.
        unit: String,
        /// The name of the target.
        target: &'static str,
        /// The compiler's output.
        log: String,
    },
}

fn list(rejected: &[Error]) -> String {
    rejected.iter().fold(String::new(), |mut text, error| {
        write!(text, "; {error}").ok();
        text
    })
}
