//! Instructions of every form, as assembly, and the kernels that run them.

use std::fmt::Write as _;

use rf_emu::isa::instruction::Encoding;
use rf_emu::isa::op::{DsOp, Op, SaluOp, ValuOp, VmemOp};
use rf_emu::isa::{Form, OperandType};

/// An instruction under test.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The name of its form.
    pub(crate) form: String,
    /// The type of the destination.
    pub(crate) dst: OperandType,
    /// The instruction, or several lines of which it is one.
    pub(crate) text: String,
    /// The macros before and after it.
    around: [&'static str; 2],
    /// The number of the kernel.
    pub(crate) number: usize,
}

/// Why a form has no test.
pub(crate) fn not_tested(form: &Form) -> Option<&'static str> {
    Some(match form.op {
        Op::Salu(SaluOp::Endpgm) => "every kernel ends with it",
        Op::Salu(SaluOp::RfeB64 | SaluOp::SendmsgRtnB32 | SaluOp::CodeEnd) => {
            "traps, messages and padding are not for kernels"
        }
        Op::Salu(
            SaluOp::Nop
            | SaluOp::Sleep
            | SaluOp::Setprio
            | SaluOp::Sendmsg
            | SaluOp::Clause
            | SaluOp::SetInstPrefetchDistance
            | SaluOp::WaitIdle
            | SaluOp::DelayAlu
            | SaluOp::Waitcnt
            | SaluOp::WaitcntVscnt
            | SaluOp::WaitAlu
            | SaluOp::Barrier,
        )
        | Op::Ds(DsOp::Nop)
        | Op::ScalarCacheInvalidate
        | Op::Prefetch
        | Op::Vmem(VmemOp::Invalidate | VmemOp::WriteBack | VmemOp::WriteBackInvalidate) => {
            "no effect on registers"
        }
        Op::Salu(SaluOp::GetpcB64 | SaluOp::SetpcB64 | SaluOp::SwappcB64) => {
            "the addresses of code differ; run in pairs"
        }
        _ => return None,
    })
}

/// A register or registers, in assembly.
pub(crate) fn registers(file: char, first: u32, kind: OperandType) -> String {
    match kind.registers() {
        1 => format!("{file}{first}"),
        count => format!("{file}[{first}:{}]", first + u32::from(count) - 1),
    }
}

fn vector(at: usize, kind: OperandType) -> String {
    registers('v', 16 + 8 * at as u32, kind)
}

fn scalar(at: usize, kind: OperandType) -> String {
    match kind {
        OperandType::Mask => "s28".into(),
        _ => registers('s', 20 + 2 * at as u32, kind),
    }
}

fn is_float(kind: OperandType) -> bool {
    matches!(
        kind,
        OperandType::F16
            | OperandType::F32
            | OperandType::F64
            | OperandType::PackedF16
            | OperandType::Mix
    )
}

/// Inline constants and literals that a source of a type can be.
fn constants(kind: OperandType) -> &'static [&'static str] {
    match kind {
        OperandType::F64 => &["-4.0", "0x40490fdb", "7"],
        OperandType::B64 => &["-7", "0x89abcdef", "1.0"],
        OperandType::F16 | OperandType::PackedF16 => &["0.5", "0x4248", "0.15915494", "-3"],
        _ if is_float(kind) => &["-2.0", "0x40490fdb", "0.15915494", "9"],
        _ => &["-7", "0x89abcdef", "37", "1.0"],
    }
}

/// The cases of all forms that the assembler may accept.
pub(crate) fn cases(forms: &[Form]) -> Vec<Case> {
    let mut cases = Vec::new();
    for form in forms.iter().filter(|form| not_tested(form).is_none()) {
        let mut list = List { form, cases: &mut cases };
        match form.encoding {
            Encoding::Vop1 | Encoding::Vop2 | Encoding::Vop3 => list.vector(),
            Encoding::Vopc => list.compare(),
            Encoding::Vop3p => list.packed(),
            Encoding::Vopd => list.dual(),
            Encoding::Ds => list.data_share(),
            Encoding::Flat | Encoding::Global | Encoding::Scratch => list.memory(),
            Encoding::Smem => list.scalar_memory(),
            _ => list.scalar(),
        }
    }
    cases
}

/// Adds the cases of a form.
pub(crate) struct List<'a> {
    pub(crate) form: &'a Form,
    cases: &'a mut Vec<Case>,
}

