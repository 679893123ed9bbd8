//! The properties that devices report.
//!
//! The properties are those of one retail product per architecture. A device reports workgroup
//! processors as multiprocessors, as HIP does since RDNA.

use rf_emu::{Arch, Grid, Kernel};

/// The LDS that a workgroup can have.
pub(crate) const LDS_BYTES: u32 = 64 << 10;
/// The maximum number of threads of a workgroup.
pub(crate) const MAX_THREADS: u32 = 1024;
/// The size of `hipDeviceProp_tR0600`.
pub(crate) const PROPERTIES_R0600_BYTES: usize = 1472;
/// The size of `hipDeviceProp_t` up to HIP 5.
pub(crate) const PROPERTIES_R0000_BYTES: usize = 792;

/// The properties of a product.
#[derive(Debug, Clone)]
pub(crate) struct Properties {
    pub(crate) arch: Arch,
    pub(crate) ordinal: usize,
    pub(crate) name: &'static str,
    /// Pairs of compute units.
    pub(crate) workgroup_processors: i32,
    clock_mhz: i32,
    memory_clock_mhz: i32,
    memory_bus_bits: i32,
    l2_kib: i32,
    pub(crate) memory_bytes: u64,
    integrated: bool,
    /// The vector registers of a lane slot, from which the number of resident waves follows.
    vgprs_per_simd: u32,
}

impl Properties {
    pub(crate) fn new(arch: Arch, ordinal: usize, memory_bytes: Option<u64>) -> Self {
        // Name, workgroup processors, clock, memory clock (MHz), bus (bits), L2 (KiB), memory
        // (GiB), integrated, registers.
        let (name, wgps, clock, memory_clock, bus, l2, gib, integrated, vgprs) = match arch {
            Arch::Gfx1030 | Arch::Gfx103Generic => {
                ("AMD Radeon RX 6900 XT", 40, 2250, 1000, 256, 4096, 16, false, 1024)
            }
            Arch::Gfx1031 => ("AMD Radeon RX 6700 XT", 20, 2581, 1000, 192, 3072, 12, false, 1024),
            Arch::Gfx1032 => ("AMD Radeon RX 6600 XT", 16, 2589, 1000, 128, 2048, 8, false, 1024),
            Arch::Gfx1033 => ("AMD Custom GPU 0405", 4, 1600, 2750, 128, 1024, 4, true, 1024),
            Arch::Gfx1034 => ("AMD Radeon RX 6500 XT", 8, 2815, 1124, 64, 1024, 4, false, 1024),
            Arch::Gfx1035 => ("AMD Radeon 680M", 6, 2400, 2400, 128, 2048, 8, true, 1024),
            Arch::Gfx1036 => ("AMD Radeon Graphics", 1, 2200, 2600, 128, 256, 8, true, 1024),
            Arch::Gfx1100 | Arch::Gfx11Generic => {
                ("AMD Radeon RX 7900 XTX", 48, 2482, 1249, 384, 6144, 24, false, 1536)
            }
            Arch::Gfx1101 => ("AMD Radeon RX 7800 XT", 30, 2430, 1218, 256, 4096, 16, false, 1536),
            Arch::Gfx1102 => ("AMD Radeon RX 7600", 16, 2655, 1124, 128, 2048, 8, false, 1024),
            Arch::Gfx1103 => ("AMD Radeon 780M", 6, 2700, 2800, 128, 2048, 16, true, 1024),
            Arch::Gfx1150 => ("AMD Radeon 890M", 8, 2900, 2800, 128, 2048, 16, true, 1024),
            Arch::Gfx1151 => ("AMD Radeon 8060S", 20, 2900, 4000, 256, 2048, 64, true, 1536),
            Arch::Gfx1200 => ("AMD Radeon RX 9060 XT", 16, 3130, 1258, 128, 4096, 16, false, 1536),
            Arch::Gfx1201 | Arch::Gfx12Generic => {
                ("AMD Radeon RX 9070 XT", 32, 2970, 1258, 256, 8192, 16, false, 1536)
            }
        };
        Self {
            arch,
            ordinal,
            name,
            workgroup_processors: wgps,
            clock_mhz: clock,
            memory_clock_mhz: memory_clock,
            memory_bus_bits: bus,
            l2_kib: l2,
            memory_bytes: memory_bytes.unwrap_or(gib << 30),
            integrated,
            vgprs_per_simd: vgprs,
        }
    }

