//! The self-test of a GPU in child processes: a driver that crashes or hangs ends a group of cases
//! and not the test.
//!
//! One child runs the groups one after another and writes a line before and after each case
//! ([`answer`]). If it ends early or sends nothing for too long, the next child continues with the
//! group after that.

mod child;
mod message;
mod report;

use std::ops::ControlFlow;
use std::time::Instant;

pub use rf_hip::Context;
use rf_kernels::selftest::{CaseGroup, groups};

pub use child::answer;
use message::SelftestMessage;
pub use message::SelftestPlan;
pub use report::{CaseReport, GroupReport, SelftestReport, SpeedReport};

use crate::error::Error;
use crate::gpu::Gpu;
use crate::lines::{Lines, LinesEnd, opening_limit};
use crate::probe::Prober;

/// The progress of a self-test.
#[derive(Debug)]
#[non_exhaustive]
pub enum SelftestEvent<'a> {
    /// The GPU is open.
    Open,
    /// A case or a measurement of a group begins.
    Begin {
        /// The name of the group.
        group: &'a str,
        /// The name of the case.
        case: &'a str,
    },
    /// A group ended, or its child did.
    Group(&'a GroupReport),
    /// Nothing new; the caller may stop the test.
    Idle,
}

impl SelftestReport {
    /// Runs a self-test on a GPU and adds its results. `observe` sees every step, with the report
    /// so far, and may break the test off. Returns false then.
    ///
    /// # Errors
    ///
    /// If no child starts, or no child opens the GPU.
    pub fn run(
        &mut self,
        (prober, gpu): (&Prober, &Gpu),
        plan: &SelftestPlan,
        observe: &mut dyn FnMut(&Self, SelftestEvent<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let started = Instant::now();
        let names: Vec<String> = groups(&plan.filter).iter().map(CaseGroup::name).collect();
        while self.groups.len() < names.len() {
            let (text, skip) = (serde_json::to_string(plan)?, self.groups.len().to_string());
            let arguments = ["--selftest", &text, "--skip", &skip];
            let mut lines = Lines::<SelftestMessage>::start(prober, gpu, &arguments)?;
            let mut group = GroupReport::default();
            let (mut has_begun, mut limit) = (false, opening_limit(gpu));
            let end = loop {
                let stopped = &mut || observe(self, SelftestEvent::Idle).is_break();
                let message = match lines.next(limit, stopped) {
                    Ok(message) => message,
                    Err(end) => break end,
                };
                self.seconds = started.elapsed().as_secs_f64();
                match message {
                    SelftestMessage::Open { code, copy_bandwidth } => {
                        (self.code, self.copy_bandwidth) = (Some(code), copy_bandwidth);
                        if self.groups.is_empty() {
                            _ = observe(self, SelftestEvent::Open);
                        }
                    }
                    SelftestMessage::Group => {
                        (has_begun, limit) = (true, plan.case_limit);
                        let name = names.get(self.groups.len()).cloned().unwrap_or_default();
                        group = GroupReport { name, ..GroupReport::default() };
                    }
                    SelftestMessage::Begin(case) => {
                        self.running = Some(case);
                        let case = self.running.as_deref().unwrap_or_default();
                        _ = observe(self, SelftestEvent::Begin { group: &group.name, case });
                    }
                    SelftestMessage::Case(case) => group.cases.push(case),
                    SelftestMessage::Speed(speed) => group.speeds.push(speed),
                    SelftestMessage::End => {
                        has_begun = false;
                        self.add(std::mem::take(&mut group), observe);
                    }
                }
            };
            let problem = match end {
                LinesEnd::Stopped => return Ok(false),
                LinesEnd::Ended(_) if self.groups.len() == names.len() => break,
                LinesEnd::Ended(how) => format!("the process ended ({how})"),
                LinesEnd::Silent => {
                    format!("the driver hangs: no result within {} s", limit.as_secs())
                }
            };
            if has_begun {
                let case = self.running.take().unwrap_or_default();
                group.problem = Some(format!("{case}: {problem}"));
                self.add(group, observe);
            } else if !self.groups.last().is_some_and(GroupReport::loses_device) {
                return Err(Error::Probe(format!("{gpu} cannot be tested: {problem}")));
            }
        }
        self.seconds = started.elapsed().as_secs_f64();
        Ok(true)
    }

    fn add(
        &mut self,
        group: GroupReport,
        observe: &mut dyn FnMut(&Self, SelftestEvent<'_>) -> ControlFlow<()>,
    ) {
        self.running = None;
        self.groups.push(group);
        if let Some(group) = self.groups.last() {
            _ = observe(self, SelftestEvent::Group(group));
        }
    }
}
