//! Checks that a launch is possible.

use super::dispatch::Launch;
use super::program::Program;
use super::slot::NO_SLOT;
use crate::fault::{Fault, FaultKind};
use crate::isa::ProcessorFamily;
use crate::{AllocationKind, Grid, Hint, Ranges};

/// The LDS that a workgroup can have.
const MAX_LDS_BYTES: u32 = 64 << 10;
/// The scratch memory that a thread can have up to RDNA 3 and on RDNA 4.
const MAX_SCRATCH_BYTES: [u32; 2] = [256 << 10, 2 << 20];

impl Program {
    /// Checks a launch before anything runs.
    pub(super) fn check_launch(&self, launch: &Launch, ranges: &Ranges) -> Result<(), Fault> {
        let Grid { workgroups, workgroup_size, dynamic_lds_bytes } = launch.grid;
        let refuse = |reason: String| Err(self.fault(FaultKind::Launch(reason)));
        let size = workgroup_size.iter().try_fold(1u32, |size, &side| size.checked_mul(side));
        let kernel = &self.kernel;
        match size {
            None | Some(0) => return refuse("a workgroup has no threads".to_owned()),
            Some(size) if size > kernel.max_workgroup_size || size > 1024 => {
                let most = kernel.max_workgroup_size;
                return refuse(format!("{size} threads in a workgroup, the kernel allows {most}"));
            }
            _ => {}
        }
        if let Some(required) = kernel.required_workgroup_size
            && required != workgroup_size
        {
            return refuse(format!(
                "workgroups of {workgroup_size:?} threads, the kernel requires {required:?}"
            ));
        }
        if workgroups.contains(&0) {
            return refuse("the grid is empty".to_owned());
        }
        let count = workgroups.iter().try_fold(1u32, |count, &side| count.checked_mul(side));
        if count.is_none() {
            return refuse(format!("a grid of {workgroups:?} workgroups"));
        }
        let lds_bytes = u64::from(kernel.lds_bytes) + u64::from(dynamic_lds_bytes);
        if lds_bytes > MAX_LDS_BYTES.into() {
            return refuse(format!("{lds_bytes} bytes of LDS, a workgroup has {MAX_LDS_BYTES}"));
        }
        if self.entry == NO_SLOT {
            return refuse("the kernel has no code".to_owned());
        }
        let most = MAX_SCRATCH_BYTES[usize::from(self.arch.family() == ProcessorFamily::Rdna4)];
        if kernel.scratch_bytes > most {
            let bytes = kernel.scratch_bytes;
            return refuse(format!("{bytes} bytes of scratch memory, a thread has {most}"));
        }
        self.check_arguments(launch, ranges).map_err(|kind| self.fault(kind))
    }

    /// Checks the size of the arguments, and those that the launch determines.
    fn check_arguments(&self, launch: &Launch, ranges: &Ranges) -> Result<(), FaultKind> {
        let needed = self.kernel.kernarg_bytes;
        if needed == 0 {
            return Ok(());
        }
        let address = launch.arguments;
        let first = ranges.resolve(address, 1, &mut Hint::default())?;
        let allocation = first.allocation();
        let passed = allocation.bytes() - first.offset() as u64;
        let is_exact = allocation.kind() == AllocationKind::Arguments;
        if passed < needed.into() || is_exact && passed > needed.into() {
            let reason = format!("{passed} bytes at {address:#x}, the kernel takes {needed}");
            return Err(FaultKind::Arguments { reason });
        }
        let view = ranges.resolve(address, needed.into(), &mut Hint::default())?;
        let hidden = self.kernel.check_hidden(&launch.grid, |at| view.load_u8(at));
        hidden.map_err(|reason| FaultKind::Arguments { reason })
    }
}
