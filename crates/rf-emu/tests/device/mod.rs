//! A device for the tests: memory with a loaded code object.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_emu::{
    Checks, CodeObject, Counters, Fault, Grid, Hint, Launch, LoadedCode, Memory, MemoryOptions,
    Options, dispatch,
};

/// A code object in the memory of a device that records written bytes.
pub(crate) struct Device {
    pub(crate) memory: Memory,
    pub(crate) code: CodeObject,
    pub(crate) loaded: LoadedCode,
}

impl Device {
    pub(crate) fn new(file: &[u8]) -> Self {
        let options = MemoryOptions::default().with_track_initialised(true);
        let memory = Memory::new(options);
        let code = CodeObject::parse(file).unwrap();
        let loaded = code.load(&memory).unwrap();
        Self { memory, code, loaded }
    }

    pub(crate) fn buffer(&self, words: &[u32]) -> u64 {
        let bytes = words.len() as u64 * 4;
        let address = self.memory.allocate(bytes).unwrap();
        let ranges = self.memory.ranges();
        let view = ranges.resolve_writable(address, bytes, &mut Hint::default()).unwrap();
        view.store_words(0, words);
        address
    }

    pub(crate) fn read(&self, address: u64, count: usize) -> Vec<u32> {
        let mut words = vec![0; count];
        let ranges = self.memory.ranges();
        let view = ranges.resolve(address, count as u64 * 4, &mut Hint::default()).unwrap();
        view.load_words(0, &mut words);
        words
    }

    pub(crate) fn launch(&self, kernel: &str, grid: Grid, arguments: &[u8]) -> Launch {
        let kernel = self.code.kernel(kernel).unwrap();
        let segment = kernel.kernarg_segment(arguments, &grid).unwrap();
        Launch { grid, arguments: self.memory.allocate_arguments(&segment).unwrap() }
    }

    pub(crate) fn run(
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

/// A launch of workgroups in a row.
pub(crate) fn grid(workgroups: u32, threads: u32) -> Grid {
    Grid { workgroups: [workgroups, 1, 1], workgroup_size: [threads, 1, 1], dynamic_lds_bytes: 0 }
}

/// All checks, with an order of waves and workgroups.
pub(crate) fn all_checks(seed: u64) -> Options {
    let mut options = Options::default();
    options.checks = Checks::ALL;
    options.seed = seed;
    options
}
