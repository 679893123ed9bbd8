//! `rf-cli doctor`: whether GPUs can be used here, and what to do where not.

mod checks;
mod overrides;
mod system;

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use self::system::System;
use crate::device::probe;
use crate::terminal::Palette;

/// Arguments of `rf-cli doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Drivers are asked from a process of their own, with a limit of time, and every usable GPU runs two kernels whose \
results are compared with the CPU's. `rf-cli selftest` runs all of them.

Exit codes: 0 a GPU is usable, 1 none is.")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    level: Level,
    /// What was found.
    what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warn,
    Fail,
}

impl Check {
    fn ok(what: impl Into<String>) -> Self {
        Self { level: Level::Ok, what: what.into(), cure: None }
    }

    fn warn(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Warn, what: what.into(), cure: Some(cure.into()) }
    }

    fn fail(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Fail, what: what.into(), cure: Some(cure.into()) }
    }

    /// Not a failure, as it is in nobody's way.
    fn at_most_warn(mut self) -> Self {
        if self.level == Level::Fail {
            self.level = Level::Warn;
        }
        self
    }
}

/// Runs `rf-cli doctor`.
pub(crate) fn doctor(arguments: &DoctorArgs) -> Result<()> {
    let system = System::look(Path::new("/"));
    let mut reports = probe::survey()?;
    let mut tried = Vec::new();
    for device in reports.iter_mut().flat_map(|report| &mut report.devices) {
        // Compiling kernels on first use takes minutes, and is no affair of a check.
        if device.usable && device.code_kind.as_deref() != Some("run-time") {
            let verdict = probe::try_out(device);
            device.usable = verdict.is_ok();
            tried.push((device.number, verdict.map_err(|error| format!("{error:#}"))));
        }
    }
    let checks = checks::all(&system, &reports, &tried);
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
        writeln!(out, "GPU {}, {}, is what `rf-cli run` takes", best.number, best.name)?;
    }
    Ok(())
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
