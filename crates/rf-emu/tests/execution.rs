//! Kernels run: results, counters, launches that are refused.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod device;

use std::path::Path;

use device::{Device, all_checks, grid};
use proptest::prelude::*;
use rf_emu::cost::{CostProfile, Costs};
use rf_emu::isa::decode;
use rf_emu::isa::op::{Op, SaluOp};
use rf_emu::{Arch, Checks, CodeObject, Grid, Options, Program};

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

/// The words that `calls` writes for a thread.
fn called(thread: u32) -> [u32; 3] {
    let fibonacci = [0, 1, 1, 2, 3, 5, 8, 13];
    let bytes = 0x0123_4567_89ab_cdef_u64.wrapping_mul(u64::from(thread) + 1).to_le_bytes();
    let parts = bytes.as_chunks::<2>().0.iter().fold(0, |sum: u32, &[low, high]| {
        let half = (u16::from(low) * 3).wrapping_sub(high.into());
        sum.wrapping_mul(31).wrapping_add(half.into())
    });
    let mut values = [fibonacci[thread as usize % 8], parts];
    if thread % 2 == 1 {
        values.reverse();
    }
    let (x, last) = (thread as f32 - 3.0, thread as f32 / 4.0);
    [values[0], values[1], ((0.5 * x - 2.0) * x + last).to_bits()]
}

