//! Loads, stores and atomics: SMEM, DS, FLAT, GLOBAL, SCRATCH and what kernels use of MUBUF.

use super::InstructionRow;
use super::row::rows;
use crate::isa::op::Access::{self, Bytes, High, Low, Signed};
use crate::isa::op::{AtomicOp, DsOp, Op, VmemOp};

const fn load(access: Access) -> Op {
    Op::Vmem(VmemOp::Load(access))
}

const fn store(access: Access) -> Op {
    Op::Vmem(VmemOp::Store(access))
}

const fn atomic(op: AtomicOp) -> Op {
    Op::Vmem(VmemOp::Atomic { op, wide: false })
}

const fn wide(op: AtomicOp) -> Op {
    Op::Vmem(VmemOp::Atomic { op, wide: true })
}

const fn low(bytes: u8, signed: bool) -> Access {
    Low { bytes, signed }
}

const fn high(bytes: u8, signed: bool) -> Access {
    High { bytes, signed }
}

const fn ds_load(access: Access) -> Op {
    Op::Ds(DsOp::Load(access))
}

const fn ds_store(access: Access) -> Op {
    Op::Ds(DsOp::Store(access))
}

const fn ds(op: AtomicOp) -> Op {
    Op::Ds(DsOp::Atomic { op, wide: false, returns: false })
}

const fn ds_rtn(op: AtomicOp) -> Op {
    Op::Ds(DsOp::Atomic { op, wide: false, returns: true })
}

const fn ds_wide(op: AtomicOp) -> Op {
    Op::Ds(DsOp::Atomic { op, wide: true, returns: false })
}

const fn ds_wide_rtn(op: AtomicOp) -> Op {
    Op::Ds(DsOp::Atomic { op, wide: true, returns: true })
}

const fn ds_load2(wide: bool, stride64: bool) -> Op {
    Op::Ds(DsOp::Load2 { wide, stride64 })
}

const fn ds_store2(wide: bool, stride64: bool) -> Op {
    Op::Ds(DsOp::Store2 { wide, stride64 })
}

rows! { SMEM;
    (Op::ScalarLoad(1)) "s_load_dword/s_load_b32/s_load_b32" [0 0 0] "";
    (Op::ScalarLoad(2)) "s_load_dwordx2/s_load_b64/s_load_b64" [1 1 1] "";
    (Op::ScalarLoad(4)) "s_load_dwordx4/s_load_b128/s_load_b128" [2 2 2] "";
    (Op::ScalarLoad(8)) "s_load_dwordx8/s_load_b256/s_load_b256" [3 3 3] "";
    (Op::ScalarLoad(16)) "s_load_dwordx16/s_load_b512/s_load_b512" [4 4 4] "";
    (Op::ScalarLoad(3)) "s_load_b96" [_ _ 5] "";
    (Op::ScalarLoadSmall(Signed(1))) "s_load_i8" [_ _ 8] "";
    (Op::ScalarLoadSmall(Bytes(1))) "s_load_u8" [_ _ 9] "";
    (Op::ScalarLoadSmall(Signed(2))) "s_load_i16" [_ _ 10] "";
    (Op::ScalarLoadSmall(Bytes(2))) "s_load_u16" [_ _ 11] "";
    (Op::ScalarCacheInvalidate) "s_gl1_inv" [31 32 _] "";
    (Op::ScalarCacheInvalidate) "s_dcache_inv" [32 33 33] "";
    (Op::Time) "s_memtime" [36 _ _] "";
    (Op::Time) "s_memrealtime" [37 _ _] "";
    (Op::Prefetch) "s_prefetch_data" [_ _ 38] "";
}

