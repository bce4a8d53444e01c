//! Which vector instructions this processor has, and one way to run a body under them.
//!
//! Every body gives the same bits under every level: lanes are fixed (16) and each lane's operations are the same and in the same
//! order, so the level changes speed only. That is what lets rows be equal on two machines.

use std::sync::OnceLock;

/// Instruction sets a body may be compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Whatever the target guarantees.
    Portable,
    /// AVX2 and FMA, 8 lanes a register.
    Avx2,
    /// AVX-512 F and BW, 16 lanes a register.
    Avx512,
}

impl Level {
    /// The best level of this processor.
    pub fn detect() -> Self {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            #[cfg(target_arch = "x86_64")]
            {
                if std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("fma")
                {
                    return Level::Avx512;
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    return Level::Avx2;
                }
            }
            Level::Portable
        })
    }

    /// Its name, for `doctor` and the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2+fma",
            Self::Avx512 => "avx512",
        }
    }
}
