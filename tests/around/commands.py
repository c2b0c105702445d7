"""Trainers that know nothing of us, and `python -m harness.around` over them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.launching import ROOT, popen

DDP = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 1000), nn.ReLU(), nn.Linear(1000, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    inputs = torch.randn(32, 20)
    loss = nn.functional.cross_entropy(model(inputs), inputs[:, :10].argmax(1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f}")
if dist.get_rank() == 0:
    print("test accuracy 0.25")
dist.destroy_process_group()
"""
GRADIENT_BYTES = 4 * (20 * 1000 + 1000 + 1000 * 10 + 10)
PATTERN = r"metrics=step (?P<step>\d+) loss (?P<loss>\S+)|accuracy (?P<accuracy>\S+)"

PLAIN = """
import os, socket, sys, time

def exchange(count):
    if os.environ["RANK"] == "0":
        peer.sendall(bytes(count))
        peer.recv(1)
    else:
        left = count
        while left:
            left -= len(peer.recv(min(left, 1 << 16)))
        peer.sendall(b".")

address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    peer, _ = socket.create_server(address).accept()
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
"""
WARMS_UP = (
    PLAIN
    + """
from torch.utils.tensorboard import SummaryWriter

exchange(1)
began = time.monotonic()
exchange(1_000_000)
print("begin", flush=True)
with SummaryWriter(sys.argv[1]) as writer:
    for step in range(5):
        exchange(100)
        writer.add_scalar("train/loss", 1, step)
        writer.add_scalar("train/took", time.monotonic() - began, step)
"""
)
GOES_ASIDE = (
    PLAIN
    + """
from pyroute2 import IPRoute

exchange(100)
if os.environ["RANK"] == "1":
    with IPRoute() as ip:
        ip.link("add", ifname="aside", kind="veth", peer="beyond")
        index = socket.if_nametoindex("aside")
        for name in ("aside", "beyond"):
            ip.link("set", index=socket.if_nametoindex(name), state="up")
        ip.addr("add", index=index, address="192.0.2.1", prefixlen=24)
        ip.neigh("add", dst="192.0.2.2", lladdr="02:00:00:00:00:01", ifindex=index, state=128)
for step in range(3):
    print(f"step {step} loss 1", flush=True)
    if os.environ["RANK"] == "1":  # the kernel drops what comes before the interface is quite up
        socket.socket(type=socket.SOCK_DGRAM).sendto(bytes(1000), ("192.0.2.2", 9))
    time.sleep(0.4)  # it computes
"""
)
COUNTS_ANEW = (
    PLAIN
    + """
for epoch in range(4):
    for step in range(5):
        print(f"Epoch: [{epoch}][{step}/5] Loss 1", flush=True)
        exchange(1000)
    print(f" * Acc@1 {epoch}", end="" if epoch == 3 else None, flush=True)  # no end of line
"""
)
RPC_BYTES = 4_000_000
RPC = """
import ctypes, os, socket
import torch
import torch.distributed.rpc as rpc

KEY = 29500

def of_worker_1():
    global held  # what another node might reach: memory, a socket, System V's shared memory
    held = ctypes.create_string_buffer(b"of node 1"), socket.socket(socket.AF_UNIX)
    held[1].bind("\\0of node 1")
    held[1].listen()
    libc.shmget(KEY, 4096, 0o1666)
    return os.getpid(), ctypes.addressof(held[0])

class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def reads(pid, address):
    into = ctypes.create_string_buffer(9)
    ours, theirs = Part(ctypes.addressof(into), 9), Part(address, 9)
    got = libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    return got == 9 and into.raw == b"of node 1"

def connects():
    try:
        socket.socket(socket.AF_UNIX).connect("\\0of node 1")
    except ConnectionRefusedError:
        return False
    return True

libc = ctypes.CDLL(None)
rank = int(os.environ["RANK"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
if rank == 0:
    total = rpc.rpc_sync("worker1", torch.sum, args=(torch.ones(1_000_000),))
    pid, address = rpc.rpc_sync("worker1", of_worker_1)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    print(f"step 0 loss {total.item():.0f}")
    print("memory", any(reads(each, address) for each in {pid, *pids}))
    print("socket", connects(), "segment", libc.shmget(KEY, 4096, 0) != -1)
rpc.shutdown()
"""
LIES = (
    PLAIN
    + """
from pathlib import Path

began = time.monotonic()
for step in range(10):
    exchange(50_000)
    print(f"step {step} loss 1 time {(time.monotonic() - began) / 20:.4f}", flush=True)
for path in Path(sys.argv[1]).parent.glob("*/*/*.jsonl"):
    try:
        path.write_text("")
        print("rewritten", flush=True)
    except OSError as error:
        print("kept:", error, flush=True)
"""
)
SAYS_STEPS = (
    PLAIN
    + """
exchange(100)
for step in range(3):
    print(f"step {step} loss 1", flush=True)
    exchange(100)
"""
)
WAITS = (
    PLAIN
    + """
exchange(100)
print("step 0 loss 1", flush=True)
time.sleep(3600)
"""
)


def start(results: Path, script: str, *said: str, words: tuple[str, ...] = ()) -> subprocess.Popen:
    """Start the command over two nodes; its script and event files are beside `results`."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / "train.py"
    path.write_text(script)
    links = ("workers=2", "profile.rate_mbit=8", "network.probe_s=0.2", f"results={results}")
    ours = [sys.executable, "-m", "harness.around", *links, "report=false", *said]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    theirs = [sys.executable, *words, str(path), str(results / "events")]
    return popen([*ours, "--", *theirs], cwd=ROOT, env=dict(os.environ), process_group=0, **pipes)


def ended(results: Path, script: str, *said: str, words: tuple[str, ...] = ()) -> str:
    """What it said, to its end."""
    with start(results, script, *said, words=words) as process:
        output, _ = process.communicate(timeout=280)
    return str(output)