// The names lack the prefix `flat_`, `global_` or `scratch_`.
rows! { FLAT;
    (load(Bytes(1))) "load_ubyte/load_u8/load_u8" [8 16 16] "";
    (load(Signed(1))) "load_sbyte/load_i8/load_i8" [9 17 17] "";
    (load(Bytes(2))) "load_ushort/load_u16/load_u16" [10 18 18] "";
    (load(Signed(2))) "load_sshort/load_i16/load_i16" [11 19 19] "";
    (load(Bytes(4))) "load_dword/load_b32/load_b32" [12 20 20] "";
    (load(Bytes(8))) "load_dwordx2/load_b64/load_b64" [13 21 21] "";
    (load(Bytes(12))) "load_dwordx3/load_b96/load_b96" [15 22 22] "";
    (load(Bytes(16))) "load_dwordx4/load_b128/load_b128" [14 23 23] "";
    (store(Bytes(1))) "store_byte/store_b8/store_b8" [24 24 24] "";
    (store(Bytes(2))) "store_short/store_b16/store_b16" [26 25 25] "";
    (store(Bytes(4))) "store_dword/store_b32/store_b32" [28 26 26] "";
    (store(Bytes(8))) "store_dwordx2/store_b64/store_b64" [29 27 27] "";
    (store(Bytes(12))) "store_dwordx3/store_b96/store_b96" [31 28 28] "";
    (store(Bytes(16))) "store_dwordx4/store_b128/store_b128" [30 29 29] "";
    (load(low(1, false))) "load_ubyte_d16/load_d16_u8/load_d16_u8" [32 30 30] "";
    (load(low(1, true))) "load_sbyte_d16/load_d16_i8/load_d16_i8" [34 31 31] "";
    (load(low(2, false))) "load_short_d16/load_d16_b16/load_d16_b16" [36 32 32] "";
    (load(high(1, false))) "load_ubyte_d16_hi/load_d16_hi_u8/load_d16_hi_u8" [33 33 33] "";
    (load(high(1, true))) "load_sbyte_d16_hi/load_d16_hi_i8/load_d16_hi_i8" [35 34 34] "";
    (load(high(2, false))) "load_short_d16_hi/load_d16_hi_b16/load_d16_hi_b16" [37 35 35] "";
    (store(high(1, false))) "store_byte_d16_hi/store_d16_hi_b8/store_d16_hi_b8" [25 36 36] "";
    (store(high(2, false))) "store_short_d16_hi/store_d16_hi_b16/store_d16_hi_b16" [27 37 37] "";
    (atomic(AtomicOp::Swap)) "atomic_swap/atomic_swap_b32/atomic_swap_b32" [48 51 51] "";
    (atomic(AtomicOp::Cmpswap)) "atomic_cmpswap/atomic_cmpswap_b32/atomic_cmpswap_b32" [49 52 52] "";
    (atomic(AtomicOp::Add)) "atomic_add/atomic_add_u32/atomic_add_u32" [50 53 53] "";
    (atomic(AtomicOp::Sub)) "atomic_sub/atomic_sub_u32/atomic_sub_u32" [51 54 54] "";
    (atomic(AtomicOp::SubClamp)) "atomic_csub/atomic_csub_u32/atomic_sub_clamp_u32" [52 55 55] "";
    (atomic(AtomicOp::MinI)) "atomic_smin/atomic_min_i32/atomic_min_i32" [53 56 56] "";
    (atomic(AtomicOp::MinU)) "atomic_umin/atomic_min_u32/atomic_min_u32" [54 57 57] "";
    (atomic(AtomicOp::MaxI)) "atomic_smax/atomic_max_i32/atomic_max_i32" [55 58 58] "";
    (atomic(AtomicOp::MaxU)) "atomic_umax/atomic_max_u32/atomic_max_u32" [56 59 59] "";
    (atomic(AtomicOp::And)) "atomic_and/atomic_and_b32/atomic_and_b32" [57 60 60] "";
    (atomic(AtomicOp::Or)) "atomic_or/atomic_or_b32/atomic_or_b32" [58 61 61] "";
    (atomic(AtomicOp::Xor)) "atomic_xor/atomic_xor_b32/atomic_xor_b32" [59 62 62] "";
    (atomic(AtomicOp::Inc)) "atomic_inc/atomic_inc_u32/atomic_inc_u32" [60 63 63] "";
    (atomic(AtomicOp::Dec)) "atomic_dec/atomic_dec_u32/atomic_dec_u32" [61 64 64] "";
    (wide(AtomicOp::Swap)) "atomic_swap_x2/atomic_swap_b64/atomic_swap_b64" [80 65 65] "";
    (wide(AtomicOp::Cmpswap)) "atomic_cmpswap_x2/atomic_cmpswap_b64/atomic_cmpswap_b64" [81 66 66] "";
    (wide(AtomicOp::Add)) "atomic_add_x2/atomic_add_u64/atomic_add_u64" [82 67 67] "";
    (wide(AtomicOp::Sub)) "atomic_sub_x2/atomic_sub_u64/atomic_sub_u64" [83 68 68] "";
    (wide(AtomicOp::MinI)) "atomic_smin_x2/atomic_min_i64/atomic_min_i64" [85 69 69] "";
    (wide(AtomicOp::MinU)) "atomic_umin_x2/atomic_min_u64/atomic_min_u64" [86 70 70] "";
    (wide(AtomicOp::MaxI)) "atomic_smax_x2/atomic_max_i64/atomic_max_i64" [87 71 71] "";
    (wide(AtomicOp::MaxU)) "atomic_umax_x2/atomic_max_u64/atomic_max_u64" [88 72 72] "";
    (wide(AtomicOp::And)) "atomic_and_x2/atomic_and_b64/atomic_and_b64" [89 73 73] "";
    (wide(AtomicOp::Or)) "atomic_or_x2/atomic_or_b64/atomic_or_b64" [90 74 74] "";
    (wide(AtomicOp::Xor)) "atomic_xor_x2/atomic_xor_b64/atomic_xor_b64" [91 75 75] "";
    (wide(AtomicOp::Inc)) "atomic_inc_x2/atomic_inc_u64/atomic_inc_u64" [92 76 76] "";
    (wide(AtomicOp::Dec)) "atomic_dec_x2/atomic_dec_u64/atomic_dec_u64" [93 77 77] "";
    (atomic(AtomicOp::MinF)) "atomic_fmin/atomic_min_f32/atomic_min_num_f32" [63 81 81] "";
    (atomic(AtomicOp::MaxF)) "atomic_fmax/atomic_max_f32/atomic_max_num_f32" [64 82 82] "";
    (atomic(AtomicOp::AddF)) "atomic_add_f32" [_ 86 86] "";
    (atomic(AtomicOp::CondSub)) "atomic_cond_sub_u32" [_ _ 80] "";
    (atomic(AtomicOp::PkAddF16)) "atomic_pk_add_f16" [_ _ 89] "";
    (atomic(AtomicOp::PkAddBf16)) "atomic_pk_add_bf16" [_ _ 90] "";
    (Op::Vmem(VmemOp::Invalidate)) "inv" [_ _ 43] "";
    (Op::Vmem(VmemOp::WriteBack)) "wb" [_ _ 44] "";
    (Op::Vmem(VmemOp::WriteBackInvalidate)) "wbinv" [_ _ 79] "";
}

