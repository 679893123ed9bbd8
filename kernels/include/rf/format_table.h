// The formats of weights: kernel name, type, number.
//
// Generated from crates/rf-quant/src/formats.rs by
// `cargo run -p rf-quant --example c_table`: do not edit.
#pragma once

#define RF_FORMATS(FLOAT, BLOCK32, K_QUANT, MICROSCALING, CODEBOOK) \
    FLOAT(f32, F32, 0) \
    FLOAT(f16, F16, 1) \
    FLOAT(bf16, Bf16, 2) \
    BLOCK32(q4_0, Q4_0, 3) \
    BLOCK32(q4_1, Q4_1, 4) \
    BLOCK32(q5_0, Q5_0, 5) \
    BLOCK32(q5_1, Q5_1, 6) \
    BLOCK32(q8_0, Q8_0, 7) \
    K_QUANT(q2_k, Q2K, 8) \
    K_QUANT(q3_k, Q3K, 9) \
    K_QUANT(q4_k, Q4K, 10) \
    K_QUANT(q5_k, Q5K, 11) \
    K_QUANT(q6_k, Q6K, 12) \
    MICROSCALING(mxfp4, Mxfp4, 13) \
    MICROSCALING(mxfp6_e2m3, Mxfp6E2M3, 14) \
    MICROSCALING(mxfp6_e3m2, Mxfp6E3M2, 15) \
    BLOCK32(iq4_nl, Iq4Nl, 16) \
    K_QUANT(iq4_xs, Iq4Xs, 17) \
    CODEBOOK(iq3_s, Iq3S, 18) \
    CODEBOOK(iq3_xxs, Iq3Xxs, 19) \
    CODEBOOK(iq2_s, Iq2S, 20) \
    CODEBOOK(iq2_xs, Iq2Xs, 21) \
    CODEBOOK(iq2_xxs, Iq2Xxs, 22) \
    CODEBOOK(iq1_m, Iq1M, 23) \
    CODEBOOK(iq1_s, Iq1S, 24) \
    K_QUANT(tq2_0, Tq2_0, 25) \
    K_QUANT(tq1_0, Tq1_0, 26) \
    MICROSCALING(nvfp4, Nvfp4, 27) \
    BLOCK32(q1_0, Q1_0, 28) \
    BLOCK32(q2_0, Q2_0, 29) \
    // end
