//! Registers and memory from which the kernels start: random values and edges of every type.

use rf_testing::SplitMix64;

/// The number of workgroups, each with other values.
pub(crate) const WORKGROUPS: usize = 48;

/// The words of inputs and of results per workgroup: 32 registers of 32 lanes, 64 scalars.
pub(crate) const WORDS: usize = 32 * 32 + 64;

/// The words of memory per workgroup.
pub(crate) const MEMORY_WORDS: usize = 512;

const F32: [u32; 24] = [
    0x0000_0000,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xffc1_2345,
    0x7f80_0001,
    0xffa0_0000,
    0x0000_0001,
    0x807f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x4f00_0000,
    0xcf00_0000,
    0x4f80_0000,
    0x3f00_0000,
    0x3eff_ffff,
    0x4020_0000,
    0x477f_e000,
    0x477f_f000,
    0x3380_0000,
];

const F16: [u16; 20] = [
    0x0000, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0xfd00, 0x0001, 0x83ff,
    0x0400, 0x7bff, 0xfbff, 0x3800, 0x3bff, 0x4248, 0x7800, 0x5640,
];

const INTEGERS: [u32; 20] = [
    0,
    1,
    2,
    3,
    4,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    0xffff_ffff,
    0x8000_0000,
    0x7fff_ffff,
    0xffff_8000,
    0x0000_7fff,
    0x0000_ffff,
    0x00ff_ffff,
    0xff80_0000,
];

const F64: [u64; 16] = [
    0,
    1 << 63,
    0x3ff0 << 48,
    0xbff0 << 48,
    0x7ff0 << 48,
    0xfff0 << 48,
    0x7ff8 << 48,
    0xfff8_1234_5678_9abc,
    0x7ff0_0000_0000_0001,
    1,
    0x800f_ffff_ffff_ffff,
    0x0010 << 48,
    0x7fef_ffff_ffff_ffff,
    0x41df_ffff_ffc0_0000,
    0x41f0 << 48,
    0x3fe0 << 48,
];

struct Random(SplitMix64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0.below(1 << 32) as u32
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.0.below(values.len())]
    }

    fn float(&mut self) -> u32 {
        let exponent = 117 + self.next() % 21;
        self.next() & 0x807f_ffff | exponent << 23
    }

    fn half(&mut self) -> u16 {
        match self.next() % 4 {
            0 => self.of(&F16),
            1 => self.next() as u16,
            _ => self.next() as u16 & 0x83ff | (10 + self.next() as u16 % 11) << 10,
        }
    }

    /// A register and the next one, of one of several kinds of values.
    fn pair(&mut self, kind: usize) -> [u32; 2] {
        let single = |random: &mut Self| match kind {
            0 => random.next(),
            1 => random.float(),
            2 => random.of(&F32),
            3 => u32::from(random.half()) | u32::from(random.half()) << 16,
            4 => random.of(&INTEGERS),
            _ => random.next() % 80,
        };
        match kind {
            5 => {
                let exponent = 1013 + self.next() % 21;
                [self.next(), self.next() & 0x800f_ffff | exponent << 20]
            }
            6 => {
                let value = self.of(&F64);
                [value as u32, (value >> 32) as u32]
            }
            7 => {
                let kind = self.next() as usize % 7;
                self.pair(kind)
            }
            _ => [single(self), single(self)],
        }
    }
}

/// The registers of all workgroups.
pub(crate) fn registers() -> Vec<u32> {
    let mut random = Random(SplitMix64::new(1));
    let mut words = Vec::with_capacity(WORKGROUPS * WORDS);
    for workgroup in 0..WORKGROUPS {
        let kind = workgroup % 8;
        for _ in 0..16 {
            let pairs: Vec<_> = (0..32).map(|_| random.pair(kind)).collect();
            words.extend(pairs.iter().map(|pair| pair[0]));
            words.extend(pairs.iter().map(|pair| pair[1]));
        }
        for _ in 0..16 {
            let kind = if random.next().is_multiple_of(2) { kind } else { 4 };
            words.extend(random.pair(kind));
        }
        let exec = match workgroup / 8 {
            0 | 2 | 4 => u32::MAX,
            1 if kind == 0 => 0,
            _ => random.next(),
        };
        words.extend([random.next(), random.next() % 8, random.next() & 1, exec]);
        words.extend([0; 28]);
    }
    words
}

/// The memory of all workgroups.
pub(crate) fn memory() -> Vec<u32> {
    let mut random = Random(SplitMix64::new(2));
    let pairs = WORKGROUPS * MEMORY_WORDS / 2;
    (0..pairs).flat_map(|at| random.pair(at / (MEMORY_WORDS / 2) % 8)).collect()
}
