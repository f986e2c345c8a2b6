"""Traces over NCCL, written by hand in the layout of torch.profiler, with names of several versions."""

import json

import pytest

from parbench.tracing import breakdown, chrome, overlap
from parbench.tracing.names import nccl_op, op_of
from parbench.tracing.nccl import axis

RANKS4 = "[0, 1, 2, 3]"


def event(cat, name, ts, dur, tid=1, pid=100, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(ts, external, collective, elements_in, elements_out, ranks=RANKS4, **more):
    said = {
        "External id": external,
        "Collective name": collective,
        "In msg nelems": elements_in,
        "Out msg nelems": elements_out,
        "Group size": 4,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": ranks,
    }
    return event("cpu_op", "record_param_comms", ts, 1, **{**said, **more})


def kernel(name, ts, dur, stream=20, **args):
    return event("kernel", name, ts, dur, tid=stream, pid=0, device=0, stream=stream, **args)


def read(tmp_path, *events, **more):
    info = {"rank": 0, "world_size": 4, "backend": "nccl"}
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"distributedInfo": info, "traceEvents": events, **more}))
    return chrome.read(path)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float", "reduce_scatter"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclKernel_SendRecv(ncclDevComm*)", "send_recv"),
        ("ncclSymkDevKernel_AllGather_ST(ncclSymkDevWorkArgs4K)", "all_gather"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage)", None),
        ("void at::native::vectorized_elementwise_kernel<4>", None),
    ],
)
def test_kernels_are_known_by_names_of_all_versions(name, op):
    assert nccl_op(name) == op


@pytest.mark.parametrize(
    ("name", "op"),
    [
        *(("c10d::allreduce_", "all_reduce"), ("_c10d_functional::all_reduce", "all_reduce")),
        *(("c10d::_allgather_base_", "all_gather"), ("_c10d_functional::all_gather_into_tensor", "all_gather")),
        *(("c10d::_reduce_scatter_base_", "reduce_scatter"), ("c10d::reduce_", "reduce"), ("gloo:send", "send")),
        *(("c10d::alltoall_base_", "all_to_all"), ("_c10d_functional::all_to_all_single", "all_to_all")),
        *(("c10d::recv_any_source_", "recv"), ("c10d::monitored_barrier_", "barrier"), ("_broadcast_oop", "broadcast")),
        *(("_c10d_functional::wait_tensor", None), ("aten::mm", None), ("c10d::scatter_", "scatter")),
    ],
)
def test_calls_are_known_by_their_names(name, op):
    assert op_of(name) == op


@pytest.mark.parametrize(
    ("description", "name"), [("default_pg", "world"), ("mesh_tp", "tp"), ("mesh_dp_shard", "dp_shard"), ("x", None)]
)
def test_a_group_is_an_axis_by_its_description(description, name):
    assert axis(description) == name


def test_a_call_and_its_kernel_are_one_collective(tmp_path):
    trace = read(
        tmp_path,
        call(10, 7, "allreduce", 1024, 1024),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)", 30, 20, **{"External id": 7}),
    )
    (one,) = trace.collectives
    assert (one.op, one.issued_ns, one.start_ns, one.end_ns) == ("all_reduce", 10_000, 30_000, 50_000)
    assert (one.members, one.axis, one.dtype) == ((0, 1, 2, 3), "world", "float32")
    assert one.logical_bytes == 1.5 * 4096  # 2 (n-1)/n S
    assert one.shown_as == "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    assert (trace.recognised, trace.candidates) == (1, 1)


@pytest.mark.parametrize(
    ("collective", "elements_in", "elements_out", "op", "size"),
    [
        ("_allgather_base", 256, 1024, "all_gather", 0.75 * 2048),  # (n-1)/n of the whole, in bf16
        ("_reduce_scatter_base", 1024, 256, "reduce_scatter", 0.75 * 2048),
        ("all_to_allv", 1024, 1024, "all_to_all", 0.75 * 2048),
        ("broadcast", 1024, 1024, "broadcast", None),  # it does not say who the root is
    ],
)
def test_bytes_follow_from_elements_and_type(tmp_path, collective, elements_in, elements_out, op, size):
    trace = read(tmp_path, call(10, 7, collective, elements_in, elements_out, dtype="BFloat16"))
    (one,) = trace.collectives
    assert (one.op, one.logical_bytes, one.dtype, one.start_ns) == (op, size, "bfloat16", None)


