//! The kernel descriptor: 64 bytes from which the hardware starts a kernel.
//!
//! The layout is in LLVM's user guide for the AMDGPU backend under "Kernel Descriptor".

/// The size of a descriptor.
pub(super) const BYTES: usize = 64;

/// The fields of a descriptor that decide how a wave starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) lds_bytes: u32,
    pub(super) scratch_bytes: u32,
    pub(super) kernarg_bytes: u32,
    /// Offset of the first instruction from the descriptor.
    pub(super) entry_offset: i64,
    rsrc1: u32,
    rsrc2: u32,
    properties: u16,
    preload: u16,
}

impl Descriptor {
    pub(super) fn read(bytes: &[u8; BYTES]) -> Self {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        Self {
            lds_bytes: u32_at(0),
            scratch_bytes: u32_at(4),
            kernarg_bytes: u32_at(8),
            entry_offset: (u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32) as i64,
            rsrc1: u32_at(48),
            rsrc2: u32_at(52),
            properties: u16_at(56),
            preload: u16_at(58),
        }
    }

    /// Bits 12 to 19 of `COMPUTE_PGM_RSRC1`, the initial value of `MODE` bits 0 to 7: rounding of
    /// f32, rounding of f16 and f64, denormals of f32, denormals of f16 and f64 (2 bits each).
    pub(super) fn float_mode(&self) -> u8 {
        (self.rsrc1 >> 12) as u8
    }

    /// Bit `bit` of `COMPUTE_PGM_RSRC1`.
    pub(super) fn rsrc1_bit(&self, bit: u32) -> bool {
        self.rsrc1 >> bit & 1 != 0
    }

    /// Bit `bit` of `COMPUTE_PGM_RSRC2`.
    pub(super) fn rsrc2_bit(&self, bit: u32) -> bool {
        self.rsrc2 >> bit & 1 != 0
    }

    pub(super) fn user_sgprs(&self) -> u32 {
        self.rsrc2 >> 1 & 0x1f
    }

    /// The number of dimensions of the thread id in vector registers.
    pub(super) fn thread_id_dimensions(&self) -> u32 {
        (self.rsrc2 >> 11 & 3) + 1
    }

    /// Bit `bit` of the kernel code properties.
    pub(super) fn property(&self, bit: u32) -> bool {
        self.properties >> bit & 1 != 0
    }

    /// The number of argument dwords that the hardware loads into user registers.
    pub(super) fn preloaded_dwords(&self) -> u32 {
        u32::from(self.preload & 0x7f)
    }
}
