"""What keeps the libraries of distributed training on a node's shaped interface."""

PORT = 29500  # of the rendezvous, inside the first node's namespace


def environment(interface: str) -> dict[str, str]:
    """Variables that keep gloo, NCCL and TensorPipe on `interface`, and off shared memory."""
    return {
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "TP_SOCKET_IFNAME": interface,
    }
