//! CPU backend: SIMD tiers and threading.
