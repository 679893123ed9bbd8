//! The operations of instructions, independent of family and encoding.

macro_rules! operations {
    ($(#[$doc:meta])* $name:ident { $($op:ident)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are those of the instructions")]
        pub enum $name { $($op,)* }
    };
}

operations! {
    /// A scalar operation.
    SaluOp {
        AddU32 SubU32 AddI32 SubI32 AddcU32 SubbU32 MinI32 MinU32 MaxI32 MaxU32 CselectB32
        CselectB64 AndB32 AndB64 OrB32 OrB64 XorB32 XorB64 AndNot1B32 AndNot1B64 OrNot1B32
        OrNot1B64 NandB32 NandB64 NorB32 NorB64 XnorB32 XnorB64 LshlB32 LshlB64 LshrB32
        LshrB64 AshrI32 AshrI64 BfmB32 BfmB64 MulI32 BfeU32 BfeI32 BfeU64 BfeI64 AbsdiffI32
        Lshl1AddU32 Lshl2AddU32 Lshl3AddU32 Lshl4AddU32 PackLlB32B16 PackLhB32B16
        PackHhB32B16 MulHiU32 MulHiI32 PackHlB32B16 AddF32 SubF32 MinF32 MaxF32 MulF32
        FmacF32 CvtPkRtzF16F32 AddNcU64 SubNcU64 MulU64 MovB32 MovB64 CmovB32 CmovB64 NotB32
        NotB64 BrevB32 BrevB64 Bcnt0I32B32 Bcnt0I32B64 Bcnt1I32B32 Bcnt1I32B64 Ff0I32B32
        Ff0I32B64 CtzI32B32 CtzI32B64 ClzI32U32 ClzI32U64 ClsI32 ClsI32I64 SextI32I8
        SextI32I16 Bitset0B32 Bitset0B64 Bitset1B32 Bitset1B64 GetpcB64 SetpcB64 SwappcB64
        RfeB64 AndSaveexecB64 OrSaveexecB64 XorSaveexecB64 AndNot1SaveexecB64
        OrNot1SaveexecB64 NandSaveexecB64 NorSaveexecB64 XnorSaveexecB64 AbsI32
        AndNot0SaveexecB64 OrNot0SaveexecB64 AndNot0WrexecB64 AndNot1WrexecB64
        AndSaveexecB32 OrSaveexecB32 XorSaveexecB32 AndNot1SaveexecB32 OrNot1SaveexecB32
        NandSaveexecB32 NorSaveexecB32 XnorSaveexecB32 AndNot0SaveexecB32 OrNot0SaveexecB32
        AndNot0WrexecB32 AndNot1WrexecB32 SendmsgRtnB32 BarrierSignal BarrierSignalIsfirst
        BarrierInit BarrierJoin CeilF32 FloorF32 TruncF32 RndneF32 CvtF32I32 CvtF32U32
        CvtI32F32 CvtU32F32 CvtF16F32 CvtF32F16 CmpEqI32 CmpLgI32 CmpGtI32 CmpGeI32 CmpLtI32
        CmpLeI32 CmpEqU32 CmpLgU32 CmpGtU32 CmpGeU32 CmpLtU32 CmpLeU32 Bitcmp0B32 Bitcmp1B32
        Bitcmp0B64 Bitcmp1B64 CmpEqU64 CmpLgU64 CmpLtF32 CmpEqF32 CmpLeF32 CmpGtF32 CmpLgF32
        CmpGeF32 CmpOF32 CmpUF32 CmpNgeF32 CmpNlgF32 CmpNgtF32 CmpNleF32 CmpNeqF32 CmpNltF32
        MovkI32 CmovkI32 CmpkEqI32 CmpkLgI32 CmpkGtI32 CmpkGeI32 CmpkLtI32 CmpkLeI32
        CmpkEqU32 CmpkLgU32 CmpkGtU32 CmpkGeU32 CmpkLtU32 CmpkLeU32 AddkI32 MulkI32
        GetregB32 SetregB32 SetregImm32B32 WaitcntVscnt WaitAlu Nop Endpgm Branch
        CbranchScc0 CbranchScc1 CbranchVccz CbranchVccnz CbranchExecz CbranchExecnz Barrier
        Waitcnt Sleep Setprio Sendmsg CodeEnd SetInstPrefetchDistance Clause WaitIdle
        RoundMode DelayAlu BarrierWait WaitLoadcnt WaitStorecnt WaitSamplecnt WaitExpcnt
        WaitDscnt WaitKmcnt WaitLoadcntDscnt WaitStorecntDscnt AddF16 SubF16 MinF16 MaxF16
        MulF16 FmacF16 CmpLtF16 CmpEqF16 CmpLeF16 CmpGtF16 CmpLgF16 CmpGeF16 CmpOF16 CmpUF16
        CmpNgeF16 CmpNlgF16 CmpNgtF16 CmpNleF16 CmpNeqF16 CmpNltF16 CeilF16 FloorF16
        TruncF16 RndneF16 CvtHiF32F16 FmaakF32 FmamkF32 WaitBvhcnt DenormMode
    }
}

impl SaluOp {
    /// Returns true if the operation waits for counters of memory instructions on RDNA 4.
    pub fn waits_for_counter(self) -> bool {
        matches!(
            self,
            Self::WaitLoadcnt
                | Self::WaitStorecnt
                | Self::WaitSamplecnt
                | Self::WaitBvhcnt
                | Self::WaitExpcnt
                | Self::WaitDscnt
                | Self::WaitKmcnt
                | Self::WaitLoadcntDscnt
                | Self::WaitStorecntDscnt
        )
    }

    /// Returns true if the operation writes SCC.
    pub(crate) fn sets_scc(self) -> bool {
        !self.waits_for_counter()
            && !matches!(
                self,
                Self::MovB32
                    | Self::MovB64
                    | Self::MovkI32
                    | Self::CmovB32
                    | Self::CmovB64
                    | Self::CmovkI32
                    | Self::CselectB32
                    | Self::CselectB64
                    | Self::MulI32
                    | Self::MulkI32
                    | Self::MulHiU32
                    | Self::MulHiI32
                    | Self::MulU64
                    | Self::AddNcU64
                    | Self::SubNcU64
                    | Self::BfmB32
                    | Self::BfmB64
                    | Self::BrevB32
                    | Self::BrevB64
                    | Self::CtzI32B32
                    | Self::CtzI32B64
                    | Self::ClzI32U32
                    | Self::ClzI32U64
                    | Self::ClsI32
                    | Self::ClsI32I64
                    | Self::SextI32I8
                    | Self::SextI32I16
                    | Self::GetpcB64
                    | Self::Nop
                    | Self::Clause
                    | Self::DelayAlu
                    | Self::Waitcnt
                    | Self::WaitcntVscnt
                    | Self::WaitAlu
                    | Self::WaitIdle
                    | Self::Barrier
                    | Self::BarrierSignal
                    | Self::BarrierWait
                    | Self::Branch
                    | Self::CbranchScc0
                    | Self::CbranchScc1
                    | Self::CbranchVccz
                    | Self::CbranchVccnz
                    | Self::CbranchExecz
                    | Self::CbranchExecnz
                    | Self::Bitset0B32
                    | Self::Bitset1B32
                    | Self::SetregB32
                    | Self::SetregImm32B32
                    | Self::GetregB32
                    | Self::Sendmsg
                    | Self::Setprio
                    | Self::Sleep
                    | Self::SetInstPrefetchDistance
                    | Self::AddF32
                    | Self::SubF32
                    | Self::MulF32
                    | Self::MinF32
                    | Self::MaxF32
                    | Self::FmacF32
                    | Self::FmaakF32
                    | Self::FmamkF32
                    | Self::TruncF32
                    | Self::CeilF32
                    | Self::FloorF32
                    | Self::RndneF32
                    | Self::CvtF32I32
                    | Self::CvtF32U32
                    | Self::CvtI32F32
                    | Self::CvtU32F32
                    | Self::PackLlB32B16
                    | Self::PackLhB32B16
                    | Self::PackHhB32B16
                    | Self::PackHlB32B16
            )
    }
}

operations! {
    /// A vector operation that is not a comparison.
    ValuOp {
        Nop MovB32 MovB16 SwapB16 ReadfirstlaneB32 CvtI32F64 CvtF64I32 CvtF32I32 CvtF32U32
        CvtU32F32 CvtI32F32
        CvtF16F32 CvtF32F16 CvtNearestI32F32 CvtFloorI32F32 CvtF32F64 CvtF64F32 CvtF32Ubyte0
        CvtF32Ubyte1 CvtF32Ubyte2 CvtF32Ubyte3 CvtU32F64 CvtF64U32 TruncF64 CeilF64 RndneF64
        FloorF64 FractF32 TruncF32 CeilF32 RndneF32 FloorF32 ExpF32 LogF32 RcpF32
        RcpIflagF32 RsqF32 RcpF64 RsqF64 SqrtF32 SqrtF64 SinF32 CosF32 NotB32 BfrevB32
        ClzI32U32 CtzI32B32 ClsI32 FrexpExpI32F64 FrexpMantF64 FractF64 FrexpExpI32F32
        FrexpMantF32 MovreldB32 MovrelsB32 CvtF16U16 CvtF16I16 CvtU16F16 CvtI16F16 RcpF16
        SqrtF16 RsqF16 LogF16 ExpF16 FrexpMantF16 FrexpExpI16F16 FloorF16 CeilF16 TruncF16
        RndneF16 FractF16 SinF16 CosF16 SwapB32 Permlane64B32 NotB16 CvtI32I16 CvtU32U16
        CndmaskB32 Dot2cF32F16 AddF32 SubF32 SubrevF32 MulF32 MulI32I24 MulHiI32I24
        MulU32U24 MulHiU32U24 Dot4cI32I8 MinF32 MaxF32 MinI32 MaxI32 MinU32 MaxU32
        LshrrevB32 AshrrevI32 LshlrevB32 AndB32 OrB32 XorB32 XnorB32 AddNcU32 SubNcU32
        SubrevNcU32 AddCoCiU32 SubCoCiU32 SubrevCoCiU32 FmacF32 FmamkF32 FmaakF32
        CvtPkRtzF16F32 AddF16 SubF16 SubrevF16 MulF16 FmacF16 FmamkF16 FmaakF16 MaxF16
        MinF16 LdexpF16 PkFmacF16 AddF64 MulF64 MinF64 MaxF64 LshlrevB64 MadI32I24 MadU32U24
        BfeU32 BfeI32 BfiB32 FmaF32 FmaF64 AlignbitB32 AlignbyteB32 Min3F32 Min3I32 Min3U32
        Max3F32 Max3I32 Max3U32 Med3F32 Med3I32 Med3U32 CvtPkU8F32 DivFixupF32 DivFixupF64
        LdexpF64 MulLoU32 MulHiU32 MulHiI32 DivScaleF32 DivScaleF64 DivFmasF32 DivFmasF64
        MadU64U32 MadI64I32 Xor3B32 LshrrevB64 AshrrevI64 AddNcU16 SubNcU16 MulLoU16
        LshrrevB16 AshrrevI16 MaxU16 MaxI16 MinU16 MinI16 AddNcI16 SubNcI16 AddCoU32
        SubCoU32 PackB32F16 LshlrevB16 SubrevCoU32 MadU16 PermB32 XadU32 LshlAddU32
        AddLshlU32 FmaF16 Min3F16 Min3I16 Min3U16 Max3F16 Max3I16 Max3U16 Med3F16 Med3I16
        Med3U16 MadI16 DivFixupF16 ReadlaneB32 WritelaneB32 LdexpF32 BfmB32 BcntU32B32
        MbcntLoU32B32 MbcntHiU32B32 CvtPkU16U32 CvtPkI16I32 Add3U32 LshlOrB32 AndOrB32
        Or3B32 MadU32U16 MadI32I16 SubNcI32 Permlane16B32 Permlanex16B32 AddNcI32 CndmaskB16
        MaxminF32 MinmaxF32 MaxminF16 MinmaxF16 MaxminU32 MinmaxU32 MaxminI32 MinmaxI32
        Dot2F16F16 Dot2Bf16Bf16 CvtPkI16F32 CvtPkU16F32 AndB16 OrB16 XorB16 SExpF32 SLogF32
        SRcpF32 SRsqF32 SSqrtF32 Permlane16VarB32 Permlanex16VarB32 PkMadI16 PkMulLoU16
        PkAddI16 PkSubI16 PkLshlrevB16 PkLshrrevB16 PkAshrrevI16 PkMaxI16 PkMinI16 PkMadU16
        PkAddU16 PkSubU16 PkMaxU16 PkMinU16 PkFmaF16 PkAddF16 PkMulF16 PkMinF16 PkMaxF16
        Dot2F32F16 Dot2I32I16 Dot2U32U16 Dot4I32I8 Dot4U32U8 Dot8I32I4 Dot8U32U4 FmaMixF32
        FmaMixloF16 FmaMixhiF16 Dot4I32Iu8 Dot8I32Iu4 Dot2F32Bf16 WmmaF32X16F16
        WmmaF32X16Bf16 WmmaF16X16F16 WmmaBf16X16Bf16 WmmaI32X16Iu8 WmmaI32X16Iu4
        WmmaI32X32Iu4
    }
}

/// The type of the operands of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the suffixes of instructions")]
pub enum CompareType {
    F16,
    F32,
    F64,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
}

/// A vector comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The type of the operands.
    pub operands: CompareType,
    /// Bit 0: true if less; bit 1: if equal; bit 2: if greater; bit 3: if unordered. For a test of
    /// the class of a number, `None`.
    pub condition: Option<u8>,
    /// True if the result replaces EXEC.
    pub to_exec: bool,
}

