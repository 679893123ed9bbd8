//! The geometry of launches.

/// The geometry of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// The number of workgroups along x, y, z; each at least 1.
    pub grid: [u32; 3],
    /// The number of threads of a workgroup along x, y, z; each at least 1.
    pub block: [u32; 3],
    /// Dynamic LDS, in addition to the LDS that the function declares.
    pub lds_bytes: u32,
}

impl LaunchConfig {
    /// A one-dimensional grid of workgroups of `block` threads that covers `threads`, with at least
    /// one workgroup and at most `u32::MAX`.
    pub fn linear(threads: usize, block: u32) -> Self {
        let groups = threads.div_ceil(block.max(1) as usize).max(1);
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        Self { grid: [groups, 1, 1], block: [block.max(1), 1, 1], lds_bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_grid_covers_its_threads() {
        assert_eq!(LaunchConfig::linear(1000, 256).grid, [4, 1, 1]);
        assert_eq!(LaunchConfig::linear(1024, 256).grid, [4, 1, 1]);
        assert_eq!(LaunchConfig::linear(0, 256).grid, [1, 1, 1]);
        assert_eq!(LaunchConfig::linear(5, 0).block, [1, 1, 1]);
    }
}
