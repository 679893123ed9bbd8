//! Each check finds the bug that was planted for it, on each family, and nothing in a clean kernel.

mod device;

use std::path::Path;

use device::{Device, all_checks, grid};
use rf_emu::{Arch, Checks, Fault, FaultKind, Grid, Hint, Launch, Options, dispatch};

/// A device with the kernels of `planted.hip`.
fn planted(arch: &str) -> Device {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    Device::new(&rf_testing::packed_bytes(&Path::new(folder).join(format!("planted.{arch}.co.gz"))))
}

fn devices() -> [Device; 3] {
    ["gfx1030", "gfx1100", "gfx1201"].map(planted)
}

fn bytes(arguments: &[u64]) -> Vec<u8> {
    arguments.iter().flat_map(|argument| argument.to_le_bytes()).collect()
}

/// In order, and in five random orders.
const SEEDS: std::ops::RangeInclusive<u64> = 0..=5;

/// The faults of a kernel in one workgroup of 64 threads in each order, all checks on.
fn faults(device: &Device, kernel: &str, arguments: &[u64]) -> Vec<Fault> {
    let bytes = bytes(arguments);
    let passed = device.code.kernel(kernel).expect(kernel).explicit_bytes() as usize;
    let run = |seed| device.run(kernel, grid(1, 64), &bytes[..passed], &all_checks(seed));
    SEEDS.map(|seed| run(seed).expect_err(kernel)).collect()
}

/// Checks that the fault of a kernel says `expected` on each family that has the kernel. The first
/// argument is a buffer of 64 words; `others` follow.
fn finds(kernel: &str, others: &[u64], expected: &str) {
    for device in devices() {
        if device.code.kernel(kernel).is_err() {
            assert_eq!(device.code.arch(), Arch::Gfx1030, "{kernel}");
            continue;
        }
        let buffer = device.buffer(&[0; 64]);
        let arguments = [&[buffer], others].concat();
        for fault in faults(&device, kernel, &arguments) {
            let text = fault.to_string();
            assert!(text.contains(expected), "{}: {text}", device.code.arch());
            assert!(text.starts_with(&format!("kernel '{kernel}': ")), "{text}");
            assert!(text.contains(" [planted.hip:"), "{text}");
        }
    }
}

#[test]
fn a_clean_kernel_has_no_fault_in_any_order() {
    for device in devices() {
        let values: Vec<_> = (0..256).collect();
        let input = device.buffer(&values);
        for seed in SEEDS {
            let (sums, finished) = (device.buffer(&[0; 4]), device.buffer(&[0]));
            let out = device.buffer(&[0]);
            let arguments = bytes(&[input, sums, finished, out]);
            let outcome = device.run("clean", grid(4, 64), &arguments, &all_checks(seed));
            outcome.unwrap_or_else(|fault| panic!("{}, seed {seed}: {fault}", device.code.arch()));
            assert_eq!(device.read(out, 1), [255 * 128]);
        }
    }
}

/// The outcome of a barrier of 6 workgroups.
fn grid_barrier(device: &Device, resident: usize, seed: u64) -> Result<Vec<u32>, Fault> {
    let (values, arrived) = (device.buffer(&[0; 6]), device.buffer(&[0]));
    let out = device.buffer(&[0; 6]);
    let mut options = all_checks(seed);
    options.resident_workgroups = resident;
    let arguments = bytes(&[values, arrived, out, 6]);
    device.run("grid_barrier", grid(6, 64), &arguments[..28], &options)?;
    Ok(device.read(out, 6))
}

#[test]
fn workgroups_wait_for_each_other_if_the_device_holds_them() {
    for device in devices() {
        for seed in SEEDS {
            let out = grid_barrier(&device, 6, seed).unwrap();
            assert_eq!(out, [2, 3, 4, 5, 6, 1]);
            let text = grid_barrier(&device, 4, seed).unwrap_err().to_string();
            let expected = "kernel 'grid_barrier': the workgroup waits in a loop for another one, \
                            as do all 4 resident workgroups; 2 more can only start when one of \
                            them ends [planted.hip:";
            assert!(text.starts_with(expected), "{text}");
            assert!(text.contains(": global_load_") && text.contains("wave 0]"), "{text}");

            let options = all_checks(seed);
            let arguments = bytes(&[device.buffer(&[0])]);
            let outcome = device.run("lock_is_kept", grid(3, 64), &arguments, &options);
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains("all 2 resident workgroups [planted.hip"), "{text}");
            assert!(text.contains(": global_atomic_cmpswap"), "{text}");
        }
    }
}