#[test]
fn unoptimised_code_calls_functions() {
    for arch in ["gfx1030", "gfx1100", "gfx1201"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let file = rf_testing::packed_bytes(&folder.join(format!("calls.{arch}.co.gz")));
        let device = Device::new(&file);
        let out = device.buffer(&[0; 64 * 3]);
        device.run("calls", grid(1, 64), &out.to_le_bytes(), &Options::default()).unwrap();
        let expected: Vec<_> = (0..64).flat_map(called).collect();
        assert_eq!(device.read(out, 64 * 3), expected, "{}", device.code.arch());
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
fn costs_of_launches_are_collected() {
    let device = two_kernels();
    let (from, to) = (device.buffer(&[0; 64]), device.buffer(&[0; 64]));
    let program = Program::new(&device.loaded, device.code.kernel("scale").unwrap()).unwrap();
    let grid = grid(1, 64);
    let launch = device.launch("scale", grid, &scale_arguments(from, to, 1.0, 64));
    let mut options = Options::default();
    options.count_each = true;
    let mut profile = CostProfile::default();
    for _ in 0..2 {
        let counters = program.run(&device.memory, &launch, &options).unwrap();
        profile.add(&program, &grid, &counters);
    }
    let costs: Vec<_> = profile.costs().collect();
    let [costs] = costs[..] else { panic!("one shape: {costs:?}") };
    assert_eq!((costs.launches, costs.workgroups, costs.waves), (2, 1, 2));
    // Two waves load and store 128 bytes each: two lines of both buffers, and the arguments'.
    assert_eq!((costs.requested_bytes, costs.cache_bytes), (2 * 512, 2 * 4 * 128));
    assert_eq!((costs.memory_bytes, costs.group_bytes), (2 * 5 * 128, 2 * 5 * 128));
    // 64 bytes per cycle.
    assert_eq!((costs.cycles.vector_memory, costs.conflict_cycles), (2 * 8, 0));
    assert!(costs.cycles.vector > 0 && costs.cycles.scalar_memory > 0);
    assert_eq!(Costs::parse(&profile.to_toml()).unwrap(), std::slice::from_ref(costs));
    let error = Costs::parse("launches = 1").unwrap_err().to_string();
    assert!(error.starts_with("not a list of costs: ") && error.contains("launches"), "{error}");

    let listing = profile.kernels().next().unwrap().listing().to_string();
    let load = listing.lines().find(|line| line.contains("global_load")).unwrap();
    let cells: Vec<_> = load.split_whitespace().collect();
    assert_eq!((cells[0], cells[1], cells[3]), ("4", "8", "1.0"), "{load}");
    assert!(profile.stacks().to_string().contains("scale;"));
    let page = profile.page().to_string();
    assert!(page.contains("s_endpgm") && !page.contains("<script"), "{page}");
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

#[test]
fn an_unknown_instruction_is_named_when_it_is_reached() {
    let device = Device::new(&with_code(&[0xffff_ffff]));
    let arguments = scale_arguments(0, 0, 1.0, 0);
    let fault = device.run("scale", grid(1, 32), &arguments, &Options::default()).unwrap_err();
    let expected = "kernel 'scale': unknown instruction 0xffffffff (unknown encoding) [0x1c00: ";
    assert!(fault.to_string().starts_with(expected), "{fault}");
}

/// Loads v4 to v6, runs an instruction that writes v8 or v8 and v9, and stores these.
fn result(instruction: &[u32], values: [u32; 3]) -> [u32; 2] {
    // s_load_b128 s[4:7], s[0:1], 0; v_lshlrev_b32 v0, 4, v0; s_waitcnt lgkmcnt(0)
    // global_load_b96 v[4:6], v0, s[4:5]; s_waitcnt vmcnt(0); s_mov_b32 vcc_lo, -1
    // v_mov_b32 v8, 0; v_mov_b32 v9, 0
    let before = [
        0xf408_0100,
        0xf800_0000,
        0x3000_0084,
        0xbf89_fc07,
        0xdc5a_0000,
        0x0404_0000,
        0xbf89_03f7,
        0xbeea_00c1,
        0x7e10_0280,
        0x7e12_0280,
    ];
    // global_store_b64 v0, v[8:9], s[6:7]; s_endpgm
    let after = [0xdc6e_0000, 0x0006_0800, 0xbfb0_0000];
    let device = Device::new(&with_code(&[&before, instruction, &after].concat()));
    let [a, b, c] = values;
    let from = device.buffer(&[a, b, c, 0].repeat(32));
    let to = device.buffer(&[0; 32 * 4]);
    let arguments = scale_arguments(from, to, 0.0, 0);
    device.run("scale", grid(1, 32), &arguments, &Options::default()).unwrap();
    let results = device.read(to, 32 * 4);
    assert!(results.chunks(4).all(|lane| lane == &results[..4]), "all lanes are the same");
    [results[0], results[1]]
}

/// An instruction of gfx1100, the values of v4 to v6, and those of v8 and v9 after it.
type Value<'a> = (&'a str, &'a [u32], [u32; 3], [u32; 2]);

#[test]
fn edges_of_values_are_as_the_manual_says() {
    let values: &[Value<'_>] = &[
        ("v_fract_f32 v8, v4", &[0x7e10_4104], [0x7f80_0000, 0, 0], [0x7fc0_0000, 0]),
        ("v_fract_f32 v8, v4", &[0x7e10_4104], [0xb300_0000, 0, 0], [0x3f7f_ffff, 0]),
        (
            "v_bfe_i32 v8, v4, v5, v6",
            &[0xd611_0008, 0x041a_0b04],
            [0xba07_c9b7, 0x15, 0x11],
            [0xffff_fdd0, 0],
        ),
        ("v_min_f32 v8, v4, v5", &[0x1e10_0b04], [0x8000_0000, 0xffa0_0000, 0], [0xffe0_0000, 0]),
        ("v_min_f32 v8, v4, v5", &[0x1e10_0b04], [0x8000_0000, 0xffe0_0000, 0], [0x8000_0000, 0]),
        ("v_max_f16 v8, v4, v5", &[0x7210_0b04], [0, 0xfc08, 0], [0xfe08, 0]),
        (
            "v_med3_f32 v8, v4, v5, v6",
            &[0xd61f_0008, 0x041a_0b04],
            [0x8000_0000, 0, 0xbf80_0000],
            [0, 0],
        ),
        ("v_cos_f32 v8, v4", &[0x7e10_6d04], [0x3e80_0000, 0, 0], [0, 0]),
        ("v_permlane64_b32 v8, v4", &[0x7e10_cf04], [1, 0, 0], [0, 0]),
        (
            "v_add_co_u32 v8, s8, v4, v5 clamp",
            &[0xd700_8808, 0x0002_0b04],
            [0xffff_ffff, 2, 0],
            [0xffff_ffff, 0],
        ),
        (
            "v_sub_co_ci_u32 v8, s8, v4, v5, vcc_lo clamp",
            &[0xd521_8808, 0x01aa_0b04],
            [1, 1, 0],
            [0, 0],
        ),
        (
            "v_mad_u32_u24 v8, v4, v5, v6 clamp",
            &[0xd60b_8008, 0x041a_0b04],
            [0x00ff_ffff, 0x00ff_ffff, 5],
            [0xffff_ffff, 0],
        ),
        (
            "v_mad_i16 v8, v4, v5, v6 clamp",
            &[0xd653_8008, 0x041a_0b04],
            [0x8000, 0x7fff, 0],
            [0x8000, 0],
        ),
        (
            "v_dot2_f32_f16 v8, v4, v5, v6",
            &[0xcc13_4008, 0x1c1a_0b04],
            [0x3c00_3c00, 0x3c00_3c00, 0x4b80_0000],
            [0x4b80_0000, 0],
        ),
        (
            "v_add_f32 v8, v4, v5 mul:2",
            &[0xd503_0008, 0x0802_0b04],
            [0x3f80_0000, 0x4000_0000, 0],
            [0x4040_0000, 0],
        ),
        (
            "v_pk_max_f16 v8, v4, v5 clamp",
            &[0xcc12_c008, 0x1802_0b04],
            [0x4000_7e00, 0x3c00_7e00, 0],
            [0x3c00_0000, 0],
        ),
        (
            "v_mad_i64_i32 v[8:9], s8, v4, v5, v[5:6]",
            &[0xd6ff_0808, 0x0416_0b04],
            [0xffff_ffff, 2, 0],
            [0, 0],
        ),
        ("v_mov_b16 v8.h, v4.l", &[0x7f10_3904], [0x1234_5678, 0, 0], [0x5678_0000, 0]),
        (
            "s_mov_b64 s[8:9], 0x89abcdef; v_mov_b32 v9, s9",
            &[0xbe88_01ff, 0x89ab_cdef, 0x7e12_0209],
            [0, 0, 0],
            [0, 0],
        ),
        ("v_subrev_nc_u32 v8, v4, v5 clamp", &[0xd527_8008, 0x0002_0b04], [7, 5, 0], [0, 0]),
    ];
    for &(text, words, values, expected) in values {
        let found = result(words, values);
        // The sign and the payload of a NaN that an operation makes are not documented.
        let is_nan = |value: u32| f32::from_bits(value).is_nan();
        let both_nan = text.starts_with("v_fract") && is_nan(found[0]) && is_nan(expected[0]);
        assert!(found == expected || both_nan, "{text}: {found:08x?}");
    }
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