impl List<'_> {
    pub(crate) fn add(&mut self, text: impl Into<String>) {
        self.add_around(["", ""], text);
    }

    pub(crate) fn add_around(&mut self, around: [&'static str; 2], text: impl Into<String>) {
        let dst = self.form.dst.first().copied().unwrap_or(OperandType::B32);
        let form = self.form.name.clone();
        self.cases.push(Case { form, dst, text: text.into(), around, number: self.cases.len() });
    }

    fn is(&self, ops: &[ValuOp]) -> bool {
        matches!(self.form.op, Op::Valu(op) if ops.contains(&op))
    }

    /// The destinations of a vector instruction.
    fn destinations(&self, suffix: &str) -> Vec<String> {
        let scalar_result = self.is(&[ValuOp::ReadfirstlaneB32, ValuOp::ReadlaneB32]);
        let mut names: Vec<_> = self
            .form
            .dst
            .iter()
            .map(|&kind| match kind {
                OperandType::Mask if suffix == "_e32" => "vcc_lo".into(),
                OperandType::Mask => "s26".into(),
                _ if scalar_result => "s16".into(),
                _ => registers('v', 8, kind),
            })
            .collect();
        if names.is_empty() {
            names.push("v8".into());
        }
        names
    }

    fn line(&self, suffix: &str, sources: &[String], rest: &str) -> String {
        let operands = [self.destinations(suffix), sources.to_vec()].concat().join(", ");
        format!("{}{suffix} {operands}{rest}", self.form.name)
    }

    fn vector(&mut self) {
        let kinds = self.form.src.clone();
        let selects = self.is(&[
            ValuOp::ReadlaneB32,
            ValuOp::WritelaneB32,
            ValuOp::Permlane16B32,
            ValuOp::Permlanex16B32,
        ]);
        let sources = |mask: &str| -> Vec<String> {
            let name = |(at, &kind)| match kind {
                OperandType::Mask => mask.to_owned(),
                kind if at > 0 && selects => scalar(at, kind),
                kind => vector(at, kind),
            };
            kinds.iter().enumerate().map(name).collect()
        };
        if self.is(&[ValuOp::FmamkF32, ValuOp::FmamkF16]) {
            self.add(format!("{} v8, v16, 0x40490fdb, v24", self.form.name));
            return self.add(format!("{} v8, s20, 0x3555, v24", self.form.name));
        }
        if self.is(&[ValuOp::FmaakF32, ValuOp::FmaakF16]) {
            self.add(format!("{} v8, v16, v24, 0x40490fdb", self.form.name));
            return self.add(format!("{} v8, s20, v24, 0x3555", self.form.name));
        }
        let has_short = self.form.encoding != Encoding::Vop3;
        if has_short {
            let plain = sources("vcc_lo");
            for suffix in ["_e32", ""] {
                let count = self.cases.len();
                self.add(self.line(suffix, &plain, ""));
                self.first_sources(suffix, &plain, &kinds);
                if count < self.cases.len() && suffix == "_e32" {
                    self.exchanges("_dpp", &plain, kinds.len());
                }
            }
        }
        let long = sources("s28");
        let suffix = if has_short { "_e64" } else { "" };
        self.add(self.line(suffix, &long, ""));
        self.long(suffix, &long, &kinds);
        self.exchanges("_e64_dpp", &long, kinds.len());
    }

    /// The first source as constant and as scalar register.
    fn first_sources(&mut self, suffix: &str, plain: &[String], kinds: &[OperandType]) {
        let Some(&kind) = kinds.first() else { return };
        let mut others: Vec<_> = constants(kind).iter().take(2).map(|&text| text.into()).collect();
        others.push(scalar(0, kind));
        if self.form.name == "v_mov_b32" {
            let special = ["vcc_lo", "exec_lo", "m0", "null", "src_scc", "src_vccz", "src_execz"];
            others.extend(special.map(String::from));
        }
        for other in others {
            let mut sources = plain.to_vec();
            sources[0] = other;
            self.add(self.line(suffix, &sources, ""));
        }
    }

    /// Scalars and constants in each place, and the modifiers.
    fn long(&mut self, suffix: &str, plain: &[String], kinds: &[OperandType]) {
        let with = |text: &dyn Fn(usize, OperandType) -> String| -> Vec<_> {
            let kinds = kinds.iter().enumerate();
            kinds
                .map(
                    |(at, &kind)| {
                        if kind == OperandType::Mask { plain[at].clone() } else { text(at, kind) }
                    },
                )
                .collect()
        };
        let constant = |at: usize, kind| constants(kind)[at * 2 % constants(kind).len()].to_owned();
        let mixed = |at: usize, kind| match at {
            0 => scalar(0, kind),
            1 => constant(1, kind),
            _ => plain[at].clone(),
        };
        self.add(self.line(suffix, &with(&mixed), ""));
        let last = |at: usize, kind| match at {
            2 => scalar(2, kind),
            _ => plain[at].clone(),
        };
        if kinds.len() > 2 && kinds[2] != OperandType::Mask {
            self.add(self.line(suffix, &with(&last), ""));
        }
        if kinds.iter().any(|&kind| is_float(kind)) {
            let modified = |first: usize| {
                with(&|at, kind| match (at + first) % 3 {
                    _ if !is_float(kind) => plain[at].clone(),
                    0 => format!("-{}", plain[at]),
                    1 => format!("|{}|", plain[at]),
                    _ => format!("-|{}|", plain[at]),
                })
            };
            for first in 0..3 {
                self.add(self.line(suffix, &modified(first), ""));
            }
        }
        for modifier in ["clamp", "mul:2", "mul:4", "div:2 clamp"] {
            self.add(self.line(suffix, plain, &format!(" {modifier}")));
        }
        let all = (1 << (kinds.len() + 1)) - 1;
        for bits in [1, 2, all & !1, all] {
            let bits: Vec<_> = (0..=kinds.len()).map(|at| (bits >> at & 1).to_string()).collect();
            self.add(self.line(suffix, plain, &format!(" op_sel:[{}]", bits.join(","))));
        }
    }

    /// DPP in rows and in groups of 8.
    fn exchanges(&mut self, suffix: &str, plain: &[String], sources: usize) {
        let name = &*self.form.name;
        let mut all =
            vec!["row_shr:5 row_mask:0xf bank_mask:0xf bound_ctrl:1", "dpp8:[7,0,5,2,3,4,1,6]"];
        if matches!(name, "v_mov_b32" | "v_add_f32" | "v_fma_f32" | "v_cndmask_b32" | "v_max_i32") {
            all.extend([
                "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
                "row_shl:3 row_mask:0xf bank_mask:0xf",
                "row_shl:3 row_mask:0xf bank_mask:0xf bound_ctrl:1 fi:1",
                "row_ror:6 row_mask:0xf bank_mask:0xf fi:1",
                "row_mirror row_mask:0x1 bank_mask:0xf",
                "row_half_mirror row_mask:0xf bank_mask:0x6",
                "row_share:3 row_mask:0xa bank_mask:0x9",
                "row_xmask:5 row_mask:0xf bank_mask:0xf bound_ctrl:1",
                "dpp8:[1,1,2,2,7,7,0,0] fi:1",
            ]);
        }
        for control in all {
            self.add(self.line(suffix, plain, &format!(" {control}")));
        }
        let modified: Vec<_> = plain.iter().take(2).map(|source| format!("-|{source}|")).collect();
        let modified = [modified, plain.get(2..).unwrap_or_default().to_vec()].concat();
        if sources > 0 {
            let control = " row_ror:1 row_mask:0xf bank_mask:0xf";
            self.add(self.line(suffix, &modified, control));
        }
    }

    fn compare(&mut self) {
        let Op::Compare(compare) = self.form.op else { return };
        let is_class = compare.condition.is_none();
        let kind = match self.form.name.rsplit('_').next() {
            Some("f16") => OperandType::F16,
            Some("f32") => OperandType::F32,
            Some("f64") => OperandType::F64,
            Some("i64" | "u64") => OperandType::B64,
            Some("i16" | "u16") => OperandType::B16,
            _ => OperandType::B32,
        };
        let second = if is_class { OperandType::B32 } else { kind };
        let (a, b) = (vector(0, kind), vector(1, second));
        let name = self.form.name.clone();
        let (short, long) = if compare.to_exec { ("", "") } else { ("vcc_lo, ", "s26, ") };
        self.add(format!("{name}_e32 {short}{a}, {b}"));
        self.add(format!("{name}_e32 {short}{}, {b}", constants(kind)[1]));
        self.add(format!("{name}_e64 {long}{}, {}", scalar(0, kind), scalar(1, second)));
        if is_float(kind) {
            self.add(format!("{name}_e64 {long}-|{a}|, {b}"));
        }
        let is_example = name.contains("_lt_") || name.contains("_class_") || name.contains("_ge_");
        if kind.registers() == 1 && is_example {
            let control = "row_shr:2 row_mask:0xf bank_mask:0xf";
            self.add(format!("{name}_dpp {short}{a}, {b} {control}"));
            self.add(format!("{name}_e64_dpp {long}{a}, {b} {control} bound_ctrl:1"));
            self.add(format!("{name}_e64_dpp {long}{a}, {b} dpp8:[3,2,1,0,7,6,5,4]"));
        }
        if matches!(kind, OperandType::F16 | OperandType::B16) {
            self.add(format!("{name}_e64 {long}{a}, {b} op_sel:[0,1]"));
        }
    }

    fn packed(&mut self) {
        let is_matrix = self.form.name.starts_with("v_wmma");
        let mut kinds = self.form.src.clone();
        let mut dst = registers('v', 8, self.form.dst[0]);
        if is_matrix {
            // RDNA 3 holds A and B twice, and 16-bit results one per register.
            let doubled = |kind: OperandType| match kind {
                OperandType::B32 => OperandType::B64,
                OperandType::B64 => OperandType::X4,
                _ => OperandType::X8,
            };
            kinds = vec![doubled(kinds[0]), doubled(kinds[1]), OperandType::X8];
            dst = registers('v', 8, OperandType::X8);
        }
        let name = self.form.name.clone();
        let plain: Vec<_> = kinds.iter().enumerate().map(|(at, &kind)| vector(at, kind)).collect();
        if is_matrix {
            let whole = ["s_mov_b32 s51, -1\n    double_matrices", ""];
            let text = format!("{name} {dst}, {}", plain.join(", "));
            self.add_around(whole, text.clone());
            for modifiers in [
                "neg_lo:[1,0,0]",
                "neg_lo:[1,1,0]",
                "neg_lo:[0,0,1]",
                "neg_hi:[1,0,1]",
                "neg_lo:[0,1,0] clamp",
                "op_sel:[0,0,1]",
                "neg_lo:[1,1,0] clamp",
            ] {
                self.add_around(whole, format!("{text} {modifiers}"));
            }
            let constant = if name.contains("_i32_") { "7" } else { "1.0" };
            return self.add_around(
                whole,
                format!("{name} {dst}, {}, {}, {constant}", plain[0], plain[1]),
            );
        }
        let text = format!("{name} {dst}, {}", plain.join(", "));
        self.add(text.clone());
        for (at, &kind) in kinds.iter().enumerate() {
            let other = if at == 1 { scalar(at, kind) } else { constants(kind)[at / 2].into() };
            let mut sources = plain.clone();
            sources[at] = other;
            self.add(format!("{name} {dst}, {}", sources.join(", ")));
        }
        let count = kinds.len();
        let lists = |modifier: &str, all: u32| -> Vec<String> {
            let text = |bits: u32| {
                let bits: Vec<_> = (0..count).map(|at| (bits >> at & 1).to_string()).collect();
                format!("{modifier}:[{}]", bits.join(","))
            };
            (0..all).map(text).collect()
        };
        let all = 1 << count;
        let mut modifiers = vec!["clamp".to_owned()];
        for name in ["op_sel", "op_sel_hi", "neg_lo", "neg_hi"] {
            let lists = lists(name, all);
            modifiers.extend([lists[1].clone(), lists[2].clone(), lists[lists.len() - 1].clone()]);
        }
        modifiers.push(format!("{} {}", lists("op_sel", all)[1], lists("op_sel_hi", all)[2]));
        if name.starts_with("v_fma_mix") {
            for bits in lists("op_sel_hi", all) {
                modifiers.push(format!("{bits} op_sel:[1,0,1] clamp"));
            }
            self.add(format!("{name} {dst}, -v16, |v24|, -|v32| op_sel_hi:[1,0,1]"));
        }
        modifiers.push("quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf".into());
        for modifier in modifiers {
            let suffix = if modifier.starts_with("quad") { "_e64_dpp" } else { "" };
            let operands = text.strip_prefix(&name).unwrap_or_default();
            self.add(format!("{name}{suffix}{operands} {modifier}"));
        }
    }

    fn dual(&mut self) {
        let name = self.form.name.clone();
        let operands = |dst: u32, first: &str, second: u32| match &*name {
            "v_dual_mov_b32" => format!("{name} v{dst}, {first}"),
            "v_dual_fmaak_f32" => format!("{name} v{dst}, {first}, v{second}, 0x40490fdb"),
            "v_dual_fmamk_f32" => format!("{name} v{dst}, {first}, 0x40490fdb, v{second}"),
            _ => format!("{name} v{dst}, {first}, v{second}"),
        };
        // The other half reads what this half writes, and the other way round.
        for first in ["v16", "s20", "1.0", "-7", "0x40490fdb"] {
            self.add(format!("v_dual_mul_f32 v9, v8, v27 :: {}", operands(8, first, 25)));
            self.add(format!("{} :: v_dual_mov_b32 v17, v9", operands(8, first, 25)));
        }
    }

    fn scalar(&mut self) {
        let name = self.form.name.clone();
        let kinds = self.form.src.clone();
        let dst: Vec<_> = self.form.dst.iter().map(|&kind| registers('s', 16, kind)).collect();
        match self.form.encoding {
            Encoding::Sopk => self.immediate(),
            Encoding::Sopp => self.branch(),
            _ => {
                let plain: Vec<_> =
                    kinds.iter().enumerate().map(|(at, &kind)| scalar(at * 2, kind)).collect();
                self.add(format!("{name} {}", [dst.clone(), plain.clone()].concat().join(", ")));
                for (at, &kind) in kinds.iter().enumerate() {
                    for constant in constants(kind).iter().take(2) {
                        let mut sources = plain.clone();
                        sources[at] = (*constant).into();
                        self.add(format!("{name} {}", [dst.clone(), sources].concat().join(", ")));
                    }
                }
                if self.form.dst == [OperandType::B32]
                    && matches!(&*name, "s_mov_b32" | "s_add_u32")
                {
                    for special in ["vcc_lo", "exec_lo", "m0"] {
                        let text = [vec![special.to_owned()], plain.clone()].concat().join(", ");
                        self.add(format!("{name} {text}"));
                        let sources = [vec![special.to_owned()], plain[1..].to_vec()].concat();
                        self.add(format!("{name} {}", [dst.clone(), sources].concat().join(", ")));
                    }
                }
            }
        }
    }

    fn immediate(&mut self) {
        let name = self.form.name.clone();
        let Op::Salu(op) = self.form.op else { return };
        match op {
            SaluOp::GetregB32 => {
                self.add(format!("{name} s16, hwreg(HW_REG_MODE, 0, 8)"));
                self.add(format!("{name} s16, hwreg(HW_REG_MODE, 4, 2)"));
            }
            SaluOp::SetregB32 | SaluOp::SetregImm32B32 => {
                let value = if op == SaluOp::SetregB32 { "s20" } else { "3" };
                let read = "\n    s_getreg_b32 s16, hwreg(HW_REG_MODE, 0, 8)";
                let restore = "\n    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 15";
                self.add(format!("{name} hwreg(HW_REG_MODE, 4, 2), {value}{read}{restore}"));
                self.add(format!("{name} hwreg(HW_REG_MODE, 6, 2), {value}{read}{restore}"));
            }
            _ => {
                for value in ["0x0", "0x1", "0x7fff", "0x8000", "0xffe5"] {
                    self.add(format!("{name} s20, {value}"));
                }
            }
        }
    }

    /// Jumps over an instruction, or not.
    fn branch(&mut self) {
        let name = self.form.name.clone();
        match self.form.op {
            Op::Salu(SaluOp::RoundMode) => {
                self.add(format!("{name} 0x0\n    s_getreg_b32 s16, hwreg(HW_REG_MODE, 0, 8)"));
            }
            Op::Salu(SaluOp::DenormMode) => self.add(format!(
                "{name} 0x5\n    s_getreg_b32 s16, hwreg(HW_REG_MODE, 0, 8)\n    {name} 0xf"
            )),
            _ => {
                for state in ["s_nop 0", "s_mov_b32 exec_lo, 0", "s_mov_b32 vcc_lo, 0"] {
                    self.add(format!("{state}\n    {name} 1\n    s_mov_b32 s16, s17"));
                }
            }
        }
    }
}

