//! Reading and loading code objects, whole and damaged.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::path::Path;

use proptest::prelude::*;
use rf_emu::{
    AllocationKind, Arch, ArgumentKind, Checks, CodeObject, Error, Grid, Hidden, Hint, Launch,
    Memory, MemoryOptions, Options, UserSgpr, dispatch,
};

const FILE: &[u8] = include_bytes!("fixtures/two_kernels.gfx1100.co");

/// Files with lines of the source.
fn larger_files() -> Vec<Vec<u8>> {
    let packed =
        ["gfx1030", "gfx1100", "gfx1201"].map(|arch| fixture(&format!("planted.{arch}.co.gz")));
    let plain = include_bytes!("fixtures/reverse.gfx1100.co").to_vec();
    [plain].into_iter().chain(packed).collect()
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    rf_testing::packed_bytes(&folder.join(name))
}

fn error(file: &[u8]) -> String {
    CodeObject::parse(file).unwrap_err().to_string()
}

#[test]
fn kernels_have_the_resources_of_the_compilers_metadata() {
    // As `llvm-readelf --notes` prints them.
    let code = CodeObject::parse(FILE).unwrap();
    assert_eq!(code.arch(), Arch::Gfx1100);
    let [scale, sizes] = code.kernels() else { panic!("{:?}", code.kernels()) };
    assert_eq!((&*scale.name, scale.vgprs, scale.sgprs), ("scale", 4, 18));
    assert_eq!((scale.kernarg_bytes, scale.lds_bytes, scale.scratch_bytes), (24, 0, 0));
    assert_eq!((scale.entry, scale.max_workgroup_size), (0x1c00, 1024));
    assert!(scale.wave32 && scale.workgroup_processor_mode);
    assert_eq!((&*sizes.name, sizes.lds_bytes, sizes.kernarg_bytes), ("sizes", 256, 272));
    assert_eq!((sizes.entry, sizes.explicit_bytes()), (0x1d00, 16));
}

#[test]
fn registers_start_as_the_descriptor_states() {
    let code = CodeObject::parse(FILE).unwrap();
    let scale = code.kernel("scale").unwrap();
    assert!(scale.user_sgprs.contains(&UserSgpr::KernargPtr), "{:?}", scale.user_sgprs);
    assert_eq!((scale.workgroup_id, scale.thread_id_dimensions), ([true, false, false], 1));
    // Round to nearest even; denormals of f16 and f64, and by clang's default of f32.
    assert_eq!(scale.float_mode, 0b1111_0000);
    assert!(scale.dx10_clamp && scale.ieee_mode && !scale.has_scratch);
}

#[test]
fn hidden_arguments_are_filled() {
    let code = CodeObject::parse(FILE).unwrap();
    let sizes = code.kernel("sizes").unwrap();
    let grid = Grid { workgroups: [7, 5, 1], workgroup_size: [64, 2, 1], dynamic_lds_bytes: 0 };
    let segment = sizes.kernarg_segment(&[0xee; 16], &grid).unwrap();
    assert_eq!((segment.len(), &segment[..16]), (272, &[0xee; 16][..]));
    let half = |at: usize| u16::from_le_bytes([segment[at], segment[at + 1]]);
    let at = |hidden| {
        let kind = ArgumentKind::Hidden(hidden);
        sizes.arguments.iter().find(|argument| argument.kind == kind).unwrap().offset as usize
    };
    assert_eq!([16, 20, 24].map(half), [7, 5, 1], "number of workgroups");
    assert_eq!(at(Hidden::BlockCount(1)), 20);
    assert_eq!([28, 30, 32].map(half), [64, 2, 1], "size of a workgroup");
    assert_eq!(half(at(Hidden::GridDims)), 2);
}

#[test]
fn arguments_of_another_size_are_named() {
    let code = CodeObject::parse(FILE).unwrap();
    let scale = code.kernel("scale").unwrap();
    let grid = Grid { workgroups: [1; 3], workgroup_size: [64, 1, 1], dynamic_lds_bytes: 0 };
    let error = scale.kernarg_segment(&[0; 20], &grid).unwrap_err().to_string();
    assert_eq!(error, "arguments of kernel 'scale': 20 bytes passed, 24 needed");
    assert!(scale.kernarg_segment(&[0; 25], &grid).is_err());
}

