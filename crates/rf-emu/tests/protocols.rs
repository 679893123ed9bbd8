//! Protocols between workgroups: the check `global-races` accepts those that order accesses, and
//! names what the others lack.
//!
//! The kernels are compiled by clang 19 or later; without it the tests are skipped.

mod compiled;
mod device;

use compiled::compiled;
use device::{Device, all_checks, grid};
use rf_emu::{Arch, Fault};

const GROUPS: u32 = 4;

/// In order, and in five random orders.
const SEEDS: std::ops::RangeInclusive<u64> = 0..=5;

/// The contents of the three buffers that a kernel leaves.
fn run(device: &Device, kernel: &str, seed: u64) -> Result<[Vec<u32>; 3], Fault> {
    let buffers = [256; 3].map(|words| device.buffer(&vec![0; words]));
    let mut arguments: Vec<_> = buffers.iter().flat_map(|buffer| buffer.to_le_bytes()).collect();
    arguments.extend(GROUPS.to_le_bytes());
    device.run(kernel, grid(GROUPS, 64), &arguments, &all_checks(seed))?;
    Ok(buffers.map(|buffer| device.read(buffer, 256)))
}

#[test]
fn protocols_that_order_accesses_have_no_fault_in_any_order() {
    type Check = fn(&[Vec<u32>; 3]);
    let kernels: [(&str, Check); 8] = [
        ("counter", |[_, _, out]| {
            for (thread, &sum) in (0..).zip(&out[..64]) {
                assert_eq!(sum, 6 + GROUPS * thread);
            }
        }),
        ("flag", |[_, _, out]| {
            let expected: Vec<_> = (1..=32).rev().collect();
            assert!((1..4).all(|group| out[group * 64..][..32] == expected));
        }),
        ("flag_taken", |[_, _, out]| assert_eq!(out[1..4], [8, 9, 10])),
        ("ticket", |[value, counters, _]| assert_eq!((value[0], counters[1]), (6, 4))),
        ("lock", |[value, lock, _]| assert_eq!((value[0], lock[0]), (6, 0))),
        ("exchange", |[value, lock, _]| assert_eq!((value[0], lock[0]), (6, 0))),
        ("double_flag", |[value, ..]| assert_eq!(value[0], 0b0101_0101)),
        ("chain", |[values, ..]| {
            assert!((0..4).all(|group| values[group * 32..][..32] == [1 << group; 32]));
        }),
    ];
    for device in compiled("protocols.hip") {
        for (kernel, check) in &kernels {
            for seed in SEEDS {
                let left = run(&device, kernel, seed);
                check(&left.unwrap_or_else(|fault| panic!("{}: {fault}", device.code.arch())));
            }
        }
    }
}

#[test]
fn protocols_with_a_mistake_are_found_and_the_mistake_is_named() {
    const NOT_RELEASED: &str = "set the flag that this one has seen without a wait for its stores";
    const NOT_ACQUIRED: &str = "has seen the release of the other one, but not dropped its caches";
    const NOT_ATOMIC: &str = "one of the accesses is not atomic at agent scope";
    const SCOPE: &str = "atomic in its workgroup only, not at agent scope";
    const UNORDERED: &str = "and no release and acquire orders the two [";
    // By family, as the machine code of the same source differs.
    let kernels = [
        ("counter_without_release", [NOT_RELEASED; 3]),
        ("counter_without_acquire", [NOT_ACQUIRED; 3]),
        ("counter_of_a_workgroup", [NOT_ACQUIRED, NOT_ACQUIRED, SCOPE]),
        ("flag_without_wait", [NOT_RELEASED; 3]),
        ("flag_without_invalidate", [NOT_ACQUIRED; 3]),
        ("flag_loaded_for_a_workgroup", [SCOPE, NOT_ACQUIRED, SCOPE]),
        ("flag_loaded_plainly", [UNORDERED; 3]),
        ("flag_stored_plainly", [NOT_RELEASED, NOT_RELEASED, NOT_ATOMIC]),
        ("lock_given_back_early", [NOT_RELEASED; 3]),
        ("two_writers", [UNORDERED; 3]),
    ];
    for (device, family) in compiled("protocols.hip").iter().zip(0..) {
        for (kernel, expected) in kernels {
            for seed in SEEDS {
                let text = run(device, kernel, seed).expect_err(kernel).to_string();
                let arch = device.code.arch();
                assert!(text.contains(expected[family]), "{arch}, seed {seed}: {text}");
                assert!(text.starts_with(&format!("kernel '{kernel}': workgroup ")), "{text}");
                assert!(text.contains(" [protocols.hip:"), "{text}");
            }
        }
    }
}

/// Before RDNA 4, a store of workgroup scope is the same instruction as one of agent scope, after
/// the same wait.
#[test]
fn a_release_of_workgroup_scope_is_found_where_it_differs_from_one_of_agent_scope() {
    for device in compiled("protocols.hip") {
        for seed in SEEDS {
            let outcome = run(&device, "flag_stored_for_a_workgroup", seed);
            if device.code.arch() == Arch::Gfx1201 {
                let text = outcome.unwrap_err().to_string();
                assert!(text.contains("is not atomic at agent scope"), "{text}");
            } else {
                outcome.unwrap();
            }
        }
    }
}
