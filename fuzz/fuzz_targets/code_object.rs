//! The reader of code objects accepts or refuses any bytes without a panic. What it accepts can be
//! loaded, its kernels take arguments of the size that they state, and run to an end or a fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_emu::{
    Arch, Checks, CodeObject, Grid, Launch, Memory, MemoryOptions, Options, Program, select_bundle,
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(code) = select_bundle(bytes, Arch::Gfx1100).and_then(CodeObject::parse) else {
        return;
    };
    let options =
        MemoryOptions::default().with_capacity_bytes(1 << 20).with_track_initialised(true);
    let memory = Memory::new(options);
    let Ok(loaded) = code.load(&memory) else {
        return;
    };
    let grid = Grid { workgroups: [2, 1, 1], workgroup_size: [33, 1, 1], dynamic_lds_bytes: 0 };
    let mut options = Options::default();
    options.checks = Checks::ALL;
    options.checks.sgpr_hazards = true;
    options.threads = 1;
    options.max_instructions = 500;
    let buffer = memory.allocate(256).unwrap_or_default();
    for kernel in code.kernels().iter().take(8) {
        let mut explicit = vec![0; kernel.explicit_bytes() as usize];
        for argument in explicit.chunks_exact_mut(8) {
            argument.copy_from_slice(&buffer.to_le_bytes());
        }
        let segment = kernel.kernarg_segment(&explicit, &grid);
        let segment = segment.expect("the arguments have the stated size");
        let Ok(arguments) = memory.allocate_arguments(&segment) else { continue };
        let Ok(program) = Program::new(&loaded, kernel) else { continue };
        for (offset, text) in program.listing().take(1000) {
            assert!(!text.is_empty());
            program.source_lines().lookup(offset);
        }
        if let Err(fault) = program.run(&memory, &Launch { grid, arguments }, &options) {
            assert!(!fault.to_string().is_empty());
        }
    }
    loaded.unload(&memory).expect("what was loaded can be unloaded");
});
