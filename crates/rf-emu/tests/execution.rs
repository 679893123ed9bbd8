//! Kernels run: results, counters, launches that are refused.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_emu::{
    Checks, CodeObject, Counters, Fault, Grid, Hint, Launch, LoadedCode, Memory, MemoryOptions,
    Options, Program, dispatch,
};

/// A code object in the memory of a device that records written bytes.
struct Device {
    memory: Memory,
    code: CodeObject,
    loaded: LoadedCode,
}

impl Device {
    fn new(file: &[u8]) -> Self {
        let mut options = MemoryOptions::default();
        options.track_initialised = true;
        let memory = Memory::new(options);
        let code = CodeObject::parse(file).unwrap();
        let loaded = code.load(&memory).unwrap();
        Self { memory, code, loaded }
    }

    fn buffer(&self, words: &[u32]) -> u64 {
        let bytes = words.len() as u64 * 4;
        let address = self.memory.allocate(bytes).unwrap();
        let ranges = self.memory.ranges();
        let view = ranges.resolve_writable(address, bytes, &mut Hint::default()).unwrap();
        view.store_words(0, words);
        address
    }

    fn read(&self, address: u64, count: usize) -> Vec<u32> {
        let mut words = vec![0; count];
        let ranges = self.memory.ranges();
        let view = ranges.resolve(address, count as u64 * 4, &mut Hint::default()).unwrap();
        view.load_words(0, &mut words);
        words
    }

    fn launch(&self, kernel: &str, grid: Grid, arguments: &[u8]) -> Launch {
        let kernel = self.code.kernel(kernel).unwrap();
        let segment = kernel.kernarg_segment(arguments, &grid).unwrap();
        Launch { grid, arguments: self.memory.allocate_arguments(&segment).unwrap() }
    }

    fn run(
        &self,
        kernel: &str,
        grid: Grid,
        arguments: &[u8],
        options: &Options,
    ) -> Result<Counters, Fault> {
        let launch = self.launch(kernel, grid, arguments);
        let kernel = self.code.kernel(kernel).unwrap();
        dispatch(&self.memory, &self.loaded, kernel, &launch, options)
    }
}

fn two_kernels() -> Device {
    Device::new(include_bytes!("fixtures/two_kernels.gfx1100.co"))
}

fn grid(workgroups: u32, threads: u32) -> Grid {
    Grid { workgroups: [workgroups, 1, 1], workgroup_size: [threads, 1, 1], dynamic_lds_bytes: 0 }
}

/// The arguments of `scale`.
fn scale_arguments(from: u64, to: u64, factor: f32, count: u32) -> Vec<u8> {
    let mut bytes = [from.to_le_bytes(), to.to_le_bytes()].concat();
    bytes.extend(factor.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes
}

fn all_checks(seed: u64) -> Options {
    let mut options = Options::default();
    options.checks = Checks::ALL;
    options.seed = seed;
    options
}

#[test]
fn a_kernel_computes_in_any_order_of_workgroups() {
    let device = two_kernels();
    let values: Vec<_> = (0..200).map(|value| (value as f32).to_bits()).collect();
    let from = device.buffer(&values);
    for seed in 0..5 {
        let to = device.buffer(&[0; 200]);
        let arguments = scale_arguments(from, to, 1.5, 200);
        device.run("scale", grid(4, 64), &arguments, &all_checks(seed)).unwrap();
        let expected: Vec<_> = (0..200).map(|value| (value as f32 * 1.5).to_bits()).collect();
        assert_eq!(device.read(to, 200), expected);
    }
}

#[test]
fn instructions_are_counted_by_class_and_place() {
    let device = two_kernels();
    let (from, to) = (device.buffer(&[0; 64]), device.buffer(&[0; 64]));
    let kernel = device.code.kernel("scale").unwrap();
    let program = Program::new(&device.loaded, kernel).unwrap();
    let launch = device.launch("scale", grid(1, 64), &scale_arguments(from, to, 1.0, 64));
    let mut options = Options::default();
    options.count_each = true;
    let counters = program.run(&device.memory, &launch, &options).unwrap();
    assert_eq!((counters.waves, counters.vector_memory, counters.lds), (2, 4, 0));
    assert_eq!(counters.each.iter().sum::<u64>(), counters.instructions());
    let listing: Vec<_> = program.listing().map(|(_, text)| text).collect();
    let end = listing.iter().position(|text| text == "s_endpgm").unwrap();
    assert_eq!(counters.each[end], 2, "both waves end");
}

#[test]
fn launches_that_do_not_fit_the_kernel_are_refused() {
    let device = two_kernels();
    let arguments = scale_arguments(0, 0, 1.0, 0);
    let refused = |grid| {
        let fault = device.run("scale", grid, &arguments, &Options::default()).unwrap_err();
        fault.to_string()
    };
    assert!(refused(grid(1, 0)).contains("a workgroup has no threads"));
    assert!(refused(grid(0, 64)).contains("the grid is empty"));
    assert!(refused(grid(1, 2048)).contains("2048 threads in a workgroup, the kernel allows"));
    let lds = Grid { dynamic_lds_bytes: 1 << 20, ..grid(1, 64) };
    assert!(refused(lds).contains("1048576 bytes of LDS, a workgroup has 65536"));
}
