//! Launches of kernels.

use std::fmt::Display;
use std::path::Path;
use std::{fs, io};

use rf_emu::cost::CostProfile;
use rf_emu::{FaultKind, Grid, Memory, Options, Program};

use super::{EmulatedDevice, Runtime};
use crate::Status;
use crate::device::{LDS_BYTES, MAX_THREADS, Properties};
use crate::faults::KernelFault;
use crate::journal::print;
use crate::settings::Settings;

/// A launch of a kernel.
#[derive(Debug, Clone)]
pub(crate) struct KernelLaunch {
    pub(crate) function: u64,
    pub(crate) grid: Grid,
    /// The explicit arguments.
    pub(crate) arguments: Vec<u8>,
}

/// Runs kernels with the settings of the environment.
#[derive(Debug)]
pub(super) struct Executor {
    options: Options,
    /// The costs of the launches; empty unless they are counted.
    profile: CostProfile,
}

impl Executor {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut options = Options::default();
        options.checks = settings.checks;
        options.seed = settings.seed;
        options.threads = settings.threads;
        options.count_each = settings.counters.is_some();
        Self { options, profile: CostProfile::default() }
    }

    pub(super) fn tracks_initialised(&self) -> bool {
        self.options.checks.uninitialised
    }

    /// Runs a kernel to its end.
    fn run(
        &mut self,
        memory: &Memory,
        properties: &Properties,
        program: &Program,
        launch: &KernelLaunch,
    ) -> Result<(), Status> {
        let mut options = self.options;
        options.resident_workgroups = properties.all_resident(program.kernel(), &launch.grid);
        let segment = program.kernel().kernarg_segment(&launch.arguments, &launch.grid);
        let arguments = segment
            .and_then(|segment| memory.allocate_arguments(&segment))
            .map_err(|error| failed(&error, Status::LAUNCH_FAILURE))?;
        let place = rf_emu::Launch { grid: launch.grid, arguments };
        let outcome = program.run(memory, &place, &options);
        memory.free(arguments).map_err(|error| failed(&error, Status::UNKNOWN))?;
        let counters = outcome.map_err(|fault| {
            let status = match *fault.kind {
                FaultKind::Access(_)
                | FaultKind::LdsBounds { .. }
                | FaultKind::ScratchBounds { .. } => Status::ILLEGAL_ADDRESS,
                _ => Status::LAUNCH_FAILURE,
            };
            failed(&fault, status)
        })?;
        if self.options.count_each {
            self.profile.add(program, &launch.grid, &counters);
        }
        Ok(())
    }
}

/// Writes the costs of kernels.
fn write(folder: &Path, profile: &CostProfile) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let listing: Vec<_> = profile.kernels().map(|kernel| kernel.listing().to_string()).collect();
    fs::write(folder.join("costs.toml"), profile.to_toml())?;
    fs::write(folder.join("listing.txt"), listing.join("\n"))?;
    fs::write(folder.join("stacks.txt"), profile.stacks().to_string())?;
    fs::write(folder.join("costs.html"), profile.page().to_string())
}

/// Prints why a kernel failed.
fn failed(error: &dyn Display, status: Status) -> Status {
    print(&error.to_string());
    status
}

impl Runtime {
    /// Writes what the kernels cost if the environment asks for it.
    pub(crate) fn write_costs(&self) {
        let Some(folder) = &self.settings.counters else { return };
        if let Err(error) = write(folder, &self.executor.profile) {
            print(&format!("ROCFORGE_EMU_COUNTERS: {}: {error}", folder.display()));
        }
    }

    /// Returns true if launches are counted.
    pub(crate) fn counts_costs(&self) -> bool {
        self.settings.counters.is_some()
    }

    /// Checks the shape of a launch against the device and the kernel.
    pub(crate) fn check_launch(&self, launch: &KernelLaunch) -> Result<(), Status> {
        let kernel = &self.function(launch.function)?.kernel;
        let Grid { workgroups, workgroup_size, dynamic_lds_bytes } = launch.grid;
        let threads: u64 = workgroup_size.iter().map(|&size| u64::from(size)).product();
        let refuse = |reason: String, status| {
            print(&format!("a launch of {} is refused: {reason}", kernel.name));
            Err(status)
        };
        let too_wide = (0..3).any(|dimension| {
            u64::from(workgroups[dimension]) * u64::from(workgroup_size[dimension])
                > u32::MAX.into()
        });
        if threads == 0 || workgroups.contains(&0) || too_wide || threads > MAX_THREADS.into() {
            let reason = format!("{workgroups:?} workgroups of {workgroup_size:?} threads");
            return refuse(reason, Status::INVALID_CONFIGURATION);
        }
        if threads > kernel.max_workgroup_size.into() {
            let most = kernel.max_workgroup_size;
            let reason = format!("{threads} threads per workgroup, compiled for at most {most}");
            return refuse(reason, Status::INVALID_CONFIGURATION);
        }
        if kernel.required_workgroup_size.is_some_and(|size| size != workgroup_size) {
            let reason = format!("{workgroup_size:?} threads per workgroup, compiled for others");
            return refuse(reason, Status::INVALID_CONFIGURATION);
        }
        let lds_bytes = u64::from(kernel.lds_bytes) + u64::from(dynamic_lds_bytes);
        if lds_bytes > LDS_BYTES.into() {
            let reason = format!("{lds_bytes} bytes of LDS, at most {LDS_BYTES}");
            return refuse(reason, Status::LAUNCH_OUT_OF_RESOURCES);
        }
        Ok(())
    }

    /// Runs a kernel to its end. Its failure loses the device and is reported by the next call that
    /// waits, as on a GPU.
    pub(super) fn run_kernel(&mut self, launch: &KernelLaunch) -> Result<(), Status> {
        let function = self.functions.get_mut(&launch.function).ok_or(Status::INVALID_HANDLE)?;
        let device = function.device;
        match self.faults.next_kernel(&function.kernel.name) {
            Some(KernelFault::Failure(status)) => {
                self.lose(device, status);
                return Ok(());
            }
            Some(KernelFault::Skipped) => return Ok(()),
            None => {}
        }
        let outcome = function.program().and_then(|program| {
            let EmulatedDevice { memory, properties, .. } = &self.devices[device];
            self.executor.run(memory, properties, program, launch)
        });
        if let Err(status) = outcome {
            self.lose(device, status);
        }
        Ok(())
    }
}
