//! The table of formats: one row per format, from which every other list follows.

/// Expands a macro with the rows of the table of formats.
///
/// `for_each_format!(callback, ARGUMENTS…)` expands to `callback! { [ARGUMENTS…] ROWS… }`. The
/// columns of a row `{ … }` are:
///
/// | column | token | meaning |
/// |---|---|---|
/// | number | literal | position in `DType::ALL`, the id in device code |
/// | variant | ident | variant of `DType`: the name in camel case, `_` only between digits |
/// | name | literal | name in llama.cpp, such as `"Q4_K"` |
/// | kernel name | literal | part of a kernel's name, such as `"q4_k"` |
/// | family | ident | variant of `Family` |
/// | codec | ident | the block struct, or the float codec of rf-quant |
/// | ggml id | `(Option<u32>)` | id in ggml and GGUF |
/// | elements | literal | values per block |
/// | bytes | literal | bytes per block |
/// | doc | literal | the documentation of the variant |
///
/// New formats go to the end, because device code knows formats by number.
///
/// ```
/// use rf_quant::DType;
///
/// macro_rules! kernel_name {
///     ([$dtype:expr] $({
///         $number:literal $variant:ident $name:literal $kernel:literal $($rest:tt)*
///     })*) => {
///         match $dtype { $(DType::$variant => concat!("embed_", $kernel),)* }
///     };
/// }
/// assert_eq!(rf_quant::for_each_format!(kernel_name, DType::Q4K), "embed_q4_k");
/// ```
#[macro_export]
macro_rules! for_each_format {
    ($callback:ident $(, $($arguments:tt)*)?) => {
        $callback! {
            [$($($arguments)*)?]
            { 0 F32 "F32" "f32" Float F32 (Some(0)) 1 4
              "IEEE 754 binary32." }
            { 1 F16 "F16" "f16" Float F16 (Some(1)) 1 2
              "IEEE 754 binary16." }
            { 2 Bf16 "BF16" "bf16" Float Bf16 (Some(30)) 1 2
              "The upper half of a binary32." }
            { 3 Q4_0 "Q4_0" "q4_0" Block32 BlockQ4_0 (Some(2)) 32 18
              "4 bits, one scale per 32." }
            { 4 Q4_1 "Q4_1" "q4_1" Block32 BlockQ4_1 (Some(3)) 32 20
              "4 bits, one scale and minimum per 32." }
            { 5 Q5_0 "Q5_0" "q5_0" Block32 BlockQ5_0 (Some(6)) 32 22
              "5 bits, one scale per 32." }
            { 6 Q5_1 "Q5_1" "q5_1" Block32 BlockQ5_1 (Some(7)) 32 24
              "5 bits, one scale and minimum per 32." }
            { 7 Q8_0 "Q8_0" "q8_0" Block32 BlockQ8_0 (Some(8)) 32 34
              "8 bits, one scale per 32." }
            { 8 Q2K "Q2_K" "q2_k" KQuant BlockQ2K (Some(10)) 256 84
              "2 bits, 4-bit scales and minima per 16 in a super-block of 256." }
            { 9 Q3K "Q3_K" "q3_k" KQuant BlockQ3K (Some(11)) 256 110
              "3 bits, 6-bit scales per 16 in a super-block of 256." }
            { 10 Q4K "Q4_K" "q4_k" KQuant BlockQ4K (Some(12)) 256 144
              "4 bits, 6-bit scales and minima per 32 in a super-block of 256." }
            { 11 Q5K "Q5_K" "q5_k" KQuant BlockQ5K (Some(13)) 256 176
              "5 bits, 6-bit scales and minima per 32 in a super-block of 256." }
            { 12 Q6K "Q6_K" "q6_k" KQuant BlockQ6K (Some(14)) 256 210
              "6 bits, 8-bit scales per 16 in a super-block of 256." }
            { 13 Mxfp4 "MXFP4" "mxfp4" Microscaling BlockMxfp4 (Some(39)) 32 17
              "OCP microscaling: E2M1 elements, one E8M0 scale per 32." }
            { 14 Mxfp6E2M3 "MXFP6_E2M3" "mxfp6_e2m3" Microscaling BlockMxfp6E2M3 (None) 32 25
              "OCP microscaling: E2M3 elements, one E8M0 scale per 32. Not a ggml type." }
            { 15 Mxfp6E3M2 "MXFP6_E3M2" "mxfp6_e3m2" Microscaling BlockMxfp6E3M2 (None) 32 25
              "OCP microscaling: E3M2 elements, one E8M0 scale per 32. Not a ggml type." }
            { 16 Iq4Nl "IQ4_NL" "iq4_nl" Block32 BlockIq4Nl (Some(20)) 32 18
              "4 bits, which select one of 16 values, one scale per 32." }
            { 17 Iq4Xs "IQ4_XS" "iq4_xs" KQuant BlockIq4Xs (Some(23)) 256 136
              "4 bits, which select one of 16 values, 6-bit scales per 32 in a super-block of 256." }
            { 18 Iq3S "IQ3_S" "iq3_s" Codebook BlockIq3S (Some(21)) 256 110
              "3.4375 bits: a codebook of 512 points of 4 values, 4-bit scales per 32." }
            { 19 Iq3Xxs "IQ3_XXS" "iq3_xxs" Codebook BlockIq3Xxs (Some(18)) 256 98
              "3.0625 bits: a codebook of 256 points of 4 values, 4-bit scales per 32." }
            { 20 Iq2S "IQ2_S" "iq2_s" Codebook BlockIq2S (Some(22)) 256 82
              "2.5625 bits: a codebook of 1024 points of 8 values, 4-bit scales per 16." }
            { 21 Iq2Xs "IQ2_XS" "iq2_xs" Codebook BlockIq2Xs (Some(17)) 256 74
              "2.3125 bits: a codebook of 512 points of 8 values, 4-bit scales per 16." }
            { 22 Iq2Xxs "IQ2_XXS" "iq2_xxs" Codebook BlockIq2Xxs (Some(16)) 256 66
              "2.0625 bits: a codebook of 256 points of 8 values, 4-bit scales per 32." }
            { 23 Iq1M "IQ1_M" "iq1_m" Codebook BlockIq1M (Some(29)) 256 56
              "1.75 bits: a codebook of 2048 points of 8 values, 3-bit scales per 16." }
            { 24 Iq1S "IQ1_S" "iq1_s" Codebook BlockIq1S (Some(19)) 256 50
              "1.5625 bits: a codebook of 2048 points of 8 values, 3-bit scales per 32." }
            { 25 Tq2_0 "TQ2_0" "tq2_0" KQuant BlockTq2_0 (Some(35)) 256 66
              "Ternary: 2 bits, one scale per 256." }
            { 26 Tq1_0 "TQ1_0" "tq1_0" KQuant BlockTq1_0 (Some(34)) 256 54
              "Ternary: 5 values per byte, one scale per 256." }
            { 27 Nvfp4 "NVFP4" "nvfp4" Microscaling BlockNvfp4 (Some(40)) 64 36
              "E2M1 elements, one unsigned E4M3 scale per 16." }
            { 28 Q1_0 "Q1_0" "q1_0" Block32 BlockQ1_0 (Some(41)) 128 18
              "Signs, one scale per 128." }
            { 29 Q2_0 "Q2_0" "q2_0" Block32 BlockQ2_0 (Some(42)) 64 18
              "2 bits, one scale per 64." }
        }
    };
}