#[test]
fn accesses_past_the_end_are_found_to_the_byte() {
    for device in devices() {
        let out = device.memory.allocate(10 * 4).unwrap();
        for fault in faults(&device, "store_past_the_end", &[out, 10]) {
            let text = fault.to_string();
            assert!(text.contains("0 bytes past the end of device allocation"), "{text}");
            let place = fault.place.as_ref().unwrap();
            assert_eq!((place.wave, place.lane, place.workgroup), (0, Some(10), [0; 3]));
            assert!(place.instruction.starts_with("global_store_"), "{text}");
            assert!(fault.is_memory());
        }
    }
    finds("load_arguments_past_the_end", &[], "past the end of kernel arguments");
    finds("scratch_past_the_end", &[1000], "bytes of scratch memory");
    for device in devices() {
        let out = device.buffer(&[0; 64]);
        let with_lds = Grid { dynamic_lds_bytes: 128, ..grid(1, 64) };
        let arguments = bytes(&[out, 0]);
        for seed in SEEDS {
            let outcome = device.run("lds_past_the_end", with_lds, &arguments, &all_checks(seed));
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains("4 bytes at 0x80 are outside the 128 bytes of LDS"), "{text}");
            assert!(text.contains("wave 1, lane 0"), "{text}");
        }
    }
}

#[test]
fn a_fault_names_the_line_of_the_source() {
    let source = include_str!("fixtures/planted.hip");
    let store = "if (thread() <= count) out[thread()]";
    let line = source.lines().position(|line| line.contains(store)).unwrap() as u32 + 1;
    for device in devices() {
        let out = device.memory.allocate(10 * 4).unwrap();
        let fault = &faults(&device, "store_past_the_end", &[out, 10])[0];
        let place = fault.place.as_ref().unwrap();
        assert_eq!(place.source, Some(("planted.hip".to_owned(), line)));
        assert!(fault.to_string().contains(&format!(" [planted.hip:{line}; 0x")), "{fault}");
        let entry = device.code.kernel("store_past_the_end").unwrap().entry;
        let lines = device.code.source_lines();
        assert!(lines.lookup(entry).is_some() && lines.lookup(0).is_none());
    }
    let without = Device::new(include_bytes!("fixtures/two_kernels.gfx1100.co"));
    assert!(without.code.source_lines().is_empty());
}

#[test]
fn a_use_after_free_is_found() {
    for device in devices() {
        let out = device.buffer(&[0; 64]);
        device.memory.free(out).unwrap();
        for fault in faults(&device, "store_past_the_end", &[out, 10]) {
            assert!(fault.to_string().contains("were freed"), "{fault}");
        }
        let launch = device.launch("store_past_the_end", grid(1, 64), &bytes(&[out, 10])[..12]);
        device.memory.free(launch.arguments).unwrap();
        let kernel = device.code.kernel("store_past_the_end").unwrap();
        let options = all_checks(0);
        let outcome = dispatch(&device.memory, &device.loaded, kernel, &launch, &options);
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("were freed: 0 into kernel arguments"), "{text}");
    }
}

#[test]
fn uses_of_what_was_never_written_are_found() {
    finds("uninitialised_register", &[], "which is not initialised");
    for kernel in ["lds", "lds_byte", "neighbour", "permuted", "scalar"] {
        finds(&format!("uninitialised_{kernel}"), &[], "a stored value depends on v");
    }
    finds("uninitialised_scratch", &[7], "a stored value depends on v");
    for device in devices() {
        let never_written = device.memory.allocate(64 * 4).unwrap();
        let out = device.buffer(&[0; 64]);
        for fault in faults(&device, "uninitialised_memory", &[never_written, out]) {
            assert!(fault.to_string().contains("an address depends on"), "{fault}");
        }
    }
}