/// The kernels of cases, in one source.
pub(crate) fn source(cases: &[Case]) -> String {
    let mut text = include_str!("kernel.s").to_owned();
    for case in cases {
        let [before, after] = case.around;
        let number = case.number;
        writeln!(
            text,
            "begin k{number}\n    {before}\n    set_state\n    {}\n    {after}\n    \
             store_registers\ndescribe k{number}",
            case.text
        )
        .expect("a string");
    }
    text.push_str(".amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n");
    for case in cases {
        let number = case.number;
        let arguments = [0, 8, 16].map(|offset| {
            let kind = "global_buffer, .address_space: global";
            format!("      - {{.offset: {offset}, .size: 8, .value_kind: {kind}}}\n")
        });
        let arguments = arguments.concat();
        writeln!(
            text,
            "  - .name: k{number}\n    .symbol: k{number}.kd\n    .kernarg_segment_size: 24\n    \
             .kernarg_segment_align: 8\n    .group_segment_fixed_size: 2048\n    \
             .private_segment_fixed_size: 64\n    .wavefront_size: 32\n    .sgpr_count: 80\n    \
             .vgpr_count: 48\n    .max_flat_workgroup_size: 1024\n    .args:\n{arguments}"
        )
        .expect("a string");
    }
    text.push_str("...\n.end_amdgpu_metadata\n");
    text
}
