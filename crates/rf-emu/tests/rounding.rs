//! Kernels that set the rounding mode get the results of that mode.
//!
//! The kernels are compiled by clang 19 or later; without it the test is skipped.

mod compiled;
mod device;

use compiled::compiled;
use device::{all_checks, grid};

/// Values whose sums and products are exact in f64, none of them in f32.
const PAIRS: [(f32, f32); 6] = [
    (1.0, 1e-6),
    (-1.0, -1e-6),
    (1.000_000_1, -3.3e-7),
    (-0.333_333_34, 2.000_000_2),
    (16_777_215.0, 1.5),
    (f32::MAX, 3e31),
];

/// The f32 that an f64 is rounded to: to nearest, up, down, toward zero.
fn rounded(exact: f64, mode: u32) -> u32 {
    let near = exact as f32;
    let wide = f64::from(near);
    let (above, below) = (
        if wide >= exact { near } else { near.next_up() },
        if wide <= exact { near } else { near.next_down() },
    );
    let value = match mode {
        0 => near,
        1 => above,
        2 => below,
        _ if exact > 0.0 => below,
        _ => above,
    };
    value.to_bits()
}

#[test]
fn a_mode_rounds_f32_and_f16_in_its_direction() {
    let halves = |value: f32, mode: u32| {
        // The f16 around these values differ by a unit of the last place.
        let near = half::f16::from_f32(value);
        let exceeds = f32::from(near).abs() > value.abs();
        let is_exact = near.to_f32().to_bits() == value.to_bits();
        let bits = u32::from(near.to_bits());
        let (toward, away) = if exceeds { (bits - 1, bits) } else { (bits, bits + 1) };
        match mode {
            _ if is_exact || mode == 0 => bits,
            1 if value > 0.0 => away,
            2 if value < 0.0 => away,
            _ => toward,
        }
    };
    for device in compiled("rounding.hip") {
        let column = |of: fn(&(f32, f32)) -> f32| -> Vec<u32> {
            (0..32).map(|at| of(&PAIRS[at % PAIRS.len()]).to_bits()).collect()
        };
        let (a, b) = (device.buffer(&column(|pair| pair.0)), device.buffer(&column(|pair| pair.1)));
        for mode in 0..4u32 {
            let out = device.buffer(&[0; 32 * 6]);
            let mut arguments: Vec<_> =
                [a, b, out].iter().flat_map(|buffer| buffer.to_le_bytes()).collect();
            // The same direction for f32 and for f16 and f64.
            arguments.extend((mode | mode << 2).to_le_bytes());
            device.run("rounded", grid(1, 32), &arguments, &all_checks(0)).unwrap();
            let left = device.read(out, 32 * 6);
            for (&(x, y), words) in PAIRS.iter().zip(left.chunks(6)) {
                let (wide_x, wide_y) = (f64::from(x), f64::from(y));
                let expected = [
                    rounded(wide_x + wide_y, mode),
                    rounded(wide_x * wide_y, mode),
                    rounded(wide_x.mul_add(wide_y, wide_x), mode),
                    halves(x, mode),
                    rounded(x.to_bits().into(), mode),
                    rounded(wide_x + wide_y, 0),
                ];
                let arch = device.code.arch();
                assert_eq!(words, expected, "{arch}, mode {mode}: {x:e}, {y:e}");
            }
        }
    }
}