def test_arguments_at_the_kernel_itself_are_enough(tmp_path):
    said = call(0, 0, "allreduce", 512, 512)["args"] | {"External id": 99}
    (one,) = read(tmp_path, kernel("ncclDevKernel_Generic", 5, 5, **said)).collectives
    assert (one.op, one.logical_bytes, one.issued_ns) == ("all_reduce", 1.5 * 2048, None)


def test_a_call_that_several_kernels_carry_out_is_one_collective(tmp_path):
    pieces = [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ts, 5, **{"External id": 7}) for ts in (20, 40)]
    trace = read(tmp_path, call(10, 7, "allreduce", 1024, 1024), *pieces)
    (one,) = trace.collectives
    assert (one.start_ns, one.end_ns, one.logical_bytes) == (20_000, 45_000, 1.5 * 4096)
    assert (trace.recognised, trace.candidates) == (2, 2)


def test_ranks_that_the_profiler_has_shortened_are_not_guessed(tmp_path):
    trace = read(tmp_path, call(10, 7, "allreduce", 4, 4, ranks="[0, 1, 2, 3, ..., 1023]"))
    assert trace.collectives[0].members == ()
    assert trace.collectives[0].logical_bytes is None


def test_messages_say_their_other_end(tmp_path):
    trace = read(
        tmp_path,
        call(1, 1, "send", 64, 64, **{"Dst Rank": 1}),
        call(2, 2, "recv", 64, 64, **{"Src Rank": 3}),
    )
    assert [(one.op, one.peer, one.logical_bytes) for one in trace.collectives] == [("send", 1, 256), ("recv", 3, 0)]


def test_copies_between_devices_are_communication(tmp_path):
    """A copy from GPU to GPU, and one that NCCL has a copy engine carry out: it has the call's id."""
    trace = read(
        tmp_path,
        event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 5, 5, pid=0, tid=9, bytes=4096),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 5, 5, pid=0, tid=9, bytes=4096),
        call(1, 7, "_allgather_base", 256, 1024),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 20, 5, pid=0, tid=9, bytes=1024, **{"External id": 7}),
    )
    assert [(one.op, one.end_ns) for one in trace.collectives] == [("all_gather", 25_000), ("copy", 10_000)]


def test_what_is_not_recognised_is_counted(tmp_path):
    trace = read(
        tmp_path,
        kernel("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage)", 5, 5),
        kernel("ncclDevKernel_AllGather_RING_LL", 15, 5),
        call(1, 1, "some_new_collective", 4, 4),
        call(0, 2, "wait", 0, 0),  # moves nothing: no candidate
    )
    assert (trace.recognised, trace.candidates) == (1, 3)


def test_a_step_on_a_device_is_split_by_what_runs_and_who_launched_it(tmp_path):
    """Step 0-100. Forward kernel 10-30 and backward kernel 30-60 (autograd's own thread launched it); all-reduce 40-90.

    Exposed 60-90. Nothing runs 0-10, when the host is in forward, and 90-100, when it is in the optimizer.
    """
    trace = read(
        tmp_path,
        event("user_annotation", "ProfilerStep#3", 0, 100),
        event("cpu_op", "aten::linear", 0, 12),
        event("cuda_runtime", "cudaLaunchKernel", 5, 1, correlation=1),
        kernel("gemm_forward", 10, 20, stream=7, correlation=1),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 14, 20, tid=2),
        event("cuda_runtime", "cudaLaunchKernel", 20, 1, tid=2, correlation=2),
        kernel("gemm_backward", 30, 30, stream=7, correlation=2),
        call(35, 7, "allreduce", 1024, 1024),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 40, 50, **{"External id": 7}),
        event("user_annotation", "Optimizer.step#SGD.step", 85, 15),
    )
    found = breakdown.of(trace)
    parts = {name: round(seconds * 1e6) for name, seconds in found.parts.items() if seconds}
    assert parts == {"forward": 30, "backward": 30, "exposed_comm/all_reduce/world": 30, "optimizer": 10}
    assert overlap.fraction(trace) == pytest.approx(20 / 50)
