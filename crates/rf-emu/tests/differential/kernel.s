// A kernel that runs one instruction on registers from memory and stores all registers.
//
// v0: 4 * lane. v8 to v39, s16 to s47: operands, loaded before and stored after. s48: VCC, s49: M0,
// s50: SCC, s51: EXEC. s[12:13]: 2 KiB of memory per workgroup. v4: 16 * lane (LDS), v5: 64 * lane
// and v[6:7]: the address of it in memory, v3: 4 * (lane % 4) and s14: 8 (scratch).

.amdgcn_target "amdgcn-amd-amdhsa--gfx1100"
.text

.macro load_registers
    s_clause 0x2
    s_load_b64 s[8:9], s[0:1], 0x0
    s_load_b64 s[10:11], s[0:1], 0x8
    s_load_b64 s[12:13], s[0:1], 0x10
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v4, 4, v0
    v_lshlrev_b32 v5, 6, v0
    v_and_b32 v3, 3, v0
    v_lshlrev_b32 v3, 2, v3
    v_lshlrev_b32 v0, 2, v0
    s_movk_i32 s14, 8
    s_waitcnt lgkmcnt(0)
    s_mul_i32 s3, s2, 4352
    s_add_u32 s8, s8, s3
    s_addc_u32 s9, s9, 0
    s_add_u32 s10, s10, s3
    s_addc_u32 s11, s11, 0
    s_lshl_b32 s3, s2, 11
    s_add_u32 s12, s12, s3
    s_addc_u32 s13, s13, 0
    v_add_co_u32 v6, vcc_lo, s12, v5
    v_mov_b32 v7, s13
    v_add_co_ci_u32 v7, vcc_lo, 0, v7, vcc_lo
    .set register, 0
    .rept 32
    global_load_b32 v[8 + register], v0, s[8:9] offset:register * 128
    .set register, register + 1
    .endr
    s_load_b512 s[16:31], s[8:9], 0x1000
    s_load_b512 s[32:47], s[8:9], 0x1040
    s_load_b128 s[48:51], s[8:9], 0x1080
    s_waitcnt vmcnt(0) lgkmcnt(0)
.endm

.macro fill_lds
    ds_store_b128 v4, v[8:11]
    ds_store_b128 v4, v[12:15] offset:512
    ds_store_b128 v4, v[16:19] offset:1024
    ds_store_b128 v4, v[20:23] offset:1536
    s_waitcnt lgkmcnt(0)
.endm

.macro keep_lds
    s_waitcnt vmcnt(0) lgkmcnt(0)
    s_mov_b32 s4, exec_lo
    s_mov_b32 exec_lo, -1
    ds_load_b128 v[8:11], v4
    ds_load_b128 v[12:15], v4 offset:512
    ds_load_b128 v[16:19], v4 offset:1024
    ds_load_b128 v[20:23], v4 offset:1536
    s_waitcnt lgkmcnt(0)
    s_mov_b32 exec_lo, s4
.endm

.macro fill_scratch
    scratch_store_b128 off, v[8:11], off
    scratch_store_b128 off, v[12:15], off offset:16
    scratch_store_b128 off, v[16:19], off offset:32
    s_waitcnt_vscnt null, 0
.endm

.macro keep_scratch
    s_waitcnt vmcnt(0) lgkmcnt(0)
    s_waitcnt_vscnt null, 0
    s_mov_b32 s4, exec_lo
    s_mov_b32 exec_lo, -1
    scratch_load_b128 v[8:11], off, off
    scratch_load_b128 v[12:15], off, off offset:16
    scratch_load_b128 v[16:19], off, off offset:32
    s_waitcnt vmcnt(0)
    s_mov_b32 exec_lo, s4
.endm

// Lanes 16 to 31 get A and B of lanes 0 to 15, as matrices need them.
.macro double_matrices
    s_mov_b32 s4, 0x76543210
    s_mov_b32 s5, 0xfedcba98
    s_mov_b32 exec_lo, 0xffff0000
    .set register, 16
    .rept 16
    v_permlanex16_b32 v[register], v[register], s4, s5 op_sel:[1,0]
    .set register, register + 1
    .endr
.endm

.macro set_state
    s_mov_b32 vcc_lo, s48
    s_mov_b32 m0, s49
    s_cmp_lg_u32 s50, 0
    s_mov_b32 exec_lo, s51
.endm

.macro store_registers
    s_waitcnt vmcnt(0) lgkmcnt(0)
    s_mov_b32 s4, exec_lo
    s_cselect_b32 s5, 1, 0
    s_mov_b32 exec_lo, -1
    .set register, 0
    .rept 32
    global_store_b32 v0, v[8 + register], s[10:11] offset:register * 128
    .set register, register + 1
    .endr
    v_mov_b32 v1, 0
    v_mov_b32 v2, 0
    .set register, 0
    .rept 32
    v_writelane_b32 v1, s[16 + register], register
    .set register, register + 1
    .endr
    v_writelane_b32 v2, s4, 0
    v_writelane_b32 v2, s5, 1
    v_writelane_b32 v2, vcc_lo, 2
    v_writelane_b32 v2, m0, 3
    s_add_u32 s10, s10, 0x1000
    s_addc_u32 s11, s11, 0
    global_store_b32 v0, v1, s[10:11]
    global_store_b32 v0, v2, s[10:11] offset:128
    s_endpgm
.endm

.macro begin name
    .globl \name
    .p2align 8
    .type \name,@function
\name:
    load_registers
.endm

.macro describe name
    .section .rodata,"a"
    .p2align 6
    .amdhsa_kernel \name
        .amdhsa_group_segment_fixed_size 2048
        .amdhsa_private_segment_fixed_size 64
        .amdhsa_enable_private_segment 1
        .amdhsa_kernarg_size 24
        .amdhsa_user_sgpr_kernarg_segment_ptr 1
        .amdhsa_next_free_vgpr 48
        .amdhsa_next_free_sgpr 80
        .amdhsa_wavefront_size32 1
        .amdhsa_float_denorm_mode_32 3
        .amdhsa_float_denorm_mode_16_64 3
    .end_amdhsa_kernel
    .text
.endm
