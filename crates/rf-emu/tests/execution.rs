//! Kernels run: results, counters, launches that are refused.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod device;

use device::{Device, all_checks, grid};
use proptest::prelude::*;
use rf_emu::{
    Arch, Checks, CodeObject, Grid, Options, Program,
    isa::{
        decode,
        op::{Op, SaluOp},
    },
};

fn two_kernels() -> Device {
    Device::new(include_bytes!("fixtures/two_kernels.gfx1100.co"))
}

/// The arguments of `scale`.
fn scale_arguments(from: u64, to: u64, factor: f32, count: u32) -> Vec<u8> {
    let mut bytes = [from.to_le_bytes(), to.to_le_bytes()].concat();
    bytes.extend(factor.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes
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
    let annotated = program.annotate(&counters);
    let last = annotated.lines().find(|line| line.ends_with("s_endpgm")).unwrap();
    assert!(last.trim_start().starts_with("2 "), "{last}");
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

/// The code object with other instructions at the start of `scale`.
fn with_code(words: &[u32]) -> Vec<u8> {
    let mut file = include_bytes!("fixtures/two_kernels.gfx1100.co").to_vec();
    let code = CodeObject::parse(&file).unwrap();
    let device = Device::new(&file);
    let entry = code.kernel("scale").unwrap().entry as usize;
    let start = &device.loaded.image()[entry..entry + 32];
    let at = file.windows(32).position(|window| window == start).unwrap();
    for (place, word) in file[at..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    file
}

/// The instructions among arbitrary words, without those that end the wave early.
fn instructions(words: &[[u32; 3]]) -> Vec<u32> {
    let decoded = words.iter().filter_map(|words| {
        let instruction = decode(Arch::Gfx1100, words).ok()?;
        let ends = matches!(instruction.op, Op::Salu(SaluOp::Endpgm | SaluOp::SetpcB64));
        (!ends).then(|| words[..usize::from(instruction.bytes) / 4].to_vec())
    });
    decoded.flatten().take(60).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn arbitrary_instructions_end_in_a_result_or_a_fault(
        words in prop::collection::vec(any::<[u32; 3]>(), 1..60),
        checked: bool,
    ) {
        let device = Device::new(&with_code(&instructions(&words)));
        let mut options = all_checks(1);
        if !checked {
            options.checks = Checks::NONE;
        }
        options.max_instructions = 200;
        options.threads = 1;
        let out = device.buffer(&[0; 64]);
        let arguments = scale_arguments(out, out, 1.0, 64);
        if let Err(fault) = device.run("scale", grid(1, 64), &arguments, &options) {
            prop_assert!(fault.to_string().starts_with("kernel 'scale': "));
        }
    }
}