    /// The name that programs show.
    pub(crate) fn shown_name(&self) -> String {
        format!("{} (emulated)", self.name)
    }

    pub(crate) fn pci_bus_id(&self) -> String {
        format!("0000:{:02x}:00.0", self.ordinal + 3)
    }

    /// The numbers after `gfx`: major and minor version.
    pub(crate) fn version(&self) -> (i32, i32) {
        let digits = self.arch.name().trim_start_matches("gfx");
        let minor = digits.as_bytes().get(2).map_or(0, |digit| i32::from(digit - b'0'));
        (digits.get(..2).and_then(|major| major.parse().ok()).unwrap_or(0), minor)
    }

    /// The workgroups that a workgroup processor runs at a time.
    pub(crate) fn resident_workgroups(&self, threads: u32, vgprs: u32, lds_bytes: u64) -> i32 {
        const SIMDS: u32 = 4;
        const MAX_WAVES: u32 = 16;
        const LDS_BYTES_PER_PROCESSOR: u64 = 128 << 10;

        let granule = if self.vgprs_per_simd == 1536 { 24 } else { 16 };
        let per_simd = self.vgprs_per_simd / vgprs.max(1).next_multiple_of(granule);
        let waves = threads.div_ceil(32).max(1);
        let by_registers = per_simd.min(MAX_WAVES) * SIMDS / waves;
        let by_lds = LDS_BYTES_PER_PROCESSOR.checked_div(lds_bytes).unwrap_or(u64::MAX);
        u64::from(by_registers).min(by_lds) as i32
    }

    /// The workgroups of a launch that the whole device runs at a time, at least one.
    pub(crate) fn all_resident(&self, kernel: &Kernel, grid: &Grid) -> usize {
        let threads = grid.workgroup_size.iter().product();
        let lds_bytes = u64::from(kernel.lds_bytes) + u64::from(grid.dynamic_lds_bytes);
        let each = self.resident_workgroups(threads, kernel.vgprs, lds_bytes);
        (each * self.workgroup_processors).max(1) as usize
    }

    /// `hipDeviceAttribute_t` by number; `None` for an unknown number.
    pub(crate) fn attribute(&self, number: i32) -> Option<i32> {
        let (major, minor) = self.version();
        Some(match number {
            1 | 3 | 8 | 10 | 24 | 85 | 88 | 90 | 10_011 | 10_018 => 1,
            2 | 25 => 2,
            5 => self.clock_mhz * 1000,
            16 => self.integrated.into(),
            19 => self.l2_kib << 10,
            23 => major,
            26..=28 | 56 => MAX_THREADS as i32,
            29 | 58 | 83 => i32::MAX,
            30 | 31 => 65535,
            57 => 2048,
            59 => self.memory_bus_bits,
            60 => self.memory_clock_mhz * 1000,
            61 => minor,
            63 => self.workgroup_processors,
            67 => self.ordinal as i32 + 3,
            71 | 72 | 74..=76 | 10_002 => LDS_BYTES as i32,
            81 | 82 | 10_019 => 256,
            87 => 32,
            10_000 | 10_017 => 100_000,
            10_015 => self.workgroup_processors * 2,
            0..=119 | 10_000..=10_030 => 0,
            _ => return None,
        })
    }

