//! The work of the child process: runs groups of cases and writes a line before and after each.

use std::io::{self, Write};
use std::iter;
use std::time::Instant;

use rf_hip::{Context, Platform, Runtime};
use rf_kernels::selftest::{CaseGroup, groups, speed, with_wide_tiles};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_oracle::case::{Case, CaseShape};
use rf_oracle::conformance::{CaseOutcome, Mismatch, check};

use super::message::{SelftestMessage, SelftestPlan};
use super::report::{CaseReport, SpeedReport};
use crate::error::sentence;
use crate::lines::write_line;

/// Runs the groups of a plan but the first `skip` on the GPU with that ordinal. `bandwidth`
/// measures the copies within its memory.
///
/// # Errors
///
/// If the GPU cannot be opened, or writing fails.
pub fn answer(
    (platform, ordinal): (Platform, usize),
    plan: &SelftestPlan,
    skip: usize,
    bandwidth: impl FnOnce(&Context) -> Option<f64>,
    out: impl Write,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let runtime = Runtime::load_platform(platform)?;
    let options = GpuOptions::default().with_ordinal(ordinal);
    let backend = GpuBackend::on(&runtime, options)?;
    let mut out = Lines { out };
    let copy_bandwidth =
        if plan.times { bandwidth(&runtime.device(ordinal)?.context()?) } else { None };
    out.write(&SelftestMessage::Open { code: backend.code().to_string(), copy_bandwidth })?;
    for group in groups(&plan.filter).into_iter().skip(skip) {
        if !out.run(&group, plan, &backend)? {
            break;
        }
    }
    Ok(())
}

/// Writes messages.
struct Lines<W> {
    out: W,
}

impl<W: Write> Lines<W> {
    fn write(&mut self, message: &SelftestMessage) -> io::Result<()> {
        write_line(&mut self.out, message)
    }

    /// Runs a group. Returns false if the device may be lost.
    fn run(
        &mut self,
        group: &CaseGroup,
        plan: &SelftestPlan,
        backend: &GpuBackend,
    ) -> io::Result<bool> {
        self.write(&SelftestMessage::Group)?;
        let mut is_supported = false;
        for case in group.cases(plan.cases_per_group.unwrap_or(usize::MAX)) {
            let wide = with_wide_tiles(backend, case);
            let wide = wide.iter().map(|wide| (format!("{}/wide-tiles", case.name()), wide));
            for (name, backend) in iter::once((case.name().to_owned(), backend)).chain(wide) {
                self.write(&SelftestMessage::Begin(name.clone()))?;
                let report = run(backend, case, name);
                is_supported |= report.skipped.is_none();
                self.write(&SelftestMessage::Case(report.clone()))?;
                if report.is_device_lost {
                    self.write(&SelftestMessage::End)?;
                    return Ok(false);
                }
            }
        }
        for case in group.speeds().iter().filter(|_| plan.times && is_supported) {
            self.write(&SelftestMessage::Begin(what(case)))?;
            self.write(&SelftestMessage::Speed(measure(backend, case)))?;
        }
        self.write(&SelftestMessage::End)?;
        Ok(true)
    }
}

fn run(backend: &GpuBackend, case: &Case, name: String) -> CaseReport {
    let started = Instant::now();
    let outcome = check(backend, case);
    let mut report = CaseReport {
        name,
        allowed_nmse: case.bound().nmse(),
        seconds: started.elapsed().as_secs_f64(),
        ..CaseReport::default()
    };
    match outcome {
        Ok(CaseOutcome::Passed { deviation, bound, .. }) => {
            report.allowed_nmse = bound.nmse();
            (report.nmse, report.peak) = (Some(deviation.nmse), Some(deviation.peak));
        }
        Ok(CaseOutcome::Skipped(why)) => report.skipped = Some(why),
        Ok(_) => report.skipped = Some("it did not run".to_owned()),
        Err(error) => {
            report.failure = Some(sentence(&error));
            match error {
                Mismatch::Deviates { deviation, bound, .. } => {
                    report.allowed_nmse = bound.nmse();
                    (report.nmse, report.peak) = (Some(deviation.nmse), Some(deviation.peak));
                }
                Mismatch::Failed { source, .. } => {
                    report.is_device_lost = source.is_of_device();
                }
                _ => {}
            }
        }
    }
    report
}

fn measure(backend: &GpuBackend, case: &Case) -> SpeedReport {
    let what = what(case);
    match speed(backend, case) {
        Ok(speed) => {
            let mut report =
                SpeedReport { what, us: Some(speed.seconds * 1e6), ..SpeedReport::default() };
            match (case.shape(), case.timed_batch().tokens()) {
                // Latency alone bounds an op on one row.
                (CaseShape::Row { .. }, _) => {}
                (_, 1) => report.bytes_per_s = Some(speed.bytes_per_second()),
                _ => report.operations_per_s = Some(speed.operations_per_second()),
            }
            report
        }
        Err(error) => {
            SpeedReport { what, failure: Some(sentence(&error)), ..SpeedReport::default() }
        }
    }
}

/// The work that is timed: `512 tokens, 4096 x 4096`.
fn what(case: &Case) -> String {
    let batch = case.timed_batch();
    let tokens = match batch.tokens() {
        1 => "1 token".to_owned(),
        tokens => format!("{tokens} tokens"),
    };
    match case.shape() {
        CaseShape::Matrix { rows, columns } => format!("{tokens}, {rows} x {columns}"),
        CaseShape::Row { columns } => format!("{tokens} of {columns}"),
        _ => format!("{tokens} at depth {}", batch.past_tokens()),
    }
}
