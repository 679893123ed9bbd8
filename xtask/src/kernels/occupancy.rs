//! Occupancy: the number of waves of a kernel that fit on a SIMD.
//!
//! The limits are those of LLVM 19 (`AMDGPUBaseInfo.cpp`, `AMDGPUSubtarget.cpp`). The tests compare
//! with the output of clang's `-Rpass-analysis=kernel-resource-usage`.

use rf_emu::KernelMetadata;

/// The resources of a SIMD and its compute unit.
struct Limits {
    /// Vector registers per lane of a SIMD, for waves of the target's size.
    vgprs: u32,
    /// The allocation granularity of registers.
    granule: u32,
    waves: u32,
    /// LDS shared by `simds` SIMDs.
    lds_bytes: u32,
    simds: u32,
}

const KIB: u32 = 1024;

/// The waves per SIMD that registers and LDS allow. `dynamic_lds_bytes` is added to the LDS that
/// the kernel declares.
pub(super) fn waves_per_simd(target: &str, kernel: &KernelMetadata, dynamic_lds_bytes: u32) -> u32 {
    let limits = Limits::of(target, kernel.workgroup_processor_mode);
    let by_registers = limits.vgprs / kernel.vgprs.max(1).next_multiple_of(limits.granule);
    let by_lds = match kernel.lds_bytes + dynamic_lds_bytes {
        0 => limits.waves,
        bytes => {
            let waves = kernel.max_workgroup_size.div_ceil(kernel.wave_size.max(1));
            (limits.lds_bytes / bytes * waves).div_ceil(limits.simds)
        }
    };
    by_registers.min(by_lds).clamp(1, limits.waves)
}

impl Limits {
    fn of(target: &str, wgp_mode: bool) -> Self {
        let name = target.strip_prefix("gfx").unwrap_or(target);
        if name.starts_with('9') {
            let (vgprs, granule, waves) =
                if matches!(name, "90a" | "942") { (512, 8, 8) } else { (256, 4, 10) };
            return Self { vgprs, granule, waves, lds_bytes: 64 * KIB, simds: 4 };
        }
        // The large register files of the big RDNA 3 chips, of gfx1151 and of RDNA 4.
        let large = matches!(name, "1100" | "1101" | "1151") || name.starts_with("12");
        let (vgprs, granule) = if large { (1536, 24) } else { (1024, 16) };
        let units = if wgp_mode { 2 } else { 1 };
        Self { vgprs, granule, waves: 16, lds_bytes: units * 64 * KIB, simds: units * 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(vgprs: u32, lds_bytes: u32, workgroup: u32, wave: u32) -> KernelMetadata {
        let mut kernel = KernelMetadata::default();
        (kernel.vgprs, kernel.lds_bytes) = (vgprs, lds_bytes);
        (kernel.max_workgroup_size, kernel.wave_size) = (workgroup, wave);
        kernel.workgroup_processor_mode = true;
        kernel
    }

    /// Compares with clang 19.1.7 for kernels with these numbers of registers and workgroups of
    /// 256.
    #[test]
    fn register_limits_match_clang() {
        const VGPRS: [u32; 13] = [24, 25, 48, 49, 64, 65, 72, 96, 97, 128, 169, 192, 256];
        let small = [16, 16, 16, 16, 16, 12, 12, 10, 9, 8, 5, 5, 4];
        let large = [16, 16, 16, 16, 16, 16, 16, 16, 12, 10, 8, 8, 5];
        let cdna = [8, 8, 8, 8, 8, 7, 7, 5, 4, 4, 2, 2, 2];
        let vega = [10, 9, 5, 4, 4, 3, 3, 2, 2, 2, 1, 1, 1];
        for (targets, expected) in [
            (
                &["gfx1030", "gfx1102", "gfx1103", "gfx1150", "gfx10-3-generic", "gfx11-generic"][..],
                small,
            ),
            (&["gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201", "gfx12-generic"], large),
            (&["gfx90a", "gfx942"], cdna),
            (&["gfx9-generic"], vega),
        ] {
            for target in targets {
                let wave = if target.starts_with("gfx9") { 64 } else { 32 };
                let waves = VGPRS.map(|n| waves_per_simd(target, &kernel(n, 0, 256, wave), 0));
                assert_eq!(waves, expected, "{target}");
            }
        }
    }

    /// Compares with clang 19.1.7 for kernels with these amounts of LDS and several workgroup
    /// sizes.
    #[test]
    fn lds_limits_match_clang() {
        const BYTES: [u32; 7] = [4096, 8192, 12288, 16384, 20480, 32768, 65536];
        let check = |target, wave, workgroup, expected: [u32; 7]| {
            let waves = BYTES.map(|n| waves_per_simd(target, &kernel(8, n, workgroup, wave), 0));
            assert_eq!(waves, expected, "{target} {workgroup}");
        };
        for target in ["gfx1030", "gfx1100", "gfx1151", "gfx1200"] {
            check(target, 32, 32, [8, 4, 3, 2, 2, 1, 1]);
            check(target, 32, 64, [16, 8, 5, 4, 3, 2, 1]);
            check(target, 32, 256, [16, 16, 16, 16, 12, 8, 4]);
            check(target, 32, 1024, [16; 7]);
        }
        check("gfx90a", 64, 32, [4, 2, 2, 1, 1, 1, 1]);
        check("gfx90a", 64, 256, [8, 8, 5, 4, 3, 2, 1]);
        check("gfx90a", 64, 1024, [8, 8, 8, 8, 8, 8, 4]);
    }

    #[test]
    fn dynamic_lds_is_included() {
        let kernel = kernel(8, 4096, 64, 32);
        assert_eq!(waves_per_simd("gfx1100", &kernel, 4096), 8);
    }
}