// RDNA 2 accesses scratch memory through a buffer.
rows! { MUBUF;
    (load(Bytes(1))) "buffer_load_ubyte" [8 _ _] "";
    (load(Signed(1))) "buffer_load_sbyte" [9 _ _] "";
    (load(Bytes(2))) "buffer_load_ushort" [10 _ _] "";
    (load(Signed(2))) "buffer_load_sshort" [11 _ _] "";
    (load(Bytes(4))) "buffer_load_dword" [12 _ _] "";
    (load(Bytes(8))) "buffer_load_dwordx2" [13 _ _] "";
    (load(Bytes(16))) "buffer_load_dwordx4" [14 _ _] "";
    (load(Bytes(12))) "buffer_load_dwordx3" [15 _ _] "";
    (store(Bytes(1))) "buffer_store_byte" [24 _ _] "";
    (store(high(1, false))) "buffer_store_byte_d16_hi" [25 _ _] "";
    (store(Bytes(2))) "buffer_store_short" [26 _ _] "";
    (store(high(2, false))) "buffer_store_short_d16_hi" [27 _ _] "";
    (store(Bytes(4))) "buffer_store_dword" [28 _ _] "";
    (store(Bytes(8))) "buffer_store_dwordx2" [29 _ _] "";
    (store(Bytes(16))) "buffer_store_dwordx4" [30 _ _] "";
    (store(Bytes(12))) "buffer_store_dwordx3" [31 _ _] "";
    (load(low(1, false))) "buffer_load_ubyte_d16" [32 _ _] "";
    (load(high(1, false))) "buffer_load_ubyte_d16_hi" [33 _ _] "";
    (load(low(1, true))) "buffer_load_sbyte_d16" [34 _ _] "";
    (load(high(1, true))) "buffer_load_sbyte_d16_hi" [35 _ _] "";
    (load(low(2, false))) "buffer_load_short_d16" [36 _ _] "";
    (load(high(2, false))) "buffer_load_short_d16_hi" [37 _ _] "";
    (Op::Vmem(VmemOp::Invalidate)) "buffer_gl0_inv" [113 43 _] "";
    (Op::Vmem(VmemOp::Invalidate)) "buffer_gl1_inv" [114 44 _] "";
}