/// Byte 10 and the words from 32 on are not written.
#[test]
fn a_copy_keeps_which_bytes_were_never_written() {
    for device in devices() {
        let from = device.memory.allocate(64 * 4).unwrap();
        let ranges = device.memory.ranges();
        let view = ranges.resolve_writable(from, 64 * 4, &mut Hint::default()).unwrap();
        view.write(0, &[1; 10]);
        view.write(11, &[1; 32 * 4 - 11]);
        let copied = device.buffer(&[0; 64]);
        device.run("copy", grid(1, 64), &bytes(&[from, copied]), &all_checks(0)).unwrap();
        let ranges = device.memory.ranges();
        let view = ranges.resolve(copied, 64 * 4, &mut Hint::default()).unwrap();
        assert_eq!(view.first_uninitialised(0, 64 * 4), Some(10));
        assert_eq!(view.first_uninitialised(11, 64 * 4 - 11), Some(32 * 4));
        assert_eq!((32 * 4..64 * 4).find(|&at| view.is_initialised(at, 1)), None);
        let out = device.buffer(&[0; 64]);
        for fault in faults(&device, "uninitialised_memory", &[copied, out]) {
            assert!(fault.to_string().contains("an address depends on"), "{fault}");
        }
    }
}

#[test]
fn a_result_that_is_used_before_a_wait_covers_it_is_found() {
    for device in devices() {
        let (input, out) = (device.buffer(&[7; 64]), device.buffer(&[0; 64]));
        for fault in faults(&device, "no_wait", &[input, out]) {
            let text = fault.to_string();
            assert!(text.contains("covers the load into it [planted.hip"), "{text}");
            assert!(text.contains("v_add_nc_u32"), "{text}");
        }
    }
}

#[test]
fn races_are_found() {
    for device in devices() {
        for seed in SEEDS {
            // The value that the other wave has not written yet would be the first fault otherwise.
            let mut options = all_checks(seed);
            options.checks = "races".parse().unwrap();
            let arguments = bytes(&[device.buffer(&[0; 64])]);
            let outcome = device.run("lds_race", grid(1, 64), &arguments, &options);
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains("the same byte of LDS") && text.contains("wave 1"), "{text}");

            let input = device.buffer(&[1; 4]);
            let (sums, finished) = (device.buffer(&[0; 4]), device.buffer(&[0]));
            let arguments = bytes(&[input, sums, finished, device.buffer(&[0])]);
            let outcome = device.run("global_race", grid(4, 64), &arguments, &all_checks(seed));
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains("no release and acquire orders the two"), "{text}");
        }
    }
}

#[test]
fn a_barrier_that_not_all_waves_reach_is_found() {
    finds("divergent_barrier", &[], "divergent barrier: wave 1 ended while wave 0 waits");
}

#[test]
fn misaligned_addresses_are_found() {
    finds("lds_misaligned", &[2], "the address 0x2 is not a multiple of 4");
    finds("atomic_misaligned", &[], "is not a multiple of 4");
}

#[test]
fn lanes_that_an_instruction_must_not_use_are_found() {
    finds("matrix_of_half_a_wave", &[], "a matrix instruction needs all lanes, EXEC is 0x0000ffff");
    for kernel in ["inactive_lane", "inactive_lane_dpp", "inactive_lane_permuted"] {
        finds(kernel, &[], "which is inactive");
    }
}

#[test]
fn hazards_that_the_compiler_must_resolve_are_found() {
    let of = |families: &[Arch]| {
        devices()
            .into_iter()
            .filter(|device| families.contains(&device.code.arch()))
            .collect::<Vec<_>>()
    };
    let (rdna3, rdna4) = (Arch::Gfx1100, Arch::Gfx1201);
    let cases: [(&str, &str, &[Arch]); 6] = [
        ("atomic_before_denorm_mode", "FPAtomicToDenormMode", &[Arch::Gfx1030]),
        ("transcendental_use", "VALUTransUse", &[rdna3]),
        ("multiply_into_operand", "MADIntraFwdBug", &[rdna3]),
        ("permute_after_compare", "VcmpxPermlane", &[rdna3, rdna4]),
        ("matrix_of_a_matrix", "WMMA", &[rdna3, rdna4]),
        ("scalar_read_again", "VALUReadSGPR", &[rdna4]),
    ];
    for (kernel, name, families) in cases {
        for device in of(families) {
            let arguments = bytes(&[device.buffer(&[0; 64])]);
            for seed in SEEDS {
                let mut options = all_checks(seed);
                options.checks.sgpr_hazards = name == "VALUReadSGPR";
                let outcome = device.run(kernel, grid(2, 64), &arguments, &options);
                let text = outcome.expect_err(kernel).to_string();
                assert!(
                    text.contains(&format!("hazard {name} with the instruction at 0x")),
                    "{text}"
                );
                assert!(text.contains(" [planted.hip:"), "{text}");
            }
        }
    }
    for (kernel, families) in
        [("transcendental_wait", &[rdna3][..]), ("matrix_after_nop", &[rdna3, rdna4])]
    {
        for device in of(families) {
            let arguments = bytes(&[device.buffer(&[0; 64])]);
            device.run(kernel, grid(1, 64), &arguments, &all_checks(0)).unwrap();
        }
    }
}