#[test]
fn a_loaded_code_object_is_relocated_and_protected() {
    let code = CodeObject::parse(FILE).unwrap();
    let memory = Memory::new(MemoryOptions::default().with_track_initialised(true));
    let loaded = code.load(&memory).unwrap();
    let ranges = memory.ranges();
    let mut hint = Hint::default();
    let address = |name| loaded.base() + code.symbol(name).unwrap().0;
    let mut words = |name, count: usize| {
        let mut words = vec![0; count];
        let bytes = count as u64 * 4;
        ranges.resolve(address(name), bytes, &mut hint).unwrap().load_words(0, &mut words);
        words
    };
    assert_eq!(words("table", 4), [3, 5, 7, 11]);
    assert_eq!(words("counter", 1), [0]);
    let pointer = words("pointer_to_counter", 2);
    let counter = address("counter");
    assert_eq!(pointer, [counter as u32, (counter >> 32) as u32]);

    assert!(ranges.resolve_writable(counter, 4, &mut hint).is_ok());
    let entry = loaded.address_of(code.kernel("scale").unwrap());
    assert!(ranges.resolve_writable(entry, 4, &mut hint).is_err(), "code is read-only");
    let kind = ranges.resolve(entry, 4, &mut hint).unwrap().allocation().kind();
    assert_eq!(kind, AllocationKind::Code);

    assert!(memory.used_bytes() > 0);
    loaded.unload(&memory).unwrap();
    assert_eq!((memory.used_bytes(), memory.ranges().allocations().len()), (0, 0));
}

#[test]
fn a_device_without_memory_keeps_no_part_of_the_code() {
    let code = CodeObject::parse(FILE).unwrap();
    let memory = Memory::new(MemoryOptions::default().with_capacity_bytes(4000));
    assert!(matches!(code.load(&memory), Err(Error::OutOfMemory { .. })));
    assert_eq!((memory.used_bytes(), memory.ranges().allocations().len()), (0, 0));
}

#[test]
fn bad_files_are_named_in_one_sentence() {
    assert!(error(b"").starts_with("not a readable ELF file: "));
    assert!(error(b"#!/bin/sh\n").starts_with("not a readable ELF file: "));
    let changed = |at: usize, bytes: &[u8]| {
        let mut file = FILE.to_vec();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        error(&file)
    };
    let message = changed(18, &62u16.to_le_bytes());
    assert_eq!(message, "code for processor 62 (ELF machine number), not for an AMD GPU (224)");
    let message = changed(48, &0x3fu32.to_le_bytes());
    assert!(message.contains("unsupported GPU (EF_AMDGPU_MACH 0x3f)"), "{message}");
    let message = changed(8, &[0]);
    assert!(message.contains("ABI version 0"), "{message}");
    let code = CodeObject::parse(FILE).unwrap();
    let message = code.kernel("scala").unwrap_err().to_string();
    assert_eq!(message, "no kernel 'scala' in the code object, which has scale, sizes");
}

#[test]
fn every_truncated_file_is_an_error_or_complete() {
    // Only the tables behind the last loaded byte may be missing without notice, and they are not:
    // the section headers end the file.
    for len in 0..FILE.len() {
        assert!(CodeObject::parse(&FILE[..len]).is_err(), "{len} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn no_changed_file_panics(
        changes in prop::collection::vec((0..FILE.len(), any::<u8>()), 1..6),
        word in prop::option::of((0..FILE.len() - 8, any::<u64>())),
    ) {
        let mut file = FILE.to_vec();
        for (at, byte) in changes {
            file[at] = byte;
        }
        if let Some((at, word)) = word {
            file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let memory = Memory::new(MemoryOptions::default().with_capacity_bytes(1 << 20));
        if let Ok(code) = CodeObject::parse(&file)
            && let Ok(loaded) = code.load(&memory)
        {
            for kernel in code.kernels() {
                let explicit = vec![0; kernel.explicit_bytes() as usize];
                let grid =
                    Grid { workgroups: [1; 3], workgroup_size: [1; 3], dynamic_lds_bytes: 0 };
                prop_assert!(kernel.kernarg_segment(&explicit, &grid).is_ok());
                prop_assert!((kernel.entry as usize) < loaded.image().len());
            }
            prop_assert!(loaded.unload(&memory).is_ok());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_left_of_a_changed_file_runs_to_an_end_or_a_fault(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        mut file in prop::sample::select(larger_files()),
        chosen: prop::sample::Index,
    ) {
        for (at, byte) in changes {
            *at.get_mut(&mut file[..]) = byte;
        }
        let options = MemoryOptions::default().with_track_initialised(true);
        let memory = Memory::new(options);
        if let Ok(code) = CodeObject::parse(&file)
            && let Ok(loaded) = code.load(&memory)
            && !code.kernels().is_empty()
        {
            let kernel = chosen.get(code.kernels());
            let buffer = memory.allocate(256).unwrap();
            let mut explicit = vec![0; kernel.explicit_bytes() as usize];
            for argument in explicit.chunks_exact_mut(8) {
                argument.copy_from_slice(&buffer.to_le_bytes());
            }
            let grid =
                Grid { workgroups: [2, 1, 1], workgroup_size: [33, 1, 1], dynamic_lds_bytes: 0 };
            let segment = kernel.kernarg_segment(&explicit, &grid).unwrap();
            let arguments = memory.allocate_arguments(&segment).unwrap();
            let mut options = Options::default();
            options.checks = Checks::ALL;
            options.threads = 1;
            options.max_instructions = 500;
            let launch = Launch { grid, arguments };
            if let Err(fault) = dispatch(&memory, &loaded, kernel, &launch, &options) {
                let start = format!("kernel '{}': ", kernel.name);
                prop_assert!(fault.to_string().starts_with(&start));
            }
        }
    }
}
