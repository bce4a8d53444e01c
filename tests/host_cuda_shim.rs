//! The shim that runs kernels on the processor catches what it is there to catch, and lets correct kernels pass.
//!
//! `tests/host_cuda/planted.cu` holds the mistakes; each is launched here and must end in the message that names it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod host_cuda;

use host_cuda::HostCuda;
use livingrag::backend::device::{Arg, Device, Shape};

const THREADS: u32 = 64;

/// Runs a planted kernel on 0, 1, 2, …; `None` without a compiler, else what came out or what was said.
fn run(symbol: &str, n: u32, dynamic: u32, seed: u64) -> Option<Result<Vec<u32>, String>> {
    let device = HostCuda::with_seed(seed)?;
    let input: Vec<u32> = (0..THREADS).collect();
    let from = device.alloc(4 * THREADS as usize).unwrap();
    let to = device.alloc(4 * THREADS as usize).unwrap();
    device.write(&from, 0, bytemuck::cast_slice(&input)).unwrap();
    let shape = Shape { grid: (1, 1), block: THREADS };
    let done = device
        .launch_dynamic(symbol, shape, dynamic, &[Arg::In(&from), Arg::U32(n), Arg::Out(&to)])
        .and_then(|()| device.synchronize())
        .map_err(|error| error.to_string());
    Some(done.map(|()| {
        let mut out = vec![0u32; THREADS as usize];
        device.read(&to, bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }))
}

fn complaint(symbol: &str, n: u32, dynamic: u32) -> Option<String> {
    run(symbol, n, dynamic, 1).map(|out| out.expect_err("the mistake went unseen"))
}

#[test]
fn a_correct_kernel_passes_in_every_order() {
    for seed in 0..20 {
        let Some(out) = run("planted_reverse_u32", THREADS, 0, seed) else { return };
        assert_eq!(out.unwrap(), (0..THREADS).rev().collect::<Vec<_>>());
    }
}

/// Without its barrier the kernel reads shared memory that is not written yet, in nearly every order.
#[test]
fn a_missing_barrier_shows_in_the_result() {
    let right: Vec<u32> = (0..THREADS).rev().collect();
    let mut wrong = 0;
    for seed in 0..20 {
        let Some(out) = run("planted_no_barrier_u32", THREADS, 0, seed) else { return };
        wrong += u32::from(out.unwrap() != right);
    }
    assert_eq!(wrong, 20, "orders in which the missing barrier showed");
}

#[test]
fn a_read_past_the_end_of_a_buffer_is_caught() {
    let Some(said) = complaint("planted_past_the_end_u32", THREADS, 0) else { return };
    assert!(said.contains("heap-buffer-overflow") && said.contains("planted_past_the_end_u32"), "{said}");
}

#[test]
fn a_write_past_the_end_of_shared_memory_is_caught() {
    let Some(out) = run("planted_past_shared_u32", THREADS, 0, 2) else { return };
    assert_eq!(out.unwrap(), vec![0; THREADS as usize]);
    let Some(said) = complaint("planted_past_shared_u32", THREADS + 1, 0) else { return };
    assert!(said.contains("global-buffer-overflow"), "{said}");
}

#[test]
fn dynamic_shared_memory_has_its_launched_size() {
    let Some(out) = run("planted_dynamic_u32", THREADS, 4 * THREADS, 3) else { return };
    assert_eq!(out.unwrap(), vec![THREADS * (THREADS - 1) / 2; THREADS as usize]);
    let Some(said) = complaint("planted_dynamic_u32", THREADS, 4 * THREADS - 4) else { return };
    assert!(said.contains("heap-buffer-overflow"), "{said}");
}

#[test]
fn a_barrier_that_some_never_reach_is_caught() {
    let Some(said) = complaint("planted_divergent_barrier_u32", 40, 0) else { return };
    assert!(said.contains("not reached by all threads"), "{said}");
}

#[test]
fn a_warp_operation_with_lost_lanes_is_caught() {
    let Some(said) = complaint("planted_lost_lanes_u32", 40, 0) else { return };
    assert!(said.contains("wait"), "{said}");
}

#[test]
fn arguments_are_checked_by_kind_and_number() {
    let Some(device) = HostCuda::start() else { return };
    let a = device.alloc(4).unwrap();
    let shape = Shape { grid: (1, 1), block: 32 };
    let said = device.launch_dynamic("planted_reverse_u32", shape, 0, &[Arg::In(&a), Arg::U32(1), Arg::In(&a)]);
    assert!(
        said.and_then(|()| device.synchronize()).unwrap_err().to_string().contains("an output pointer was expected")
    );
    let Some(device) = HostCuda::start() else { return };
    let said = device.launch_dynamic("planted_reverse_u32", shape, 0, &[]);
    assert!(
        said.and_then(|()| device.synchronize()).unwrap_err().to_string().contains("takes 3 arguments, 0 were given")
    );
}