/// The size and the place in registers of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// This many bytes to or from the low bits of registers; a load clears the other bits.
    Bytes(u8),
    /// This many bytes, sign-extended.
    Signed(u8),
    /// This many bytes, of which a load replaces the low half of the register.
    Low {
        /// 1 or 2.
        bytes: u8,
        /// True if a byte is sign-extended.
        signed: bool,
    },
    /// This many bytes to or from the high half of the register.
    High {
        /// 1 or 2.
        bytes: u8,
        /// True if a byte is sign-extended.
        signed: bool,
    },
}

impl Access {
    /// The number of bytes in memory.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Bytes(bytes)
            | Self::Signed(bytes)
            | Self::Low { bytes, .. }
            | Self::High { bytes, .. } => u32::from(bytes),
        }
    }

    /// The number of registers.
    pub fn registers(self) -> u8 {
        self.bytes().div_ceil(4) as u8
    }
}

operations! {
    /// How an atomic instruction changes memory.
    AtomicOp {
        Swap Cmpswap Add Sub Rsub SubClamp CondSub MinI MinU MaxI MaxU And Or Xor Inc Dec AddF MinF MaxF
        PkAddF16 PkAddBf16
    }
}

/// A vector memory operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmemOp {
    /// Memory to registers.
    Load(Access),
    /// Registers to memory.
    Store(Access),
    /// An atomic update.
    Atomic {
        /// The update.
        op: AtomicOp,
        /// True for 64 bits, false for 32.
        wide: bool,
    },
    /// Drops lines of caches; later reads see other waves' writes.
    Invalidate,
    /// Writes back caches; other waves see earlier writes.
    WriteBack,
    /// Both.
    WriteBackInvalidate,
}

