//! `rf-cli doctor`: checks whether GPUs can be used, with a cure for each problem.

mod check;
mod checks;
mod machine;
mod overrides;
mod system;
mod windows;

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use rocmforge::device::probe::{self, DeviceReport, PlatformReport};
use rocmforge::device::tuning;

use self::check::{Check, Level};
use self::system::System;
use super::probe::prober;
use crate::terminal::Palette;

/// Arguments of `rf-cli doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examines drivers in a child process with a time limit. Then runs two kernels on every usable GPU, and compares \
their results with those of the CPU. `rf-cli selftest` runs all kernels.

Exit codes: 0 a GPU is usable, 1 no GPU is usable.")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `rf-cli doctor`.
pub(crate) fn doctor(arguments: &DoctorArgs) -> Result<()> {
    let system = System::read(Path::new("/"));
    let prober = prober()?;
    let mut reports = prober.survey()?;
    let mut tried = Vec::new();
    for device in reports.iter_mut().flat_map(|report| &mut report.devices) {
        // Compiling kernels takes minutes, which is too long for a check.
        if device.usable && device.code_kind.as_deref() != Some("run-time") {
            let verdict = prober.run_kernels(device);
            device.usable = verdict.is_ok();
            tried.push((device.number, verdict.map_err(|error| error.to_string())));
        }
    }
    let is_broken = |report: &PlatformReport| report.is_broken && report.platform == "AMD";
    let alone = if reports.iter().any(is_broken) { prober.visible_alone() } else { Vec::new() };
    let mut checks = checks::all(&system, &reports, &tried, &alone);
    let usable = reports.iter().flat_map(|report| &report.devices).filter(|device| device.usable);
    checks.extend(usable.map(tuning));
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&checks)?)?;
    } else {
        checks.iter().try_for_each(|check| write_check(&mut out, check))?;
    }
    let Some(best) = probe::best(&reports) else {
        bail!("no GPU is usable, so everything runs on the CPU");
    };
    if !arguments.json {
        writeln!(out, "`rf-cli run` uses GPU {}, {}", best.number, best.name)?;
    }
    Ok(())
}

/// Returns the number of tuned launches of a GPU, or how to tune it.
fn tuning(device: &DeviceReport) -> Check {
    let gpu = format!("GPU {}, {}", device.number, device.name.escape_debug());
    match tuning::tables(device) {
        [_, Some(table)] => {
            let tuned = table.choices.iter().filter(|choice| choice.value.is_some()).count();
            let measured = table.choices.len();
            Check::ok(format!(
                "{tuned} of {measured} measured launches of {gpu} differ from the defaults"
            ))
        }
        [Some(table), None] => Check::ok(format!(
            "{} launches of {gpu} were tuned on another card of its kind: `rf-cli tune -m MODEL` \
             finds more, if there are any",
            table.choices.len()
        )),
        [None, None] => Check::ok(format!(
            "{gpu} is not tuned: `rf-cli tune -m MODEL` finds faster launches, if there are any"
        )),
    }
}

fn write_check(out: &mut impl Write, check: &Check) -> io::Result<()> {
    let palette = Palette::stdout();
    let mark = match check.level {
        Level::Ok => palette.dim("ok  "),
        Level::Warn => palette.yellow("warn"),
        Level::Fail => palette.red("fail"),
    };
    writeln!(out, "{mark}  {}", check.what)?;
    if let Some(cure) = &check.cure {
        writeln!(out, "      {} {cure}", palette.bold("->"))?;
    }
    Ok(())
}