/// The table as a C header, for device code.
///
/// `RF_FORMATS(FLOAT, BLOCK32, K_QUANT, MICROSCALING, CODEBOOK)` expands the macro of the family
/// for each format, with the kernel name, the type and the number.
/// `cargo run -p rf-quant --example c_table` prints it.
pub const C_TABLE: &str = for_each_format!(c_table);

macro_rules! c_table {
    ([] $({
        $number:literal $variant:ident $name:literal $kernel:literal $family:ident
        $codec:ident $ggml_id:tt $elements:literal $bytes:literal $doc:literal
    })*) => {
        concat!(
            "// The formats of weights: kernel name, type, number.\n",
            "//\n",
            "// Generated from crates/rf-quant/src/formats.rs by\n",
            "// `cargo run -p rf-quant --example c_table`: do not edit.\n",
            "#pragma once\n",
            "\n",
            "#define RF_FORMATS(FLOAT, BLOCK32, K_QUANT, MICROSCALING, CODEBOOK) \\\n",
            $("    ", c_family!($family), "(", $kernel, ", ", stringify!($variant), ", ", $number, ") \\\n",)*
            "    // end\n",
        )
    };
}

macro_rules! c_family {
    (Float) => {
        "FLOAT"
    };
    (Block32) => {
        "BLOCK32"
    };
    (KQuant) => {
        "K_QUANT"
    };
    (Microscaling) => {
        "MICROSCALING"
    };
    (Codebook) => {
        "CODEBOOK"
    };
}

use c_family;
use c_table;