rows! { DS;
    (ds(AtomicOp::Add)) "ds_add_u32" [0 0 0] "";
    (ds(AtomicOp::Sub)) "ds_sub_u32" [1 1 1] "";
    (ds(AtomicOp::Rsub)) "ds_rsub_u32" [2 2 2] "";
    (ds(AtomicOp::Inc)) "ds_inc_u32" [3 3 3] "";
    (ds(AtomicOp::Dec)) "ds_dec_u32" [4 4 4] "";
    (ds(AtomicOp::MinI)) "ds_min_i32" [5 5 5] "";
    (ds(AtomicOp::MaxI)) "ds_max_i32" [6 6 6] "";
    (ds(AtomicOp::MinU)) "ds_min_u32" [7 7 7] "";
    (ds(AtomicOp::MaxU)) "ds_max_u32" [8 8 8] "";
    (ds(AtomicOp::And)) "ds_and_b32" [9 9 9] "";
    (ds(AtomicOp::Or)) "ds_or_b32" [10 10 10] "";
    (ds(AtomicOp::Xor)) "ds_xor_b32" [11 11 11] "";
    (ds_store(Bytes(4))) "ds_write_b32/ds_store_b32/ds_store_b32" [13 13 13] "";
    (ds_store2(false, false)) "ds_write2_b32/ds_store_2addr_b32/ds_store_2addr_b32" [14 14 14] "";
    (ds_store2(false, true)) "ds_write2st64_b32/ds_store_2addr_stride64_b32/ds_store_2addr_stride64_b32" [15 15 15] "";
    (ds(AtomicOp::Cmpswap)) "ds_cmpst_b32/ds_cmpstore_b32/ds_cmpstore_b32" [16 16 16] "";
    (ds(AtomicOp::MinF)) "ds_min_f32/ds_min_f32/ds_min_num_f32" [18 18 18] "";
    (ds(AtomicOp::MaxF)) "ds_max_f32/ds_max_f32/ds_max_num_f32" [19 19 19] "";
    (Op::Ds(DsOp::Nop)) "ds_nop" [20 20 20] "";
    (ds(AtomicOp::AddF)) "ds_add_f32" [21 21 21] "";
    (ds_store(Bytes(1))) "ds_write_b8/ds_store_b8/ds_store_b8" [30 30 30] "";
    (ds_store(Bytes(2))) "ds_write_b16/ds_store_b16/ds_store_b16" [31 31 31] "";
    (ds_rtn(AtomicOp::Add)) "ds_add_rtn_u32" [32 32 32] "";
    (ds_rtn(AtomicOp::Sub)) "ds_sub_rtn_u32" [33 33 33] "";
    (ds_rtn(AtomicOp::Rsub)) "ds_rsub_rtn_u32" [34 34 34] "";
    (ds_rtn(AtomicOp::Inc)) "ds_inc_rtn_u32" [35 35 35] "";
    (ds_rtn(AtomicOp::Dec)) "ds_dec_rtn_u32" [36 36 36] "";
    (ds_rtn(AtomicOp::MinI)) "ds_min_rtn_i32" [37 37 37] "";
    (ds_rtn(AtomicOp::MaxI)) "ds_max_rtn_i32" [38 38 38] "";
    (ds_rtn(AtomicOp::MinU)) "ds_min_rtn_u32" [39 39 39] "";
    (ds_rtn(AtomicOp::MaxU)) "ds_max_rtn_u32" [40 40 40] "";
    (ds_rtn(AtomicOp::And)) "ds_and_rtn_b32" [41 41 41] "";
    (ds_rtn(AtomicOp::Or)) "ds_or_rtn_b32" [42 42 42] "";
    (ds_rtn(AtomicOp::Xor)) "ds_xor_rtn_b32" [43 43 43] "";
    (ds_rtn(AtomicOp::Swap)) "ds_wrxchg_rtn_b32/ds_storexchg_rtn_b32/ds_storexchg_rtn_b32" [45 45 45] "";
    (ds_rtn(AtomicOp::Cmpswap)) "ds_cmpst_rtn_b32/ds_cmpstore_rtn_b32/ds_cmpstore_rtn_b32" [48 48 48] "";
    (ds_rtn(AtomicOp::MinF)) "ds_min_rtn_f32/ds_min_rtn_f32/ds_min_num_rtn_f32" [50 50 50] "";
    (ds_rtn(AtomicOp::MaxF)) "ds_max_rtn_f32/ds_max_rtn_f32/ds_max_num_rtn_f32" [51 51 51] "";
    (Op::Ds(DsOp::Swizzle)) "ds_swizzle_b32" [53 53 53] "";
    (ds_load(Bytes(4))) "ds_read_b32/ds_load_b32/ds_load_b32" [54 54 54] "";
    (ds_load2(false, false)) "ds_read2_b32/ds_load_2addr_b32/ds_load_2addr_b32" [55 55 55] "";
    (ds_load2(false, true)) "ds_read2st64_b32/ds_load_2addr_stride64_b32/ds_load_2addr_stride64_b32" [56 56 56] "";
    (ds_load(Signed(1))) "ds_read_i8/ds_load_i8/ds_load_i8" [57 57 57] "";
    (ds_load(Bytes(1))) "ds_read_u8/ds_load_u8/ds_load_u8" [58 58 58] "";
    (ds_load(Signed(2))) "ds_read_i16/ds_load_i16/ds_load_i16" [59 59 59] "";
    (ds_load(Bytes(2))) "ds_read_u16/ds_load_u16/ds_load_u16" [60 60 60] "";
    (ds_wide(AtomicOp::Add)) "ds_add_u64" [64 64 64] "";
    (ds_wide(AtomicOp::Sub)) "ds_sub_u64" [65 65 65] "";
    (ds_wide(AtomicOp::Rsub)) "ds_rsub_u64" [66 66 66] "";
    (ds_wide(AtomicOp::Inc)) "ds_inc_u64" [67 67 67] "";
    (ds_wide(AtomicOp::Dec)) "ds_dec_u64" [68 68 68] "";
    (ds_wide(AtomicOp::MinI)) "ds_min_i64" [69 69 69] "";
    (ds_wide(AtomicOp::MaxI)) "ds_max_i64" [70 70 70] "";
    (ds_wide(AtomicOp::MinU)) "ds_min_u64" [71 71 71] "";
    (ds_wide(AtomicOp::MaxU)) "ds_max_u64" [72 72 72] "";
    (ds_wide(AtomicOp::And)) "ds_and_b64" [73 73 73] "";
    (ds_wide(AtomicOp::Or)) "ds_or_b64" [74 74 74] "";
    (ds_wide(AtomicOp::Xor)) "ds_xor_b64" [75 75 75] "";
    (ds_store(Bytes(8))) "ds_write_b64/ds_store_b64/ds_store_b64" [77 77 77] "";
    (ds_store2(true, false)) "ds_write2_b64/ds_store_2addr_b64/ds_store_2addr_b64" [78 78 78] "";
    (ds_store2(true, true)) "ds_write2st64_b64/ds_store_2addr_stride64_b64/ds_store_2addr_stride64_b64" [79 79 79] "";
    (ds_wide(AtomicOp::Cmpswap)) "ds_cmpst_b64/ds_cmpstore_b64/ds_cmpstore_b64" [80 80 80] "";
    (ds_rtn(AtomicOp::AddF)) "ds_add_rtn_f32" [85 121 121] "";
    (ds_wide_rtn(AtomicOp::Add)) "ds_add_rtn_u64" [96 96 96] "";
    (ds_wide_rtn(AtomicOp::Sub)) "ds_sub_rtn_u64" [97 97 97] "";
    (ds_wide_rtn(AtomicOp::Rsub)) "ds_rsub_rtn_u64" [98 98 98] "";
    (ds_wide_rtn(AtomicOp::Inc)) "ds_inc_rtn_u64" [99 99 99] "";
    (ds_wide_rtn(AtomicOp::Dec)) "ds_dec_rtn_u64" [100 100 100] "";
    (ds_wide_rtn(AtomicOp::MinI)) "ds_min_rtn_i64" [101 101 101] "";
    (ds_wide_rtn(AtomicOp::MaxI)) "ds_max_rtn_i64" [102 102 102] "";
    (ds_wide_rtn(AtomicOp::MinU)) "ds_min_rtn_u64" [103 103 103] "";
    (ds_wide_rtn(AtomicOp::MaxU)) "ds_max_rtn_u64" [104 104 104] "";
    (ds_wide_rtn(AtomicOp::And)) "ds_and_rtn_b64" [105 105 105] "";
    (ds_wide_rtn(AtomicOp::Or)) "ds_or_rtn_b64" [106 106 106] "";
    (ds_wide_rtn(AtomicOp::Xor)) "ds_xor_rtn_b64" [107 107 107] "";
    (ds_wide_rtn(AtomicOp::Swap)) "ds_wrxchg_rtn_b64/ds_storexchg_rtn_b64/ds_storexchg_rtn_b64" [109 109 109] "";
    (ds_wide_rtn(AtomicOp::Cmpswap)) "ds_cmpst_rtn_b64/ds_cmpstore_rtn_b64/ds_cmpstore_rtn_b64" [112 112 112] "";
    (ds_load(Bytes(8))) "ds_read_b64/ds_load_b64/ds_load_b64" [118 118 118] "";
    (ds_load2(true, false)) "ds_read2_b64/ds_load_2addr_b64/ds_load_2addr_b64" [119 119 119] "";
    (ds_load2(true, true)) "ds_read2st64_b64/ds_load_2addr_stride64_b64/ds_load_2addr_stride64_b64" [120 120 120] "";
    (ds_store(high(1, false))) "ds_write_b8_d16_hi/ds_store_b8_d16_hi/ds_store_b8_d16_hi" [160 160 160] "";
    (ds_store(high(2, false))) "ds_write_b16_d16_hi/ds_store_b16_d16_hi/ds_store_b16_d16_hi" [161 161 161] "";
    (ds_load(low(1, false))) "ds_read_u8_d16/ds_load_u8_d16/ds_load_u8_d16" [162 162 162] "";
    (ds_load(high(1, false))) "ds_read_u8_d16_hi/ds_load_u8_d16_hi/ds_load_u8_d16_hi" [163 163 163] "";
    (ds_load(low(1, true))) "ds_read_i8_d16/ds_load_i8_d16/ds_load_i8_d16" [164 164 164] "";
    (ds_load(high(1, true))) "ds_read_i8_d16_hi/ds_load_i8_d16_hi/ds_load_i8_d16_hi" [165 165 165] "";
    (ds_load(low(2, false))) "ds_read_u16_d16/ds_load_u16_d16/ds_load_u16_d16" [166 166 166] "";
    (ds_load(high(2, false))) "ds_read_u16_d16_hi/ds_load_u16_d16_hi/ds_load_u16_d16_hi" [167 167 167] "";
    (Op::Ds(DsOp::Permute)) "ds_permute_b32" [178 178 178] "";
    (Op::Ds(DsOp::Bpermute)) "ds_bpermute_b32" [179 179 179] "";
    (ds_store(Bytes(12))) "ds_write_b96/ds_store_b96/ds_store_b96" [222 222 222] "";
    (ds_store(Bytes(16))) "ds_write_b128/ds_store_b128/ds_store_b128" [223 223 223] "";
    (ds_load(Bytes(12))) "ds_read_b96/ds_load_b96/ds_load_b96" [254 254 254] "";
    (ds_load(Bytes(16))) "ds_read_b128/ds_load_b128/ds_load_b128" [255 255 255] "";
    (ds(AtomicOp::CondSub)) "ds_cond_sub_u32" [_ _ 152] "";
    (ds(AtomicOp::SubClamp)) "ds_sub_clamp_u32" [_ _ 153] "";
    (ds(AtomicOp::PkAddF16)) "ds_pk_add_f16" [_ _ 154] "";
    (ds(AtomicOp::PkAddBf16)) "ds_pk_add_bf16" [_ _ 155] "";
    (ds_rtn(AtomicOp::CondSub)) "ds_cond_sub_rtn_u32" [_ _ 168] "";
    (ds_rtn(AtomicOp::SubClamp)) "ds_sub_clamp_rtn_u32" [_ _ 169] "";
    (ds_rtn(AtomicOp::PkAddF16)) "ds_pk_add_rtn_f16" [_ _ 170] "";
    (ds_rtn(AtomicOp::PkAddBf16)) "ds_pk_add_rtn_bf16" [_ _ 171] "";
}
