//! The example runs on the demo model. `cargo test` builds it.

#![cfg(not(miri))]

use rf_testing::output_of_example;

/// The numbers are those of a separate reader of the file, written in Python.
#[test]
fn a_tensor_of_the_demo_model_is_dequantized() {
    let expected = "blk.0.attn_q.weight: [256, 256] values in Q8_0, 69632 bytes\n\
                    between -0.97281 and 0.96070\n\
                    the last row begins with [-0.03831, 0.00128, -0.05619, -0.05108]\n";
    assert_eq!(output_of_example("dequantize"), expected);
}
