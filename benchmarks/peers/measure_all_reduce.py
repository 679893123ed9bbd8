"""Measures the all-reduce of NCCL over all cards of this machine by size, to compare the sums of `-sm tensor` with.

One process per card adds f32 values in place, as a replayed graph and as plain launches. Prints the medians in
microseconds per sum. The sums of rf-cli are in the table of ops of `rf-cli run -v` (all_reduce): they also add the
residual and begin the norm. Needs PyTorch with CUDA.

    python3 measure_all_reduce.py
"""

import os
import statistics

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Rows of a model with 8192 columns: decode of 1, 2 and 32 sequences, and batches of a prompt.
ROWS = [1, 2, 32, 512, 2048]
COLUMNS = 8192
SUMS = 20
REPETITIONS = 30


def per_sum_us(run):
    """The median time of a sum, of runs with SUMS sums each."""
    times = []
    for _ in range(REPETITIONS + 5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / SUMS)
    return statistics.median(times[5:])


def measure(rank, world):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    for rows in ROWS:
        values = torch.zeros(rows * COLUMNS, device="cuda")

        def sums():
            for _ in range(SUMS):
                dist.all_reduce(values)

        plain = per_sum_us(sums)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sums()
        replayed = per_sum_us(graph.replay)
        if rank == 0:
            print(f"{4 * values.numel() / 1024:9.0f} KiB {replayed:8.1f} us in a graph {plain:8.1f} us launched", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    mp.spawn(measure, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
