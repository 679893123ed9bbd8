//! Copies and fills.

use rf_emu::{Hint, Ranges, View};

use super::Runtime;
use crate::Status;
use crate::ffi::host::HostRange;
use crate::journal::print;

/// One end of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CopyEnd {
    /// Memory of a device, or host memory by its device address.
    Device(u64),
    /// Memory of the program.
    Host(HostRange),
}

/// A copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) to: CopyEnd,
    pub(crate) from: CopyEnd,
    pub(crate) bytes: u64,
}

/// A fill with a repeated pattern.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    pub(crate) address: u64,
    pub(crate) pattern: [u8; 4],
    /// 1, 2 or 4.
    pub(crate) pattern_bytes: usize,
    pub(crate) count: u64,
}

impl Runtime {
    /// Returns true if the address is memory that this library allocated.
    pub(crate) fn is_known(&self, address: u64) -> bool {
        self.find(address, 1).is_ok()
    }

    /// The snapshot of the device whose memory has these bytes.
    fn find(&self, address: u64, bytes: u64) -> Result<Ranges, Status> {
        let mut reason = None;
        for device in &self.devices {
            let ranges = device.memory.ranges();
            match ranges.resolve(address, bytes, &mut Hint::default()) {
                Ok(_) => return Ok(ranges),
                Err(fault) => reason = reason.or(Some(fault)),
            }
        }
        if let Some(reason) = reason.filter(|_| bytes > 1) {
            print(&format!("a copy or fill is refused: {reason}"));
        }
        Err(Status::INVALID_VALUE)
    }

    /// Checks the device's ends of a copy.
    pub(super) fn check_transfer(&self, transfer: &Transfer) -> Result<(), Status> {
        for place in [transfer.to, transfer.from] {
            if let CopyEnd::Device(address) = place {
                self.find(address, transfer.bytes)?;
            }
        }
        Ok(())
    }

    /// Copies.
    pub(super) fn transfer(&self, transfer: &Transfer) -> Result<(), Status> {
        let bytes = transfer.bytes;
        match (transfer.to, transfer.from) {
            (CopyEnd::Device(to), CopyEnd::Device(from)) => {
                let (to_ranges, from_ranges) = (self.find(to, bytes)?, self.find(from, bytes)?);
                resolve(&to_ranges, to, bytes)?.copy_from(&resolve(&from_ranges, from, bytes)?);
            }
            (CopyEnd::Device(to), CopyEnd::Host(from)) => {
                resolve(&self.find(to, bytes)?, to, bytes)?.write(0, from.bytes());
            }
            (CopyEnd::Host(to), CopyEnd::Device(from)) => {
                to.with_bytes(|to| {
                    resolve(&self.find(from, bytes)?, from, bytes)?.read(0, to);
                    Ok::<(), Status>(())
                })?;
            }
            (CopyEnd::Host(to), CopyEnd::Host(from)) => {
                let bytes = from.bytes().to_vec();
                to.with_bytes(|to| to.copy_from_slice(&bytes));
            }
        }
        Ok(())
    }

    /// Checks the memory of a fill.
    pub(super) fn check_fill(&self, fill: &Fill) -> Result<(), Status> {
        self.find(fill.address, fill.bytes()?).map(drop)
    }

    /// Fills.
    pub(super) fn fill(&self, fill: &Fill) -> Result<(), Status> {
        const CHUNK_BYTES: u64 = 64 << 10;

        let bytes = fill.bytes()?;
        let pattern = &fill.pattern[..fill.pattern_bytes];
        let chunk = pattern.repeat((CHUNK_BYTES.min(bytes) as usize).div_ceil(pattern.len()));
        let ranges = self.find(fill.address, bytes)?;
        let view = resolve(&ranges, fill.address, bytes)?;
        let mut at = 0;
        while at < bytes {
            let count = (bytes - at).min(CHUNK_BYTES);
            view.write(at as usize, &chunk[..count as usize]);
            at += count;
        }
        Ok(())
    }
}

impl Fill {
    fn bytes(&self) -> Result<u64, Status> {
        self.count.checked_mul(self.pattern_bytes as u64).ok_or(Status::INVALID_VALUE)
    }
}

fn resolve(ranges: &Ranges, address: u64, bytes: u64) -> Result<View<'_>, Status> {
    let view = ranges.resolve(address, bytes, &mut Hint::default());
    view.map_err(|_| Status::INVALID_VALUE)
}
