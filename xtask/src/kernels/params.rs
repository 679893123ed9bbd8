//! The sizes of the parameter structs on the host.

use rf_kernels::params;

macro_rules! sizes {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), std::mem::size_of::<params::$name>())),*]
    };
}

/// The size of `rf_kernels::params::NAME` in bytes.
pub(super) fn size_of(name: &str) -> Option<usize> {
    let sizes = sizes![
        ArgmaxParams,
        AttentionParams,
        CausalConvParams,
        CopyBytesParams,
        CopyRowsParams,
        EmbedParams,
        ExpertRowsParams,
        GluParams,
        GroupExpertsParams,
        GroupNormParams,
        JoinParams,
        KvAppendParams,
        LatentAppendParams,
        LatentParams,
        LoadRowsParams,
        LoadStepParams,
        MapParams,
        MatmulParams,
        MatvecGluParams,
        MatvecParams,
        MatvecSumParams,
        PairParams,
        PassStampParams,
        QuantizeParams,
        RecurrenceParams,
        RmsNormParams,
        RopeAppendParams,
        RopeParams,
        RouteParams,
        RouterParams,
        SkinnyParams,
        StoreRowsParams,
        TopKParams,
    ];
    sizes.into_iter().find(|&(known, _)| known == name).map(|(_, size)| size)
}