/// An LDS operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DsOp {
    /// LDS to registers.
    Load(Access),
    /// Registers to LDS.
    Store(Access),
    /// Two values of LDS to registers; offsets count values, or 64 values.
    Load2 {
        /// True if values have 64 bits, otherwise 32.
        wide: bool,
        /// True if offsets count 64 values.
        stride64: bool,
    },
    /// Two values to LDS.
    Store2 {
        /// True if values have 64 bits, otherwise 32.
        wide: bool,
        /// True if offsets count 64 values.
        stride64: bool,
    },
    /// An atomic update.
    Atomic {
        /// The update.
        op: AtomicOp,
        /// True for 64 bits, false for 32.
        wide: bool,
        /// True if the old value is returned.
        returns: bool,
    },
    /// Each lane sends a value to the lane that it names.
    Permute,
    /// Each lane receives the value of the lane that it names.
    Bpermute,
    /// Each lane receives the value of a lane that the offset determines.
    Swizzle,
    /// Nothing.
    Nop,
}

/// The operation of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// An operation on scalars, or control.
    Salu(SaluOp),
    /// An operation on vectors.
    Valu(ValuOp),
    /// A comparison of vectors.
    Compare(Compare),
    /// A scalar load of this many dwords.
    ScalarLoad(u8),
    /// A scalar load of 8 or 16 bits.
    ScalarLoadSmall(Access),
    /// Drops the scalar caches.
    ScalarCacheInvalidate,
    /// The time in cycles.
    Time,
    /// Hints to caches.
    Prefetch,
    /// Vector memory.
    Vmem(VmemOp),
    /// LDS.
    Ds(DsOp),
}

impl ValuOp {
    /// True if the operation is one of matrices, which need all lanes active.
    pub(crate) fn is_matrix(self) -> bool {
        matches!(
            self,
            Self::WmmaF32X16F16
                | Self::WmmaF16X16F16
                | Self::WmmaF32X16Bf16
                | Self::WmmaBf16X16Bf16
                | Self::WmmaI32X16Iu8
                | Self::WmmaI32X16Iu4
                | Self::WmmaI32X32Iu4
        )
    }
}
