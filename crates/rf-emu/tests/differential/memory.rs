//! Instructions of LDS, of memory and of scalar memory.

use std::fmt::Write as _;

use rf_emu::isa::OperandType;
use rf_emu::isa::instruction::Encoding;
use rf_emu::isa::op::{AtomicOp, DsOp, Op, VmemOp};

use crate::generate::{List, registers};

impl List<'_> {
    pub(crate) fn data_share(&mut self) {
        let Op::Ds(op) = self.form.op else { return };
        let name = &*self.form.name.clone();
        let in_lds = ["fill_lds", "keep_lds"];
        let kind = |bytes: u32| match bytes.div_ceil(4) {
            1 => OperandType::B32,
            2 => OperandType::B64,
            3 => OperandType::F64,
            _ => OperandType::X4,
        };
        let wide = |bytes: u32, first: u32| match bytes {
            12 => format!("v[{first}:{}]", first + 2),
            _ => registers('v', first, kind(bytes)),
        };
        match op {
            DsOp::Nop => {}
            DsOp::Load(access) => {
                for offset in ["", " offset:16", " offset:1040"] {
                    let text = format!("{name} {}, v4{offset}", wide(access.bytes(), 24));
                    self.add_around(in_lds, text);
                }
            }
            DsOp::Store(access) => {
                for offset in ["", " offset:16", " offset:1040"] {
                    let text = format!("{name} v4, {}{offset}", wide(access.bytes(), 24));
                    self.add_around(in_lds, text);
                }
            }
            DsOp::Load2 { wide: is_wide, .. } => {
                let dst =
                    registers('v', 24, if is_wide { OperandType::X4 } else { OperandType::B64 });
                self.add_around(in_lds, format!("{name} {dst}, v4 offset1:1"));
                self.add_around(in_lds, format!("{name} {dst}, v4 offset0:2 offset1:1"));
            }
            DsOp::Store2 { wide: is_wide, .. } => {
                let kind = if is_wide { OperandType::B64 } else { OperandType::B32 };
                let data = format!("{}, {}", registers('v', 24, kind), registers('v', 28, kind));
                // The order in which lanes store to one address is not defined: none share one.
                let unit = if name.contains("stride64") && !is_wide { 2 } else { 1 };
                self.add_around(in_lds, format!("{name} v4, {data} offset1:{unit}"));
                let offsets = format!("offset0:{} offset1:{unit}", 2 * unit);
                self.add_around(in_lds, format!("{name} v4, {data} {offsets}"));
            }
            DsOp::Atomic { op, wide: is_wide, returns } => {
                let kind = if is_wide { OperandType::B64 } else { OperandType::B32 };
                let dst =
                    if returns { format!("{}, ", registers('v', 32, kind)) } else { String::new() };
                let mut data = registers('v', 24, kind);
                if op == AtomicOp::Cmpswap {
                    write!(data, ", {}", registers('v', 28, kind)).expect("a string");
                }
                let text = format!("{name} {dst}v4, {data} offset:16");
                self.add_around(in_lds, text.clone());
                if op == AtomicOp::Cmpswap {
                    // The comparison succeeds in lanes whose data is the old value.
                    let load = if is_wide { "ds_load_b64 v[28:29]" } else { "ds_load_b32 v28" };
                    let load =
                        format!("{load}, v4 offset:16\n    s_waitcnt lgkmcnt(0)\n    {text}");
                    self.add_around(in_lds, load);
                }
            }
            DsOp::Permute | DsOp::Bpermute => {
                self.add(format!("{name} v8, v16, v24"));
                self.add(format!("{name} v8, v16, v24 offset:12"));
            }
            DsOp::Swizzle => {
                let patterns = [
                    "0x8039", "0x801b", "0x041f", "0x001f", "0x7c1f", "0x5555", "0x03e0", "0x0fff",
                ];
                for pattern in patterns {
                    self.add(format!("{name} v8, v16 offset:{pattern}"));
                }
            }
        }
    }

    pub(crate) fn memory(&mut self) {
        let Op::Vmem(op) = self.form.op else { return };
        let name = &*self.form.name.clone();
        let wide = |bytes: u32, first: u32| match bytes.div_ceil(4) {
            1 => format!("v{first}"),
            count => format!("v[{first}:{}]", first + count - 1),
        };
        let mut whole = |dst: &str, data: &str, rest: &str| {
            let between = |address: &str, scalar: &str, offset: &str| {
                let operands: Vec<_> = [dst, address, data, scalar]
                    .into_iter()
                    .filter(|text| !text.is_empty())
                    .collect();
                format!("{name} {}{offset}{rest}", operands.join(", "))
            };
            match self.form.encoding {
                Encoding::Flat => {
                    self.add(between("v[6:7]", "", ""));
                    self.add(between("v[6:7]", "", " offset:24"));
                    // LDS through a flat address.
                    let apertures = "v_mov_b32 v6, v4\n    s_mov_b64 s[6:7], src_shared_base\n    v_mov_b32 v7, s7\n    ";
                    let text = format!("{apertures}{}", between("v[6:7]", "", " offset:16"));
                    self.add_around(["fill_lds", "keep_lds"], text);
                }
                Encoding::Global => {
                    self.add(between("v[6:7]", "off", ""));
                    self.add(between("v[6:7]", "off", " offset:24"));
                    self.add(between("v5", "s[12:13]", " offset:16"));
                    let back = "v_add_nc_u32 v5, 64, v5\n    ";
                    let text = format!("{back}{}", between("v5", "s[12:13]", " offset:-40"));
                    self.add(text);
                }
                _ => {
                    let around = ["fill_scratch", "keep_scratch"];
                    for (address, scalar) in
                        [("off", "off"), ("v3", "off"), ("off", "s14"), ("v3", "s14")]
                    {
                        self.add_around(around, between(address, scalar, " offset:16"));
                    }
                }
            }
        };
        match op {
            VmemOp::Load(access) => whole(&wide(access.bytes(), 24), "", ""),
            VmemOp::Store(access) => whole("", &wide(access.bytes(), 24), ""),
            VmemOp::Atomic { op, wide: is_wide } => {
                let bytes = if is_wide { 8 } else { 4 };
                let data = if op == AtomicOp::Cmpswap { bytes * 2 } else { bytes };
                whole("", &wide(data, 24), "");
                whole(&wide(bytes, 32), &wide(data, 24), " glc");
            }
            _ => {}
        }
    }

    pub(crate) fn scalar_memory(&mut self) {
        let name = &*self.form.name.clone();
        let Op::ScalarLoad(count) = self.form.op else { return };
        let dst = match count {
            1 => "s16".to_owned(),
            count => format!("s[16:{}]", 15 + count),
        };
        self.add(format!("{name} {dst}, s[12:13], 0x0"));
        self.add(format!("{name} {dst}, s[12:13], 0x24"));
        self.add(format!("{name} {dst}, s[12:13], s14"));
        self.add(format!("{name} {dst}, s[12:13], s14 offset:0x40"));
    }
}
