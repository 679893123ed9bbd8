//! One allocation: its place, its words and the shadow of initialised bytes.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The use of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AllocationKind {
    /// Memory of the device.
    Device,
    /// Memory of the host that the device can access.
    Host,
    /// Instructions and constants of a code object.
    Code,
    /// Variables of a code object.
    Variables,
    /// The arguments of a launch.
    Arguments,
}

impl AllocationKind {
    /// Returns true if kernels may write it.
    pub fn is_writable(self) -> bool {
        matches!(self, Self::Device | Self::Host | Self::Variables)
    }

    /// Returns true if it counts toward the device's capacity.
    pub(super) fn is_device_memory(self) -> bool {
        matches!(self, Self::Device | Self::Code | Self::Variables)
    }
}

impl fmt::Display for AllocationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device allocation",
            Self::Host => "host allocation",
            Self::Code => "code",
            Self::Variables => "variables",
            Self::Arguments => "kernel arguments",
        })
    }
}

/// The place of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationRange {
    /// The position in the order of allocation, from 0.
    pub id: u32,
    /// The use.
    pub kind: AllocationKind,
    /// The first address.
    pub base: u64,
    /// The size in bytes.
    pub bytes: u64,
}

impl AllocationRange {
    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.base + self.bytes
    }
}

impl fmt::Display for AllocationRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, kind, base, bytes } = self;
        write!(f, "{kind} {id} ({bytes} bytes at {base:#x})")
    }
}

/// The words whose bytes have their bits in one element of the shadow.
const WORDS_PER_SHADOW: usize = 16;

/// Memory of a device or of the host, in 32-bit words.
#[derive(Debug)]
pub struct Allocation {
    range: AllocationRange,
    words: Box<[AtomicU32]>,
    /// The first word in use: host memory is aligned to a page.
    skipped: usize,
    /// A bit per written byte; absent if everything counts as written.
    shadow: Option<Box<[AtomicU64]>>,
}

impl Allocation {
    /// Reserves the bytes; `None` if the host has too little memory. Host memory is at the address
    /// of its bytes instead of `base`.
    pub(super) fn new(
        id: u32,
        kind: AllocationKind,
        base: u64,
        bytes: u64,
        tracked: bool,
    ) -> Option<Self> {
        const PAGE_WORDS: usize = 1024;

        let words = usize::try_from(bytes.div_ceil(4)).ok()?;
        let is_host = kind == AllocationKind::Host;
        let padding = if is_host { PAGE_WORDS } else { 0 };
        // Zeroed by the system, so pages that are never touched cost nothing.
        let storage: Box<[AtomicU32]> =
            bytemuck::try_zeroed_slice_box(words.checked_add(padding)?).ok()?;
        let shadow = if tracked {
            Some(bytemuck::try_zeroed_slice_box(words.div_ceil(WORDS_PER_SHADOW)).ok()?)
        } else {
            None
        };
        let skipped = if is_host { storage.as_ptr().align_offset(PAGE_WORDS * 4) } else { 0 };
        let mut allocation = Self {
            range: AllocationRange { id, kind, base, bytes },
            words: storage,
            skipped: skipped.min(padding),
            shadow,
        };
        if is_host {
            allocation.range.base = allocation.host_address() as u64;
        }
        Some(allocation)
    }

    /// The place.
    pub fn range(&self) -> AllocationRange {
        self.range
    }

    /// The use.
    pub fn kind(&self) -> AllocationKind {
        self.range.kind
    }

    /// The first address.
    pub fn base(&self) -> u64 {
        self.range.base
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.range.bytes
    }

    /// The bytes in this process. They must be accessed atomically while kernels use them.
    pub fn host_address(&self) -> *const u8 {
        self.words().as_ptr().cast()
    }

    pub(super) fn words(&self) -> &[AtomicU32] {
        &self.words[self.skipped..]
    }

    pub(super) fn shadow(&self) -> Option<&[AtomicU64]> {
        self.shadow.as_deref()
    }
}