    /// `hipDeviceProp_tR0600`, which HIP 6 and newer fill.
    pub(crate) fn bytes_r0600(&self) -> Vec<u8> {
        let mut bytes = Record(vec![0; PROPERTIES_R0600_BYTES]);
        let (major, minor) = self.version();
        bytes.text(0, &self.shown_name());
        bytes.text(1160, self.arch.name());
        for (offset, value) in
            [(288, self.memory_bytes), (296, LDS_BYTES.into()), (312, i32::MAX as u64)]
        {
            bytes.wide(offset, value);
        }
        bytes.wide(640, LDS_BYTES.into());
        let words = [
            (304, 65536),
            (308, 32),
            (320, MAX_THREADS as i32),
            (324, 1024),
            (328, 1024),
            (332, 1024),
            (336, i32::MAX),
            (340, 65535),
            (344, 65535),
            (348, self.clock_mhz * 1000),
            (360, major),
            (364, minor),
            (388, self.workgroup_processors),
            (396, self.integrated.into()),
            (400, 1),
            (584, self.ordinal as i32 + 3),
            (604, 1),
            (608, self.memory_clock_mhz * 1000),
            (612, self.memory_bus_bits),
            (616, self.l2_kib << 10),
            (624, 2048),
        ];
        for (offset, value) in words {
            bytes.word(offset, value);
        }
        bytes.0
    }

    /// `hipDeviceProp_t` of HIP 5, which the function without a version in its name fills.
    pub(crate) fn bytes_r0000(&self) -> Vec<u8> {
        let mut bytes = Record(vec![0; PROPERTIES_R0000_BYTES]);
        let (major, minor) = self.version();
        bytes.text(0, &self.shown_name());
        bytes.text(396, self.arch.name());
        bytes.wide(256, self.memory_bytes);
        bytes.wide(264, LDS_BYTES.into());
        let words = [
            (272, 65536),
            (276, 32),
            (280, MAX_THREADS as i32),
            (284, 1024),
            (288, 1024),
            (292, 1024),
            (296, i32::MAX),
            (300, 65535),
            (304, 65535),
            (308, self.clock_mhz * 1000),
            (312, self.memory_clock_mhz * 1000),
            (316, self.memory_bus_bits),
            (328, major),
            (332, minor),
            (336, self.workgroup_processors),
            (340, self.l2_kib << 10),
            (344, 2048),
        ];
        for (offset, value) in words {
            bytes.word(offset, value);
        }
        bytes.0
    }
}

/// A C structure by offsets.
struct Record(Vec<u8>);

impl Record {
    fn text(&mut self, offset: usize, text: &str) {
        self.0[offset..offset + text.len()].copy_from_slice(text.as_bytes());
    }

    fn word(&mut self, offset: usize, value: i32) {
        self.0[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn wide(&mut self, offset: usize, value: u64) {
        self.0[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_has_properties() {
        for (ordinal, arch) in
            Arch::ALL.iter().copied().filter(|arch| !arch.is_generic()).enumerate()
        {
            let properties = Properties::new(arch, ordinal, None);
            assert!(arch.name().starts_with(&format!("gfx{}", properties.version().0)));
            assert!(properties.shown_name().len() < 256);
            let bytes = properties.bytes_r0600();
            assert!(bytes[1160..].starts_with(arch.name().as_bytes()));
            assert_eq!(properties.attribute(87), Some(32));
        }
        assert_eq!(Properties::new(Arch::Gfx1151, 0, None).version(), (11, 5));
        assert_eq!(Properties::new(Arch::Gfx1030, 0, None).version(), (10, 3));
    }

    #[test]
    fn residency_is_limited_by_waves_registers_and_lds() {
        let properties = Properties::new(Arch::Gfx1100, 0, None);
        assert_eq!(properties.resident_workgroups(256, 24, 0), 8);
        assert_eq!(properties.resident_workgroups(256, 192, 0), 4);
        assert_eq!(properties.resident_workgroups(256, 24, 65536), 2);
        assert_eq!(properties.resident_workgroups(1024, 256, 0), 0);
    }
}
