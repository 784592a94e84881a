//! What the CPU must have: the instructions that this build was compiled for.

/// The first feature of x86-64-v3 that this CPU lacks.
///
/// Asks the CPU itself: `is_x86_feature_detected!` answers at compile time for features that the build assumes.
#[cfg(target_arch = "x86_64")]
pub(crate) fn missing() -> Option<&'static str> {
    use std::arch::x86_64::__cpuid;

    let has = |leaf: u32, register: fn(&std::arch::x86_64::CpuidResult) -> u32, bit: u32| {
        let known = __cpuid(leaf & 0x8000_0000).eax >= leaf;
        known && register(&__cpuid(leaf)) & (1 << bit) != 0
    };
    let features = [
        ("AVX", has(1, |r| r.ecx, 28)),
        ("FMA", has(1, |r| r.ecx, 12)),
        ("MOVBE", has(1, |r| r.ecx, 22)),
        ("F16C", has(1, |r| r.ecx, 29)),
        ("AVX state saved by the system (OSXSAVE)", has(1, |r| r.ecx, 27)),
        ("AVX2", has(7, |r| r.ebx, 5)),
        ("BMI1", has(7, |r| r.ebx, 3)),
        ("BMI2", has(7, |r| r.ebx, 8)),
        ("LZCNT", has(0x8000_0001, |r| r.ecx, 5)),
    ];
    features.iter().find(|(_, present)| !present).map(|(name, _)| *name)
}

/// Other architectures are built for their baseline.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn missing() -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_cpu_that_runs_this_has_what_it_needs() {
        assert_eq!(super::missing(), None);
    }
}
