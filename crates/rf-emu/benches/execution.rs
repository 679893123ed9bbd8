//! Instructions of waves per second, by kernel, without and with all checks.
//!
//! Criterion's elements are instructions of waves (32 lanes).
#![expect(missing_docs, reason = "criterion's macros define undocumented public functions")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rf_emu::{
    Checks, CodeObject, Grid, Hint, Launch, LoadedCode, Memory, MemoryOptions, Options, Program,
};

/// Enough workgroups for all threads.
const WORKGROUPS: u32 = 64;
const BLOCKS: u32 = 128;

/// A device with the kernels.
struct Device {
    memory: Memory,
    code: CodeObject,
    loaded: LoadedCode,
}

impl Device {
    fn new(checks: Checks) -> Self {
        let options = MemoryOptions::default().with_track_initialised(checks.uninitialised);
        let memory = Memory::new(options);
        let file = include_bytes!("../tests/fixtures/speed.gfx1100.co");
        let code = CodeObject::parse(file).expect("a code object");
        let loaded = code.load(&memory).expect("enough memory");
        Self { memory, code, loaded }
    }

    /// The address of a buffer with these words.
    fn buffer(&self, words: &[u32]) -> u64 {
        let bytes = words.len() as u64 * 4;
        let address = self.memory.allocate(bytes).expect("enough memory");
        let ranges = self.memory.ranges();
        let view = ranges.resolve_writable(address, bytes, &mut Hint::default());
        view.expect("an allocation").store_words(0, words);
        address
    }

    fn arguments(&self, kernel: &str) -> Vec<u8> {
        let out = self.buffer(&[0; WORKGROUPS as usize * 64]).to_le_bytes();
        if kernel != "matvec" {
            return [&out[..], &500u32.to_le_bytes()].concat();
        }
        let blocks = (WORKGROUPS * 2 * BLOCKS) as usize;
        let rows: Vec<_> = (0..blocks * 18 / 4).map(|at| (at as u32 * 0x0137_9bdf) >> 4).collect();
        let vector = vec![0.5f32.to_bits(); BLOCKS as usize * 32];
        let (rows, vector) = (self.buffer(&rows), self.buffer(&vector));
        let pointers = [rows.to_le_bytes(), vector.to_le_bytes(), out].concat();
        [&pointers[..], &BLOCKS.to_le_bytes()].concat()
    }
}

fn instructions(criterion: &mut Criterion) {
    let grid =
        Grid { workgroups: [WORKGROUPS, 1, 1], workgroup_size: [64, 1, 1], dynamic_lds_bytes: 0 };
    for (name, checks) in [("unchecked", Checks::NONE), ("checked", Checks::ALL)] {
        let mut group = criterion.benchmark_group(name);
        let device = Device::new(checks);
        let mut options = Options::default();
        options.checks = checks;
        for kernel_name in ["integers", "multiply_adds", "shared_sums", "matvec"] {
            let kernel = device.code.kernel(kernel_name).expect("a kernel");
            let program = Program::new(&device.loaded, kernel).expect("a program");
            let segment = kernel.kernarg_segment(&device.arguments(kernel_name), &grid);
            let arguments = device.memory.allocate_arguments(&segment.expect("all arguments"));
            let launch = Launch { grid, arguments: arguments.expect("enough memory") };
            let run = || program.run(&device.memory, &launch, &options).expect("no fault");
            group.throughput(Throughput::Elements(run().instructions()));
            group.bench_function(kernel_name, |bencher| bencher.iter(run));
        }
        group.finish();
    }
}

criterion_group!(benches, instructions);
criterion_main!(benches);