#[test]
fn checks_that_are_off_find_nothing() {
    for device in devices() {
        let out = device.buffer(&[0; 64]);
        let mut options = all_checks(0);
        options.checks = Checks::NONE;
        for kernel in ["lds_race", "uninitialised_lds", "divergent_barrier", "inactive_lane"] {
            device.run(kernel, grid(1, 64), &bytes(&[out]), &options).unwrap();
        }
    }
}

#[test]
fn arguments_that_do_not_fit_the_kernel_are_named() {
    let device = Device::new(include_bytes!("fixtures/two_kernels.gfx1100.co"));
    let kernel = device.code.kernel("sizes").unwrap();
    let grid = grid(3, 64);
    let segment = kernel.kernarg_segment(&[0; 16], &grid).unwrap();
    let refused = |contents: &[u8]| {
        let arguments = device.memory.allocate_arguments(contents).unwrap();
        let launch = Launch { grid, arguments };
        let outcome =
            dispatch(&device.memory, &device.loaded, kernel, &launch, &Options::default());
        let fault = outcome.unwrap_err();
        assert!(matches!(*fault.kind, FaultKind::Arguments { .. }), "{fault}");
        fault.to_string()
    };
    let text = refused(&segment[..segment.len() - 8]);
    assert!(text.starts_with("kernel 'sizes': the arguments do not fit the kernel: 264 bytes"));
    assert!(text.ends_with("the kernel takes 272"), "{text}");
    assert!(refused(&[&segment[..], &[0; 8]].concat()).contains("280 bytes"));
    // The hidden arguments are missing, or those of another launch.
    let text = refused(&[0; 272]);
    assert!(text.contains("the hidden argument BlockCount(0) at offset 16 is 0, not 3"), "{text}");
}

#[test]
fn a_fault_says_all_that_is_known() {
    let device = planted("gfx1100");
    let short = device.memory.allocate(40).unwrap();
    let buffer = device.buffer(&[0; 64]);
    let text = |kernel: &str, arguments: &[u64]| faults(&device, kernel, arguments)[0].to_string();
    assert_eq!(
        text("store_past_the_end", &[short, 10]),
        format!(
            "kernel 'store_past_the_end': 4 bytes at {:#x} are out of bounds: 0 bytes past the end \
             of device allocation 4 (40 bytes at {short:#x}) [planted.hip:77; 0x6928: \
             global_store_b32 v1, v0, s[0:1]; workgroup (0, 0, 0), wave 0, lane 10]",
            short + 40
        )
    );
    assert_eq!(
        text("divergent_barrier", &[buffer]),
        "kernel 'divergent_barrier': divergent barrier: wave 1 ended while wave 0 waits \
         [planted.hip:12; 0x7730: s_barrier; workgroup (0, 0, 0), wave 0]"
    );
    assert_eq!(
        text("transcendental_use", &[buffer]),
        "kernel 'transcendental_use': hazard VALUTransUse with the instruction at 0x7a10: a result \
         of the transcendental unit is used by one of the next vector instructions; \
         s_waitcnt_depctr va_vdst(0) must stand between [planted.hip:184; 0x7a18: v_add_f32_e32 \
         v3, v3, v2; workgroup (0, 0, 0), wave 0]"
    );
}

#[test]
fn the_example_of_the_documentation_has_the_fault_that_it_claims() {
    let documentation = include_str!("../../../docs/emulator.md");
    assert!(documentation.contains(include_str!("fixtures/reverse.hip")));
    let device = Device::new(include_bytes!("fixtures/reverse.gfx1100.co"));
    let arguments = bytes(&[device.buffer(&[0; 64])]);
    let mut options = Options::default();
    options.checks = "races".parse().unwrap();
    let fault = device.run("reverse", grid(1, 64), &arguments, &options).unwrap_err();
    assert!(documentation.contains(&format!("`{}`", fault.kind)), "{fault}");
}
