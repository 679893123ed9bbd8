//! `cargo xtask bench`: measures, compares, reports.
//!
//! Without the feature `bench` there is only the command line here: the command builds this crate in release
//! with the feature, and becomes that program.

mod options;
mod suite;

#[cfg(not(feature = "bench"))]
mod relaunch;

#[cfg(feature = "bench")]
mod baselines;
#[cfg(feature = "bench")]
mod feeding;
#[cfg(feature = "bench")]
mod first_token;
#[cfg(feature = "bench")]
mod html;
#[cfg(feature = "bench")]
mod inference;
#[cfg(feature = "bench")]
mod interrupt;
#[cfg(feature = "bench")]
mod limits;
#[cfg(feature = "bench")]
mod machine;
#[cfg(feature = "bench")]
mod model;
#[cfg(feature = "bench")]
mod output;
#[cfg(feature = "bench")]
mod peer;
#[cfg(feature = "bench")]
mod plan;
#[cfg(feature = "bench")]
mod results;
#[cfg(feature = "bench")]
mod rounds;
#[cfg(feature = "bench")]
mod sampling;
#[cfg(feature = "bench")]
mod session;
#[cfg(feature = "bench")]
mod table;
#[cfg(feature = "bench")]
mod targets;
#[cfg(feature = "bench")]
mod timers;

use std::{path::Path, process::ExitCode};

use anyhow::Result;

pub(crate) use options::Options;

/// Measures what `options` ask for. Exit codes stand in the help.
#[cfg(feature = "bench")]
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if options.peer.peer_self {
        return peer::run_self(root, options);
    }
    if options.peer.peer.is_some() {
        return peer::run(root, options);
    }
    session::run(root, options)
}

/// Has the program that was built to measure do it.
#[cfg(not(feature = "bench"))]
pub(crate) fn run(root: &Path, _options: &Options) -> Result<ExitCode> {
    relaunch::run(root)
}
