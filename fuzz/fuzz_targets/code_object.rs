//! The reader of code objects accepts or refuses any bytes without a panic. What it accepts can be
//! loaded, and its kernels take arguments of the size that they state.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_emu::{Arch, CodeObject, Grid, Memory, MemoryOptions, select_bundle};

fuzz_target!(|bytes: &[u8]| {
    let Ok(code) = select_bundle(bytes, Arch::Gfx1100).and_then(CodeObject::parse) else {
        return;
    };
    let memory = Memory::new(MemoryOptions { capacity_bytes: 1 << 20, ..Default::default() });
    let Ok(loaded) = code.load(&memory) else {
        return;
    };
    let grid = Grid { workgroups: [1; 3], workgroup_size: [1; 3], dynamic_lds_bytes: 0 };
    for kernel in code.kernels() {
        let explicit = vec![0; kernel.explicit_bytes() as usize];
        kernel.kernarg_segment(&explicit, &grid).expect("the arguments have the stated size");
    }
    loaded.unload(&memory).expect("what was loaded can be unloaded");
    assert_eq!(memory.used_bytes(), 0);
});
