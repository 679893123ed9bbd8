//! Each check finds the bug that was planted for it, on each family, and nothing in a clean kernel.

mod device;

use device::{Device, all_checks, grid};
use rf_emu::{Arch, Checks, Fault, Grid};

fn devices() -> [Device; 3] {
    [
        Device::new(include_bytes!("fixtures/planted.gfx1030.co")),
        Device::new(include_bytes!("fixtures/planted.gfx1100.co")),
        Device::new(include_bytes!("fixtures/planted.gfx1201.co")),
    ]
}

fn bytes(arguments: &[u64]) -> Vec<u8> {
    arguments.iter().flat_map(|argument| argument.to_le_bytes()).collect()
}

/// The fault of a kernel in one workgroup of 64 threads, all checks on.
fn fault(device: &Device, kernel: &str, arguments: &[u64]) -> Fault {
    let outcome = device.run(kernel, grid(1, 64), &bytes(arguments), &all_checks(0));
    outcome.expect_err(kernel)
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
        let text = fault(&device, kernel, &arguments).to_string();
        assert!(text.contains(expected), "{}: {text}", device.code.arch());
        assert!(text.starts_with(&format!("kernel '{kernel}': ")), "{text}");
    }
}

#[test]
fn a_clean_kernel_has_no_fault_in_any_order() {
    for device in devices() {
        let values: Vec<_> = (0..256).collect();
        let input = device.buffer(&values);
        for seed in 0..6 {
            let (sums, finished) = (device.buffer(&[0; 4]), device.buffer(&[0]));
            let out = device.buffer(&[0]);
            let arguments = bytes(&[input, sums, finished, out]);
            let outcome = device.run("clean", grid(4, 64), &arguments, &all_checks(seed));
            outcome.unwrap_or_else(|fault| panic!("{}, seed {seed}: {fault}", device.code.arch()));
            assert_eq!(device.read(out, 1), [255 * 128]);
        }
    }
}

#[test]
fn accesses_past_the_end_are_found_to_the_byte() {
    for device in devices() {
        let out = device.memory.allocate(10 * 4).unwrap();
        let fault = fault(&device, "store_past_the_end", &[out, 10]);
        let text = fault.to_string();
        assert!(text.contains("0 bytes past the end of device allocation"), "{text}");
        let place = fault.place.as_ref().unwrap();
        assert_eq!((place.wave, place.lane, place.workgroup), (0, Some(10), [0; 3]));
        assert!(place.instruction.starts_with("global_store_"), "{text}");
        assert!(fault.is_memory());
    }
    finds("load_arguments_past_the_end", &[], "past the end of kernel arguments");
    finds("scratch_past_the_end", &[1000], "bytes of scratch memory");
    for device in devices() {
        let out = device.buffer(&[0; 64]);
        let with_lds = Grid { dynamic_lds_bytes: 128, ..grid(1, 64) };
        let arguments = bytes(&[out, 0]);
        let outcome = device.run("lds_past_the_end", with_lds, &arguments, &all_checks(0));
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("4 bytes at 0x80 are outside the 128 bytes of LDS"), "{text}");
        assert!(text.contains("wave 1, lane 0"), "{text}");
    }
}

#[test]
fn a_use_after_free_is_found() {
    for device in devices() {
        let out = device.buffer(&[0; 64]);
        device.memory.free(out).unwrap();
        let text = fault(&device, "store_past_the_end", &[out, 10]).to_string();
        assert!(text.contains("were freed"), "{text}");
    }
}

#[test]
fn uses_of_what_was_never_written_are_found() {
    finds("uninitialised_register", &[], "which is not initialised");
    finds("uninitialised_lds", &[], "which is not initialised");
    for device in devices() {
        let never_written = device.memory.allocate(64 * 4).unwrap();
        let out = device.buffer(&[0; 64]);
        let text = fault(&device, "uninitialised_memory", &[never_written, out]).to_string();
        assert!(text.contains("an address depends on"), "{text}");
    }
}

#[test]
fn a_result_that_is_used_before_a_wait_covers_it_is_found() {
    for device in devices() {
        let (input, out) = (device.buffer(&[7; 64]), device.buffer(&[0; 64]));
        let text = fault(&device, "no_wait", &[input, out]).to_string();
        assert!(
            text.contains("covers the load into it [") && text.contains("v_add_nc_u32"),
            "{text}"
        );
    }
}

#[test]
fn races_are_found() {
    for device in devices() {
        // The value that the other wave has not written yet would be the first fault otherwise.
        let mut options = all_checks(0);
        options.checks = "races".parse().unwrap();
        let arguments = bytes(&[device.buffer(&[0; 64])]);
        let text =
            device.run("lds_race", grid(1, 64), &arguments, &options).unwrap_err().to_string();
        assert!(text.contains("the same byte of LDS") && text.contains("wave 1"), "{text}");

        let input = device.buffer(&[1; 4]);
        let (sums, finished) = (device.buffer(&[0; 4]), device.buffer(&[0]));
        let arguments = bytes(&[input, sums, finished, device.buffer(&[0])]);
        let outcome = device.run("global_race", grid(4, 64), &arguments, &all_checks(3));
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("no release and acquire orders the two"), "{text}");
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
    finds("inactive_lane", &[], "which is inactive");
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
