//! `rf-cli probe`: the hidden command of the child processes that examine drivers, test
//! kernels and measure them.

use std::io;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use rf_profile::roofline::MachineLimits;
use rocmforge::device::probe::{self, Platform, Prober};
use rocmforge::device::{selftest, tuning};

use crate::{device, terminal};

/// Arguments of `rf-cli probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    platform: PlatformName,
    /// Run kernels on this GPU instead of listing all
    ordinal: Option<usize>,
    /// Run this self-test, a plan in JSON
    #[arg(long, requires = "ordinal")]
    selftest: Option<String>,
    /// Make these measurements, a plan in JSON
    #[arg(long, requires = "ordinal", conflicts_with = "selftest")]
    tune: Option<String>,
    /// Skip the first N groups of the self-test, or trials
    #[arg(long, default_value_t = 0)]
    skip: usize,
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
    if let (Some(plan), Some(ordinal)) = (&arguments.tune, arguments.ordinal) {
        let (plan, out) = (serde_json::from_str(plan)?, io::stdout().lock());
        return tuning::answer((platform, ordinal), &plan, arguments.skip, out)
            .map_err(|error| anyhow::anyhow!(error));
    }
    let (Some(plan), Some(ordinal)) = (&arguments.selftest, arguments.ordinal) else {
        return Ok(probe::answer(platform, arguments.ordinal, io::stdout().lock())?);
    };
    let plan = serde_json::from_str(plan)?;
    // The bandwidth that speeds are compared with.
    let bandwidth = |context: &_| match MachineLimits::measure_device(context) {
        Ok(limits) => limits.bandwidth_bytes_per_s,
        Err(error) => {
            terminal::warn(format_args!("the bandwidth of copies is not known: {error}"));
            None
        }
    };
    let out = io::stdout().lock();
    selftest::answer((platform, ordinal), &plan, arguments.skip, bandwidth, out)
        .map_err(|error| anyhow::anyhow!(error))
}

/// Starts children that run `rf-cli probe`.
pub(crate) fn prober() -> Result<&'static Prober> {
    device::prober().context("cannot find this program's own file")
}
