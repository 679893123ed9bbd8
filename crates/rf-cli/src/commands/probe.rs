//! `rf-cli probe`: the hidden command of the child process that examines a driver.

use std::io;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use rf_device::probe::{self, Platform, Prober};

use crate::device;

/// Arguments of `rf-cli probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    platform: PlatformName,
    /// Run kernels on this GPU instead of listing all
    ordinal: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlatformName {
    Amd,
    Nvidia,
}

/// Runs `rf-cli probe`.
pub(crate) fn probe(arguments: &ProbeArgs) -> Result<()> {
    let platform = match arguments.platform {
        PlatformName::Amd => Platform::Amd,
        PlatformName::Nvidia => Platform::Nvidia,
    };
    Ok(probe::answer(platform, arguments.ordinal, io::stdout().lock())?)
}

/// Starts children that run `rf-cli probe`.
pub(crate) fn prober() -> Result<&'static Prober> {
    device::prober().context("this program does not know its own file")
}
